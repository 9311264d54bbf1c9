#!/bin/sh
# RUSTC_WRAPPER of `cargo xtask dist`: runs the compiler with names instead of this machine's folders.
set -eu
library=$("$1" --print sysroot)/lib/rustlib/src/rust
exec "$@" --remap-path-prefix="$KFD_TRACE_CARGO_HOME=/cargo" --remap-path-prefix="$library=/rustc" \
    --remap-path-prefix="$KFD_TRACE_ROOT=/kfd-trace"
