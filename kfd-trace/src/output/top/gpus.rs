//! The table of GPUs.

use super::Moment;
use super::column::{self, Column};
use super::pane::{Cell, Key, Pane, PaneId, Tone};
use super::table::Table;
use super::trends::{self, Trend, Trends};
use super::ui::Ui;
use crate::attribute::{Gpu, Pool};
use crate::model::pointers::Unit;
use crate::output::activity::per_second;
use crate::output::budget::Budget;
use crate::output::load::Load;
use crate::text::escape;
use ratatui::layout::Rect;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

struct GpuRow<'a> {
    gpu: &'a Gpu,
    budget: &'a Budget,
    users: Users,
    trend: Option<&'a Trend>,
}

/// Who is on a GPU, and what its queues do.
#[derive(Clone, Copy, Default)]
struct Users {
    load: Load,
    processes: usize,
    evicted: usize,
}

fn slots(row: &GpuRow<'_>, moment: &Moment, pool: Pool) -> Cell {
    let has = row.budget.pools(row.gpu);
    match has.iter().find(|one| one.pool == pool) {
        Some(one) => {
            let [used, slots] = one.counts();
            if !moment.sight.queues {
                return Cell::Text(format!("?/{slots}"), Tone::Quiet);
            }
            let tone = if one.oversubscribed() { Tone::Warn } else { Tone::Plain };
            Cell::Text(format!("{used}/{slots}"), tone)
        }
        None if row.gpu.slots().of(pool) == Some(0) => Cell::Text("none".to_owned(), Tone::Quiet),
        None => Cell::text(None::<String>),
    }
}

fn state(row: &GpuRow<'_>, moment: &Moment) -> Cell {
    let state = moment.snapshot.gpus.get(&row.gpu.gpu_id).copied().unwrap_or_default();
    match (state.trouble(), row.users.evicted) {
        (Some(trouble), _) => Cell::Text(trouble.to_owned(), Tone::Bad),
        (None, 0) => Cell::Text(String::new(), Tone::Plain),
        (None, evicted) => Cell::Text(format!("{evicted} evicted"), Tone::Warn),
    }
}

fn spark(points: Option<&VecDeque<Option<u64>>>) -> Cell {
    Cell::Spark(points.map(|points| points.iter().copied().collect()).unwrap_or_default())
}

/// From left to right.
fn columns<'a>() -> [Column<GpuRow<'a>>; 12] {
    [
        Column::left("GPU", 6, |row: &GpuRow<'_>, _| Cell::text(Some(format!("gpu {}", row.gpu.index)))),
        Column::left("PCI", 12, |row: &GpuRow<'_>, _| Cell::text(row.gpu.pci.as_deref())).from(110),
        Column::left("CHIP", 7, |row: &GpuRow<'_>, _| Cell::text(row.gpu.gfx_name())).from(110),
        Column::right("COMPUTE", 7, |row: &GpuRow<'_>, moment| slots(row, moment, Pool::Cp)),
        Column::right("SDMA", 6, |row: &GpuRow<'_>, moment| slots(row, moment, Pool::Sdma)),
        Column::right("XGMI", 6, |row: &GpuRow<'_>, moment| slots(row, moment, Pool::SdmaXgmi)),
        Column::right("PROCS", 5, |row: &GpuRow<'_>, moment| {
            Cell::text(Some(row.users.processes).filter(|count| *count > 0 || moment.sight.queues))
        }),
        Column::right("PACKETS", 9, |row: &GpuRow<'_>, moment| {
            let none = trends::packets(moment, &row.users.load).map(|rate| per_second(Unit::Packets, rate));
            Cell::text(row.users.load.packets_rate().or(none))
        }),
        Column::left("", 0, |row: &GpuRow<'_>, _| spark(row.trend.map(|trend| &trend.packets))),
        Column::right("EVICTIONS", 9, |row: &GpuRow<'_>, moment| {
            Cell::text(trends::evictions(moment, row.gpu.gpu_id))
        }),
        Column::left("", 0, |row: &GpuRow<'_>, _| spark(row.trend.map(|trend| &trend.evictions))),
        Column::left("STATE", 10, state),
    ]
}

fn users(moment: &Moment) -> BTreeMap<u32, Users> {
    let mut all: BTreeMap<u32, Users> = BTreeMap::new();
    for process in moment.snapshot.live() {
        let mut used = BTreeSet::new();
        for queue in process.queues.values() {
            if let Some(gpu_id) = queue.facts.gpu_id {
                all.entry(gpu_id).or_default().load.add(queue);
                used.insert(gpu_id);
            }
        }
        used.iter().for_each(|gpu_id| all.entry(*gpu_id).or_default().processes += 1);
        for (gpu_id, _) in process.evictions.iter().filter(|(_, evictions)| evictions.evicted) {
            all.entry(*gpu_id).or_default().evicted += 1;
        }
    }
    all
}

pub(super) fn pane(moment: &Moment, trends: &Trends, ui: &Ui, area: Rect) -> Pane {
    let (users, columns) = (users(moment), columns());
    let budget = Budget::of_snapshot(&moment.snapshot, &moment.topology);
    let of = |gpu_id| users.get(&gpu_id).copied().unwrap_or_default();
    let rows: Vec<GpuRow<'_>> = moment
        .topology
        .gpus
        .iter()
        .map(|gpu| GpuRow { gpu, budget: &budget, users: of(gpu.gpu_id), trend: trends.of(gpu.gpu_id) })
        .collect();
    let keys: Vec<Key> = rows.iter().map(|row| Key::Gpu(row.gpu.gpu_id)).collect();
    let empty = match moment.topology.errors.first() {
        None => "KFD's topology has no GPU.".to_owned(),
        Some(error) => escape::terminal(&error.to_string()),
    };
    let table = Table { id: PaneId::Gpus, caption: None, columns: &columns, keys, empty };
    table.pane(&rows, ui, area, |shown, row| column::cells(shown, row, moment))
}
