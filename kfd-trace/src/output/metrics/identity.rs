//! The labels that identify a process, and the order of processes in a family.

use super::series::{Rank, Ranked};
use super::table as t;
use crate::output::belongs::BelongsFields;
use crate::state::{LabelText, Process, QueueLabel};
use crate::text::{escape, exposition};

/// Labels of all series of a process: pid, kfd_process, comm.
pub(super) const IDENTITY: usize = 3;

const BELONGS: usize = 9;

/// Labels of the family that describes processes.
const ALL: usize = IDENTITY + 3 + BELONGS;

/// Items of one identity: several processes have the same one where contexts of a PID are not numbered.
pub(super) struct Group<'a, T> {
    pub(super) labels: &'a LabelText,
    pub(super) items: Vec<T>,
}

/// A process that has series.
pub(super) struct Shown<'a> {
    pub(super) process: &'a Process,
    /// Its queues by label.
    pub(super) queues: &'a [(QueueLabel, u64)],
}

/// Processes by identity, in the order of the exposition.
pub(super) type Groups<'a> = [Group<'a, Shown<'a>>];

/// Items by their processes, in the order of the exposition. Those of one identity keep their order.
pub(super) fn grouped<'a, T>(
    items: impl IntoIterator<Item = T>,
    process: impl Fn(&T) -> &'a Process,
) -> Vec<Group<'a, T>> {
    let keyed = items.into_iter().map(|item| (identity(process(&item)), item));
    let mut sorted: Vec<([String; IDENTITY], T)> = keyed.collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut groups: Vec<Group<'a, T>> = Vec::with_capacity(sorted.len());
    let mut last = None;
    for (identity, item) in sorted {
        match groups.last_mut().filter(|_| last.as_ref() == Some(&identity)) {
            Some(group) => group.items.push(item),
            None => groups.push(Group { labels: label_text(process(&item)), items: vec![item] }),
        }
        last = Some(identity);
    }
    groups
}

/// The kept label text of a process.
pub(super) fn label_text(process: &Process) -> &LabelText {
    process.labels.get_or_make(|| {
        let (mut text, mut identity) = (String::new(), 0);
        for (index, (name, value)) in t::PROCESS_INFO.labels.iter().zip(values(process)).enumerate() {
            if index > 0 {
                text.push(',');
            }
            exposition::label(&mut text, name, &value);
            if index + 1 == IDENTITY {
                identity = text.len();
            }
        }
        LabelText::new(text, identity)
    })
}

/// Values of the labels, as they are sorted.
fn identity(process: &Process) -> [String; IDENTITY] {
    [
        process.tgid.map_or_else(|| "unknown".to_owned(), |tgid| tgid.to_string()),
        process.id().map_or_else(String::new, |id| id.0.to_string()),
        process.comm.as_deref().map(escape::terminal).unwrap_or_default(),
    ]
}

/// Values of all labels, as they are sorted.
pub(super) fn values(process: &Process) -> [String; ALL] {
    let [pid, id, comm] = identity(process);
    let [inner, uid] =
        [process.ns_tgid, process.uid].map(|id| id.map_or_else(String::new, |id| id.to_string()));
    let cgroup = process.cgroup().map(escape::terminal).unwrap_or_default();
    let belongs = BelongsFields::from(&process.details).labels();
    let [container_id, runtime, pod_uid, namespace, pod, container, job, step, unit] =
        belongs.map(|value| escape::terminal(&value));
    [
        pid,
        id,
        comm,
        inner,
        uid,
        cgroup,
        container_id,
        runtime,
        pod_uid,
        namespace,
        pod,
        container,
        job,
        step,
        unit,
    ]
}
/// GPUs on which a process has queues, some of them several times: their counters exist from 0.
pub(super) fn own_gpus(
    queues: &[(QueueLabel, u64)],
    gpus: &Ranked<Option<u32>>,
) -> impl Iterator<Item = Rank> {
    queues.iter().map(|(label, _)| gpus.rank(&label.gpu_id))
}
