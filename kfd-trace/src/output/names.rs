//! Values in JSON, for events and the API.

use crate::attribute::{Pool, Topology};
use crate::model::event::Origin;
use crate::model::incident::CuMask;
use crate::model::queue::priority_level;
use crate::state::{Source, Sources};
use serde::{Serialize, Serializer};

pub(super) fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// The words of a mask in hex, starting with the one that has bit 0.
pub(super) fn mask(mask: &CuMask) -> Vec<String> {
    mask.words.iter().map(|word| format!("{word:#010x}")).collect()
}

/// The number, and its level.
pub(super) fn priority(priority: u32) -> String {
    priority_level(priority).map_or_else(|| priority.to_string(), |level| format!("{priority} ({level})"))
}

/// `gpu 0`, or its number in KFD if the topology does not have it.
pub(super) fn gpu(gpu_id: u32, topology: &Topology) -> String {
    topology.gpu(gpu_id).map_or_else(|| format!("gpu_id={gpu_id}"), |gpu| format!("gpu {}", gpu.index))
}

pub(super) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Ioctl => "ioctl",
        Origin::Criu => "criu",
        Origin::Standing => "standing",
        Origin::Other => "other",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(super) fn sources<S: Serializer>(sources: &Sources, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sources.iter().map(Source::name))
}

/// `null` for none: they are not known.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(super) fn known_sources<S: Serializer>(known: &Sources, serializer: S) -> Result<S::Ok, S::Error> {
    if known.iter().next().is_none() { serializer.serialize_none() } else { sources(known, serializer) }
}

/// One value per pool of slots.
#[derive(Debug, Serialize)]
pub(super) struct ByPool<T> {
    cp: T,
    sdma: T,
    sdma_xgmi: T,
}

impl<T> ByPool<T> {
    pub(super) fn each(of: impl Fn(Pool) -> T) -> Self {
        ByPool { cp: of(Pool::Cp), sdma: of(Pool::Sdma), sdma_xgmi: of(Pool::SdmaXgmi) }
    }
}
