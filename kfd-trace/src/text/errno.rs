//! Names of errnos.

use nix::errno::Errno;

/// `EINVAL` for 22. Drivers also return numbers that user space does not know (512 and up,
/// include/linux/errno.h); a number without a name is returned as digits.
#[must_use]
pub fn name(errno: i32) -> String {
    match errno {
        512 => "ERESTARTSYS".to_owned(),
        513 => "ERESTARTNOINTR".to_owned(),
        514 => "ERESTARTNOHAND".to_owned(),
        515 => "ENOIOCTLCMD".to_owned(),
        516 => "ERESTART_RESTARTBLOCK".to_owned(),
        517 => "EPROBE_DEFER".to_owned(),
        524 => "ENOTSUPP".to_owned(),
        _ => match Errno::from_raw(errno) {
            Errno::UnknownErrno => errno.to_string(),
            known => format!("{known:?}"),
        },
    }
}

/// Name of the error; `None` for success.
pub(crate) fn failure(errno: i32) -> Option<String> {
    (errno != 0).then(|| name(errno))
}

/// The end of an event's text: empty for success.
pub(crate) fn result(errno: i32) -> String {
    failure(errno).map_or_else(String::new, |name| format!(" = -{name}"))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn numbers_without_a_name_stay_numbers() {
        let shown = [22, 25, 9, 62, 512, 999, 0].map(name);
        assert_eq!(shown, ["EINVAL", "ENOTTY", "EBADF", "ETIME", "ERESTARTSYS", "999", "0"]);
    }
}
