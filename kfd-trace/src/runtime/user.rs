//! Who the command of `kfd-trace run` runs as: whoever called sudo(8), since only the tracer needs root.
//!
//! In: `--user`, sudo's variables, accounts, and what procfs shows of the callers. Out: a user with its groups.

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use procfs::process::Process;
use std::ffi::{CString, OsStr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How far up the caller of sudo is looked for: shell, sudo, its monitor on a terminal of its own, and wrappers.
const ANCESTORS: usize = 16;

/// What is requested, and by whom this process was started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'r> {
    /// `--user`: a name, or a number.
    pub user: Option<&'r str>,
    pub sudo_uid: Option<&'r OsStr>,
    pub sudo_gid: Option<&'r OsStr>,
    pub is_root: bool,
}

/// Pure.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'r> {
    /// That of this process.
    Own,
    Account(&'r str),
    Caller {
        uid: u32,
        gid: u32,
    },
}

/// A user other than the one of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary: `render`, say, by which it may open /dev/kfd.
    pub groups: Vec<u32>,
    /// Its name and home, if it has an account.
    pub account: Option<(String, PathBuf)>,
}

fn wanted(request: Request<'_>) -> Result<Wanted<'_>, String> {
    match request.user {
        Some(_) if !request.is_root => {
            return Err("--user: only root can run a command as another user".to_owned());
        }
        Some("root" | "0") => return Ok(Wanted::Own),
        Some(user) => return Ok(Wanted::Account(user)),
        None => {}
    }
    let Some(uid) = request.sudo_uid.filter(|_| request.is_root) else { return Ok(Wanted::Own) };
    let uid = number("SUDO_UID", uid)?;
    if uid == 0 {
        return Ok(Wanted::Own);
    }
    let gid = request.sudo_gid.ok_or_else(|| said("SUDO_GID is missing, and SUDO_UID is not"))?;
    Ok(Wanted::Caller { uid, gid: number("SUDO_GID", gid)? })
}

/// The last number means "no change" to the kernel.
fn number(name: &str, text: &OsStr) -> Result<u32, String> {
    let digits = text.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number != u32::MAX);
    number.ok_or_else(|| said(&format!("{name} is `{}`, which is no id", text.display())))
}

fn said(what: &str) -> String {
    format!("{what}: name the user that the command runs as with --user NAME (--user root keeps root)")
}

impl RunAs {
    /// `None`: it runs as this process does.
    ///
    /// # Errors
    /// One line: there is no such user, or it cannot be told who called sudo.
    pub fn choose(request: Request<'_>, procfs: &Path) -> Result<Option<Self>, String> {
        match wanted(request)? {
            Wanted::Own => Ok(None),
            Wanted::Caller { uid, gid } => {
                let account = User::from_uid(uid.into()).ok().flatten();
                let groups = groups_of_caller(procfs, uid);
                let groups =
                    groups.or_else(|| account.as_ref().and_then(groups_of)).unwrap_or_else(|| vec![gid]);
                let account = account.map(|user| (user.name, user.dir));
                Ok(Some(RunAs { uid, gid, groups, account }))
            }
            Wanted::Account(name) => {
                let by_uid = || User::from_uid(name.parse().ok().map(Uid::from_raw)?).ok().flatten();
                let user = User::from_name(name).ok().flatten().or_else(by_uid);
                let user = user.ok_or_else(|| format!("--user {name}: there is no such account"))?;
                if user.uid.is_root() {
                    return Ok(None);
                }
                let gid = user.gid.as_raw();
                let groups = groups_of(&user).unwrap_or_else(|| vec![gid]);
                Ok(Some(RunAs { uid: user.uid.as_raw(), gid, groups, account: Some((user.name, user.dir)) }))
            }
        }
    }

    /// This process becomes that user, for good.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn become_it(&self) -> nix::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setgroups(&self.groups.iter().copied().map(Gid::from_raw).collect::<Vec<_>>())?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    }

    /// As an argument of `exec-command`: [`RunAs::from_str`] reads it.
    #[must_use]
    pub fn argument(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        format!("{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

impl FromStr for RunAs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (uid, rest) = text.split_once(':')?;
            let (gid, groups) = rest.split_once(':')?;
            let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::parse);
            let groups = groups.collect::<Result<_, _>>().ok()?;
            Some(RunAs { uid: uid.parse().ok()?, gid: gid.parse().ok()?, groups, account: None })
        };
        read().ok_or("not of the form UID:GID:GROUP,...")
    }
}

/// Of the nearest ancestor that this user runs, the shell that sudo was called in: as they are, wherever accounts come from.
fn groups_of_caller(procfs: &Path, uid: u32) -> Option<Vec<u32>> {
    let mut pid = std::process::id();
    for _ in 0..ANCESTORS {
        let status = Process::new_with_root(procfs.join(pid.to_string())).ok()?.status().ok()?;
        if status.ruid == uid && status.euid == uid {
            return Some(status.groups);
        }
        pid = status.ppid.cast_unsigned();
    }
    None
}

fn groups_of(user: &User) -> Option<Vec<u32>> {
    let name = CString::new(user.name.as_bytes()).ok()?;
    let groups = getgrouplist(&name, user.gid).ok()?;
    Some(groups.into_iter().map(Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_sudo<'r>(uid: &'r str, gid: Option<&'r str>) -> Request<'r> {
        Request { sudo_uid: Some(uid.as_ref()), sudo_gid: gid.map(OsStr::new), is_root: true, user: None }
    }

    #[test]
    fn a_command_of_sudo_is_run_by_who_called_it() {
        assert_eq!(wanted(of_sudo("1000", Some("100"))), Ok(Wanted::Caller { uid: 1000, gid: 100 }));
        assert_eq!(wanted(of_sudo("0", None)), Ok(Wanted::Own), "root called it");
        assert_eq!(wanted(Request { is_root: true, ..Request::default() }), Ok(Wanted::Own));
        let other = Request { is_root: false, ..of_sudo("1000", Some("100")) };
        assert_eq!(wanted(other), Ok(Wanted::Own), "with capabilities alone there is nothing to give up");
        for user in ["root", "0"] {
            let request = Request { user: Some(user), ..of_sudo("x", None) };
            assert_eq!(wanted(request), Ok(Wanted::Own));
        }
        let request = Request { user: Some("ann"), ..of_sudo("1000", Some("100")) };
        assert_eq!(wanted(request), Ok(Wanted::Account("ann")));
        assert!(wanted(Request { is_root: false, ..request }).is_err());
    }

    #[test]
    fn what_sudo_never_sets_is_one_line_with_what_to_do() {
        for uid in ["", "ann", "-1", "+1", " 1", "4294967295", "4294967296", "1000\n0", "0x0"] {
            let why = wanted(of_sudo(uid, Some("100"))).expect_err(uid);
            assert!(why.contains("SUDO_UID is") && why.contains("--user NAME"), "{why}");
            assert!(
                wanted(of_sudo("1000", Some(uid))).is_err_and(|why| why.contains("SUDO_GID is")),
                "{uid}"
            );
        }
        assert!(wanted(of_sudo("1000", None)).is_err_and(|why| why.contains("SUDO_GID is missing")));
    }

    #[test]
    fn a_user_has_all_groups_of_its_account() {
        let root = Request { is_root: true, ..Request::default() };
        let choose = |user| RunAs::choose(Request { user: Some(user), ..root }, "/proc".as_ref());
        let daemon = choose("daemon").expect("an account of any system").expect("not root");
        assert!(daemon.uid != 0 && daemon.groups.contains(&daemon.gid), "{daemon:?}");
        let number = daemon.uid.to_string();
        assert_eq!(choose(&number).as_ref(), Ok(&Some(daemon.clone())));
        let again: RunAs = daemon.argument().parse().expect("its argument");
        assert_eq!(again, RunAs { account: None, ..daemon });
        assert!(choose("no-such-user").is_err_and(|why| why.contains("no such account")));
        for text in ["", "1", "1:2", "1:2:x", "x:2:3"] {
            assert!(text.parse::<RunAs>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_groups_of_a_caller_are_those_of_its_process() {
        let own = nix::unistd::getuid().as_raw();
        let groups = groups_of_caller("/proc".as_ref(), own).expect("this process");
        let expected = Process::myself().and_then(|process| process.status()).expect("its status").groups;
        assert_eq!(groups, expected);
        assert_eq!(groups_of_caller("/proc".as_ref(), u32::MAX - 7), None);
    }
}
