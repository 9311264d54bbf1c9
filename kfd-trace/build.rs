//! Builds the BPF object that the binary carries.

use anyhow::Result;
use aya_build::{Package, Toolchain, build_ebpf};

fn main() -> Result<()> {
    // core for the BPF target is built from rust-src with unstable flags. The pinned compiler takes them when
    // asked this way, so one toolchain builds everything.
    // What its cargo prints becomes warnings of this script, of which progress is none.
    for (name, value) in [("RUSTC_BOOTSTRAP", "1"), ("CARGO_TERM_QUIET", "true")] {
        // SAFETY: a build script has one thread at this point.
        unsafe { std::env::set_var(name, value) };
    }
    println!("cargo::rustc-env=KFD_TRACE_TARGET={}", std::env::var("TARGET")?);
    let debug = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let package = Package {
        name: "kfd-trace-ebpf",
        root_dir: "../kfd-trace-ebpf",
        no_default_features: false,
        features: if debug { &["bpf-log"] } else { &[] },
    };
    build_ebpf([package], Toolchain::Custom("1.95.0"))
}
