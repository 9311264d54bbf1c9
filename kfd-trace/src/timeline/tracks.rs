//! Tracks of a process and of a queue, and what is open on them.

use super::packets::Track;
use std::collections::BTreeMap;

/// Tracks of a process; each is made when something is on it.
pub(super) struct ProcessTracks {
    pub(super) own: Track,
    pub(super) pid: Option<u32>,
    pub(super) alive: bool,
    /// Its place among the known ones.
    pub(super) known: Option<usize>,
    pub(super) queues: BTreeMap<u32, QueueTracks>,
    /// By gpu_id: the track, and whether it is evicted now.
    pub(super) evicted: BTreeMap<Option<u32>, (Track, bool)>,
    /// By tid.
    pub(super) threads: BTreeMap<u32, Track>,
}

pub(super) struct QueueTracks {
    pub(super) own: Track,
    pub(super) gpu_id: Option<u32>,
    pub(super) alive: bool,
    /// Its place among the known ones.
    pub(super) known: Option<usize>,
    /// Retired per second, and the backlog.
    pub(super) counters: Option<(Track, Track)>,
}
