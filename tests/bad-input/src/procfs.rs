//! The readers of procfs: a process, and this program's own privileges.

use crate::allocation::{Bound, within};
use crate::{parts, shown};
use kfd_trace::attribute::{ProcessInfo, process};
use kfd_trace::doctor::devices::Devices;
use kfd_trace::doctor::json::KernelSummary;
use kfd_trace::doctor::progress::Progress;
use kfd_trace::doctor::read::{Files, ProcfsReader, Stat};
use kfd_trace::doctor::reported::Report;
use kfd_trace::doctor::seen::{Device, KfdProcess, KfdProcesses, Node};
use kfd_trace::doctor::text::MadeBy;
use kfd_trace::doctor::{self, Observed};
use kfd_trace::kernel::{Preflight, Roots, findings};
use kfd_trace::output::reported;
use kfd_trace::state::ProcessDetails;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// The crate that reads `status` keeps a map of its lines, each with two texts.
const BOUND: Bound = Bound { a_byte: 200, always: 64 << 10 };

/// The report, twice, in addition to the input: each byte of a name may take ten in a text.
const DOCTOR: Bound = Bound { a_byte: 400, always: 256 << 10 };

/// The file of each part of an input.
pub const FILES: [&str; 13] = [
    "proc/7/stat",
    "proc/7/status",
    "proc/7/cmdline",
    "proc/7/cgroup",
    "proc/self/status",
    "proc/self/mounts",
    "sys/devices/system/cpu/possible",
    "sys/kernel/security/lockdown",
    "proc/7/maps",
    "proc/7/fd/3",
    "proc/7/fdinfo/3",
    "proc/7/fd/4",
    "proc/7/fdinfo/4",
];

const KFD: Device = Device { major: 511, minor: 0 };
const RENDER: Device = Device { major: 226, minor: 128 };
const NODE: Node = Node { filesystem: Device { major: 0, minor: 5 }, inode: 371 };

/// Descriptor 3 is of /dev/kfd, 4 of a render node.
struct Made;

impl Files for Made {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(Stat { node: NODE, number: Some(if path.ends_with("3") { KFD } else { RENDER }) })
    }
}

/// The doctor's result for process 7.
fn diagnosed(procfs: &Path) {
    let devices = Devices { kfd: Some(KFD), drm: BTreeSet::from([RENDER]) };
    let wanted = BTreeSet::from([7]);
    let details = |info: &ProcessInfo| ProcessDetails {
        cgroup: info.cgroup.clone(),
        belongs: info.belongs.clone(),
        ..ProcessDetails::default()
    };
    let reader = ProcfsReader {
        files: &Made,
        procfs,
        devices: &devices,
        host_node: Some(NODE),
        details: &details,
        progress: &Progress::default(),
    };
    let read = reader.all(&wanted);
    let kfd = KfdProcesses::from([(7, KfdProcess::default())]);
    let seen = Observed {
        device: devices.kfd,
        host_node: Some(NODE),
        sysfs: Some(kfd.clone()),
        kernel: Ok(kfd),
        sampled: Ok(BTreeMap::new()),
        processes: read.processes,
        looked_at: read.looked_at,
        closed: read.closed,
        hides: false,
        chips: Vec::new(),
        evicted: doctor::AllEvicted::default(),
    };
    let report = doctor::diagnose(&seen, Some(&seen), None);
    let kernel = KernelSummary { facts: &[], findings: &[] };
    let document = doctor::json::document(&report, kernel, None).expect("memory");
    let read: Report = reported::read(document.as_bytes()).expect("a report");
    let mut text = Vec::new();
    doctor::text::text(&mut text, &read, MadeBy::ThisProcess).expect("memory");
    for shown in [String::from_utf8(text).expect("UTF-8"), document] {
        shown.lines().for_each(shown::printable);
    }
}

/// Reads process 7 from the parts of an input. Returns whether it could be read.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(input: &[u8]) -> bool {
    let root = tempfile::tempdir().expect("a folder for the test");
    lay_out(root.path(), input, &FILES);
    let roots = Roots::under(root.path());
    let preflight = within("preflight", input.len(), BOUND, || Preflight::read(&roots));
    findings(&preflight).iter().for_each(|finding| shown::line(&finding.to_string()));
    within("doctor", input.len(), DOCTOR, || diagnosed(&roots.procfs));
    match within("process", input.len(), BOUND, || process::read(&roots.procfs, 7, None)) {
        Ok(info) => {
            assert_eq!(info.who.tgid, 7);
            let words = process::cmdline(&roots.procfs, 7, None).unwrap_or_default();
            assert!(words.iter().map(String::len).sum::<usize>() <= 3 * 4096 + 3);
            true
        }
        Err(error) => {
            shown::line(&error.to_string());
            false
        }
    }
}

/// Writes each part to its file; a file without a part is missing.
pub(crate) fn lay_out(root: &Path, input: &[u8], files: &[&str]) {
    for (file, part) in files.iter().zip(parts::split(input)) {
        let path = root.join(file);
        let written = fs::create_dir_all(path.parent().unwrap_or(root)).and_then(|()| fs::write(&path, part));
        written.expect("a file for the test");
    }
}
