//! What the driver lists: KFD processes with their queues, from the kernel's own table or from sysfs.

use super::event::{ProcessId, QueueFacts};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Deref;

/// Where a KFD process is found: tgid, and which of its PID's contexts it is (7.2; `None` for the first one).
pub type Place = (u32, Option<u32>);

/// One listed process. `None` is "this source does not have it".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// Its number, if the BPF side has already seen it.
    pub id: Option<ProcessId>,
    /// In the initial PID namespace.
    pub tgid: u32,
    pub context_id: Option<u32>,
    /// Start of the leader, CLOCK_BOOTTIME nanoseconds.
    pub start_boottime_ns: Option<u64>,
    pub ns_tgid: Option<u32>,
    pub uid: Option<u32>,
    pub comm: Option<String>,
    pub queues: Vec<QueueFacts>,
    /// Bytes of VRAM that the driver counts, by gpu_id; empty where the source does not have them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vram: BTreeMap<u32, u64>,
}

impl Listed {
    #[must_use]
    pub fn place(&self) -> Place {
        (self.tgid, self.context_id)
    }

    /// The queue with this id.
    #[must_use]
    pub fn queue(&self, queue_id: u32) -> Option<&QueueFacts> {
        self.queues.iter().find(|queue| queue.queue_id == Some(queue_id))
    }
}

/// Listed processes in their order, found by PID and by number in the same time however many there are: a list is
/// queried for each row of the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedProcesses {
    all: Vec<Listed>,
    index: Box<Index>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Index {
    by_tgid: Positions<u32>,
    by_id: Positions<ProcessId>,
}

/// Positions in a list by a key that several can have.
#[derive(Clone, Debug, PartialEq)]
struct Positions<K: Eq + Hash> {
    /// By key; those of one key in the order of the list.
    ordered: Vec<(K, usize)>,
    /// Where those of a key begin.
    begins: HashMap<K, usize>,
}

impl<K: Eq + Hash> Default for Positions<K> {
    fn default() -> Self {
        Positions { ordered: Vec::new(), begins: HashMap::new() }
    }
}

impl<K: Copy + Hash + Ord> Positions<K> {
    fn new(keys: impl Iterator<Item = (K, usize)>) -> Self {
        let mut ordered: Vec<_> = keys.collect();
        ordered.sort_unstable();
        let mut begins = HashMap::with_capacity(ordered.len());
        for (at, (key, _)) in ordered.iter().enumerate() {
            begins.entry(*key).or_insert(at);
        }
        Positions { ordered, begins }
    }

    fn of(&self, key: K) -> impl Iterator<Item = usize> {
        let begin = self.begins.get(&key).copied().unwrap_or(self.ordered.len());
        self.ordered[begin..].iter().take_while(move |(other, _)| *other == key).map(|(_, at)| *at)
    }
}

impl ListedProcesses {
    /// Changes the list.
    pub fn update(&mut self, change: impl FnOnce(&mut Vec<Listed>)) {
        let mut all = std::mem::take(&mut self.all);
        change(&mut all);
        *self = all.into();
    }

    /// The processes with this PID: several with further contexts (7.2), or after a reuse of the PID.
    pub fn with_tgid(&self, tgid: u32) -> impl Iterator<Item = &Listed> {
        self.index.by_tgid.of(tgid).filter_map(|at| self.all.get(at))
    }

    /// The process with this number.
    pub fn with_id(&self, id: ProcessId) -> impl Iterator<Item = &Listed> {
        self.index.by_id.of(id).filter_map(|at| self.all.get(at))
    }
}

impl From<Vec<Listed>> for ListedProcesses {
    fn from(all: Vec<Listed>) -> Self {
        let by_tgid = Positions::new(all.iter().enumerate().map(|(at, process)| (process.tgid, at)));
        let numbered = all.iter().enumerate().filter_map(|(at, process)| Some((process.id?, at)));
        let by_id = Positions::new(numbered);
        ListedProcesses { all, index: Box::new(Index { by_tgid, by_id }) }
    }
}

impl FromIterator<Listed> for ListedProcesses {
    fn from_iter<I: IntoIterator<Item = Listed>>(all: I) -> Self {
        all.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for ListedProcesses {
    type Target = [Listed];

    fn deref(&self) -> &[Listed] {
        &self.all
    }
}

impl<'a> IntoIterator for &'a ListedProcesses {
    type Item = &'a Listed;
    type IntoIter = std::slice::Iter<'a, Listed>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_in_their_order_also_after_a_change() {
        let process = |id: Option<u64>, tgid, context_id| Listed {
            id: id.map(ProcessId),
            tgid,
            context_id,
            ..Listed::default()
        };
        let mut list = ListedProcesses::from(vec![
            process(Some(3), 70, Some(1)),
            process(None, 5, None),
            process(Some(1), 70, None),
        ]);
        let contexts = |list: &ListedProcesses, tgid| -> Vec<_> {
            list.with_tgid(tgid).map(|one| one.context_id).collect()
        };
        assert_eq!(contexts(&list, 70), [Some(1), None]);
        assert_eq!(contexts(&list, 6), []);
        let tgids = |list: &ListedProcesses, id| -> Vec<_> {
            list.with_id(ProcessId(id)).map(|one| one.tgid).collect()
        };
        assert_eq!((tgids(&list, 3), tgids(&list, 2)), (vec![70], vec![]));
        list.update(|all| {
            all.remove(0);
            all[0].id = Some(ProcessId(2));
        });
        assert_eq!((contexts(&list, 70), tgids(&list, 2), tgids(&list, 3)), (vec![None], vec![5], vec![]));
    }
}
