//! A loader of BPF objects that does not read the kernel's types.
//!
//! `EbpfLoader::new` always reads and parses /sys/kernel/btf/vmlinux, for relocations that the programs do not have:
//! 110 million instructions, and 19 MB of memory at the daemon's highest. It continues without where the file
//! cannot be opened, so a thread that may open none makes the loader.

use aya::EbpfLoader;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::io;
use std::thread;

/// Where the thread or its filter is refused, the types are read, and dropped.
pub(super) fn without_types() -> EbpfLoader<'static> {
    let thread = thread::Builder::new().name("loader".to_owned()).spawn(|| {
        if let Err(error) = open_no_file() {
            log::debug!("the kernel's types are read to load the programs: {error}");
        }
        EbpfLoader::new()
    });
    let mut loader = thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
    loader.btf(None);
    loader
}

/// Of the calling thread alone, until its end.
fn open_no_file() -> io::Result<()> {
    let filter = filter().map_err(io::Error::other)?;
    apply_filter(&filter).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let refused = [
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_openat2,
    ];
    let rules = refused.map(|call| (call, vec![])).into();
    let no_file = SeccompAction::Errno(libc::ENOENT.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, no_file, std::env::consts::ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_its_own_thread_opens_no_file() {
        let open = || File::open("/proc/self/status").map(drop);
        let confined = thread::spawn(move || {
            open_no_file().unwrap();
            open()
        });
        let refused = confined.join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        open().unwrap();
    }
}
