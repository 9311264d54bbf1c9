//! Reads what the driver exports of its processes and queues in sysfs: `class/kfd/kfd/proc/<pid>/`, readable
//! for every user. The folders appear and vanish during the scan. What has vanished is skipped; what exists
//! and cannot be read is reported as an error beside its row. Sources:
//! drivers/gpu/drm/amd/amdkfd/kfd_process.c, kfd_procfs_show, kfd_procfs_queue_show, kfd_procfs_stats_show.

use super::sysfs_file::{Reader, Unreadable, numbered};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files of a process to read whose values are not ready in the driver's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costly {
    /// `sdma_<gpu>`: the driver starts a worker that reads the process' own memory, and waits for it.
    pub sdma: bool,
    /// `stats_<gpu>/cu_occupancy`: the driver reads GPU registers.
    pub cu_occupancy: bool,
}

/// One `kfd_process`. A PID has one; on 7.x it may have more (secondary contexts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysfsProcess {
    /// In the PID namespace of the host's init.
    pub tgid: u32,
    /// None for the primary one.
    pub context_id: Option<u32>,
    /// 0 where the driver has a PASID per process and GPU instead (7.2).
    pub pasid: Option<u32>,
    /// By queue id.
    pub queues: Vec<SysfsQueue>,
    /// Bytes of GPU memory, by gpu_id.
    pub vram: BTreeMap<u32, u64>,
    /// Milliseconds for which its queues were evicted, by gpu_id.
    pub evicted_ms: BTreeMap<u32, u64>,
    /// Microseconds of SDMA work, by gpu_id; empty unless requested.
    pub sdma_us: BTreeMap<u32, u64>,
    /// Compute units in use, by gpu_id; empty unless requested, or where the chip does not report it.
    pub cu_occupancy: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysfsQueue {
    pub queue_id: u32,
    pub gpu_id: Option<u32>,
    /// Size of the ring in bytes.
    pub size: Option<u64>,
    /// enum kfd_queue_type of THIS kernel. Its values differ between versions; the names are in BTF.
    pub queue_type_raw: Option<u32>,
}

/// Everything below `proc`, by PID, and the read errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KfdSysfs {
    /// The folder exists and could be read: if it lists nothing, there is no process.
    pub there: bool,
    pub processes: Vec<SysfsProcess>,
    pub errors: Vec<Unreadable>,
}

/// The folder of all processes, created with the driver (kfd_procfs_init).
pub(super) const PROC: &str = "class/kfd/kfd/proc";

impl KfdSysfs {
    /// Reads `<sysfs>/class/kfd/kfd/proc`. Without KFD: no processes and no error.
    #[must_use]
    pub fn read(sysfs: &Path, costly: Costly) -> KfdSysfs {
        Self::read_all(sysfs, Some(costly))
    }

    /// Reads only processes, their contexts, queues and memory: each error is about one of the former.
    #[must_use]
    pub fn queues(sysfs: &Path) -> KfdSysfs {
        Self::read_all(sysfs, None)
    }

    fn read_all(sysfs: &Path, beyond_queues: Option<Costly>) -> KfdSysfs {
        let mut reader = Reader::default();
        let mut processes = Vec::new();
        let listed = reader.listed(&sysfs.join(PROC));
        let there = listed.is_some();
        for (tgid, folder) in numbered(listed.unwrap_or_default()) {
            read_tree(&mut reader, beyond_queues, &folder, tgid, None, &mut processes);
        }
        KfdSysfs { there, processes, errors: reader.errors }
    }

    /// Number of queues of all processes.
    #[cfg(test)]
    pub fn queue_count(&self) -> usize {
        self.processes.iter().map(|process| process.queues.len()).sum()
    }
}

fn read_tree(
    reader: &mut Reader,
    beyond_queues: Option<Costly>,
    folder: &Path,
    tgid: u32,
    context_id: Option<u32>,
    out: &mut Vec<SysfsProcess>,
) {
    let mut process = SysfsProcess { tgid, context_id, ..SysfsProcess::default() };
    let mut contexts: Vec<(u32, PathBuf)> = Vec::new();
    for (name, path) in reader.entries(folder) {
        match (split_name(&name), beyond_queues) {
            (("queues", None), _) => process.queues = read_queues(reader, &path),
            // Contexts are not nested.
            (("context", Some(id)), _) if context_id.is_none() => contexts.push((id, path)),
            (name @ ("vram", Some(_)), None) => {
                // Without it the queues are listed as well.
                let mut apart = Reader::default();
                read_use(&mut apart, Costly::default(), &mut process, name, &path);
            }
            ((stem, gpu), Some(costly)) => read_use(reader, costly, &mut process, (stem, gpu), &path),
            _ => {}
        }
    }
    if folder.exists() {
        out.push(process);
    }
    contexts.sort();
    for (id, path) in contexts {
        read_tree(reader, beyond_queues, &path, tgid, Some(id), out);
    }
}

fn read_use(
    reader: &mut Reader,
    costly: Costly,
    process: &mut SysfsProcess,
    name: (&str, Option<u32>),
    path: &Path,
) {
    match name {
        ("pasid", None) => process.pasid = reader.number(path),
        // A signed count, printed without its sign. Below 0 it is wrong: on APUs up to 6.12 a freed GTT buffer is taken
        // off, which was never added (amdgpu_amdkfd_gpuvm_free_memory_of_gpu).
        ("vram", Some(gpu)) => {
            let counted = reader.number(path).filter(|bytes: &u64| i64::try_from(*bytes).is_ok());
            keep(&mut process.vram, gpu, counted);
        }
        ("sdma", Some(gpu)) if costly.sdma => keep(&mut process.sdma_us, gpu, reader.number(path)),
        ("stats", Some(gpu)) => {
            keep(&mut process.evicted_ms, gpu, reader.number(&path.join("evicted_ms")));
            if costly.cu_occupancy {
                keep(&mut process.cu_occupancy, gpu, reader.number(&path.join("cu_occupancy")));
            }
        }
        _ => {}
    }
}

/// `vram_51610` is ("vram", 51610); `pasid` is ("pasid", None).
fn split_name(name: &str) -> (&str, Option<u32>) {
    match name.rsplit_once('_').map(|(stem, number)| (stem, number.parse().ok())) {
        Some((stem, Some(number))) => (stem, Some(number)),
        _ => (name, None),
    }
}

fn keep<T>(map: &mut BTreeMap<u32, T>, gpu: u32, value: Option<T>) {
    if let Some(value) = value {
        map.insert(gpu, value);
    }
}

fn read_queues(reader: &mut Reader, folder: &Path) -> Vec<SysfsQueue> {
    let mut queues = Vec::new();
    for (queue_id, folder) in reader.numbered(folder) {
        let queue = SysfsQueue {
            queue_id,
            gpu_id: reader.number(&folder.join("gpuid")),
            size: reader.number(&folder.join("size")),
            queue_type_raw: reader.number(&folder.join("type")),
        };
        // If the queue was destroyed during the read, its files are gone too. A file missing from an existing
        // queue is the driver's fault and is reported.
        if folder.exists() {
            for (file, missing) in [
                ("gpuid", queue.gpu_id.is_none()),
                ("size", queue.size.is_none()),
                ("type", queue.queue_type_raw.is_none()),
            ] {
                let path = folder.join(file);
                if missing && !path.exists() {
                    reader.fail::<()>(&path, "the queue exists, this file does not".to_owned());
                }
            }
            queues.push(queue);
        }
    }
    queues
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn put(sysfs: &Path, path: &str, text: &str) {
        let path = sysfs.join("class/kfd/kfd/proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn put_queue(sysfs: &Path, folder: &str, gpu: u32, size: u64, kind: u32) {
        put(sysfs, &format!("{folder}/gpuid"), &format!("{gpu}"));
        put(sysfs, &format!("{folder}/size"), &format!("{size}"));
        put(sysfs, &format!("{folder}/type"), &format!("{kind}"));
    }

    fn queue(queue_id: u32, gpu_id: u32, size: u64, queue_type_raw: u32) -> SysfsQueue {
        let (gpu_id, size, queue_type_raw) = (Some(gpu_id), Some(size), Some(queue_type_raw));
        SysfsQueue { queue_id, gpu_id, size, queue_type_raw }
    }

    fn sample() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let sysfs = root.path();
        put(sysfs, "4711/pasid", "32769\n");
        put_queue(sysfs, "4711/queues/0", 51610, 1 << 20, 0);
        put_queue(sysfs, "4711/queues/10", 7, 4096, 1);
        put_queue(sysfs, "4711/queues/2", 7, 8192, 4);
        put(sysfs, "4711/vram_51610", "2097152\n");
        put(sysfs, "4711/sdma_51610", "88\n");
        put(sysfs, "4711/stats_51610/evicted_ms", "12\n");
        put(sysfs, "4711/stats_51610/cu_occupancy", "304\n");
        put(sysfs, "4711/counters_51610/faults", "1\n");
        put(sysfs, "90/pasid", "0\n");
        root
    }

    #[test]
    fn processes_and_queues_are_read_in_order() {
        let root = sample();
        let seen = KfdSysfs::read(root.path(), Costly::default());
        assert_eq!(seen.errors, []);
        assert_eq!(seen.processes.iter().map(|process| process.tgid).collect::<Vec<_>>(), [90, 4711]);
        assert_eq!(seen.queue_count(), 3);
        let process = &seen.processes[1];
        assert_eq!((process.pasid, process.context_id), (Some(32769), None));
        let queues = [queue(0, 51610, 1 << 20, 0), queue(2, 7, 8192, 4), queue(10, 7, 4096, 1)];
        assert_eq!(process.queues, queues);
        assert_eq!(process.vram, BTreeMap::from([(51610, 2_097_152)]));
        assert_eq!(process.evicted_ms, BTreeMap::from([(51610, 12)]));
    }

    #[test]
    fn costly_files_are_read_only_on_request() {
        let root = sample();
        let cheap = KfdSysfs::read(root.path(), Costly::default());
        assert!(cheap.processes[1].sdma_us.is_empty() && cheap.processes[1].cu_occupancy.is_empty());
        let all = KfdSysfs::read(root.path(), Costly { sdma: true, cu_occupancy: true });
        assert_eq!(all.processes[1].sdma_us, BTreeMap::from([(51610, 88)]));
        assert_eq!(all.processes[1].cu_occupancy, BTreeMap::from([(51610, 304)]));
    }

    #[test]
    fn secondary_contexts_are_processes_of_the_same_pid() {
        let root = sample();
        put(root.path(), "4711/context_3/pasid", "0\n");
        put_queue(root.path(), "4711/context_3/queues/0", 7, 4096, 3);
        put(root.path(), "4711/context_3/context_4/pasid", "0\n");
        let seen = KfdSysfs::read(root.path(), Costly::default());
        let ids: Vec<_> = seen.processes.iter().map(|process| (process.tgid, process.context_id)).collect();
        assert_eq!(ids, [(90, None), (4711, None), (4711, Some(3))]);
        assert_eq!(seen.processes[2].queues, [queue(0, 7, 4096, 3)]);
    }

    #[test]
    fn a_bad_file_costs_its_value_and_not_the_row() {
        let root = sample();
        put(root.path(), "4711/queues/2/size", "lots\n");
        fs::remove_file(root.path().join("class/kfd/kfd/proc/4711/queues/10/type")).unwrap();
        put(root.path(), "4711/vram_7", "-1\n");
        let seen = KfdSysfs::read(root.path(), Costly::default());
        let process = &seen.processes[1];
        assert_eq!(process.queues[1], SysfsQueue { size: None, ..queue(2, 7, 0, 4) });
        assert_eq!(process.queues[2], SysfsQueue { queue_type_raw: None, ..queue(10, 7, 4096, 0) });
        assert!(!process.vram.contains_key(&7), "unread is not 0");
        let lines: Vec<_> = seen.errors.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("queues/2/size") && lines[1].contains("queues/10/type"));
        assert!(lines[2].contains("vram_7"));
    }

    #[test]
    fn for_queues_nothing_else_is_needed() {
        let root = sample();
        put(root.path(), "4711/vram_7", "-1\n");
        put(root.path(), "4711/stats_7/evicted_ms", "-1\n");
        put(root.path(), "90/pasid", "none\n");
        let seen = KfdSysfs::queues(root.path());
        assert_eq!(seen.errors, []);
        let queues = vec![queue(0, 51610, 1 << 20, 0), queue(2, 7, 8192, 4), queue(10, 7, 4096, 1)];
        let process = |tgid, queues| SysfsProcess { tgid, queues, ..SysfsProcess::default() };
        let vram = [(51610, 2_097_152)].into();
        let expected = [process(90, Vec::new()), SysfsProcess { vram, ..process(4711, queues) }];
        assert_eq!(seen.processes, expected);
        put(root.path(), "4711/context_3/queues/0/size", "lots\n");
        assert!(
            KfdSysfs::queues(root.path()).errors.iter().any(|error| error.path.ends_with("queues/0/size"))
        );
    }

    #[test]
    fn no_kfd_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(KfdSysfs::read(root.path(), Costly::default()), KfdSysfs::default());
        assert!(!KfdSysfs::queues(root.path()).there);
    }

    #[test]
    fn a_folder_without_processes_is_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(PROC)).unwrap();
        assert!(KfdSysfs::queues(root.path()).there);
        fs::remove_dir(root.path().join(PROC)).unwrap();
        fs::write(root.path().join(PROC), "").unwrap();
        assert!(!KfdSysfs::queues(root.path()).there, "not to be read as a folder");
    }
}
