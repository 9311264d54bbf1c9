//! Merges rows of several sources into one list.

use super::PsRow;
use crate::attribute::Topology;
use crate::model::queue::is_of_runtime;
use std::collections::{BTreeMap, BTreeSet};

/// Merges lists of one source each, the most detailed first: values of earlier lists are kept, and later ones
/// fill gaps. Rows are the same queue if PID, context and queue id are equal, and neither GPU nor kfd_process
/// contradicts; two rows of one source are never merged. Ordered by PID, context, GPU and queue.
#[must_use]
pub fn merge(lists: Vec<Vec<PsRow>>, topology: &Topology) -> Vec<PsRow> {
    let mut all: Vec<PsRow> = Vec::new();
    let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for row in lists.into_iter().flatten() {
        let places = places.entry((row.pid, row.context_id, row.queue_id())).or_default();
        match places.iter().copied().find(|place| same(&all[*place], &row)) {
            Some(place) => fill(&mut all[place], &row),
            None => {
                places.push(all.len());
                all.push(row);
            }
        }
    }
    spread_process_facts(&mut all);
    let with_queues: BTreeSet<_> =
        all.iter().filter(|row| row.queue_id().is_some()).map(|row| (row.pid, row.context_id)).collect();
    let has_queues = |row: &PsRow| with_queues.contains(&(row.pid, row.context_id));
    all.retain(|row| row.queue_id().is_some() || row.pid.is_none() || !has_queues(row));
    ordered(all, topology)
}

/// Rows of one list, in which each is a queue or a process of its own: in the order of [`merge`], the runtimes' queues
/// marked.
#[must_use]
pub fn ordered(mut rows: Vec<PsRow>, topology: &Topology) -> Vec<PsRow> {
    rows.sort_by_key(|row| {
        (row.pid, row.context_id, topology.order(row.gpu_id()), row.queue_id(), row.process)
    });
    mark_runtimes(&mut rows);
    rows
}

fn mark_runtimes(rows: &mut [PsRow]) {
    let of = |row: &PsRow| (row.pid, row.context_id, row.process);
    let mut processes: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (place, row) in rows.iter().enumerate() {
        processes.entry(of(row)).or_default().push(place);
    }
    let mark = |row: &PsRow| {
        // Those without a PID may be of different processes.
        let own = processes.get(&of(row)).filter(|_| row.pid.is_some())?;
        is_of_runtime(row.queue.as_ref()?, own.iter().filter_map(|place| rows[*place].queue.as_ref()))
    };
    let marks: Vec<_> = rows.iter().map(mark).collect();
    rows.iter_mut().zip(marks).for_each(|(row, mark)| row.of_runtime = mark);
}

fn same(known: &PsRow, row: &PsRow) -> bool {
    known.pid.is_some()
        && known.pid == row.pid
        && known.queue_id() == row.queue_id()
        && agree(known.process, row.process)
        && agree(known.gpu_id(), row.gpu_id())
        && !known.sources.overlaps(row.sources)
}

/// An unknown value is no contradiction.
fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

fn fill(known: &mut PsRow, row: &PsRow) {
    known.process = known.process.or(row.process);
    match (&mut known.queue, &row.queue) {
        (Some(known), Some(queue)) => known.absorb(queue),
        (known, queue) => *known = known.take().or_else(|| queue.clone()),
    }
    known.age_ns = known.age_ns.or(row.age_ns);
    known.activity = known.activity.take().or_else(|| row.activity.clone());
    known.sources = known.sources.union(row.sources);
    fill_process(known, row);
}

fn fill_process(known: &mut PsRow, row: &PsRow) {
    if known.vram.is_empty() {
        known.vram.clone_from(&row.vram);
    }
    known.ns_pid = known.ns_pid.or(row.ns_pid);
    known.uid = known.uid.or(row.uid);
    known.process_age_ns = known.process_age_ns.or(row.process_age_ns);
    known.comm = known.comm.take().or_else(|| row.comm.clone());
    if known.details.cgroup.is_none() {
        known.details = row.details.clone();
    }
}

/// Copies process details from one row to all rows of that PID.
fn spread_process_facts(all: &mut [PsRow]) {
    let reported: BTreeMap<_, _> =
        all.iter().rev().filter(|row| row.comm.is_some()).map(|row| (row.pid, row.clone())).collect();
    for row in all.iter_mut().filter(|row| row.pid.is_some()) {
        if let Some(other) = reported.get(&row.pid) {
            fill_process(row, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Gpu;
    use crate::model::event::{Origin, ProcessId, QueueFacts, QueueType};
    use crate::state::{Source, Sources};

    fn probe(pid: u32, queue_id: u32) -> PsRow {
        PsRow {
            pid: Some(pid),
            process: Some(ProcessId(u64::from(pid) * 10)),
            comm: Some("train".into()),
            queue: Some(QueueFacts {
                queue_id: Some(queue_id),
                gpu_id: Some(58270),
                queue_type: Some(QueueType::ComputeAql),
                ring_address: Some(0x1000),
                ..QueueFacts::unknown(Origin::Ioctl)
            }),
            sources: Source::Probe.into(),
            ..PsRow::default()
        }
    }

    fn sysfs(pid: u32, queue_id: Option<u32>) -> PsRow {
        let queue = queue_id.map(|_| QueueFacts {
            queue_id,
            gpu_id: Some(58270),
            queue_type: Some(QueueType::Compute),
            ring_size: Some(4096),
            ..QueueFacts::unknown(Origin::Standing)
        });
        PsRow { pid: Some(pid), queue, sources: Source::Sysfs.into(), ..PsRow::default() }
    }

    fn on(gpu_id: Option<u32>, row: PsRow) -> PsRow {
        PsRow { queue: row.queue.map(|queue| QueueFacts { gpu_id, ..queue }), ..row }
    }

    fn asked() -> Sources {
        Sources::from(Source::Probe).with(Source::Sysfs)
    }

    #[test]
    fn both_sources_make_one_row_with_what_each_shows() {
        let rows = merge(vec![vec![probe(7, 1)], vec![sysfs(7, Some(1))]], &Topology::default());
        assert_eq!(rows.len(), 1);
        let queue = rows[0].queue.as_ref().expect("a queue");
        assert_eq!((queue.ring_address, queue.ring_size), (Some(0x1000), Some(4096)));
        assert_eq!(queue.queue_type, Some(QueueType::ComputeAql));
        assert_eq!(rows[0].source(asked()), "probe+sysfs");
    }

    #[test]
    fn a_difference_between_the_sources_stays_visible() {
        let rows = merge(vec![vec![probe(7, 1)], vec![sysfs(7, Some(2))]], &Topology::default());
        let sources: Vec<_> = rows.iter().map(|row| (row.queue_id(), row.source(asked()))).collect();
        assert_eq!(sources, [(Some(1), "probe only".into()), (Some(2), "sysfs only".into())]);
        assert_eq!(rows[1].comm.as_deref(), Some("train"), "the process is the same");
        assert_eq!(rows[1].source(Source::Sysfs.into()), "sysfs", "no other source was read");
        let other_gpu = on(Some(1), sysfs(7, Some(1)));
        assert_eq!(merge(vec![vec![probe(7, 1)], vec![other_gpu]], &Topology::default()).len(), 2);
    }

    #[test]
    fn contexts_of_one_pid_are_kept_apart() {
        let second = PsRow { process: Some(ProcessId(71)), context_id: Some(5), ..on(Some(9), probe(7, 1)) };
        let listed = PsRow { context_id: Some(5), ..on(None, sysfs(7, Some(1))) };
        let empty = PsRow { context_id: Some(6), ..sysfs(7, None) };
        let rows = merge(
            vec![vec![probe(7, 1), second], vec![listed, sysfs(7, Some(1)), empty]],
            &Topology::default(),
        );
        let shown: Vec<_> = rows.iter().map(|row| (row.context_id, row.gpu_id())).collect();
        assert_eq!(shown, [(None, Some(58270)), (Some(5), Some(9)), (Some(6), None)]);
        assert_eq!(rows[2].queue_id(), None, "a context without queues beside others that have some");
        let rows = &rows[..2];
        assert!(rows.iter().all(|row| row.source(asked()) == "probe+sysfs"), "{rows:?}");
    }

    #[test]
    fn another_kfd_process_is_another_queue() {
        let kernel = PsRow { process: Some(ProcessId(71)), sources: Source::Kernel.into(), ..probe(7, 1) };
        assert_eq!(merge(vec![vec![probe(7, 1)], vec![kernel.clone()]], &Topology::default()).len(), 2);
        let unnumbered = PsRow { process: None, ..kernel };
        assert_eq!(merge(vec![vec![probe(7, 1)], vec![unnumbered]], &Topology::default()).len(), 1);
    }

    #[test]
    fn a_process_has_a_row_of_its_own_only_without_queues() {
        let rows = merge(vec![vec![probe(7, 1)], vec![sysfs(7, None), sysfs(8, None)]], &Topology::default());
        let shown: Vec<_> = rows.iter().map(|row| (row.pid, row.queue_id())).collect();
        assert_eq!(shown, [(Some(7), Some(1)), (Some(8), None)]);
    }

    /// A gpu_id is a hash: the first GPU may have the larger one.
    #[test]
    fn queues_come_in_the_order_of_the_gpus_numbers() {
        let gpu = |gpu_id, index| Gpu { gpu_id, index, ..Gpu::default() };
        let topology = Topology { gpus: vec![gpu(58270, 0), gpu(24439, 1)], ..Topology::default() };
        let rows = [
            on(None, probe(7, 4)),
            on(Some(9), probe(7, 3)),
            on(Some(24439), probe(7, 2)),
            on(Some(58270), probe(7, 1)),
        ];
        let rows = ordered(rows.to_vec(), &topology);
        let shown: Vec<_> = rows.iter().map(PsRow::gpu_id).collect();
        assert_eq!(shown, [Some(58270), Some(24439), Some(9), None]);
    }

    #[test]
    fn rows_are_ordered_and_unknown_owners_are_not_merged() {
        let unowned = PsRow { pid: None, process: None, ..probe(0, 1) };
        let rows = merge(
            vec![vec![probe(9, 1), unowned.clone(), probe(7, 2), probe(7, 1)], vec![unowned]],
            &Topology::default(),
        );
        let shown: Vec<_> = rows.iter().map(|row| (row.pid, row.queue_id())).collect();
        let expected =
            [(None, Some(1)), (None, Some(1)), (Some(7), Some(1)), (Some(7), Some(2)), (Some(9), Some(1))];
        assert_eq!(shown, expected);
    }
}
