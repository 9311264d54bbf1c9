# What `dkms build` does (dkms(8), of 3.0), in one shell as there: the variables that dkms.conf computes hold for both of
# its commands. The lines above this one set DKMS's variables.

# Also where a script of the driver has another PATH, or names make by its path.
for name in make "$real"; do
    eval "function $name { \"$self\" \"\$@\"; }"
    export -f "$name"
done

cd "$dkms_tree/$module/$module_version/build" || exit
for file in "$conf" "/etc/dkms/$module.conf" "/etc/dkms/$module-$module_version.conf"; do
    if [ -r "$file" ]; then . "$file"; fi
done

for index in "${!PATCH[@]}"; do
    if [[ -z ${PATCH_MATCH[$index]-} || $kernelver =~ ${PATCH_MATCH[$index]} ]]; then
        patch -p1 < "patches/${PATCH[$index]}" || exit
    fi
done

if [ -n "${PRE_BUILD-}" ]; then
    echo "kfd-trace: PRE_BUILD: $PRE_BUILD"
    (
        if command -v "$compiler" > /dev/null; then export CC=$compiler; fi
        exec ./$PRE_BUILD
    ) || exit
fi

if [ -z "${MAKE_MATCH[0]-}" ]; then command=${MAKE[0]-}; fi
for index in "${!MAKE[@]}"; do
    if [[ -n ${MAKE_MATCH[$index]-} && $kernelver =~ ${MAKE_MATCH[$index]} ]]; then command=${MAKE[$index]}; fi
done
command=${command:-make -C $kernel_source_dir M=$dkms_tree/$module/$module_version/build}
command=${command/#make/make KERNELRELEASE=$kernelver}
echo "kfd-trace: MAKE: $command"
eval "$command"
