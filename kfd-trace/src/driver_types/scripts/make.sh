# The rest of the `make` that is first in PATH; the lines above this one set variables. The call that builds the driver
# is the one whose M= folder has our C file: it makes only that file's object, with debug information, and keeps a
# copy. Any other call is make's own. MAKE= leads calls of sub-makes here, too.

at=. module= before= other=
for word do
    folder=
    case $before in
    -C | --directory) folder=$word ;;
    -f | -I | -o | -W | -E | --file | --makefile | --include-dir | --old-file | --new-file | --eval) ;;
    *)
        case $word in
        --directory=*) folder=${word#*=} ;;
        -C?*) folder=${word#-C} ;;
        M=* | SUBDIRS=* | KBUILD_EXTMOD=*) module=${word#*=} ;;
        -* | *=* | [0-9]*) ;;
        modules | all | _all | *.ko) ;;
        # Another step on the same folder, such as clean.
        *) other=yes ;;
        esac
        ;;
    esac
    case $folder in
    /*) at=$folder ;;
    ?*) at=$at/$folder ;;
    esac
    before=$word
done

place=
if [ -n "$module" ] && [ -z "$other" ]; then
    # A relative M= is read from the folder of the call, or from that of -C: kernels differ.
    for folder in "$module" "$at/$module"; do
        if [ -f "$folder/$file.c" ]; then place=$folder; fi
    done
fi
if [ -z "$place" ]; then
    exec "$real" "MAKE=$self" "kernel_build_dir=$headers" "$@"
fi

left=$# before= flags="${KCFLAGS-} $flags"
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $before:$word in
    -[CfIoWE]:* | --directory:* | --file:* | --makefile:* | --include-dir:* | --old-file:* | --new-file:* | --eval:*)
        set -- "$@" "$word"
        ;;
    *:KCFLAGS=*) flags="${word#*=} $flags" ;;
    *:modules | *:all | *:_all | *:*.ko) ;;
    *) set -- "$@" "$word" ;;
    esac
    before=$word
done
# shellcheck disable=SC2086 # Words.
"$real" "MAKE=$self" "$@" $more "KCFLAGS=$flags" "$file.o" || exit
exec cp "$place/$file.o" "$made"
