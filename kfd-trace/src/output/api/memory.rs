//! Allocations that were not freed, the oldest first, with their sums by age.

use super::ApiView;
use super::view::document;
use super::who::Who;
use crate::output::memory::HeldRow;
use crate::state::{Held, Process};
use serde::Serialize;

/// Which allocations to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFilter {
    /// tgid of the owner.
    pub pid: Option<u32>,
    pub gpu_id: Option<u32>,
    /// Return the oldest `limit` allocations.
    pub limit: usize,
}

/// Up to which age the allocations of a sum are: nanoseconds; the last sum has all older ones.
const AGES: [u64; 4] = [60 * S, 600 * S, 3_600 * S, 86_400 * S];
const S: u64 = 1_000_000_000;

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    #[serde(flatten)]
    held: HeldRow,
}

#[derive(Clone, Copy, Default, Serialize)]
struct OfAge {
    /// `null`: of any age.
    younger_than_ns: Option<u64>,
    allocations: u64,
    bytes: u64,
}

/// The allocations of live processes.
///
/// # Errors
/// As [`super::queues`].
pub fn memory<'v>(view: &ApiView<'v>, filter: MemoryFilter) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct List<'a> {
        matched: usize,
        ages: Vec<OfAge>,
        allocations: Vec<Row<'a>>,
    }
    let all = view.snapshot.live().filter(|process| filter.pid.is_none_or(|pid| process.tgid == Some(pid)));
    let held =
        all.flat_map(|process| process.memory.held().map(move |(handle, held)| (process, handle, held)));
    let mut held: Vec<(&'v Process, u64, &Held)> =
        held.filter(|(.., held)| filter.gpu_id.is_none_or(|gpu_id| held.gpu_id == gpu_id)).collect();
    held.sort_by_key(|(process, handle, held)| (held.since_ns, process.tgid, *handle));
    let (matched, ages) = (held.len(), ages(held.iter().map(|(.., held)| *held), view.now_ns));
    let row = |(process, handle, held): (&'v Process, u64, &Held)| Row {
        who: process.into(),
        held: HeldRow::new(process, (handle, held), view.now_ns, view.topology),
    };
    let list = List { matched, ages, allocations: held.into_iter().take(filter.limit).map(row).collect() };
    document(view, list)
}

fn ages<'h>(held: impl Iterator<Item = &'h Held>, now_ns: u64) -> Vec<OfAge> {
    let limits = AGES.into_iter().map(Some).chain([None]);
    let mut ages: Vec<OfAge> =
        limits.map(|younger_than_ns| OfAge { younger_than_ns, ..OfAge::default() }).collect();
    for held in held {
        let age_ns = now_ns.saturating_sub(held.since_ns);
        let at = AGES.iter().position(|limit| age_ns < *limit).unwrap_or(AGES.len());
        ages[at].allocations += 1;
        ages[at].bytes = ages[at].bytes.saturating_add(held.bytes);
    }
    ages
}

#[cfg(test)]
mod tests {
    use super::super::processes;
    use super::*;
    use crate::model::event::{Body, IoctlCall};
    use crate::model::inventory::Listed;
    use crate::model::memory::samples::{GTT, VRAM, allocated, imported, mapped};
    use crate::output::samples::{PID, clock, topology, traced};
    use crate::state::samples::event;
    use serde_json::{Value, json};

    const GPU: u32 = 58270;

    #[test]
    fn memory_is_shown_by_gpu_and_the_oldest_allocations_first() {
        let mut state = traced();
        let calls = [
            allocated(2, GPU, 8192, VRAM),
            allocated(1, GPU, 4096, VRAM),
            allocated(3, 9, 4096, GTT),
            imported(4, GPU),
            mapped(2, &[GPU, 9], 2),
            mapped(1, &[GPU], 1),
            mapped(4, &[9], 1),
        ];
        for (at, body) in (0..).zip(calls) {
            let Body::Ioctl(call) = body else { panic!("an ioctl") };
            let body = Body::Ioctl(IoctlCall { entered_ns: at * S, ..call });
            state.apply(&event(at * S, 1, PID, body));
        }
        let listed = Listed { tgid: PID, vram: [(GPU, 12288), (9, 0)].into(), ..Listed::default() };
        state.count_vram((9 * S).into(), &[listed]);
        let (snapshot, topology, clock) = (state.snapshot(), topology(), clock());
        let view = ApiView { snapshot: &snapshot, topology: &topology, clock: &clock, now_ns: 61 * S };
        let of = |text: serde_json::Result<String>| -> Value {
            serde_json::from_str(&text.expect("JSON")).expect("JSON")
        };
        let sum = |bytes: Option<u64>, allocations: u64, mapped: Value| json!({"bytes": bytes, "allocations": allocations, "mapped": mapped});
        let on = |gpu_id: u32, bytes: Option<u64>, allocations: u64| json!({"gpu_id": gpu_id, "bytes": bytes, "allocations": allocations});
        let vram = json!([on(GPU, Some(12288), 2), on(9, Some(8192), 1)]);
        assert_eq!(
            of(processes(&view))["processes"][0]["memory"],
            json!({"complete": true, "gpus": [
                {"gpu_id": GPU, "vram_bytes": 12288, "domains": {
                    "vram": sum(Some(12288), 2, vram), "imported": sum(None, 1, json!([on(9, None, 1)]))}},
                {"gpu_id": 9, "vram_bytes": 0, "domains": {"gtt": sum(Some(4096), 1, json!([]))}},
            ]})
        );
        let all = MemoryFilter { pid: None, gpu_id: None, limit: 2 };
        let listed = of(memory(&view, all));
        let shown: Vec<_> = listed["allocations"].as_array().expect("rows").iter().collect();
        assert_eq!((&listed["matched"], shown.len()), (&json!(4), 2));
        assert_eq!(
            (&shown[0]["handle"], &shown[0]["age_ns"], &shown[0]["pid"]),
            (&json!("0x2"), &json!(61 * S), &json!(PID))
        );
        assert_eq!(
            (&shown[0]["mapped"], &listed["allocations"][1]["mapped"]),
            (&json!([GPU, 9]), &json!([GPU])),
            "{listed}"
        );
        let age = |under: Option<u64>, allocations: u64, bytes: u64| json!({"younger_than_ns": under, "allocations": allocations, "bytes": bytes});
        let under = [Some(60), Some(600), Some(3600), Some(86400), None]
            .map(|limit| limit.map(|limit: u64| limit * S));
        let sums = [(2, 4096), (2, 12288), (0, 0), (0, 0), (0, 0)];
        let ages: Vec<_> =
            under.into_iter().zip(sums).map(|(limit, (count, bytes))| age(limit, count, bytes)).collect();
        assert_eq!(listed["ages"], json!(ages));
        let matched = |filter| of(memory(&view, filter))["matched"].clone();
        assert_eq!(matched(MemoryFilter { gpu_id: Some(9), ..all }), 1);
        assert_eq!(matched(MemoryFilter { pid: Some(1), ..all }), 0);
        state.miss_memory(60 * S);
        let snapshot = state.snapshot();
        let view = ApiView { snapshot: &snapshot, ..view };
        assert_eq!(of(memory(&view, all))["allocations"][0]["mapped"], Value::Null);
        let domains = of(processes(&view))["processes"][0]["memory"]["gpus"][0]["domains"].clone();
        assert_eq!(domains["vram"], sum(Some(12288), 2, Value::Null), "the sums are as before");
    }
}
