//! Call counts of driver functions, from tracefs kprobes: independent of any BPF program.

use super::tracefs::{At, TracefsProbes};
use anyhow::{Context, Result, ensure};
use std::fs;

/// Probes on some functions of amdgpu. One at a time.
#[derive(Debug)]
pub struct MqdCount {
    probes: TracefsProbes,
    /// Event and function.
    events: Vec<(String, String)>,
}

impl MqdCount {
    /// Counts calls of MQD functions of one generation (`v9`) from here on, by address: a static function has
    /// a copy of the same name in each generation's file, and arming a probe takes a second on an emulated
    /// CPU.
    pub fn of(generation: &str, functions: &[&str]) -> Result<Self> {
        let symbols = fs::read_to_string("/proc/kallsyms").context("read /proc/kallsyms")?;
        let found = copies(&symbols, generation, functions);
        ensure!(found.len() == functions.len(), "of {functions:?}, amdgpu has {found:?} for {generation}");
        let mut calls = Self { probes: TracefsProbes::new("kfd_mqd"), events: Vec::new() };
        for (number, (address, function)) in found.into_iter().enumerate() {
            let event = format!("call_{number}");
            calls.probes.add(At::Entry, &event, &address, "")?;
            calls.events.push((event, function));
        }
        calls.probes.enable()?;
        Ok(calls)
    }

    pub fn count(&self, function: &str) -> Result<u64> {
        let found = self.events.iter().find(|(_, name)| name == function);
        let (event, _) = found.with_context(|| format!("{function} has no probe"))?;
        self.probes.hits(event)
    }
}

/// Address (as kprobe_events takes it) and name. The functions of a generation's file are before its
/// `mqd_manager_init_<generation>` and after that of the file before it.
fn copies(kallsyms: &str, generation: &str, functions: &[&str]) -> Vec<(String, String)> {
    const END: &str = "mqd_manager_init_";
    let symbol = |line: &'_ str| {
        let mut words = line.split_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        let wanted = functions.contains(&name) || name.starts_with(END);
        (words.next() == Some("[amdgpu]") && wanted).then(|| (format!("0x{address}"), name.to_owned()))
    };
    let mut symbols: Vec<_> = kallsyms.lines().filter_map(symbol).collect();
    // all addresses of a kernel have the same length
    symbols.sort_unstable();
    let end = symbols.iter().position(|(_, name)| name.strip_prefix(END) == Some(generation));
    let before = symbols[..end.unwrap_or(0)].iter().rev();
    before.take_while(|(_, name)| !name.starts_with(END)).cloned().collect()
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
}
