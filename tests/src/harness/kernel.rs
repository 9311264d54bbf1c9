//! The kernel's own lists of attached probes, to show that nothing stays behind; and its preemption model.

use super::setting::PREEMPT;
use anyhow::{Context, Result};
use aya::programs::loaded_programs;
use std::collections::BTreeMap;
use std::fs;

/// Id to name (15 characters at most) of every BPF program of the machine.
pub fn bpf_programs() -> Result<BTreeMap<u32, String>> {
    loaded_programs()
        .map(|program| {
            let program = program.context("list BPF programs")?;
            Ok((program.id(), program.name_as_str().unwrap_or_default().to_owned()))
        })
        .collect()
}

/// Whether threads are also preempted inside the kernel: the choice in brackets of `none voluntary (full)
/// lazy`.
pub fn preempts() -> Result<bool> {
    match fs::read_to_string(PREEMPT) {
        Ok(text) => Ok(text.contains("(full)") || text.contains("(lazy)")),
        // before 5.12 there is no choice, and Debian builds without preemption
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context(PREEMPT),
    }
}

/// The symbols probed now, of all kprobes of the machine: kfdsim's own are on `kfd_bind_process_to_device`
/// and `pm_query_status_v9`. A kretprobe is listed as one, too. BPF's probes are not in tracefs, but in this
/// list.
pub fn kprobes() -> Result<Vec<String>> {
    const LIST: &str = "/sys/kernel/debug/kprobes/list";
    let text = fs::read_to_string(LIST).with_context(|| format!("read {LIST}"))?;
    Ok(text.lines().filter_map(kprobe_symbol).collect())
}

/// The functions for which ftrace has a callback now: those with kprobes at their start, and those with BPF
/// multi-kprobe links, which are in no other list.
pub fn traced_functions() -> Result<Vec<String>> {
    const LIST: &str = "/sys/kernel/tracing/enabled_functions";
    let text = fs::read_to_string(LIST).with_context(|| format!("read {LIST}"))?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// `ffffffffc0963e54  k  kfd_bind_process_to_device+0x4  amdgpu [FTRACE]`: the offset is past an ENDBR, if
/// there is one.
fn kprobe_symbol(line: &str) -> Option<String> {
    let place = line.split_whitespace().nth(2)?;
    Some(place.split_once('+').map_or(place, |(symbol, _)| symbol).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbol_is_read_from_a_line_of_the_list() {
        let line = "ffffffffc0a81234  r  kfd_ioctl_create_queue+0x4  amdgpu [FTRACE]";
        assert_eq!(kprobe_symbol(line).unwrap(), "kfd_ioctl_create_queue");
        assert_eq!(kprobe_symbol("ffffffff8102  k  do_exit+0x4"), Some("do_exit".to_owned()));
        assert_eq!(kprobe_symbol(""), None);
    }
}
