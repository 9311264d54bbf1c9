//! How often the driver called its functions, counted by tracefs kprobes: independent of any BPF program.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const TRACEFS: &str = "/sys/kernel/tracing";
const GROUP: &str = "kfd_mqd";

/// Probes on some functions of amdgpu; removed when dropped.
#[derive(Debug)]
pub struct MqdCount {
    /// Event and function.
    events: Vec<(String, String)>,
}

impl MqdCount {
    /// Counts calls of MQD functions of one generation (`v9`) from here on, by address: a static function of one name
    /// has a copy in each generation's file, and arming a probe takes a second on an emulated CPU.
    pub fn of(generation: &str, functions: &[&str]) -> Result<Self> {
        let symbols = fs::read_to_string("/proc/kallsyms").context("read /proc/kallsyms")?;
        let found = copies(&symbols, generation, functions);
        ensure!(found.len() == functions.len(), "of {functions:?}, amdgpu has {found:?} for {generation}");
        let mut calls = Self { events: Vec::new() };
        for (number, (address, function)) in found.into_iter().enumerate() {
            let event = format!("call_{number}");
            append(&format!("p:{GROUP}/{event} {address}"))?;
            calls.events.push((event, function));
        }
        enable(true)?;
        Ok(calls)
    }

    pub fn count(&self, function: &str) -> Result<u64> {
        let path = Path::new(TRACEFS).join("kprobe_profile");
        let profile = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let found = self.events.iter().find(|(_, name)| name == function);
        let (event, _) = found.with_context(|| format!("{function} has no probe"))?;
        hits(&profile, event).with_context(|| format!("no {event} in {profile}"))
    }
}

impl Drop for MqdCount {
    fn drop(&mut self) {
        // what is left behind shows in the next list of probes
        let _ = enable(false);
        for (event, _) in &self.events {
            let _ = append(&format!("-:{GROUP}/{event}"));
        }
    }
}

fn append(line: &str) -> Result<()> {
    let path = Path::new(TRACEFS).join("kprobe_events");
    let mut file = OpenOptions::new().append(true).open(&path).with_context(|| path.display().to_string())?;
    file.write_all(line.as_bytes()).with_context(|| format!("write `{line}` to {}", path.display()))
}

fn enable(on: bool) -> Result<()> {
    let path = Path::new(TRACEFS).join("events").join(GROUP).join("enable");
    fs::write(&path, if on { "1" } else { "0" }).with_context(|| format!("write to {}", path.display()))
}

/// Address (as kprobe_events takes it) and name. The functions of a generation's file lie before its
/// `mqd_manager_init_<generation>` and behind that of the file before it.
fn copies(kallsyms: &str, generation: &str, functions: &[&str]) -> Vec<(String, String)> {
    const END: &str = "mqd_manager_init_";
    let symbol = |line: &'_ str| {
        let mut words = line.split_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        let wanted = functions.contains(&name) || name.starts_with(END);
        (words.next() == Some("[amdgpu]") && wanted).then(|| (format!("0x{address}"), name.to_owned()))
    };
    let mut symbols: Vec<_> = kallsyms.lines().filter_map(symbol).collect();
    // addresses of a kernel have one length
    symbols.sort_unstable();
    let end = symbols.iter().position(|(_, name)| name.strip_prefix(END) == Some(generation));
    let before = symbols[..end.unwrap_or(0)].iter().rev();
    before.take_while(|(_, name)| !name.starts_with(END)).cloned().collect()
}

/// `  call_0    17    0`: hits and misses.
fn hits(profile: &str, event: &str) -> Option<u64> {
    let mut lines = profile.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(event)).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_the_generation_is_taken() {
        let kallsyms = "ffa7 t mqd_manager_init_v9\t[amdgpu]\nffa1 t update_mqd\t[amdgpu]\nff81 t update_mqd\n\
            ffa2 t mqd_manager_init_vi\t[amdgpu]\nffa4 t init_mqd\t[other]\nffa5 t update_mqd\t[amdgpu]\n\
            ffa6 t update_mqd_hiq\t[amdgpu]\nffa8 t update_mqd\t[amdgpu]\n";
        let of = |generation| copies(kallsyms, generation, &["update_mqd", "init_mqd"]);
        let update = |address: &str| vec![(address.to_owned(), "update_mqd".to_owned())];
        assert_eq!(of("v9"), update("0xffa5"));
        assert_eq!(of("vi"), update("0xffa1"));
        assert_eq!(of("v12"), []);
    }

    #[test]
    fn hits_are_read_from_the_profile() {
        let profile = "  call_1                    5               0\n  call_11        17   2\n";
        assert_eq!((hits(profile, "call_11"), hits(profile, "call_1")), (Some(17), Some(5)));
        assert_eq!(hits(profile, "call_2"), None);
    }
}
