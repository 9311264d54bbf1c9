//! Memory of a chip compared with what processes account for. Pure.

use super::report::ChipRow;
use super::seen::{Chip, Observed};
use std::collections::BTreeMap;

/// A chip uses some hundred MiB for itself (firmware, page tables, the kernel's own buffers). More than this
/// without an owner is reported.
const OWN_USE: u64 = 1 << 30;

/// One row per chip. KFD's memory of a process is also in its DRM client, so the larger of both counts.
/// Memory without an owner is reported only if all processes could be inspected.
pub(super) fn chips(seen: &Observed) -> Vec<ChipRow> {
    let complete = seen.is_complete();
    let row = |chip: &Chip| {
        let vram_owned_bytes = owned(seen, chip);
        let more = |used: u64| used.saturating_sub(vram_owned_bytes) > OWN_USE;
        ChipRow {
            pci: chip.pci.clone(),
            vram_used_bytes: chip.vram_used,
            vram_owned_bytes,
            unowned: complete && seen.sysfs.is_some() && chip.vram_used.is_some_and(more),
        }
    };
    seen.chips.iter().map(row).collect()
}

fn owned(seen: &Observed, chip: &Chip) -> u64 {
    let mut by_pid: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (pid, process) in seen.sysfs.iter().flatten() {
        let bytes = chip.gpu_ids.iter().filter_map(|gpu| process.vram.get(gpu));
        by_pid.entry(*pid).or_default().0 = sum(bytes.copied());
    }
    for (pid, process) in &seen.processes {
        by_pid.entry(*pid).or_default().1 = process.totals.vram.get(&chip.pci).copied().unwrap_or(0);
    }
    sum(by_pid.into_values().map(|(kfd, drm)| kfd.max(drm)))
}

/// Sum of bytes. The input is untrusted, so it saturates.
pub(super) fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}
