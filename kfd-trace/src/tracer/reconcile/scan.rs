//! One scan of the driver's lists: begun with what only the tracer can read, finished without it.

use super::progress::{Progress, SourceProgress};
use crate::attribute::{Topology, process};
use crate::model::inventory::Listed;
use crate::probes::session::Session;
use crate::probes::walk::DriverTable;
use crate::runtime::clock;
use crate::state::{Difference, FoundDifference, Inventory, ProcessDetails, ReadTimes, Source, State};
use crate::tracer::enrich;
use crate::tracer::inventory::{InventoryReader, identify, read_sysfs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The driver's lists at one scan; at least one of them.
#[derive(Clone, Debug)]
pub struct Look {
    /// `None` if its processes and queues could not be read completely: then what is missing in it has not
    /// necessarily ended.
    pub sysfs: Option<Inventory>,
    pub kernel: Walked,
    /// When the lists had been read, CLOCK_MONOTONIC nanoseconds.
    pub until_ns: u64,
    /// By tgid: of the processes whose details were requested, if procfs has them.
    pub details: BTreeMap<u32, ProcessDetails>,
}

/// Of which processes a scan has what, by tgid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Those with a row, where procfs alone shows who is traced: of an ended one it shows nothing.
    pub(crate) rows: BTreeSet<u32>,
    /// Those whose details are needed.
    pub(crate) details: BTreeSet<u32>,
}

/// A scan without sysfs and procfs yet. It holds nothing of the tracer, so reading them blocks nothing else.
pub struct Begun {
    reader: Arc<InventoryReader>,
    /// Without what procfs has.
    kernel: Walked,
    /// What is known of the GPUs, if they are read again.
    topology: Option<Topology>,
    wanted: Wanted,
    pub(crate) progress: Progress,
}

impl Begun {
    pub(crate) fn new(
        reader: Arc<InventoryReader>,
        kernel: Walked,
        topology: Option<Topology>,
        wanted: Wanted,
    ) -> Self {
        Begun { reader, kernel, topology, wanted, progress: Progress::default() }
    }

    /// Reads sysfs and the identities of the existing processes. Only a command line, if these are requested,
    /// waits for the memory lock of its process.
    #[must_use]
    pub fn finish(self) -> Scan {
        let Begun { reader, kernel, topology, wanted, progress } = self;
        let sysfs = reader.sysfs_list(&wanted, &progress);
        let until_ns = clock::mono_ns();
        let kernel = match kernel {
            Walked::Done(list) => Walked::Done(reader.identified(list, &progress)),
            other => other,
        };
        let topology = topology.map(|known| {
            progress.reads(SourceProgress::Topology);
            Topology::read_with_compute_units(&reader.roots.sysfs, &known)
        });
        let lists = || kernel.list().into_iter().chain(&sysfs);
        let details = |tgid: u32| {
            let process = lists().find_map(|list| list.processes.with_tgid(tgid).next())?;
            progress.reads(SourceProgress::Details(tgid));
            let info = process::read(&reader.roots.procfs, tgid, process.start_boottime_ns).ok()?;
            Some((tgid, enrich::details_of(&reader.roots, &info)))
        };
        let details: BTreeMap<u32, ProcessDetails> = wanted.details.into_iter().filter_map(details).collect();
        let complete = lists().next().is_some();
        Scan { topology, look: complete.then_some(Look { sysfs, kernel, until_ns, details }) }
    }
}

impl InventoryReader {
    /// Begins a scan: walks the kernel's own table, only if requested. Numbers are only looked up: a process may have been freed since, and its address reused.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: &Session,
        walk: bool,
        topology: Option<Topology>,
        wanted: Wanted,
    ) -> Begun {
        Begun::new(self.clone(), self.kernel(session, walk, &wanted), topology, wanted)
    }

    fn kernel(&self, session: &Session, requested: bool, wanted: &Wanted) -> Walked {
        let (Ok(walk), Some(mut memory)) = (&self.walk, session.memory()) else { return Walked::Impossible };
        if !requested {
            return Walked::NotRequested;
        }
        let from_ns = clock::mono_ns();
        let DriverTable { entries, broken, at_work } = walk.run(&mut memory);
        let read = ReadTimes { from_ns, until_ns: clock::mono_ns() };
        if broken > 0 {
            return Walked::Broke;
        }
        let entries = entries.into_iter().filter(|entry| self.lists(entry.process.tgid, wanted));
        let processes = entries.map(|entry| Listed { id: session.known(&entry), ..entry.process }).collect();
        Walked::Done(Inventory { processes, at_work, ..Inventory::empty(Source::Kernel, read) })
    }

    /// Adds the identities of the processes from procfs.
    fn identified(&self, mut inventory: Inventory, progress: &Progress) -> Inventory {
        inventory.processes.update(|processes| {
            for process in processes {
                progress.reads(SourceProgress::Process(process.tgid));
                let who = process::identify(&self.roots.procfs, process.tgid, process.start_boottime_ns);
                if let Ok(who) = who {
                    identify(process, &who);
                }
            }
        });
        inventory
    }

    fn lists(&self, tgid: u32, wanted: &Wanted) -> bool {
        wanted.rows.contains(&tgid) || self.includes(tgid)
    }

    /// `None` if the processes or their queues could not be read completely: then what is missing in it has
    /// not necessarily ended.
    fn sysfs_list(&self, wanted: &Wanted, progress: &Progress) -> Option<Inventory> {
        progress.reads(SourceProgress::Sysfs);
        let (mut listed, errors) = read_sysfs(&self.roots, &self.layout);
        listed.processes.update(|all| all.retain(|process| self.lists(process.tgid, wanted)));
        let listed = self.identified(listed, progress);
        errors.is_empty().then_some(listed)
    }
}

/// tgids of the processes of missing queues for which procfs data is still missing: the scan that finds these
/// queues again has what it needs to show them.
pub(crate) fn unknown(state: &State, found: &BTreeSet<FoundDifference>) -> BTreeSet<u32> {
    let has_details = |key| state.process(key).is_some_and(|row| row.details.cgroup.is_some());
    let missing = found.iter().filter(|finding| finding.difference == Difference::Missing);
    missing.filter(|finding| !finding.key.is_some_and(has_details)).map(|finding| finding.tgid).collect()
}

/// The result of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// If requested: GPUs are added after the driver, and partitions change.
    pub topology: Option<Topology>,
    /// `None` if no list could be read completely.
    pub look: Option<Look>,
}

/// The result of a walk over the kernel's own table.
#[derive(Clone, Debug)]
pub enum Walked {
    Done(Inventory),
    /// Not requested at this scan.
    NotRequested,
    /// Something could not be read, or was freed during the walk.
    Broke,
    /// This kernel does not show where the table is, or refuses to have its memory read.
    Impossible,
}

impl Walked {
    #[must_use]
    pub fn list(&self) -> Option<&Inventory> {
        match self {
            Walked::Done(list) => Some(list),
            Walked::NotRequested | Walked::Broke | Walked::Impossible => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::kernel::Roots;
    use crate::model::layout::QueueLayout;
    use crate::model::selected::Selected;
    use std::fs;
    use std::path::Path;

    /// A scan without a walk, of process 4711 alone; procfs is `proc` in the same folder.
    pub(crate) fn begun(sysfs: &Path, topology: bool, details: &[u32]) -> Begun {
        let roots = Roots {
            procfs: sysfs.join("proc"),
            sysfs: sysfs.to_owned(),
            arguments: true,
            ..Roots::default()
        };
        let walk = Err("no symbols".to_owned());
        let reader = InventoryReader {
            roots,
            layout: QueueLayout::default(),
            walk,
            selected: Selected::Processes(vec![4711]),
        };
        let wanted = Wanted { details: details.iter().copied().collect(), ..Wanted::default() };
        let topology = topology.then(Topology::default);
        Begun::new(Arc::new(reader), Walked::Impossible, topology, wanted)
    }

    /// Creates a file below the driver's processes.
    pub(crate) fn put(sysfs: &Path, path: &str, text: &str) {
        let path = sysfs.join("class/kfd/kfd/proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{begun, put};
    use super::*;
    use crate::model::event::ProcessId;
    use crate::model::inventory::Place;
    use crate::model::selected::Selected;
    use crate::state::samples::{event, seen, state};
    use std::fs;
    use std::path::Path;

    const PLACE: Place = (4711, None);

    fn put_queue(sysfs: &Path, folder: &str) {
        for (file, text) in [("gpuid", "7"), ("size", "4096"), ("type", "0")] {
            put(sysfs, &format!("{folder}/{file}"), text);
        }
    }

    /// A process 4711, started 5 s after boot, in procfs, without command line and cgroup.
    fn put_process(root: &Path) {
        let folder = root.join("proc/4711");
        fs::create_dir_all(&folder).unwrap();
        let (zeros, rest) = ("0 ".repeat(17), "0 ".repeat(30));
        fs::write(folder.join("stat"), format!("4711 (train) S 1 {zeros}500 {rest}\n")).unwrap();
        let status = "Name:\ttrain\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nNgid:\t0\nPid:\t4711\nPPid:\t1\n\
                      TracerPid:\t0\nUid:\t7\t7\t7\t7\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t0\nNSpid:\t4711\t9\n\
                      Threads:\t1\nSigQ:\t0/96000\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\n\
                      CapInh:\t0\nCapPrm:\t0\nCapEff:\t0\n";
        fs::write(folder.join("status"), status).unwrap();
    }

    #[test]
    fn a_scan_has_the_queues_that_sysfs_lists_for_requested_processes() {
        let root = tempfile::tempdir().unwrap();
        put_queue(root.path(), "4711/queues/2");
        put_queue(root.path(), "90/queues/3");
        let Scan { topology, look } = begun(root.path(), true, &[]).finish();
        let look = look.expect("sysfs was read whole");
        let sysfs = look.sysfs.expect("sysfs was read whole");
        assert!(sysfs.queue(PLACE, 2).is_some_and(|(_, queue)| queue.ring_size == Some(4096)));
        assert!(!sysfs.has((90, None)), "not requested");
        assert!(sysfs.read.from_ns <= look.until_ns && sysfs.read.from_ns > 0);
        assert!(topology.is_some() && begun(root.path(), false, &[]).finish().topology.is_none());
    }

    #[test]
    fn only_what_a_look_uses_makes_it_blind() {
        let root = tempfile::tempdir().unwrap();
        put_queue(root.path(), "4711/queues/2");
        for (file, text) in [("pasid", "none"), ("vram_7", "-1"), ("stats_7/evicted_ms", "-1")] {
            put(root.path(), &format!("4711/{file}"), text);
        }
        let sees = |begun: Begun| begun.finish().look.and_then(|look| look.sysfs).is_some();
        assert!(sees(begun(root.path(), false, &[])), "these are not needed");
        put(root.path(), "90/queues/3/size", "lots");
        assert!(!sees(begun(root.path(), false, &[])), "what cannot be read is not gone");
        assert!(begun(root.path(), false, &[]).finish().look.is_none(), "and nothing else was read");
    }

    #[test]
    fn the_kernels_list_stays_where_sysfs_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "4711/queues/2/size", "lots");
        let process = Listed { id: Some(ProcessId(5)), tgid: 4711, ..Listed::default() };
        let (processes, at_work) = (vec![process].into(), BTreeSet::from([9]));
        let table = Inventory { processes, at_work, ..Inventory::empty(Source::Kernel, 7.into()) };
        let begun = Begun { kernel: Walked::Done(table), ..begun(root.path(), false, &[]) };
        let look = begun.finish().look.expect("the kernel's table was walked");
        assert!(look.sysfs.is_none());
        let list = look.kernel.list().expect("it was read");
        assert!(list.has(PLACE) && list.read == 7.into() && list.at_work == BTreeSet::from([9]));
    }

    #[test]
    fn a_process_that_has_ended_is_listed_as_long_as_it_has_a_row() {
        let root = tempfile::tempdir().unwrap();
        put_queue(root.path(), "4711/queues/2");
        let Begun { reader, .. } = begun(root.path(), false, &[]);
        let selected = Selected::Descendants { of: 1, first: 0 };
        let reader = Arc::new(InventoryReader {
            roots: reader.roots.clone(),
            layout: reader.layout.clone(),
            walk: Err("no symbols".to_owned()),
            selected,
        });
        let has = |rows: &[u32]| {
            let wanted = Wanted { rows: rows.iter().copied().collect(), ..Wanted::default() };
            let scan = Begun::new(reader.clone(), Walked::Impossible, None, wanted).finish();
            scan.look.and_then(|look| look.sysfs).expect("sysfs was read whole").has(PLACE)
        };
        assert!(has(&[4711]) && !has(&[90]), "procfs no longer shows whose child it was");
        put_process(root.path());
        assert!(has(&[]), "its parent is process 1");
    }

    #[test]
    fn details_are_wanted_of_who_has_a_missing_queue_and_none() {
        let mut state = state();
        for id in [1, 2] {
            state.apply(&event(1, id, 700 + u32::try_from(id).unwrap(), seen(false)));
        }
        let details = ProcessDetails { cgroup: Some("/train".to_owned()), ..ProcessDetails::default() };
        state.enrich(ProcessId(2).into(), details);
        let finding = |id: Option<u64>, tgid, difference| {
            let key = id.map(|id| ProcessId(id).into());
            FoundDifference { key, tgid, context_id: None, queue_id: 3, difference }
        };
        let missing = [(Some(1), 701), (Some(2), 702), (None, 703)];
        let mut found: BTreeSet<_> =
            missing.map(|(id, tgid)| finding(id, tgid, Difference::Missing)).into_iter().collect();
        found.insert(finding(None, 704, Difference::Properties));
        assert_eq!(unknown(&state, &found), BTreeSet::from([701, 703]));
    }

    #[test]
    fn details_are_read_of_those_only_of_whom_they_are_wanted() {
        let root = tempfile::tempdir().unwrap();
        put_queue(root.path(), "4711/queues/2");
        put_process(root.path());
        let look =
            |unknown: &[u32]| begun(root.path(), false, unknown).finish().look.expect("sysfs was read");
        let process = look(&[]).sysfs.expect("sysfs was read").processes[0].clone();
        assert_eq!((process.start_boottime_ns, process.uid), (Some(5_000_000_000), Some(7)));
        assert_eq!((process.comm.as_deref(), process.ns_tgid), (Some("train"), Some(9)));
        for (file, text) in [("cmdline", "train\0--fast\0"), ("cgroup", "0::/job\n")] {
            fs::write(root.path().join("proc/4711").join(file), text).unwrap();
        }
        assert!(look(&[]).details.is_empty());
        let details = &look(&[90, 4711]).details;
        assert_eq!(details.keys().collect::<Vec<_>>(), [&4711]);
        assert_eq!(details[&4711].cmdline.as_deref(), Some("train --fast"));
        assert_eq!(details[&4711].cgroup.as_deref(), Some("/job"));
    }

    #[test]
    fn an_empty_folder_is_there_and_a_missing_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let seen = |root: &Path| begun(root, false, &[]).finish().look.and_then(|look| look.sysfs);
        assert_eq!(seen(root.path()).map(|list| (list.there, list.processes.len())), Some((false, 0)));
        fs::create_dir_all(root.path().join("class/kfd/kfd/proc")).unwrap();
        assert_eq!(seen(root.path()).map(|list| (list.there, list.processes.len())), Some((true, 0)));
    }
}
