//! What keys and the mouse do.

use super::*;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

fn pids(moment: &Moment, ui: &Ui) -> Vec<String> {
    first_cells(&view(moment, ui, (132, 60)), PaneId::Processes)
}

#[test]
fn processes_are_sorted_by_rate_and_what_is_not_known_comes_last() {
    let moment = node().moment(30);
    assert_eq!(pids(&moment, &typed(&moment, "")), ["4321", "4400", "5100", "5300", "5000", "5200"]);
    assert_eq!(pids(&moment, &typed(&moment, "S")), ["4400", "5100", "5300", "4321", "5000", "5200"]);
}

#[test]
fn columns_are_chosen_one_by_one() {
    let moment = node().moment(30);
    // BACKLOG, STATE, PID.
    assert_eq!(pids(&moment, &typed(&moment, "s"))[..2], ["4321", "5100"]);
    assert_eq!(pids(&moment, &typed(&moment, "ssS"))[..3], ["4400", "5100", "4321"], "the worst first");
    assert_eq!(pids(&moment, &typed(&moment, "sss"))[0], "5300");
    // QUEUES.
    assert_eq!(pids(&moment, &typed(&moment, "<"))[..2], ["4321", "4400"]);
    assert_eq!(pids(&moment, &typed(&moment, "<S"))[0], "5200");
}

#[test]
fn a_filter_is_typed_kept_and_cleared() {
    let moment = node().moment(30);
    let filtered = typed(&moment, "/TRAIN");
    assert_eq!(pids(&moment, &filtered), ["4321"]);
    assert!(screen(&moment, &filtered, MINIMUM).contains("filter: TRAIN"));
    let kept =
        after(&moment, filtered, &[key(KeyCode::Enter), key(KeyCode::Char('S'))], MINIMUM).expect("on");
    assert_eq!(pids(&moment, &kept), ["4321"]);
    assert!(screen(&moment, &kept, MINIMUM).contains("only /TRAIN: 1 of 6 processes; Esc shows all"));
    let cleared = after(&moment, kept, &[key(KeyCode::Esc)], MINIMUM).expect("on");
    assert_eq!(pids(&moment, &cleared).len(), 6);
    let typing = [key(KeyCode::Char('/')), key(KeyCode::Char('q')), key(KeyCode::Backspace)];
    let typing = after(&moment, Ui::default(), &typing, MINIMUM).expect("q is a letter of it");
    assert_eq!(pids(&moment, &typing).len(), 6);
    assert_eq!(pids(&moment, &typed(&moment, "/slurm 7")), ["4400"], "by owner");
    let events = view(&moment, &typed(&moment, "/slurm 7"), (132, 60));
    assert!(!first_cells(&events, PaneId::Events).is_empty(), "events, too");
    assert_eq!(pids(&moment, &typed(&moment, "/53")), ["5300"], "by PID");
    assert!(screen(&moment, &typed(&moment, "/nobody"), MINIMUM).contains("No process passes the filter."));
}

#[test]
fn one_gpu_alone() {
    let moment = node().moment(30);
    let keys = [KeyCode::BackTab, KeyCode::Down, KeyCode::Enter].map(key);
    let ui = after(&moment, Ui::default(), &keys, MINIMUM).expect("on");
    assert_eq!(pids(&moment, &ui), ["4321", "4400", "5100"]);
    assert!(screen(&moment, &ui, MINIMUM).contains("only gpu 1: 3 of 6 processes"));
    let shown = view(&moment, &ui, (132, 60));
    assert_eq!(first_cells(&shown, PaneId::Queues), ["3"], "of the three of 4321");
    let tree = after(&moment, ui.clone(), &[key(KeyCode::Char('t'))], MINIMUM).expect("on");
    assert_eq!(pids(&moment, &tree).len(), 6, "each with its queue there");
    let again = after(&moment, ui, &[key(KeyCode::Enter)], MINIMUM).expect("on");
    assert_eq!(pids(&moment, &again).len(), 6);
}

#[test]
fn the_top_is_shown_until_a_row_is_chosen() {
    let mut moment = node().moment(30);
    moment.snapshot.processes.iter_mut().for_each(|process| process.queues.clear());
    let ui = typed(&moment, "");
    let (before, moment) = (pids(&moment, &ui)[0].clone(), node().moment(30));
    let selected = |ui: &Ui| {
        let view = view(&moment, ui, MINIMUM);
        view.pane(PaneId::Processes).and_then(|pane| pane.selected)
    };
    let reversed = after(&moment, ui, &[key(KeyCode::Char('S'))], MINIMUM).expect("on");
    assert_ne!(before, pids(&moment, &reversed)[0]);
    assert_eq!(selected(&reversed), Some(0));
    let chosen =
        after(&moment, reversed, &[KeyCode::Down, KeyCode::Char('S')].map(key), MINIMUM).expect("on");
    assert_ne!(selected(&chosen), Some(1), "it stays with its process");
}

#[test]
fn the_selection_stays_with_its_process() {
    let mut node = node();
    let moment = node.moment(30);
    let ui = typed(&moment, "j");
    let queues = |moment: &Moment, ui: &Ui| screen(moment, ui, (132, 60));
    assert!(queues(&moment, &ui).contains("Queues of 4400 serve: 1"));
    let sorted = after(&moment, ui, &[key(KeyCode::Char('S'))], MINIMUM).expect("on");
    assert!(queues(&moment, &sorted).contains("Queues of 4400 serve: 1"), "it is the first row now");
    let last = after(&moment, sorted, &[key(KeyCode::End)], MINIMUM).expect("on");
    assert!(queues(&moment, &last).contains("Queues of 5200 rocminfo: 0"));
    node.take(31 * S, 5, 5200, Body::ProcessRelease);
    let moment = node.moment(32);
    assert!(queues(&moment, &last).contains("Queues of 5000 steers"), "the last one in its place");
}

#[test]
fn tab_goes_through_all_tables() {
    let moment = node().moment(30);
    let focus = |keys: &[KeyCode]| {
        let events: Vec<Event> = keys.iter().copied().map(key).collect();
        after(&moment, Ui::default(), &events, MINIMUM).expect("on").focus
    };
    let tab = KeyCode::Tab;
    let seen = [0, 1, 2, 3, 4].map(|times| focus(&vec![tab; times]));
    assert_eq!(seen, [PaneId::Processes, PaneId::Queues, PaneId::Events, PaneId::Gpus, PaneId::Processes]);
    assert_eq!(focus(&[KeyCode::BackTab]), PaneId::Gpus);
    // There is no table of queues beside the tree.
    assert_eq!(focus(&[tab, KeyCode::Char('t')]), PaneId::Processes);
    assert_eq!(focus(&[KeyCode::Char('t'), tab]), PaneId::Events);
}

#[test]
fn the_newest_event_stays_selected_until_another_one_is() {
    let mut node = node();
    let moment = node.moment(30);
    let (tabs, down) = (vec![key(KeyCode::Tab); 2], key(KeyCode::Down));
    let newest = after(&moment, Ui::default(), &tabs, MINIMUM).expect("on");
    let older = after(&moment, newest.clone(), &[down], MINIMUM).expect("on");
    let selected = |moment: &Moment, ui: &Ui| {
        let view = view(moment, ui, MINIMUM);
        view.pane(PaneId::Events).and_then(|pane| pane.selected)
    };
    node.take(31 * S, 5, 5200, Body::ProcessRelease);
    let later = node.moment(32);
    assert_eq!((selected(&later, &newest), selected(&later, &older)), (Some(0), Some(2)));
}

#[test]
fn events_of_the_same_time_are_selected_one_by_one() {
    let mut node = Node::new(1);
    for process in 1..=5 {
        let seen = seen(true);
        node.take(S, process, 100 + u32::try_from(process).expect("small"), seen);
    }
    let moment = node.moment(2);
    let keys = [KeyCode::Tab, KeyCode::Tab, KeyCode::Down, KeyCode::Down, KeyCode::Down].map(key);
    let ui = after(&moment, Ui::default(), &keys, MINIMUM).expect("on");
    assert_eq!(view(&moment, &ui, MINIMUM).pane(PaneId::Events).and_then(|pane| pane.selected), Some(3));
}

#[test]
fn queues_are_sorted_by_their_own_columns() {
    let mut node = node();
    node.take(10 * S, 1, 4321, Body::QueueCreate(QueueFacts { queue_id: Some(9), ..facts(9) }));
    let moment = node.moment(30);
    let order = |keys: &[KeyCode]| {
        let events: Vec<Event> = [KeyCode::Tab].iter().chain(keys).copied().map(key).collect();
        let ui = after(&moment, Ui::default(), &events, (132, 60)).expect("on");
        (first_cells(&view(&moment, &ui, (132, 60)), PaneId::Queues), pids(&moment, &ui))
    };
    let (s, reverse) = (KeyCode::Char('s'), KeyCode::Char('S'));
    let unsorted = pids(&moment, &Ui::default());
    assert_eq!(order(&[reverse]), (["9", "3", "2", "1"].map(str::to_owned).to_vec(), unsorted.clone()));
    // GPU, RATE, BACKLOG, AGE.
    assert_eq!(order(&[s, reverse]).0[0], "3", "gpu 1");
    assert_eq!(order(&[s, s, reverse]).0, ["3", "1", "2", "9"], "what is not known last");
    assert_eq!(order(&[s, s, s]).0, ["2", "1", "3", "9"]);
    assert_eq!(order(&[s, s, s, s]).0[0], "9", "the youngest first");
    assert_eq!(order(&[s, s, s, s, reverse]).0, ["1", "2", "3", "9"]);
}

#[test]
fn q_and_ctrl_c_end_it() {
    let moment = node().moment(30);
    let ctrl_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    let ends = |ui: Ui, event: &Event| after(&moment, ui, std::slice::from_ref(event), MINIMUM).is_none();
    let q = key(KeyCode::Char('q'));
    assert!(ends(Ui::default(), &q) && ends(Ui::default(), &ctrl_c));
    assert!(ends(typed(&moment, "/x"), &ctrl_c) && !ends(typed(&moment, "/x"), &q));
    assert!(ends(typed(&moment, "?"), &q) && ends(typed(&moment, "?"), &ctrl_c));
    assert!(!ends(Ui::default(), &key(KeyCode::Char('c'))));
}

#[test]
fn the_help_is_read_and_closed_and_pause_is_shown() {
    let mut moment = node().moment(30);
    moment.lost = Some((0..50).map(|number| (format!("number {number:02}"), 1)).collect());
    let help = typed(&moment, "?");
    assert!(screen(&moment, &help, MINIMUM).contains("next table"));
    let down = after(&moment, help, &vec![key(KeyCode::Down); 200], MINIMUM).expect("on");
    assert!(screen(&moment, &down, MINIMUM).contains("number 49"), "to the end and no further");
    let closed = after(&moment, down, &[key(KeyCode::Char('x'))], MINIMUM).expect("on");
    assert!(screen(&moment, &closed, MINIMUM).contains("COMM"));
    let paused = typed(&moment, "p");
    assert!(paused.is_paused() && screen(&moment, &paused, MINIMUM).contains("PAUSED"));
    assert!(!typed(&moment, "p ").is_paused());
}

#[test]
fn the_mouse_selects_and_turns() {
    let moment = node().moment(30);
    let shown = view(&moment, &Ui::default(), MINIMUM);
    let area = shown.pane(PaneId::Processes).expect("processes").area;
    let mouse = |kind, row| Event::Mouse(MouseEvent { kind, column: 20, row, modifiers: KeyModifiers::NONE });
    let click = |row| mouse(MouseEventKind::Down(MouseButton::Left), row);
    let selected = |ui: &Ui| {
        let view = view(&moment, ui, MINIMUM);
        view.pane(PaneId::Processes).and_then(|pane| pane.selected)
    };
    let third = after(&moment, Ui::default(), &[click(area.y + 3)], MINIMUM).expect("on");
    assert_eq!(selected(&third), Some(2));
    let wheel = [mouse(MouseEventKind::ScrollDown, area.y), mouse(MouseEventKind::ScrollDown, area.y)];
    assert_eq!(
        selected(&after(&moment, third.clone(), &wheel, MINIMUM).expect("on")),
        Some(5),
        "the last one"
    );
    let up = mouse(MouseEventKind::ScrollUp, area.y);
    assert_eq!(selected(&after(&moment, third.clone(), &[up], MINIMUM).expect("on")), Some(0));
    let events = shown.pane(PaneId::Events).expect("events").area;
    let elsewhere = after(&moment, third, &[click(events.y + 2)], MINIMUM).expect("on");
    assert_eq!((elsewhere.focus, selected(&elsewhere)), (PaneId::Events, Some(2)));
    let header = after(&moment, elsewhere.clone(), &[click(0)], MINIMUM).expect("on");
    assert_eq!(header, elsewhere);
}
