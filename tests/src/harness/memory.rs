//! What a process holds, from `status` in procfs (fs/proc/task_mmu.c, task_mem).

use std::fs;

use anyhow::{Context, Result};

/// Resident memory that is no file's and nobody else's, KiB.
pub fn anonymous(pid: u32) -> Result<u64> {
    of(pid, "RssAnon")
}

/// All resident memory, KiB: with the program itself, and the maps of its BPF programs that it has mapped.
pub fn resident(pid: u32) -> Result<u64> {
    of(pid, "VmRSS")
}

fn of(pid: u32, name: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    parse(&text, name).with_context(|| format!("{name} in {path}"))
}

fn parse(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "VmRSS:\t    1234 kB\nRssAnon:\t      56 kB\nThreads:\t1\n";
        assert_eq!((parse(text, "RssAnon"), parse(text, "VmRSS")), (Some(56), Some(1234)));
        assert_eq!((parse(text, "Rss"), parse(text, "Threads")), (None, None));
        let own = std::process::id();
        assert!(resident(own).unwrap() >= anonymous(own).unwrap());
    }
}
