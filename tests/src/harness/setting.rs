//! Settings of the kernel and of kfdsim for the duration of a test.

use super::workload::kfdsim_at;
use anyhow::{Context, Result};
use std::fs;

/// kfdsim: creates a VM only on the GPU that a process binds to.
pub const EACH_VM: &str = "/sys/module/kfdsim/parameters/each_vm";

/// amdgpu: how long it waits for a preemption by the hardware scheduler, milliseconds.
pub const PREEMPTION_TIMEOUT: &str = "/sys/module/amdgpu/parameters/queue_preemption_timeout_ms";

/// How threads are preempted inside the kernel: a choice, with the current value in brackets.
pub const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

/// Which memory is backed by huge pages: a choice, too.
pub const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Kernel: whether functions can be traced.
pub const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";

/// Kernel: whether kprobes fire.
pub const KPROBES: &str = "/sys/kernel/debug/kprobes/enabled";

/// A changed setting; restored when dropped.
#[derive(Debug)]
pub struct Setting {
    file: &'static str,
    before: String,
}

impl Setting {
    pub fn of(file: &'static str, value: &str) -> Result<Self> {
        let before = fs::read_to_string(file).with_context(|| format!("read {file}"))?;
        let before = chosen(&before).to_owned();
        fs::write(file, value).with_context(|| format!("set {file}"))?;
        Ok(Self { file, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // later tests work with either value
        let _ = fs::write(self.file, &self.before);
    }
}

/// For a choice like `none (voluntary) full` or `[always] never` the value in brackets; otherwise the whole
/// text.
fn chosen(text: &str) -> &str {
    let rest = text.split_once(['(', '[']).and_then(|(_, rest)| rest.split_once([')', ']']));
    rest.map_or(text, |(word, _)| word)
}

/// The scheduler of the first GPU does not respond, until this is dropped: a task that has changed queues
/// waits as long as [`PREEMPTION_TIMEOUT`] allows.
#[derive(Debug)]
pub struct Hang(());

impl Hang {
    pub fn begin() -> Result<Self> {
        kfdsim_at("hang", 1, 0)?;
        Ok(Hang(()))
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // where it fails, the time-out ends the wait
        let _ = kfdsim_at("hang", 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn a_choice_is_set_back_by_its_word() {
        assert_eq!(chosen("none (voluntary) full \n"), "voluntary");
        assert_eq!(chosen("[always] madvise never\n"), "always");
        assert_eq!(chosen("9000\n"), "9000\n");
    }
}
