//! A user for code that root starts and does not trust. In: a number that nothing else has ([`unused_user`]). Out: a
//! process that is that user.
//!
//! `nobody` is not one: daemons and NFS files share it. An ID that nothing else has reaches only what everybody may
//! reach, and all of its processes can be ended at once.

use super::privilege;
use super::unused_user::unused_user;
use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Numbers that are tried: one is a directory service's by accident at most.
const TRIES: usize = 3;

/// What a directory service may take to answer.
const ANSWERS: Duration = Duration::from_secs(5);

/// The number to use; `None` where this process is no root, or only within its user namespace, so that it has no
/// privilege to lose.
///
/// # Errors
/// One line: every number is used, or the processes cannot be listed.
pub(crate) fn unused() -> Result<Option<u32>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let free = |id: &u32| !is_known("passwd", *id) && !is_known("group", *id);
    let mut why = "a directory service has each that was tried, or does not answer".to_owned();
    for _ in 0..TRIES {
        match unused_user(Path::new("/")) {
            Ok(id) if free(&id) => return Ok(Some(id)),
            Ok(_) => {}
            Err(error) => {
                why = error.to_string();
                break;
            }
        }
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if !is_first_root(&map) {
        return Ok(None);
    }
    Err(format!("no unused user to build as: {why}; run this as an ordinary user"))
}

/// Whether root of this user namespace is root of the one around it, by uid_map (user_namespaces(7): first ID inside,
/// first outside, how many).
fn is_first_root(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().map(str::parse).take(2).eq([Ok(0), Ok(0u64)]))
}

/// Whether a directory service has it: getent(1) asks all of them, which this program's C library cannot. One that does
/// not answer may have it.
fn is_known(database: &str, id: u32) -> bool {
    let mut getent = Command::new("/usr/bin/getent");
    getent.args([database, &id.to_string()]).env_clear();
    let started = getent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    // There is no directory service without it.
    let Ok(mut child) = started else { return false };
    let until = Instant::now() + ANSWERS;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    true
}

/// This process as a user that it became, and that nothing else is.
#[derive(Debug)]
pub(crate) struct PrivateUser(u32);

impl PrivateUser {
    /// Becomes the user and the group of this number, without another group, capability, or way to get one. Must be
    /// called before there is a second thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn enter(id: u32) -> io::Result<Self> {
        if id == 0 || id == u32::MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        privilege::give_up_all()?;
        if (getuid(), getgid()) != (user, group) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(PrivateUser(id))
    }

    /// Ends all other processes of this user, whatever session they moved to.
    pub(crate) fn end_all(&self) {
        if getuid().as_raw() == self.0 {
            // SAFETY: no memory is passed. -1: each process that this one may signal but itself (kill(2)). It is
            // another user than any process that it did not start, and has no capability.
            unsafe { libc::kill(-1, libc::SIGKILL) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_namespace_of_an_ordinary_user_is_none() {
        assert!(is_first_root("         0          0 4294967295\n"));
        assert!(!is_first_root("0 1000 1\n") && !is_first_root("0\n") && !is_first_root(""));
    }

    #[test]
    fn root_gets_a_number_that_no_account_has() {
        let Some(id) = unused().unwrap() else { return };
        assert!(!is_known("passwd", id) && id > 65_000, "{id}");
        let has_getent = Path::new("/usr/bin/getent").exists();
        assert_eq!(is_known("passwd", 0), has_getent);
    }
}
