//! What GPUs and processes did in the last minutes: the sparklines.
//!
//! In: the state after each sample of the queues. Out: lines for an SVG picture.

use crate::model::pointers::Unit;
use crate::output::activity::per_second;
use crate::output::load::Load;
use crate::state::{ProcessKey, State};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

/// One point is the highest rate of so many nanoseconds.
const STEP_NS: u64 = 5_000_000_000;

/// Points of a line: five minutes.
const POINTS: u64 = 60;

/// Lines that are kept: more processes than that have none. 1 MB.
const LINES: usize = 1_024;

/// Height of the picture; a point is one unit wide.
const HEIGHT: f64 = 16.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Gpu(u32),
    Process(ProcessKey),
}

/// Number of the step, and packets per second. Steps without a reading have no point.
type Points = VecDeque<(u64, f32)>;

/// Rates of the last minutes, by GPU and process.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    lines: BTreeMap<Line, Points>,
    step: u64,
}

impl Rates {
    /// After a sample. `now_ns`: CLOCK_MONOTONIC.
    pub fn add(&mut self, state: &State, now_ns: u64) {
        let step = now_ns / STEP_NS;
        if step != self.step {
            self.step = step;
            let oldest = self.oldest();
            self.lines.retain(|_, points| points.back().is_some_and(|(at, _)| *at >= oldest));
        }
        // GPUs first: of many processes some may find no room.
        for (gpu_id, load) in Load::by_gpu(state.live().flat_map(|process| process.queues.values())) {
            self.point(Line::Gpu(gpu_id), load.packets_per_second());
        }
        for process in state.live() {
            let load = Load::of(process.queues.values());
            self.point(Line::Process(process.key), load.packets_per_second());
        }
    }

    fn oldest(&self) -> u64 {
        self.step.saturating_sub(POINTS - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a picture")]
    fn point(&mut self, line: Line, rate: Option<f64>) {
        let Some(rate) = rate.map(|rate| rate as f32) else { return };
        let (step, oldest, full) = (self.step, self.oldest(), self.lines.len() >= LINES);
        let points = match self.lines.get_mut(&line) {
            Some(points) => points,
            None if full => return,
            None => self.lines.entry(line).or_default(),
        };
        match points.back_mut() {
            Some((at, highest)) if *at == step => *highest = highest.max(rate),
            _ => points.push_back((step, rate)),
        }
        while points.front().is_some_and(|(at, _)| *at < oldest) {
            points.pop_front();
        }
    }

    /// `None` if nothing was measured in the last minutes. `now_ns`: CLOCK_MONOTONIC.
    pub(super) fn spark(&self, line: Line, now_ns: u64) -> Option<Spark> {
        let now = now_ns / STEP_NS;
        let oldest = now.saturating_sub(POINTS - 1);
        let points = self.lines.get(&line)?.iter().filter(|(step, _)| (oldest..=now).contains(step));
        let points: Vec<(u64, f32)> = points.map(|(step, rate)| (step - oldest, *rate)).collect();
        let highest = points.iter().map(|(_, rate)| f64::from(*rate)).reduce(f64::max)?;
        Some(Spark { lines: lines(&points, highest), highest: per_second(Unit::Packets, highest) })
    }
}

/// A picture of 60 x 16.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spark {
    /// `points` of each `polyline`: a step without a reading parts them.
    pub(super) lines: Vec<String>,
    pub(super) highest: String,
}

fn lines(points: &[(u64, f32)], highest: f64) -> Vec<String> {
    let height = |rate: f32| {
        let part = if highest > 0.0 { f64::from(rate) / highest } else { 0.0 };
        (HEIGHT - 1.0 - part * (HEIGHT - 2.0)).round()
    };
    let unbroken = points.chunk_by(|(one, _), (next, _)| next - one <= 1);
    let line = |run: &[(u64, f32)]| {
        let places: Vec<(u64, f64)> = run.iter().map(|(at, rate)| (*at, height(*rate))).collect();
        let mut text = String::new();
        for (at, place) in places.iter().enumerate() {
            // Between two of the same height a point changes nothing.
            let same = |other: Option<&(u64, f64)>| other.is_some_and(|other| other.1 == place.1);
            if at > 0 && same(places.get(at - 1)) && same(places.get(at + 1)) {
                continue;
            }
            // A String cannot fail.
            let _ = write!(text, "{},{} ", place.0, place.1);
        }
        if let [only] = places.as_slice() {
            let _ = write!(text, "{},{} ", only.0 + 1, only.1);
        }
        text.truncate(text.trim_end().len());
        text
    };
    unbroken.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pointers::Counts;
    use crate::output::samples::{PID, sampled, traced};

    const S: u64 = 1_000_000_000;

    fn line(points: &[(u64, f32)]) -> Vec<String> {
        lines(points, points.iter().map(|(_, rate)| f64::from(*rate)).fold(0.0, f64::max))
    }

    #[test]
    fn a_gap_parts_a_line_and_equal_points_are_left_out() {
        assert_eq!(line(&[(0, 0.0), (1, 10.0), (2, 5.0)]), ["0,15 1,1 2,8"]);
        assert_eq!(line(&[(0, 7.0), (1, 7.0), (2, 7.0), (5, 7.0)]), ["0,1 2,1", "5,1 6,1"]);
        assert_eq!(line(&[(0, 0.0), (1, 0.0), (2, 0.0)]), ["0,15 2,15"], "nothing was done");
    }

    #[test]
    fn rates_are_kept_for_five_minutes_and_the_highest_of_a_step_is_shown() {
        let mut state = traced();
        let mut rates = Rates::default();
        let key = state.process_of_tgid(PID).expect("the process").key;
        rates.add(&state, 10 * S);
        assert_eq!(rates.spark(Line::Process(key), 10 * S), None, "not measured yet");
        let mut done = 0;
        for (second, more) in [(10, 0), (11, 100), (12, 300), (13, 50), (15, 200)] {
            done += more;
            sampled(&mut state, 3, Ok(Counts { submitted: done, retired: done }), second * S);
            rates.add(&state, second * S);
        }
        let gpu = rates.spark(Line::Gpu(58270), 15 * S).expect("a line");
        assert_eq!((gpu.highest.as_str(), gpu.lines.len()), ("300/s", 1));
        assert_eq!(gpu.lines, ["2,1 3,10"], "the third and fourth step of the monotonic clock");
        assert_eq!(rates.spark(Line::Process(key), 15 * S), Some(gpu));
        assert_eq!(rates.spark(Line::Gpu(58270), 15 * S + 300 * S), None, "too old");
        rates.add(&state, 400 * S);
        assert!(rates.lines.values().all(|points| points.len() == 1), "{rates:?}");
    }

    #[test]
    fn there_are_not_more_lines_than_their_bound() {
        let mut rates = Rates { step: 2, ..Rates::default() };
        for gpu_id in 0..2_000 {
            rates.point(Line::Gpu(gpu_id), Some(1.0));
        }
        assert_eq!(rates.lines.len(), LINES);
    }
}
