//! A second wall beside the filter, which holds also where a call was overlooked: Landlock keeps this thread, and those that it
//! starts, from signalling other processes, and from connecting or binding TCP sockets (Linux 6.12 and later,
//! include/uapi/linux/landlock.h).

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// struct landlock_ruleset_attr.
#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// LANDLOCK_ACCESS_NET_BIND_TCP, LANDLOCK_ACCESS_NET_CONNECT_TCP; LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET,
/// LANDLOCK_SCOPE_SIGNAL. No rule allows any of it.
const NOTHING: Ruleset = Ruleset { handled_access_fs: 0, handled_access_net: 0b11, scoped: 0b11 };

/// `no_new_privs` must be set.
///
/// # Errors
/// If the kernel is older, has no Landlock, or a container refuses it.
pub(super) fn scope() -> io::Result<()> {
    let nothing = NOTHING;
    let size = std::mem::size_of::<Ruleset>();
    // SAFETY: the structure is as long as said, and outlives the call.
    let created = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const nothing, size, 0) };
    let descriptor = i32::try_from(created).ok().filter(|descriptor| *descriptor >= 0);
    let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made it for this process.
    let ruleset = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: it takes no pointer.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
