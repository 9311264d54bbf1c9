//! Synthetic procfs folders. Device nodes need privileges, so the results of stat(2) are synthetic, too.

use super::*;
use crate::doctor::samples::{DEVICE, HOST, OTHER};
use crate::doctor::seen::{DescriptorTotals, Device, KfdDescriptor};
use std::io;
use std::os::unix::fs::symlink;

const DRM: Device = Device { major: 226, minor: 128 };

/// A procfs with configured descriptors; other files are plain files.
struct Made {
    procfs: tempfile::TempDir,
    stats: BTreeMap<PathBuf, io::Result<Stat>>,
}

impl Files for Made {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        match self.stats.get(path) {
            Some(Ok(stat)) => Ok(*stat),
            Some(Err(error)) => Err(error.kind().into()),
            None => Ok(Stat { node: HOST, number: None }),
        }
    }
}

impl Made {
    fn new() -> Self {
        Made { procfs: tempfile::tempdir().unwrap(), stats: BTreeMap::new() }
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.procfs.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A task by its folder.
    fn task(&self, folder: &str, pid: u32, state: char, flags: u32, threads: u32) {
        let (ten, rest) = ("0 ".repeat(10), "0 ".repeat(33));
        let stat = format!("{pid} (wörk) {state} 90 0 0 0 0 {flags} {ten}{threads} {rest}\n");
        self.put(&format!("{folder}/stat"), &stat);
        let own = fs::read_to_string("/proc/self/status").unwrap();
        let status: String = own
            .lines()
            .map(|line| match line.split(':').next() {
                Some("Tgid") => format!("Tgid:\t{pid}\n"),
                Some("Uid") => "Uid:\t1000\t1000\t1000\t1000\n".to_owned(),
                Some("NSpid") => format!("NSpid:\t{pid}\t7\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        self.put(&format!("{folder}/status"), &status);
        self.put(&format!("{folder}/cgroup"), "0::/a.service\n");
        self.put(&format!("{folder}/maps"), "");
        fs::create_dir_all(self.procfs.path().join(folder).join("fd")).unwrap();
    }

    fn open(&mut self, folder: &str, fd: u32, info: &str, stat: io::Result<Stat>) {
        self.put(&format!("{folder}/fd/{fd}"), "");
        self.put(&format!("{folder}/fdinfo/{fd}"), info);
        self.stats.insert(self.procfs.path().join(format!("{folder}/fd/{fd}")), stat);
    }

    fn read(&self, wanted: &[u32]) -> ScannedProcfs {
        let wanted = wanted.iter().copied().collect();
        self.reader(&Progress::default(), |reader| reader.all(&wanted))
    }

    fn reader<T>(&self, progress: &Progress, use_it: impl FnOnce(&ProcfsReader<'_, Self>) -> T) -> T {
        let devices = Devices { kfd: Some(DEVICE), drm: BTreeSet::from([DRM]) };
        let details =
            |info: &ProcessInfo| ProcessDetails { cgroup: info.cgroup.clone(), ..ProcessDetails::default() };
        use_it(&ProcfsReader {
            files: self,
            procfs: self.procfs.path(),
            devices: &devices,
            host_node: Some(HOST),
            details: &details,
            progress,
        })
    }
}

fn of(node: Node, number: Device) -> io::Result<Stat> {
    Ok(Stat { node, number: Some(number) })
}

#[test]
fn descriptors_are_found_by_number_and_distinguished_by_inode() {
    let mut made = Made::new();
    made.task("20", 20, 'S', 0, 1);
    made.open("20", 0, "flags:\t0100002\n", of(HOST, Device { major: 1, minor: 3 }));
    made.open("20", 12, "flags:\t02100002\n", of(OTHER, DEVICE));
    made.open("20", 4, "flags:\t0100002\ndrm-client-id:\t9\n", of(OTHER, DRM));
    made.open("20", 5, "", of(OTHER, DEVICE));
    made.put("20/maps", "7f0000000000-7f0000002000 rw-s 00000000 00:2a 4                        /x/node\n");
    made.task("21", 21, 'S', 0, 1);
    made.put("uptime", "1 1\n");
    let read = made.read(&[]);
    assert_eq!((read.looked_at, read.closed.len()), (2, 0));
    assert_eq!(read.processes.keys().copied().collect::<Vec<_>>(), [20], "the other has no part in it");
    let seen = &read.processes[&20];
    let descriptor = |fd, cloexec| KfdDescriptor { fd, node: OTHER, cloexec };
    assert_eq!(seen.kfd, [descriptor(5, None), descriptor(12, Some(true))]);
    assert_eq!((seen.drm.len(), seen.drm[0].fd, seen.drm[0].client_id), (1, 4, Some(9)));
    assert_eq!(seen.mappings.as_ref().unwrap().kfd, BTreeSet::from([OTHER]), "by the descriptor's inode");
    let who = (seen.comm.as_str(), seen.uid, seen.inner_pid, seen.life.parent);
    assert_eq!(who, ("wörk", 1000, Some(7), 90));
    assert_eq!(seen.details.cgroup.as_deref(), Some("/a.service"));
}

#[test]
fn of_many_descriptors_the_first_are_kept_and_all_are_counted() {
    let mut made = Made::new();
    made.task("20", 20, 'S', 0, 1);
    for fd in 0..90 {
        let client = fd / 30;
        let info = format!(
            "drm-pdev:\t0000:c1:00.0\ndrm-client-id:\t{client}\ndrm-memory-vram:\t{} KiB\n",
            client + 1
        );
        made.open("20", 100 + fd, &info, of(OTHER, DRM));
        let node = if fd == 80 { HOST } else { OTHER };
        made.open("20", 300 + fd, "", of(node, DEVICE));
    }
    let read = made.read(&[]);
    let seen = &read.processes[&20];
    let totals = DescriptorTotals {
        kfd: 90,
        drm: 90,
        vram: [("0000:c1:00.0".to_owned(), (1 + 2 + 3) << 10)].into(),
        vram_incomplete: false,
    };
    assert_eq!(seen.totals, totals, "each client once, also of those that are not kept");
    assert_eq!(seen.drm.len(), KEPT);
    assert!(seen.kfd.len() <= KEPT + 1 && seen.kfd.iter().any(|open| open.fd == 380), "the host's is kept");
}

#[test]
fn all_processes_together_keep_a_bounded_number_of_descriptors() {
    let mut made = Made::new();
    let pids: Vec<u32> = (20..20 + 4).collect();
    for pid in &pids {
        made.task(&pid.to_string(), *pid, 'S', 0, 1);
        for fd in 0..KEPT {
            made.open(&pid.to_string(), u32::try_from(fd).unwrap(), "", of(OTHER, DEVICE));
        }
    }
    let all = made.reader(&Progress::default(), |reader| {
        reader.scan_within(pids.iter().copied().collect(), &BTreeSet::new(), KEPT + 10)
    });
    let kept = |pid| all.processes[&pid].kfd.len();
    assert_eq!((kept(20), kept(21), kept(22), kept(23)), (KEPT, 10, 1, 1));
    assert_eq!(all.processes[&23].totals.kfd, KEPT);
}

#[test]
fn a_cancelled_scan_reads_no_further() {
    let made = Made::new();
    made.task("20", 20, 'S', 0, 1);
    let progress = Progress::default();
    progress.cancel();
    assert_eq!(made.reader(&progress, |reader| reader.all(&BTreeSet::from([20]))).looked_at, 0);
}

#[test]
fn requested_processes_are_included_and_kernel_threads_are_not_counted() {
    let made = Made::new();
    made.task("20", 20, 'S', 0, 1);
    made.task("21", 21, 'I', 0x20_8040, 1);
    made.task("22", 22, 'S', 0, 1);
    let read = made.read(&[20, 21, 4000]);
    assert_eq!((read.looked_at, read.processes.keys().copied().collect::<Vec<_>>()), (2, vec![20]));
    assert!(!read.processes[&20].closed && read.processes[&20].kfd.is_empty());
}

#[test]
fn processes_without_access_are_reported() {
    let mut made = Made::new();
    made.task("20", 20, 'S', 0, 1);
    made.open("20", 3, "", Err(io::ErrorKind::PermissionDenied.into()));
    made.task("21", 21, 'S', 0, 1);
    made.open("21", 3, "", Err(io::ErrorKind::NotFound.into()));
    let read = made.read(&[20]);
    assert_eq!(read.closed, BTreeSet::from([20]), "a descriptor that is closed meanwhile is none");
    assert!(read.processes[&20].closed);
}

#[test]
fn behind_a_dead_leader_a_thread_is_looked_into() {
    let mut made = Made::new();
    made.task("20", 20, 'Z', 4, 3);
    for (tid, state) in [(20, 'Z'), (24, 'Z'), (25, 'S')] {
        made.task(&format!("20/task/{tid}"), tid, state, 0, 3);
    }
    made.open("20/task/24", 3, "", of(OTHER, DEVICE));
    made.open("20/task/25", 6, "", of(HOST, DEVICE));
    made.task("30", 30, 'Z', 4, 1);
    made.open("30", 3, "", Err(io::ErrorKind::PermissionDenied.into()));
    let read = made.read(&[30]);
    assert_eq!(read.processes[&20].kfd, [KfdDescriptor { fd: 6, node: HOST, cloexec: None }]);
    assert!(read.processes[&20].life.lives_without_leader());
    assert!(read.closed.is_empty() && read.processes[&30].life.is_over(), "the dead have nothing");
}

#[test]
fn mount_namespaces_are_compared_with_the_first_process() {
    let made = Made::new();
    let link = |pid: u32, number: u32| {
        let folder = made.procfs.path().join(pid.to_string()).join("ns");
        fs::create_dir_all(&folder).unwrap();
        symlink(format!("mnt:[{number}]"), folder.join("mnt")).unwrap();
    };
    for pid in [1, 20, 21, 22] {
        made.task(&pid.to_string(), pid, 'S', 0, 1);
    }
    link(1, 7);
    link(20, 7);
    link(21, 8);
    let read = made.read(&[20, 21, 22]);
    let own = |pid: u32| read.processes[&pid].own_mounts;
    assert_eq!((own(20), own(21), own(22)), (Some(false), Some(true), None));
}

#[test]
fn what_kfd_lists_is_taken_by_pid() {
    let one = |context_id, queues: u32, vram: &[(u32, u64)]| SysfsProcess {
        tgid: 20,
        context_id,
        queues: (0..queues)
            .map(|queue_id| crate::attribute::SysfsQueue {
                queue_id,
                gpu_id: None,
                size: None,
                queue_type_raw: None,
            })
            .collect(),
        vram: vram.iter().copied().collect(),
        ..SysfsProcess::default()
    };
    let listed = KfdSysfs {
        there: true,
        processes: vec![one(None, 2, &[(7, 10)]), one(Some(3), 1, &[(7, 5), (8, 1)])],
        errors: Vec::new(),
    };
    let expected = KfdProcess { contexts: vec![3], queues: 3, vram: [(7, 15), (8, 1)].into(), reused: false };
    assert_eq!(of_sysfs(&listed), Some([(20, expected)].into()));
    assert_eq!(of_sysfs(&KfdSysfs::default()), None);
    let mut all = KfdProcesses::new();
    add_standing(&mut all, 20, None, 2, false);
    add_standing(&mut all, 20, Some(3), 1, true);
    assert_eq!(all[&20], KfdProcess { contexts: vec![3], queues: 3, vram: [].into(), reused: true });
}
