//! `kfd-trace` as an ordinary user with some capabilities.

use super::stage::VmKernel;
use super::tracer::program;
use anyhow::{Context, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// Owns no file and no process.
const NOBODY: u32 = 65534;

/// The strictest of the kernel's own levels. Debian sets 3, where its kernels require CAP_SYS_ADMIN.
pub const PARANOID: (&str, &str) = ("/proc/sys/kernel/perf_event_paranoid", "2");

/// The capabilities that a tracer needs for all its features on this kernel, according to docs/privileges.md.
pub fn needed() -> CapabilitySet {
    let always = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYSLOG;
    let tracepoints = CapabilitySet::DAC_READ_SEARCH;
    let memory = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE;
    // Maps are charged to RLIMIT_MEMLOCK before 5.11.
    let old = VmKernel::from_env().is_ok_and(|kernel| !kernel.is_from("5.11"));
    always | tracepoints | memory | if old { CapabilitySet::SYS_RESOURCE } else { CapabilitySet::empty() }
}

/// A `kfd-trace` command for a user with these capabilities, all of them ambient.
pub fn command(held: &CapabilitySet, args: &[&str]) -> Command {
    let held = *held;
    let become_user = move || {
        // Permitted capabilities survive the change of the user, ambient ones the exec of the new program.
        set_keep_capabilities(true)?;
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        set_capabilities(None, CapabilitySets { effective: held, permitted: held, inheritable: held })?;
        for capability in held.iter() {
            configure_capability_in_ambient_set(capability, true)?;
        }
        Ok(())
    };
    let mut command = Command::new(program());
    command.args(args);
    // SAFETY: these are only system calls, of the child's only thread; no memory is allocated.
    unsafe { command.pre_exec(become_user) };
    command
}

/// Runs a command that ends by itself.
pub fn run(held: &CapabilitySet, args: &[&str]) -> Result<Output> {
    command(held, args).output().with_context(|| format!("run kfd-trace {args:?} with {held:?}"))
}
