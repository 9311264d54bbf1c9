//! The figures that are accepted and watched, and whether new ones are well. Pure.

use super::figures::Row;
use crate::bench::baseline::{Baseline, Figure};
use crate::run::note;

/// Subjects that depend on our own code; the others show the cost of the kernel and other programs.
const OURS: [&str; 2] = ["kfd_trace", "kfd_trace_caller"];

/// With the daemon's own work, which depends on how many records it finds when it wakes: three repeats differ
/// by more than is tolerated.
const UNSTEADY: (&str, &str) = ("create_destroy", "kfd_trace");

/// Figures of the tracer itself: one page, or one scan of the driver's lists more or less, is a good share of them.
const SMALL: [&str; 3] = ["tracing.anonymous", "tracing.wake_ups", "tracing.work"];

/// Where hardly any instructions are extra, a share of them is meaningless.
const SLACK: i64 = 20;

/// It depends on the layout of the guest's memory, too, and so on the size of its programs: a file that is never read
/// moved it by 1,100 when it was the least of its repeats, presumably since the driver then allocates in another way.
const SWINGS: (&str, i64) = ("create_destroy, kfd_trace_caller", 1_000);

fn slack(case: &str) -> i64 {
    if case == SWINGS.0 { SWINGS.1 } else { SLACK }
}

/// One file per series, so that each can be renewed alone.
pub(super) fn name(series: &str) -> String {
    format!("overhead-{series}")
}

/// Ours among these figures, and the tracer's own cost, for the kernel of that release.
pub(super) fn of(release: &str, rows: &[Row], own: &[Figure]) -> Baseline {
    let own = own.iter().filter(|figure| !SMALL.iter().any(|small| figure.case.starts_with(small)));
    let is_steady = |row: &&Row| (row.case.as_str(), row.subject.as_str()) != UNSTEADY;
    let ours = rows.iter().filter(|row| OURS.contains(&row.subject.as_str())).filter(is_steady);
    let figure = |row: &Row| {
        let case = format!("{}, {}", row.case, row.subject);
        Figure::new(case, row.extra, "extra instructions an operation")
    };
    Baseline { measured_on: release.to_owned(), figures: ours.map(figure).chain(own.cloned()).collect() }
}

/// Whether nothing has grown. Another kernel has other costs, which no change here caused: figures of one that
/// none were accepted of are shown, and do not fail.
pub(super) fn is_well(accepted: Option<&Baseline>, now: &Baseline) -> bool {
    let Some(accepted) = accepted else {
        note(format!("measured on {}, nothing accepted of its series: not compared", now.measured_on));
        return true;
    };
    let grown = accepted.grown(now, slack);
    if accepted.measured_on == now.measured_on {
        grown.fails.iter().for_each(|line| eprintln!("error: {line}"));
        grown.report("overhead");
        return grown.fails.is_empty();
    }
    note(format!(
        "measured on {}, accepted on {}: shown, not compared; --accept makes these the accepted ones",
        now.measured_on, accepted.measured_on
    ));
    grown.fails.iter().chain(&grown.reported).for_each(note);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_with_those_of_the_same_release_only() {
        let on = |release: &str, value| Baseline {
            measured_on: release.to_owned(),
            figures: vec![Figure::new("start", value, "instructions")],
        };
        let accepted = on("6.12.117+deb12-amd64", 1000);
        assert!(is_well(Some(&accepted), &on("6.12.117+deb12-amd64", 1150)));
        assert!(!is_well(Some(&accepted), &on("6.12.117+deb12-amd64", 1151)));
        assert!(is_well(Some(&accepted), &on("6.12.200+deb12-amd64", 9000)));
        assert!(is_well(None, &on("7.2.12+deb13-amd64", 9000)));
    }

    #[test]
    fn what_the_layout_of_memory_moves_may_be_moved_and_no_more() {
        let of = |value| Baseline {
            measured_on: "6.12.117+deb12-amd64".to_owned(),
            figures: vec![Figure::new(SWINGS.0, value, "instructions")],
        };
        assert!(is_well(Some(&of(6_000)), &of(7_000)) && !is_well(Some(&of(6_000)), &of(7_001)));
    }

    #[test]
    fn only_our_own_that_are_steady_are_kept() {
        let row = |case: &str, subject: &str, extra| Row {
            kernel: "6.12",
            case: case.to_owned(),
            subject: subject.to_owned(),
            instructions: 9000,
            extra,
            probes: None,
        };
        let rows = [
            row("a", "untraced", 0),
            row("a", "kfd_trace", 7),
            row("a", "strace", 8000),
            row("create_destroy", "kfd_trace", 9),
        ];
        let own = Figure::new("start", 5, "instructions");
        let small = Figure::new("tracing.work.30_seconds", 6, "instructions");
        let kept = of("6.12.1", &rows, &[small, own.clone()]);
        let expected = [Figure::new("a, kfd_trace", 7, "extra instructions an operation"), own];
        assert_eq!((kept.measured_on.as_str(), kept.figures.as_slice()), ("6.12.1", &expected[..]));
    }
}
