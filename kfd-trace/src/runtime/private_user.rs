//! A user for code that root starts and does not trust. In: the ID maps of the user namespace, accounts, and
//! processes. Out: a number that none of them has, and a process that is that user.
//!
//! `nobody` is not one: daemons and NFS files share it. An ID that nothing else has reaches only what everybody may
//! reach, and all of its processes can be ended at once.

use super::privilege;
use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

/// IDs that no service hands out. The first lie above those that SSSD maps domain users to (up to 2,000,200,000) and
/// below systemd's for foreign file systems (from 2,147,352,576), the second between systemd's for home folders and
/// for DynamicUser (systemd, UIDS-GIDS.md): a container often has 65,536 IDs.
const UNUSED: [Range<u32>; 2] = [2_100_000_000..2_147_000_000, 60_578..61_184];

/// IDs that are tried: one is taken by accident at most.
const TRIES: u32 = 64;

/// The ID to use; `None` where this process is no root, or only within its user namespace, so that it has no
/// privilege to lose.
///
/// # Errors
/// One line: every ID is used, or the processes cannot be listed.
pub(crate) fn unused() -> Result<Option<u32>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let map = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let (users, groups) = (map("uid_map"), map("gid_map"));
    let mut taken = running(Path::new("/proc")).map_err(|error| format!("cannot list processes: {error}"))?;
    for file in ["passwd", "group"] {
        let text = fs::read(format!("/etc/{file}")).unwrap_or_default();
        taken.extend(accounts(&String::from_utf8_lossy(&text)));
    }
    let seed = RandomState::new().hash_one(std::process::id());
    let free = |id: &u32| !taken.contains(id) && !is_known("passwd", *id) && !is_known("group", *id);
    let found = candidates(seed).filter(|id| maps(&users, *id) && maps(&groups, *id)).find(free);
    match found {
        None if is_first_root(&users) => Err("no user ID is unused: run this as an ordinary user".to_owned()),
        found => Ok(found),
    }
}

fn candidates(seed: u64) -> impl Iterator<Item = u32> {
    UNUSED.into_iter().flat_map(move |range| {
        let length = range.end - range.start;
        let first = u32::try_from(seed % u64::from(length)).unwrap_or(0);
        (0..TRIES).map(move |step| range.start + (first + step) % length)
    })
}

/// Whether uid_map or gid_map (user_namespaces(7): first ID inside, first outside, how many) has an ID.
fn maps(map: &str, id: u32) -> bool {
    lines(map).any(|[inside, _, count]| (inside..inside.saturating_add(count)).contains(&id.into()))
}

/// Whether root of this user namespace is root of the one around it.
fn is_first_root(map: &str) -> bool {
    lines(map).any(|[inside, outside, _]| inside == 0 && outside == 0)
}

fn lines(map: &str) -> impl Iterator<Item = [u64; 3]> + '_ {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        Some([numbers.next()?, numbers.next()?, numbers.next()?])
    })
}

/// IDs of all kinds that processes have.
fn running(procfs: &Path) -> io::Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(procfs)? {
        let status = fs::read_to_string(entry?.path().join("status")).unwrap_or_default();
        let of = |line: &str| ["Uid:", "Gid:", "Groups:"].iter().any(|name| line.starts_with(name));
        for line in status.lines().filter(|line| of(line)) {
            ids.extend(line.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    Ok(ids)
}

/// User and group IDs in passwd(5) and group(5): the third and fourth field.
fn accounts(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.lines().flat_map(|line| line.split(':').skip(2).take(2)).filter_map(|field| field.parse().ok())
}

/// Whether a directory service has it: getent(1) asks all of them, which this program's C library cannot.
fn is_known(database: &str, id: u32) -> bool {
    let mut getent = Command::new("/usr/bin/getent");
    getent.args([database, &id.to_string()]).env_clear();
    let status = getent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
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
    fn ids_of_the_namespace_are_read_from_its_map() {
        let all = "         0          0 4294967295";
        assert!(maps(all, UNUSED[0].start) && is_first_root(all));
        assert!(!maps("0 1000 1", 60_600) && !maps("", 60_600) && !is_first_root("0 1000 1"));
        assert!(maps("0 100000 65536", 60_600) && !maps("0 100000 65536", UNUSED[0].start));
    }

    #[test]
    fn an_id_of_an_account_or_a_process_is_taken() {
        assert_eq!(
            accounts("a:x:60578:60579:n:/:/bin/sh\nbroken\ng:x:7:\n").collect::<Vec<_>>(),
            [60_578, 60_579, 7]
        );
        let procfs = tempfile::tempdir().unwrap();
        fs::create_dir(procfs.path().join("12")).unwrap();
        let status = "Name:\tsh\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\nGroups:\t60600 7 \nThreads:\t99\n";
        fs::write(procfs.path().join("12/status"), status).unwrap();
        assert_eq!(running(procfs.path()).unwrap(), BTreeSet::from([1, 2, 3, 4, 5, 7, 60_600]));
    }

    #[test]
    fn candidates_are_in_ranges_that_no_service_hands_out() {
        let all: BTreeSet<u32> = [0, 7, u64::MAX].into_iter().flat_map(candidates).collect();
        assert!(all.len() > 200 && all.iter().all(|id| UNUSED.iter().any(|range| range.contains(id))));
    }

    #[test]
    fn root_gets_an_id_that_is_not_nobodys() {
        let Some(id) = unused().unwrap() else { return };
        assert!(UNUSED.iter().any(|range| range.contains(&id)), "{id}");
        assert!(!running(Path::new("/proc")).unwrap().contains(&id));
    }
}
