//! Whose processes share what one tenant may take of a sample.
//!
//! In: the user and the cgroup of a process. Out: its tenant. Pure.

use crate::attribute::{Share, share};
use crate::state::{ProcessKey, Target};
use std::fmt;

/// Pods share users, mostly root, and a user has several pods or jobs; within a pod or job all users are one tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tenant {
    /// A pod, container, Slurm job or user's slice, by its cgroup.
    Whole(String),
    /// A user in a unit; in none: empty.
    User(u32, String),
    /// A process of which neither is known shares with no other one.
    Unknown(ProcessKey),
}

impl Tenant {
    pub(super) fn of(target: &Target) -> Self {
        match (share(target.cgroup.as_deref().unwrap_or_default()), target.uid) {
            (Share::Whole(cgroup), _) => Tenant::Whole(cgroup.to_owned()),
            (Share::ByUser(cgroup), Some(uid)) => Tenant::User(uid, cgroup.to_owned()),
            (Share::ByUser(""), None) => Tenant::Unknown(target.key),
            (Share::ByUser(cgroup), None) => Tenant::Whole(cgroup.to_owned()),
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tenant::Whole(cgroup) => write!(f, "{cgroup}"),
            Tenant::User(uid, cgroup) if cgroup.is_empty() => write!(f, "user {uid}"),
            Tenant::User(uid, cgroup) => write!(f, "user {uid} in {cgroup}"),
            Tenant::Unknown(_) => f.write_str("an unknown user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::target;
    use super::*;

    const POD: &str = "/kubepods/pod6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";

    #[test]
    fn a_pod_is_one_tenant_and_elsewhere_each_user() {
        let of = |process, uid, cgroup: &str| {
            Tenant::of(&Target { uid, cgroup: Some(cgroup.to_owned()), ..target(process, 0) }).to_string()
        };
        for (uid, container) in [(Some(0), "a"), (Some(1000), "a"), (Some(0), "b"), (None, "b")] {
            assert_eq!(of(1, uid, &format!("{POD}/{container}")), POD, "its users are its own affair");
        }
        assert_eq!(of(1, Some(7), "/system.slice/train.service"), "user 7 in /system.slice/train.service");
        assert_eq!(of(1, None, "/system.slice/train.service"), "/system.slice/train.service");
        assert_eq!(of(1, Some(7), "/mine"), "user 7");
        let none = Target { cgroup: None, ..target(1, 7) };
        assert_eq!(Tenant::of(&none), Tenant::User(7, String::new()));
        let unknown = |process| Tenant::of(&Target { uid: None, ..target(process, 0) });
        assert_ne!(unknown(1), unknown(2));
    }
}
