//! Queues of the report: merges what was logged for the same addresses.

use super::life::Birth;
use super::packet::Shape;
use super::queues::{Births, Key, LogQueues, Packets, Span, Steps};
use super::source::LogProcess;
use std::collections::HashMap;

/// One queue. Where lines have too little information, one queue has two rows: up to 6.1 its creation names
/// the SWq and its packets the HWq.
#[derive(Clone, Debug, Default)]
pub struct QueueRow {
    pub process: LogProcess,
    pub id: Option<u64>,
    pub hwq: Option<u64>,
    pub swq: Option<u64>,
    /// SWq or HWq of a queue that is known only from lines that do not show which of the two it is.
    pub address: Option<u64>,
    pub created: u64,
    pub birth: Option<Birth>,
    pub steps: Steps,
    pub packets: Packets,
    /// Most frequent first.
    pub shapes: Vec<(Shape, u64)>,
    pub span: Span,
}

impl QueueRow {
    /// The HWq, or else another known address.
    #[must_use]
    pub fn any_address(&self) -> Option<u64> {
        self.hwq.or(self.swq).or(self.address)
    }
}

/// Rows ordered by PID, id and addresses; those with packets first.
#[must_use]
pub(super) fn rows(queues: &LogQueues) -> Vec<QueueRow> {
    let mut rows: Vec<QueueRow> = Vec::new();
    let mut of_key = HashMap::new();
    for (key, packets) in queues.packets.sorted() {
        of_key.insert(key, rows.len());
        rows.push(with_packets(key, packets));
    }
    for ((key, shape), count) in queues.shapes.sorted() {
        if let Some(row) = of_key.get(&key).and_then(|index| rows.get_mut(*index)) {
            row.shapes.push((shape, *count));
        }
    }
    for row in &mut rows {
        row.shapes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    }
    let places = places(&rows);
    for ((process, swq, hwq), births) in queues.births.sorted() {
        let known = match hwq {
            Some(hwq) => one(&rows, &places, hwq, process, |row| {
                row.hwq == Some(hwq) && row.swq.is_none_or(|own| own == swq)
            }),
            None => one(&rows, &places, swq, process, |row| row.swq == Some(swq)),
        };
        let index = known.unwrap_or(rows.len());
        if known.is_none() {
            rows.push(QueueRow { process, hwq, swq: Some(swq), ..QueueRow::default() });
        }
        born(&mut rows[index], births);
    }
    let places = self::places(&rows);
    for ((process, address), steps) in queues.steps.sorted() {
        let known = one(&rows, &places, address, process, |_| true);
        let index = known.unwrap_or(rows.len());
        if known.is_none() {
            rows.push(QueueRow { process, address: Some(address), ..QueueRow::default() });
        }
        stepped(&mut rows[index], process, steps);
    }
    rows
}

fn with_packets(key: Key, packets: &Packets) -> QueueRow {
    QueueRow {
        process: key.process,
        id: key.id,
        hwq: Some(key.hwq),
        swq: key.swq,
        packets: packets.clone(),
        span: packets.span,
        ..QueueRow::default()
    }
}

fn born(row: &mut QueueRow, births: &Births) {
    row.created += births.count;
    row.birth = births.latest;
    if let Some(birth) = births.latest {
        row.swq = Some(birth.swq);
    }
    row.span.merge(births.span);
}

fn stepped(row: &mut QueueRow, process: LogProcess, steps: &Steps) {
    row.process.pid = row.process.pid.or(process.pid);
    let sum = &mut row.steps;
    sum.acquired += steps.acquired;
    sum.selected += steps.selected;
    sum.released += steps.released;
    sum.deleted += steps.deleted;
    sum.cu_masks += steps.cu_masks;
    sum.aborted += steps.aborted;
    sum.most_held = sum.most_held.max(steps.most_held);
    row.span.merge(steps.span);
}

/// Rows by each of their addresses.
fn places(rows: &[QueueRow]) -> HashMap<u64, Vec<usize>> {
    let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        for address in [row.hwq, row.swq].into_iter().flatten() {
            places.entry(address).or_default().push(index);
        }
    }
    places
}

/// The only row at this address that can match: of the same process, or where one of the two has no process.
fn one(
    rows: &[QueueRow],
    places: &HashMap<u64, Vec<usize>>,
    address: u64,
    process: LogProcess,
    fits: impl Fn(&QueueRow) -> bool,
) -> Option<usize> {
    let at = || places.get(&address).into_iter().flatten().copied().filter(|index| fits(&rows[*index]));
    let mut same = at().filter(|index| rows[*index].process == process);
    match (same.next(), same.next()) {
        (Some(index), None) => return Some(index),
        (Some(_), Some(_)) => return None,
        (None, _) => {}
    }
    let mut may_be = at().filter(|index| {
        let other = rows[*index].process;
        other.source == process.source && (process.pid.is_none() || other.pid.is_none())
    });
    may_be.next().filter(|_| may_be.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amd_log::{Tally, lines::LogLine};

    fn rows_of(lines: &[&str]) -> Vec<QueueRow> {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.line(LogLine::Whole(line.as_bytes())));
        rows(&tally.counts.queues)
    }

    const PACKET: &str = "Dispatch Header = 0xb02 (type=2), grid=[1, 1, 1], workgroup=[1, 1, 1]";
    const BORN: &str =
        ":3:a:1: 5 us:  Created SWq=0x10 to map on HWq=0x20 with size 16384 with priority 1, cooperative: 0";

    fn packet(pid: u32, id: u64) -> String {
        format!(":4:a:1: 9 us: [pid:{pid} tid: 0x1] SWq=0x10, HWq=0x20, id={id}, {PACKET}")
    }

    #[test]
    fn lines_without_a_process_belong_to_the_only_queue_there() {
        let acquired = ":3:a:1: 6 us:  acquireQueue refCount: 0x20 (1)";
        let rows = rows_of(&[BORN, acquired, &packet(7, 1)]);
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.process.pid, row.id, row.created, row.steps.acquired), (Some(7), Some(1), 1, 1));
        assert_eq!(row.span.0, Some((5, 9)));
        let labelled = |label: &str, line: &str| format!("[rank{label}]:{line}");
        let rows =
            rows_of(&[&labelled("0", BORN), &labelled("1", &packet(7, 1)), &labelled("0", &packet(7, 1))]);
        assert_eq!(
            rows.iter().map(|row| row.created).collect::<Vec<_>>(),
            [1, 0],
            "of two ranks with one PID"
        );
        let rows = rows_of(&[BORN, acquired, &packet(7, 1), &packet(8, 1)]);
        assert_eq!(rows.len(), 3, "the process of the line is ambiguous");
        assert_eq!(rows.iter().map(|row| row.created).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!((rows[2].process.pid, rows[2].steps.acquired), (None, 1), "neither line names a process");
    }

    #[test]
    fn before_6_2_births_name_another_address_than_packets() {
        let head = ":3:a:1: 5 us: [pid:7     tid:0x1] ";
        let rows = rows_of(&[
            &format!("{head}created hardware queue 0x10 with size 16384 with priority 1, cooperative: 0"),
            &format!("{head}acquireQueue refCount: 0x10 (1)"),
            &format!("{head}HWq=0x20, {PACKET}"),
        ]);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].hwq, rows[0].swq, rows[0].packets.dispatches), (Some(0x20), None, 1));
        assert_eq!((rows[1].swq, rows[1].created, rows[1].steps.acquired), (Some(0x10), 1, 1));
    }
}
