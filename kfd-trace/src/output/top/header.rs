//! The two lines at the top, and the one at the bottom.

use super::pane::{PaneId, Tone};
use super::ui::Ui;
use super::{Moment, Played, Watched};
use crate::output::headline::headline;
use crate::output::names;
use crate::text::clock::age;
use crate::text::count::counted;
use crate::text::escape;

/// Characters of a time to the second.
const SECONDS: usize = 8;

pub(super) type Text = (String, Tone);

/// What exists, and when.
pub(super) fn first(moment: &Moment, ui: &Ui) -> Text {
    let time = moment.clock.time_of_day(moment.now_ns);
    let time = time.get(..SECONDS).unwrap_or(&time);
    let paused = if ui.is_paused() { "  PAUSED" } else { "" };
    let old = if moment.is_old() { "  OLD" } else { "" };
    let tone = if ui.is_paused() || moment.is_old() { Tone::Warn } else { Tone::Plain };
    let place = moment.watched.as_ref().map_or_else(String::new, |watched| format!(" {}", watched.place));
    let exists = if moment.sight.queues {
        headline(&moment.snapshot, &moment.topology)
    } else {
        format!("{}; not all queues are known", counted(moment.topology.gpus.len(), "GPU", "GPUs"))
    };
    (format!("kfd-trace top{place}  {time}{old}{paused}  {exists}"), tone)
}

/// What is missing from the figures, the worst first.
pub(super) fn second(moment: &Moment) -> Vec<Text> {
    let mut parts: Vec<Text> = moment.played.iter().map(played).collect();
    parts.extend(moment.watched.iter().flat_map(watched));
    let whole = parts.len();
    if let Some(why) = &moment.why_not {
        parts.push((format!("nothing is traced: {}", escape::terminal(why)), Tone::Bad));
    }
    match &moment.lost {
        None if moment.played.is_some() => parts.push(("losses were not recorded".to_owned(), Tone::Warn)),
        None => parts.push(("losses cannot be read".to_owned(), Tone::Bad)),
        Some(lost) if !lost.is_empty() => {
            let sum: u64 = lost.values().fold(0, |sum, count| sum.saturating_add(*count));
            let most = lost.iter().max_by_key(|(_, count)| **count).map_or("", |(name, _)| name);
            parts.push((format!("lost: {sum} ({})", escape::terminal(most)), Tone::Bad));
        }
        Some(_) => {}
    }
    if moment.why_not.is_some() {
        return parts;
    }
    if !moment.topology.errors.is_empty() {
        parts.push(("KFD's topology is not all readable (?)".to_owned(), Tone::Warn));
    }
    if moment.sight.by_ioctl {
        parts.push(("queues by ioctls alone".to_owned(), Tone::Warn));
    }
    // A recording may be anybody's.
    let unseen: Vec<String> = moment.sight.unseen.iter().map(|line| escape::terminal(line)).collect();
    match unseen.split_first() {
        Some((only, [])) => parts.push((only.clone(), Tone::Warn)),
        Some((first, more)) => parts.push((format!("{first}, and {} more (?)", more.len()), Tone::Warn)),
        None => {}
    }
    if moment.sample.is_some_and(|interval| interval.is_zero()) {
        parts.push(("queues are not read".to_owned(), Tone::Warn));
    }
    if parts.len() == whole {
        let each = moment.sample.map(|interval| age(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)));
        let read = each.map_or_else(String::new, |each| format!("; queues are read every {each}"));
        parts.push((format!("nothing lost, nothing unseen{read}"), Tone::Quiet));
    }
    parts
}

/// What makes a daemon's data doubtful.
fn watched(watched: &Watched) -> Vec<Text> {
    let silence = watched.silence.as_ref().map(|silence| {
        let why = silence.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        (format!("no answer for {}{why}", age(silence.for_ns)), Tone::Bad)
    });
    let insecure = watched.insecure.then(|| ("not verified who answers (--insecure)".to_owned(), Tone::Warn));
    [silence, insecure].into_iter().flatten().collect()
}

/// Where a recording is, and how fast it is played.
fn played(played: &Played) -> Text {
    let Played { host, after_ns, speed, over } = played;
    let at = format!("recording of {}, {} after its begin", escape::terminal(host), age(*after_ns));
    match over {
        Some(why) => (format!("{at}: {}", escape::terminal(why)), Tone::Warn),
        None => (format!("{at}, {speed}x"), Tone::Info),
    }
}

/// Keys, or the filter. `shown`: processes that pass it, of how many.
pub(super) fn footer(moment: &Moment, ui: &Ui, shown: (usize, usize)) -> Text {
    if ui.typing {
        return (format!("filter: {}▏  Enter keep  Esc clear", ui.filter()), Tone::Info);
    }
    if ui.has_filter() && !ui.help {
        let gpu = ui.gpu.map(|id| names::gpu(id, &moment.topology));
        let text = (!ui.filter().is_empty()).then(|| format!("/{}", ui.filter()));
        let by = [gpu, text].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let all = counted(shown.1, "process", "processes");
        return (format!("only {by}: {} of {all}; Esc shows all", shown.0), Tone::Info);
    }
    let keys = if ui.help {
        "↑↓ PageUp PageDown scroll  any other key closes the help  q quit"
    } else if ui.focus == PaneId::Gpus {
        "Tab table  ↑↓ select  Enter only this GPU  / filter  p pause  ? help  q quit"
    } else if moment.played.is_some() {
        "←→ 10 s back, on  - + slower, faster  p pause  / filter  t tree  ? help  q quit"
    } else {
        "Tab table  ↑↓ select  s S sort  / filter  t tree  p pause  ? help  q quit"
    };
    (keys.to_owned(), Tone::Quiet)
}
