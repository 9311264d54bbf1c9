//! A domain of its own in AppArmor and SELinux, which has nothing of what the tracer may do there. In: the root of /proc and
//! /sys. Out: this thread's label; threads that it starts have the same one.

use std::fs;
use std::io;
use std::path::Path;

/// The profile of deploy/apparmor/kfd-trace.
const PROFILE: &str = "kfd-trace-confined";

/// The types of deploy/selinux: what the tracer has, and what this process gets.
const TYPES: [&str; 2] = ["kfd_trace_t", "kfd_trace_confined_t"];

/// Labels of the calling thread, which both modules change for it alone (fs/proc/base.c, `proc_pid_attr_write`).
const ATTRIBUTES: &str = "proc/thread-self/attr";

/// Stacks the profile upon what confines the thread, if it is loaded: from then on each of the two must allow what the
/// thread does. Stacking only takes away, so that the kernel permits it with `no_new_privs` (security/apparmor/domain.c,
/// `aa_change_profile`).
///
/// # Errors
/// If a profile that confines the thread has no rule `change_profile -> &kfd-trace-confined`.
pub(super) fn stack_profile(root: &Path) -> io::Result<()> {
    if !is_loaded(root) {
        return Ok(());
    }
    fs::write(root.join(ATTRIBUTES).join("apparmor/current"), format!("stack {PROFILE}"))
}

/// The kernel lists each loaded profile as a folder `NAME.NUMBER` (security/apparmor/apparmorfs.c,
/// `__aafs_profile_mkdir`). An attempt with one that is missing would be a line in its log.
fn is_loaded(root: &Path) -> bool {
    let Ok(profiles) = fs::read_dir(root.join("sys/kernel/security/apparmor/policy/profiles")) else {
        return false;
    };
    let named = |name: &str| name.rsplit_once('.').is_some_and(|(name, _)| name == PROFILE);
    profiles.flatten().any(|profile| profile.file_name().to_str().is_some_and(named))
}

/// Changes to the type for confined processes, if the thread has the tracer's (security/selinux/hooks.c,
/// `selinux_lsm_setattr`: a process with one thread, and `dyntransition`).
///
/// # Errors
/// If the policy does not allow it, or has no such type.
pub(super) fn change_type(root: &Path) -> io::Result<()> {
    let current = root.join(ATTRIBUTES).join("current");
    match fs::read_to_string(&current).ok().and_then(|context| confined_context(&context)) {
        Some(context) => fs::write(current, context),
        None => Ok(()),
    }
}

/// `USER:ROLE:TYPE:RANGE` with the other type; `None` for any type but the tracer's, and for AppArmor's labels.
fn confined_context(context: &str) -> Option<String> {
    let mut fields: Vec<&str> = context.trim_end_matches(['\0', '\n']).splitn(4, ':').collect();
    let kind = fields.get_mut(2).filter(|kind| **kind == TYPES[0])?;
    *kind = TYPES[1];
    Some(fields.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::unused_user::tests::root;

    /// What was written of this attribute.
    fn written(root: &tempfile::TempDir, attribute: &str) -> String {
        fs::read_to_string(root.path().join(ATTRIBUTES).join(attribute)).unwrap()
    }

    #[test]
    fn the_profile_is_stacked_where_it_is_loaded() {
        const OWN: (&str, &str) = ("proc/thread-self/attr/apparmor/current", "unconfined\n");
        for (profile, label) in [("kfd-trace-confined.7", "stack kfd-trace-confined"), ("kfd-trace.6", OWN.1)]
        {
            let loaded = format!("sys/kernel/security/apparmor/policy/profiles/{profile}/name");
            let root = root(&[OWN, (&loaded, "")]);
            stack_profile(root.path()).unwrap();
            assert_eq!(written(&root, "apparmor/current"), label);
        }
        let root = root(&[OWN]);
        stack_profile(root.path()).unwrap();
        assert_eq!(written(&root, "apparmor/current"), OWN.1, "without AppArmor");
    }

    #[test]
    fn the_type_changes_from_the_tracers_only() {
        for (own, then) in [
            ("system_u:system_r:kfd_trace_t:s0\0", "system_u:system_r:kfd_trace_confined_t:s0"),
            (
                "system_u:system_r:kfd_trace_t:s0-s0:c0.c1023\0",
                "system_u:system_r:kfd_trace_confined_t:s0-s0:c0.c1023",
            ),
            ("system_u:system_r:kfd_trace_t", "system_u:system_r:kfd_trace_confined_t"),
            ("system_u:system_r:kfd_trace_exec_t:s0\0", "system_u:system_r:kfd_trace_exec_t:s0\0"),
            ("system_u:system_r:container_t:s0:c1,c2\0", "system_u:system_r:container_t:s0:c1,c2\0"),
            ("kfd-trace (enforce)\n", "kfd-trace (enforce)\n"),
            ("", ""),
        ] {
            let root = root(&[("proc/thread-self/attr/current", own)]);
            change_type(root.path()).unwrap();
            assert_eq!(written(&root, "current"), then);
        }
        change_type(root(&[]).path()).unwrap();
    }
}
