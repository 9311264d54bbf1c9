//! What is on the screen.

use super::*;
use crate::attribute::Unreadable;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::model::event::Origin;
use crate::output::ps;
use crate::output::samples::WAIT;
use crate::state::samples::open_call;
use ratatui::style::{Color, Modifier};

#[test]
fn the_smallest_terminal() {
    check("top-80x24.txt", &screen(&node().moment(30), &Ui::default(), MINIMUM));
}

#[test]
fn a_wide_terminal_has_more_columns() {
    check("top-132x40.txt", &screen(&node().moment(30), &Ui::default(), (132, 40)));
}

#[test]
fn the_tree_has_the_queues_of_each_process() {
    let moment = node().moment(30);
    check("top-tree.txt", &screen(&moment, &typed(&moment, "t"), (100, 30)));
}

#[test]
fn the_help_has_keys_and_all_that_is_missing() {
    let mut moment = node().moment(30);
    let probes = attached().into_iter().chain([probe(ProbeId::Open, Verdict::NotInKernel)]);
    moment.sight = status::sight(&probes.collect::<Vec<_>>(), false);
    moment.lost = Some([("records lost, queue_create, queue_add".to_owned(), 7)].into());
    check("top-help.txt", &screen(&moment, &typed(&moment, "?"), (80, 40)));
}

/// `ps` and `top` show one value for one queue.
#[test]
fn the_age_of_a_queue_that_was_found_is_the_one_that_ps_shows() {
    let mut node = Node::new(1);
    node.process(1, 4321, "train", ProcessDetails::default());
    let found = QueueFacts { origin: Origin::Standing, gpu_id: Some(GPU), ..facts(1) };
    node.take(2_000, 1, 4321, Body::QueueCreate(found));
    let moment = node.moment(30);
    let view = view(&moment, &Ui::default(), (132, 40));
    let queues = view.pane(PaneId::Queues).expect("queues");
    let at = queues.titles.iter().position(|title| title.text == "AGE").expect("AGE");
    let age = queues.rows[0][at].clone();
    // Its process started a second after the machine.
    assert_eq!(age, Cell::text(Some("<32s")));
    let rows = ps::PsRow::from_snapshot(&moment.snapshot, moment.now_ns, moment.boot_ns);
    let of_ps = ps::PsView {
        asked: Default::default(),
        all_queues: true,
        topology: &moment.topology,
        columns: ps::Columns::All,
    };
    let mut text = Vec::new();
    ps::text(&mut text, &rows, &of_ps).expect("memory");
    assert!(String::from_utf8(text).expect("text").contains(" <32s "));
}

/// The second line alone.
fn second(moment: &Moment) -> String {
    lines(&drawn(&view(moment, &Ui::default(), (120, 24)), (120, 24), true)).swap_remove(1)
}

#[test]
fn the_header_shows_what_is_missing() {
    let well = node().moment(30);
    assert_eq!(second(&well), "nothing lost, nothing unseen; queues are read every 1s");
    let lost = [("records lost, a".to_owned(), 2), ("trouble, b".to_owned(), 5)].into();
    let lost = Moment { lost: Some(lost), sample: Some(Duration::ZERO), ..well.clone() };
    assert_eq!(second(&lost), "lost: 7 (trouble, b); queues are not read");
    let unknown = Moment { lost: None, sight: status::sight(&attached(), true), ..well.clone() };
    assert_eq!(second(&unknown), "losses cannot be read; queues by ioctls alone");
    let mut partial = well.clone();
    let probes = [
        probe(ProbeId::Open, Verdict::NotInKernel),
        probe(ProbeId::QueueAdd, Verdict::Refused("no".to_owned())),
    ];
    partial.sight = status::sight(&probes, false);
    assert_eq!(second(&partial), "not seen: what open feeds, and 1 more (?)");
    let why = "the amdgpu driver was unloaded\u{1b}; waiting for it";
    let waiting = Moment { why_not: Some(why.to_owned()), ..lost };
    let line =
        "nothing is traced: the amdgpu driver was unloaded\\u{1b}; waiting for it; lost: 7 (trouble, b)";
    assert_eq!(second(&waiting), line);
    let mut unreadable = well;
    unreadable.topology.errors = vec![Unreadable { path: "/sys/name".into(), why: "no".to_owned() }];
    assert_eq!(second(&unreadable), "KFD's topology is not all readable (?)");
}

#[test]
fn threads_that_wait_for_events_are_no_loss() {
    let well = node().moment(30);
    let wait = |tid| open_call(1, WAIT, tid, 1);
    let tables = Tables { whole_calls: true, ..Tables::default().with_open((0..300).map(wait).collect()) };
    let waiting = Moment { lost: Some(tables.missing(&Undecoded::default())), ..well.clone() };
    let both = [&waiting, &well].map(|moment| screen(moment, &Ui::default(), (132, 40)));
    assert_eq!(both[0], both[1]);
    assert!(second(&waiting).starts_with("nothing lost, "));
}

#[test]
fn what_is_not_seen_is_not_0() {
    let mut moment = node().moment(30);
    let evictions = |moment: &Moment| {
        let view = view(moment, &Ui::default(), (80, 24));
        let pane = view.pane(PaneId::Gpus).expect("GPUs");
        pane.rows.iter().map(|row| row[7].clone()).collect::<Vec<_>>()
    };
    assert_eq!(evictions(&moment), [Cell::text(Some(0)), Cell::text(Some(1))]);
    moment.sight = status::sight(&[probe(ProbeId::EvictGpu, Verdict::Refused("no".to_owned()))], false);
    assert_eq!(evictions(&moment), [Cell::text(None::<u64>), Cell::text(None::<u64>)]);
    // Without samples no queue has a rate; a GPU without queues does nothing, as far as they are known.
    let rates = |moment: &Moment| {
        let view = view(moment, &Ui::default(), (80, 24));
        let pane = view.pane(PaneId::Gpus).expect("GPUs");
        pane.rows.iter().map(|row| row[5].clone()).collect::<Vec<_>>()
    };
    let idle = Node::new(1).moment(30);
    assert_eq!(rates(&idle), [Cell::text(Some("0/s"))]);
    let blind = Moment { sight: Sight::default(), ..idle.clone() };
    assert_eq!(rates(&blind), [Cell::text(None::<u64>)]);
    let blind = Moment { sight: Sight::default(), ..node().moment(30) };
    let screen = screen(&blind, &Ui::default(), MINIMUM);
    let row = screen.lines().find(|line| line.contains("rocminfo")).expect("a process without queues");
    assert_eq!(Vec::from_iter(row.split_whitespace().skip(2)), ["-"; 5], "{row}");
    assert!(screen.contains("?/24") && !screen.contains(" 0/1") && !screen.contains(" 0/2"), "{screen}");
    assert!(
        screen.lines().next().is_some_and(|line| line.ends_with("2 GPUs; not all queues are known")),
        "{screen}"
    );
    let last = after(&blind, Ui::default(), &[key(KeyCode::End)], MINIMUM).expect("on");
    let last = self::screen(&blind, &last, MINIMUM);
    assert!(last.contains("Queues of 5200 rocminfo: not known") && !last.contains("has no queue"), "{last}");
    assert_eq!(rates(&Moment { sample: Some(Duration::ZERO), ..idle }), [Cell::text(None::<u64>)]);
}

#[test]
fn a_terminal_that_is_too_small_has_one_line() {
    let moment = node().moment(30);
    for (size, line) in [
        ((79, 24), "this terminal has 79 x 24; 80 x 24 are needed"),
        ((80, 23), "this terminal has 80 x 23; 80 x 24 are needed"),
        ((20, 3), "this terminal has 2…"),
    ] {
        assert_eq!(screen(&moment, &Ui::default(), size).trim_end(), line);
    }
    let _ = screen(&moment, &Ui::default(), (1, 1));
}

#[test]
fn a_terminal_that_has_shrunk_meanwhile_is_drawn_on() {
    let moment = node().moment(30);
    for keys in ["", "t", "?"] {
        for before in [(80, 40), (132, 40)] {
            let shown = view(&moment, &typed(&moment, keys), before);
            for size in [(80, 24), (79, 40), (1, 1)] {
                let _ = drawn(&shown, size, true);
            }
        }
    }
}

#[test]
fn any_size_and_any_number_of_gpus_has_room() {
    for gpus in [0, 1, 8, 64] {
        let moment = Node { topology: Node::new(gpus).topology, ..node() }.moment(30);
        for size in [(80, 24), (81, 25), (80, 60), (300, 100)] {
            for keys in ["", "t", "?"] {
                let ui = typed(&moment, keys);
                let shown = view(&moment, &ui, size);
                let heights: u16 = shown.panes.iter().map(|pane| pane.area.height).sum();
                assert!(shown.help.is_some() || heights == size.1 - 3, "{gpus} {size:?} {heights}");
                assert!(shown.panes.iter().all(|pane| pane.area.height > pane.heads()), "{gpus} {size:?}");
                let _ = drawn(&shown, size, true);
            }
        }
    }
}

/// Of the cell at the begin of a text.
fn style_of(text: &str, colour: bool) -> (Color, Modifier) {
    let (moment, size) = (node().moment(30), (80, 24));
    let buffer = drawn(&view(&moment, &Ui::default(), size), size, colour);
    let (row, line) =
        lines(&buffer).into_iter().enumerate().find(|(_, line)| line.contains(text)).expect(text);
    let column = line.split(text).next().map_or(0, |before| before.chars().count());
    let cell = &buffer[(u16::try_from(column).expect("small"), u16::try_from(row).expect("small"))];
    (cell.fg, cell.modifier)
}

#[test]
fn colours_are_the_terminals_own_and_can_be_turned_off() {
    assert_eq!(style_of("evicted 3s", true).0, Color::Yellow);
    assert_eq!(style_of("1 stalled", true), (Color::Red, Modifier::BOLD));
    assert_eq!(style_of("evicted 3s", false).0, Color::Reset);
    assert_eq!(style_of("1 stalled", false), (Color::Reset, Modifier::BOLD));
    assert!(style_of("4321 train", true).1.contains(Modifier::REVERSED), "it is selected");
    let (moment, size) = (node().moment(30), (80, 24));
    let buffer = drawn(&view(&moment, &Ui::default(), size), size, false);
    assert!(buffer.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
}

#[test]
fn a_recording_says_so_and_where_it_is() {
    let played = Played { host: "node7\u{1b}".to_owned(), after_ns: 12 * S, speed: 4, over: None };
    let moment = Moment { played: Some(played.clone()), ..node().moment(30) };
    let line = "recording of node7\\u{1b}, 12s after its begin, 4x; nothing lost, nothing unseen; ";
    assert_eq!(second(&moment).strip_prefix(line), Some("queues are read every 1s"));
    let over = Some("its end".to_owned());
    let moment = Moment { played: Some(Played { over, ..played }), lost: None, ..moment };
    let line = "recording of node7\\u{1b}, 12s after its begin: its end; losses were not recorded";
    assert_eq!(second(&moment), line);
    let last = screen(&moment, &Ui::default(), MINIMUM);
    assert!(last.lines().last().is_some_and(|keys| keys.starts_with("←→ 10 s back, on  - + ")), "{last}");
}

#[test]
fn old_data_is_a_gap_in_the_sparklines() {
    let fresh = Moment { watched: Some(Watched::default()), ..node().moment(30) };
    let mut old = fresh.clone();
    old.watched = Some(Watched { silence: Some(Silence { for_ns: 9 * S, why: None }), ..Watched::default() });
    let mut trends = Trends::default();
    [&fresh, &fresh, &old, &fresh].into_iter().for_each(|moment| trends.add(moment));
    let trend = trends.of(GPU).expect("of the GPU");
    let known = |points: &std::collections::VecDeque<Option<u64>>| {
        points.iter().map(Option::is_some).collect::<Vec<_>>()
    };
    assert_eq!(known(&trend.packets), [true, true, false, true]);
    // Of the first one after it, what came meanwhile is not known to be of it.
    assert_eq!(known(&trend.evictions), [false, true, false, false]);
}
