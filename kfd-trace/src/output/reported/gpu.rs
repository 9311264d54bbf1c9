//! GPUs: `/api/v1/gpus`.

use super::Document;
use super::list::{at_most, name, unix_ns};
use super::status::Status;
use crate::attribute::{Gpu, Topology, Unreadable};
use crate::state::GpuState;
use crate::text::escape;
use serde::Deserialize;

/// Rows that are read at most.
const GPUS: usize = 1_024;

/// The document.
#[derive(Debug, Deserialize)]
pub struct Gpus {
    schema: u64,
    #[serde(rename = "ts", deserialize_with = "unix_ns")]
    pub(super) at_ns: u64,
    #[serde(deserialize_with = "at_most::<_, _, GPUS>")]
    pub(super) gpus: Vec<GpuRow>,
}

impl Document for Gpus {
    fn schema(&self) -> u64 {
        self.schema
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GpuRow {
    index: u32,
    pub(super) gpu_id: u32,
    node: u32,
    #[serde(deserialize_with = "name")]
    pci: Option<String>,
    #[serde(deserialize_with = "name")]
    name: Option<String>,
    #[serde(deserialize_with = "name")]
    gfx: Option<String>,
    partition: Option<u32>,
    num_xcc: Option<u32>,
    slots: SlotsRow,
    sdma_engines: Option<u32>,
    sdma_queues_per_engine: Option<u32>,
    resets: u64,
    resetting: bool,
    hangs: u64,
    hung: bool,
    vm_faults: u64,
    /// Not from each version.
    pub(super) evictions: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SlotsRow {
    cp: Option<u32>,
    sdma_xgmi: Option<u32>,
}

impl GpuRow {
    fn gpu(&self) -> Gpu {
        let each = self.sdma_queues_per_engine;
        let engines = |slots: Option<u32>| slots.zip(each).and_then(|(slots, each)| slots.checked_div(each));
        let safe = |text: &Option<String>| text.as_deref().map(escape::terminal);
        Gpu {
            index: self.index,
            node: self.node,
            gpu_id: self.gpu_id,
            name: safe(&self.name),
            gfx_target_version: self.gfx.as_deref().and_then(version),
            pci: safe(&self.pci),
            partition: self.partition,
            num_cp_queues: self.slots.cp,
            num_sdma_engines: self.sdma_engines,
            num_sdma_xgmi_engines: engines(self.slots.sdma_xgmi),
            num_sdma_queues_per_engine: each,
            num_xcc: self.num_xcc,
            ..Gpu::default()
        }
    }

    pub(super) fn state(&self, at_ns: u64) -> GpuState {
        GpuState {
            resets: self.resets,
            resetting_since_ns: self.resetting.then_some(at_ns),
            hangs: self.hangs,
            hung_since_ns: self.hung.then_some(at_ns),
            vm_faults: self.vm_faults,
            ..GpuState::default()
        }
    }
}

/// 90402 of `gfx942`: the last two digits are hexadecimal.
fn version(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("gfx").filter(|digits| digits.is_ascii())?;
    let (major, rest) = digits.split_at_checked(digits.len().checked_sub(2)?)?;
    let (minor, step) = rest.split_at_checked(1)?;
    let hex = |digit| u32::from_str_radix(digit, 16).ok();
    major.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(hex(minor)? * 100 + hex(step)?)
}

/// The GPUs, and what could not be read of them there.
#[must_use]
pub fn topology(gpus: &Gpus, status: Option<&Status>) -> Topology {
    let unreadable = |line: &String| {
        let (path, why) = line.split_once(": ").unwrap_or((line, ""));
        Unreadable { path: path.into(), why: why.to_owned() }
    };
    Topology {
        gpus: gpus.gpus.iter().map(GpuRow::gpu).collect(),
        errors: status.into_iter().flat_map(Status::unreadable).map(unreadable).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_named() {
        for (version_is, name) in
            [(90_402, "gfx942"), (90_010, "gfx90a"), (110_001, "gfx1101"), (80_003, "gfx803")]
        {
            let gpu = Gpu { gfx_target_version: Some(version_is), ..Gpu::default() };
            assert_eq!(gpu.gfx_name().as_deref(), Some(name));
            assert_eq!(version(name), Some(version_is));
        }
        for name in ["", "gfx", "gfx9", "gfx99999999999", "gfx9\u{e9}4", "94", "gfxabc"] {
            assert_eq!(version(name), None, "{name}");
        }
    }
}
