//! KFD processes by the address of their `struct kfd_process`. The only owner of `PROCESSES`, `PASIDS` and
//! `GENERATION`.
//!
//! When an address is first seen, the process gets a unique number, is reported to the daemon, and is marked
//! as selected or not. The entry is removed when the driver frees the structure, so that a reused address
//! gets a new number.

use crate::kernel::{self, read, read_or_zero};
use crate::{emit, filter, in_flight, losses};
use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::{Global, macros::map, maps::HashMap};
use core::sync::atomic::AtomicU64;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::OpenCall;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::{CGROUP_LEN, COMM_LEN, PROCESSES_MAX};
use kfd_trace_common::process::{Entry, generation as known_by};
use kfd_trace_common::record::{Bare, ProcessSeen};
use kfd_trace_common::rules;

#[map]
static PROCESSES: HashMap<u64, Entry> = HashMap::with_max_entries(PROCESSES_MAX, 0);

/// Address by PASID, where a process has one: a fault identifies its process by it.
#[map]
static PASIDS: HashMap<u32, u64> = HashMap::with_max_entries(PROCESSES_MAX, 0);

/// A number that was never used before, written whenever a file's process or an entry is removed, changes or
/// becomes invalid, here or by the daemon: cached data on either is then void. No addition is needed, which
/// returns a result only from 5.12 on. The daemon decides whether anything may be cached.
static GENERATION: AtomicU64 = AtomicU64::new(known_by::NEVER);

/// Bytes of one `struct upid`, the element of `pid.numbers`.
#[unsafe(no_mangle)]
static UPID_BYTES: Global<u32> = Global::new(0);

/// Read it before an entry that will be cached.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    // SAFETY: valid and aligned. Volatile, since the compiler does not know that the daemon writes it, too.
    unsafe { GENERATION.as_ptr().read_volatile() }
}

/// Cached data on any entry is void from here on: to be called after the change.
#[inline(always)]
pub(crate) fn changed() {
    if generation() != known_by::NEVER {
        // SAFETY: as above.
        unsafe { GENERATION.as_ptr().write_volatile(new_id()) };
    }
}

/// The same, and nothing is cached before the next change: this one is under way, and its end may be missed.
#[inline(always)]
pub(crate) fn changing() {
    if generation() != known_by::NEVER {
        // SAFETY: as above.
        unsafe { GENERATION.as_ptr().write_volatile(known_by::NOT_NOW) };
    }
}

/// For the daemon: from now on the process of a file is cached. Everything that changes it is probed.
#[inline(always)]
pub(crate) fn remember() {
    // SAFETY: as above.
    unsafe { GENERATION.as_ptr().write_volatile(new_id()) };
}

/// For the daemon: the entry of an address.
#[inline(always)]
pub(crate) fn entry(address: u64) -> Option<*const Entry> {
    PROCESSES.get_ptr(address)
}

/// For the daemon, about a process that has ended; [`changed`] follows.
#[inline(always)]
pub(crate) fn remove_entry(address: u64) {
    // The entry may already be removed, which is fine.
    let _ = PROCESSES.remove(address);
}

/// For the daemon: the address of a PASID.
#[inline(always)]
pub(crate) fn holder(pasid: u32) -> Option<*const u64> {
    PASIDS.get_ptr(pasid)
}

/// For the daemon, about a process that has ended.
#[inline(always)]
pub(crate) fn remove_holder(pasid: u32) {
    let _ = PASIDS.remove(pasid);
}

/// The process that a record is about.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) id: u64,
    pub(crate) tgid: u32,
}

impl From<&Entry> for Owner {
    #[inline(always)]
    fn from(entry: &Entry) -> Self {
        Owner { id: entry.id, tgid: entry.tgid }
    }
}

/// The owner of a call under way.
impl From<&OpenCall> for Owner {
    #[inline(always)]
    fn from(call: &OpenCall) -> Self {
        Owner { id: call.process, tgid: call.tgid }
    }
}

/// No process: a failed open.
pub(crate) const NO_OWNER: Owner = Owner { id: 0, tgid: 0 };

/// Where a process is seen; determines whether the running thread may stand in for an unreadable leader.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// In its own thread, just created.
    Created,
    /// In a call on its own descriptor.
    Own,
    /// Anywhere, kworkers included.
    Anywhere,
}

/// The process at this address, registered if it is new. `None` if it is not selected or cannot be tracked.
#[inline(always)]
pub(crate) fn wanted(probe: ProbeId, process: u64, met: Met) -> Option<Entry> {
    let entry = known(probe, process, met)?;
    (entry.wanted != 0).then_some(entry)
}

/// The same, whether or not it is selected.
#[inline(always)]
pub(crate) fn known(probe: ProbeId, process: u64, met: Met) -> Option<Entry> {
    match lookup(process) {
        // A process that is being freed makes no more calls: its address belongs to another one by now.
        Some(entry) if met == Met::Own && entry.releasing != 0 => {
            forget_leftover(probe, process, &entry);
            make_known(probe, process, met)
        }
        Some(entry) => Some(entry),
        None => make_known(probe, process, met),
    }
}

/// Whether a known process is ending, by the running thread: it is being freed, or is the thread's own.
#[inline(always)]
pub(crate) fn is_ending(process: u64) -> bool {
    let own = (bpf_get_current_pid_tgid() >> 32) as u32;
    lookup(process).is_some_and(|entry| entry.releasing != 0 || entry.tgid == own)
}

#[inline(always)]
fn lookup(process: u64) -> Option<Entry> {
    // SAFETY: a value of the map, copied at once.
    PROCESSES.get_ptr(process).map(|entry| unsafe { *entry })
}

// One copy: used by many programs.
#[inline(never)]
fn make_known(probe: ProbeId, process: u64, met: Met) -> Option<Entry> {
    let leader: u64 = read_or_zero(process, &kernel::KFD_PROCESS_LEAD_THREAD);
    let tgid = match read::<u32>(leader, &kernel::TASK_TGID) {
        Some(tgid) => tgid,
        // Without the driver's BTF: kfd_ioctl and kfd_open serve only the process that owns the descriptor.
        None if met != Met::Anywhere => (bpf_get_current_pid_tgid() >> 32) as u32,
        None => {
            losses::trouble(probe, Trouble::ProcessUnreadable);
            return None;
        }
    };
    // Without the driver's types, the running thread is taken for its own, as above.
    // SAFETY: no arguments.
    let task = if leader == 0 { unsafe { bpf_get_current_task() } } else { leader };
    let entry = Entry {
        id: new_id(),
        leader,
        tgid,
        wanted: u32::from(filter::wanted(tgid, task)),
        releasing: 0,
        pasid: read_or_zero(process, &kernel::KFD_PROCESS_PASID),
    };
    if PROCESSES.insert(process, entry, u64::from(BPF_NOEXIST)).is_err() {
        // Another CPU was faster, and has reported it to the daemon; or the table is full.
        let other = lookup(process);
        if other.is_none() {
            losses::trouble(probe, Trouble::ProcessesFull);
        }
        return other;
    }
    if entry.pasid != 0 && PASIDS.insert(entry.pasid, process, u64::from(BPF_ANY)).is_err() {
        losses::trouble(probe, Trouble::ProcessesFull);
    }
    if entry.wanted != 0 {
        send_seen(probe, process, &entry, met);
    }
    Some(entry)
}

/// The process of a PASID, seen in any context.
#[inline(always)]
pub(crate) fn wanted_by_pasid(probe: ProbeId, pasid: u32) -> Option<Entry> {
    // SAFETY: a value of the map, copied at once.
    let process = PASIDS.get_ptr(pasid).map(|process| unsafe { *process });
    let Some(process) = process else {
        losses::trouble(probe, Trouble::FaultOfUnknownProcess);
        return None;
    };
    wanted(probe, process, Met::Anywhere)
}

/// Removes the entry of an address and its reference by PASID.
#[inline(always)]
fn remove(process: u64, entry: &Entry) {
    // Either may already have been dropped by the daemon.
    let _ = PROCESSES.remove(process);
    changed();
    // The driver frees a PASID before the structure: another process may have it by now.
    // SAFETY: a value of the map, copied at once.
    let holder = PASIDS.get_ptr(entry.pasid).map(|holder| unsafe { *holder });
    if holder == Some(process) {
        let _ = PASIDS.remove(entry.pasid);
    }
}

/// A process was created at this address, or opened once more.
#[inline(always)]
pub(crate) fn created(probe: ProbeId, process: u64) {
    let known = match lookup(process) {
        Some(entry) if entry.releasing == 0 && is_still(process, &entry) => true,
        Some(entry) => {
            forget_leftover(probe, process, &entry);
            false
        }
        None => false,
    };
    if !known {
        make_known(probe, process, Met::Created);
    }
    if rules::nr(in_flight::current_cmd()) == rules::CREATE_PROCESS {
        // A file that is open gets the process later.
        changing();
    } else {
        // The opened file may have the address of an earlier one.
        changed();
    }
}

/// Whether the structure at this address still belongs to the process of the entry. A debugger, too, looks up
/// the process of another thread (`kfd_ioctl_set_debug_trap`), so the running thread proves nothing where the
/// leader is known.
#[inline(always)]
fn is_still(process: u64, entry: &Entry) -> bool {
    match read::<u64>(process, &kernel::KFD_PROCESS_LEAD_THREAD) {
        Some(leader) => leader == entry.leader && read::<u32>(leader, &kernel::TASK_TGID) == Some(entry.tgid),
        None => entry.tgid == (bpf_get_current_pid_tgid() >> 32) as u32,
    }
}

/// Drops the entry of a process whose release was not seen to its end, and reports that end.
#[inline(always)]
fn forget_leftover(probe: ProbeId, process: u64, entry: &Entry) {
    remove(process, entry);
    if entry.wanted != 0 {
        send_end(probe, entry, Kind::ProcessRelease);
    }
}

/// Sends a record that contains only its owner.
#[inline(always)]
pub(crate) fn send_end(probe: ProbeId, entry: &Entry, kind: Kind) {
    emit::emit(probe, kind, entry, |_: &mut Bare| ());
}

/// The driver begins to free the process; its queues are still removed under its number.
#[inline(always)]
pub(crate) fn releasing(process: u64) {
    if let Some(entry) = PROCESSES.get_ptr_mut(process) {
        // SAFETY: a value of the map; nothing else writes the entry of a process that is being freed.
        unsafe { (*entry).releasing = 1 };
        changed();
    }
}

/// The driver has freed the process. Its address may be in use again: then the entry is a new one.
#[inline(always)]
pub(crate) fn released(process: u64) -> Option<Entry> {
    let entry = lookup(process)?;
    if entry.releasing == 0 {
        return None;
    }
    remove(process, &entry);
    (entry.wanted != 0).then_some(entry)
}

/// Unique without an atomic counter (5.10 has no fetch-and-add for BPF): the time, made distinct by CPU.
#[inline(always)]
fn new_id() -> u64 {
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    now << 10 | u64::from(cpu & 0x3ff)
}

#[inline(always)]
fn send_seen(probe: ProbeId, process: u64, entry: &Entry, met: Met) {
    // SAFETY: no arguments.
    let current = unsafe { bpf_get_current_task() };
    let own = if met == Met::Anywhere { 0 } else { read_or_zero::<u64>(current, &kernel::TASK_GROUP_LEADER) };
    let leader = if entry.leader == 0 { own } else { entry.leader };
    emit::emit(probe, Kind::ProcessSeen, entry, |record: &mut ProcessSeen| {
        record.start_boottime_ns = read_or_zero(leader, &kernel::TASK_START_BOOTTIME);
        record.ns_tgid = ns_tgid(leader).unwrap_or(0);
        record.uid = uid(leader).unwrap_or(u32::MAX);
        record.standing = u32::from(met != Met::Created);
        record.pasid = entry.pasid;
        record.context_id = context_id(process).unwrap_or(u32::MAX);
        comm(leader, met, &mut record.comm);
        // Left empty where it cannot be read.
        let _ = cgroup_leaf(leader, &mut record.cgroup);
    });
}

#[inline(always)]
fn context_id(process: u64) -> Option<u32> {
    read::<u16>(process, &kernel::KFD_PROCESS_CONTEXT_ID).map(u32::from)
}

#[inline(always)]
fn comm(leader: u64, met: Met, out: &mut [u8; COMM_LEN]) {
    if kernel::read_field(leader, &kernel::TASK_COMM, out).is_none() && met != Met::Anywhere {
        kernel::current_comm(out);
    }
}

#[inline(always)]
fn uid(leader: u64) -> Option<u32> {
    read(read_or_zero(leader, &kernel::TASK_CRED), &kernel::CRED_UID)
}

/// `task_tgid_vnr` of a leader: the number at the deepest level of its struct pid.
#[inline(always)]
fn ns_tgid(leader: u64) -> Option<u32> {
    let pid: u64 = read_or_zero(leader, &kernel::TASK_THREAD_PID);
    let level: u32 = kernel::read_at_or_zero(pid, kernel::offset(&kernel::PID_LEVEL)?);
    let number = u64::from(level) * u64::from(UPID_BYTES.load());
    let offset = kernel::offset(&kernel::PID_NUMBERS)? + number + kernel::offset(&kernel::UPID_NR)?;
    Some(kernel::read_at_or_zero(pid, offset))
}

#[inline(always)]
fn cgroup_leaf(leader: u64, out: &mut [u8; CGROUP_LEN]) -> Option<usize> {
    let css_set: u64 = read_or_zero(leader, &kernel::TASK_CGROUPS);
    let cgroup: u64 = read_or_zero(css_set, &kernel::CSS_SET_DFL_CGRP);
    let node: u64 = read_or_zero(cgroup, &kernel::CGROUP_KN);
    kernel::read_text(read_or_zero(node, &kernel::KERNFS_NAME), out)
}
