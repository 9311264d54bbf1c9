//! Entries of hash maps, read and removed by the program `lookup`. In: the loaded object. Out: keys and
//! values.
//!
//! bpf(2) could do this, too, but it keeps kprobe programs from running on its CPU meanwhile
//! (`bpf_disable_instrumentation`, kernel/bpf/syscall.c), and if the kernel preempts it half-way, for as long
//! as others run there. A walk over keys does not, nor does BPF_PROG_TEST_RUN.

use super::mapped::Mapped;
use crate::probes::error::{LoadError, chain};
use crate::probes::walk::peek;
use aya::maps::{HashMap, Map, MapError};
use aya::{Ebpf, Pod};
use kfd_trace_common::in_flight::OpenCall;
use kfd_trace_common::limits::{IN_FLIGHT_MAX, PEEK_LEN};
use kfd_trace_common::lookup::{table, verb};
use kfd_trace_common::peek::Answer;
use kfd_trace_common::process::Entry;
use kfd_trace_common::stat::{ErrorKey, IoctlKey, IoctlStat};
use std::marker::PhantomData;
use zerocopy::FromBytes;

const PROGRAM: &str = "lookup";
const ENTRY: &str = "ENTRY";

/// Maximum steps of a walk over a hash map, twice the entries of the largest: the walk restarts when its key
/// is deleted under it, as every returning call does to the keys of calls in progress.
const WALK_MAX: usize = 2 * IN_FLIGHT_MAX as usize;

pub(crate) fn error(map: &'static str) -> impl Fn(MapError) -> LoadError {
    move |error| LoadError::Map { map, why: chain(&error) }
}

fn find<'a>(ebpf: &'a Ebpf, map: &'static str) -> Result<&'a Map, LoadError> {
    ebpf.map(map).ok_or(LoadError::NoMap(map))
}

/// A hash map of the object, and its keys as the program takes them.
pub(crate) struct LookupTable<K, V> {
    pub(crate) name: &'static str,
    /// One of [`table`].
    pub(crate) number: u64,
    words: fn(K) -> [u64; 2],
    value: PhantomData<V>,
}

impl<K, V> LookupTable<K, V> {
    pub(crate) const fn new(name: &'static str, number: u64, words: fn(K) -> [u64; 2]) -> Self {
        const { assert!(size_of::<V>() <= PEEK_LEN) };
        LookupTable { name, number, words, value: PhantomData }
    }
}

pub(crate) const IOCTL_STATS: LookupTable<IoctlKey, IoctlStat> =
    LookupTable::new("IOCTL_STATS", table::IOCTL_STATS, |key| [key.process, u64::from(key.cmd)]);

pub(crate) const IOCTL_ERRORS: LookupTable<ErrorKey, u64> =
    LookupTable::new("IOCTL_ERRORS", table::IOCTL_ERRORS, |key| {
        [key.process, u64::from(key.errno) << 32 | u64::from(key.cmd)]
    });

pub(crate) const IN_FLIGHT: LookupTable<u32, OpenCall> =
    LookupTable::new("IN_FLIGHT", table::IN_FLIGHT, |tid| [u64::from(tid), 0]);

pub(crate) const CLAIMS: LookupTable<u32, u64> =
    LookupTable::new("CLAIMS", table::CLAIMS, |slot| [u64::from(slot), 0]);

pub(crate) const PROCESSES: LookupTable<u64, Entry> =
    LookupTable::new("PROCESSES", table::PROCESSES, |address| [address, 0]);

pub(crate) const PASIDS: LookupTable<u32, u64> =
    LookupTable::new("PASIDS", table::PASIDS, |pasid| [u64::from(pasid), 0]);

/// Loads the program; returns the array that it writes its results to.
pub(crate) fn load_program(ebpf: &mut Ebpf) -> Result<Mapped, LoadError> {
    peek::load(ebpf, PROGRAM, ENTRY)
}

/// The maps of a loaded object, for one thread at a time.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) ebpf: &'a Ebpf,
    /// The array that [`load_program`] returned.
    pub(crate) answer: &'a Mapped,
}

impl Lookup<'_> {
    fn run(&self, map: &'static str, args: [u64; 4]) -> Result<Answer, LoadError> {
        peek::run(self.ebpf, PROGRAM, self.answer, &args).map_err(|why| LoadError::Map { map, why })
    }

    /// All keys, or as many as the step limit of a walk allows.
    pub(crate) fn keys<K: Pod, V: Pod>(&self, table: &LookupTable<K, V>) -> Result<Vec<K>, LoadError> {
        let map: HashMap<_, K, V> = find(self.ebpf, table.name)?.try_into().map_err(error(table.name))?;
        map.keys().take(WALK_MAX).collect::<Result<_, _>>().map_err(error(table.name))
    }

    /// The value of a key; `None` if the key no longer exists.
    pub(crate) fn read<K, V: FromBytes>(
        &self,
        table: &LookupTable<K, V>,
        key: K,
    ) -> Result<Option<V>, LoadError> {
        let [first, second] = (table.words)(key);
        let answer = self.run(table.name, [verb::READ, table.number, first, second])?;
        let value = || V::read_from_prefix(&answer.bytes).ok().map(|(value, _)| value);
        Ok((answer.len != 0).then(value).flatten())
    }

    /// Keys with their values; entries that are removed meanwhile are left out.
    pub(crate) fn entries<K: Pod, V: Pod + FromBytes>(
        &self,
        table: &LookupTable<K, V>,
    ) -> Result<Vec<(K, V)>, LoadError> {
        let entries = self.keys(table)?.into_iter();
        let entries = entries.map(|key| Ok(self.read(table, key)?.map(|value| (key, value))));
        entries.filter_map(Result::transpose).collect()
    }

    /// Removes the entry of a key, if it exists.
    pub(crate) fn remove<K, V>(&self, table: &LookupTable<K, V>, key: K) -> Result<(), LoadError> {
        let [first, second] = (table.words)(key);
        self.run(table.name, [verb::REMOVE, table.number, first, second]).map(drop)
    }

    /// Removes the entry of a call whose return was missed; the programs count that.
    pub(crate) fn expire(&self, table: u64, tid: u32) -> Result<(), LoadError> {
        self.run(ENTRY, [verb::EXPIRE, table, u64::from(tid), 0]).map(drop)
    }

    /// From now on the programs cache which process a file belongs to: everything that changes it is probed.
    pub(crate) fn remember(&self) -> Result<(), LoadError> {
        self.run(ENTRY, [verb::REMEMBER, 0, 0, 0]).map(drop)
    }

    /// Invalidates what the programs have cached.
    pub(crate) fn void(&self) -> Result<(), LoadError> {
        self.run(ENTRY, [verb::VOID, 0, 0, 0]).map(drop)
    }
}
