//! Whose processes share what one tenant may take of a sample.
//!
//! In: the user and the cgroup of a process. Out: its tenant. Pure.

use crate::attribute::tenant;
use crate::state::{ProcessKey, Target};
use std::fmt;

/// Pods share users, mostly root, and a user has several pods or jobs: both together separate tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tenant {
    Known {
        uid: Option<u32>,
        /// [`tenant`] of its path; empty if it is in none, or not known.
        cgroup: String,
    },
    /// A process of which neither is known shares with no other one.
    Unknown(ProcessKey),
}

impl Tenant {
    pub(super) fn of(target: &Target) -> Self {
        let cgroup = tenant(target.cgroup.as_deref().unwrap_or_default());
        match target.uid {
            None if cgroup.is_empty() => Tenant::Unknown(target.key),
            uid => Tenant::Known { uid, cgroup: cgroup.to_owned() },
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tenant::Known { uid: Some(uid), cgroup } if cgroup.is_empty() => write!(f, "user {uid}"),
            Tenant::Known { uid: Some(uid), cgroup } => write!(f, "user {uid} in {cgroup}"),
            Tenant::Known { uid: None, cgroup } => write!(f, "{cgroup}"),
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
    fn a_pod_and_a_user_in_it_separate_tenants() {
        let of = |process, uid, cgroup: Option<String>| {
            let tenant = Tenant::of(&Target { uid, cgroup, ..target(process, 0) });
            tenant.to_string()
        };
        let (one, other) = (Some(format!("{POD}/a")), Some(format!("{POD}/b")));
        assert_eq!(of(1, Some(0), one.clone()), format!("user 0 in {POD}"));
        assert_eq!(of(2, Some(0), other), of(1, Some(0), one.clone()));
        assert_ne!(of(2, Some(1000), one.clone()), of(1, Some(0), one.clone()));
        assert_eq!(of(1, None, one), POD);
        assert_eq!(of(1, Some(7), None), "user 7");
        assert_eq!(of(1, Some(7), Some("/mine".to_owned())), "user 7");
        let unknown = |process| Tenant::of(&Target { uid: None, ..target(process, 0) });
        assert_ne!(unknown(1), unknown(2));
    }
}
