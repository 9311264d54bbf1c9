//! An errno with its name, also where libc has none.

use std::fmt;

/// The value that `copy_from_user`, a handler or `kfd_ioctl` itself returned, as user space sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub i32);

/// Not meant for user space, yet KFD returns it for an unknown queue type
/// (kfd_chardev.c:set_queue_properties_from_user).
const ENOTSUPP: i32 = 524;

impl Errno {
    /// The errno of this thread's last failed libc call.
    pub fn last() -> Self {
        Self(nix::errno::Errno::last_raw())
    }

    /// `EINVAL` and so on; the bare number where there is no name.
    pub fn name(self) -> String {
        match nix::errno::Errno::from_raw(self.0) {
            nix::errno::Errno::UnknownErrno if self.0 == ENOTSUPP => "ENOTSUPP".to_owned(),
            nix::errno::Errno::UnknownErrno => self.0.to_string(),
            // its Debug form is the C constant's name
            known => format!("{known:?}"),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_errno_h() {
        assert_eq!(Errno(libc::EINVAL).name(), "EINVAL");
        assert_eq!(Errno(libc::ENOTTY).name(), "ENOTTY");
        assert_eq!(Errno(libc::EBADF).name(), "EBADF");
        assert_eq!(Errno(524).name(), "ENOTSUPP");
        assert_eq!(Errno(4095).name(), "4095");
    }
}
