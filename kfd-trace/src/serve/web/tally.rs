//! Connection errors, counted and logged: one minute after the first of them, and then at most one line per
//! minute, whatever their number.

use crate::text::count::counted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(super) enum WebEvent {
    /// Idle ones that were closed for a new one.
    MadeRoom,
    /// New ones while all others had requests in progress.
    Refused,
    /// Not accepted: the process or the kernel had no descriptor or memory left.
    NotAccepted,
    /// TLS: no handshake, a wrong one, or none in time.
    Handshake,
    /// Closed for taking too long, or for not being HTTP.
    Broken,
    /// Requests without the name and password of a user.
    Denied,
    /// Requests for a name that is none of the daemon's.
    OtherHost,
    /// Requests above `rate_limit`.
    Limited,
}

/// The text for each.
const WORDS: [(WebEvent, [&str; 2], &str); 8] = [
    (WebEvent::MadeRoom, ["idle connection", "idle connections"], "closed to make room"),
    (WebEvent::Refused, ["connection", "connections"], "refused, since there were too many"),
    (WebEvent::NotAccepted, ["time", "times"], "no connection could be accepted"),
    (WebEvent::Handshake, ["TLS handshake", "TLS handshakes"], "failed"),
    (WebEvent::Broken, ["connection", "connections"], "closed for bad or slow requests"),
    (WebEvent::Denied, ["request", "requests"], "with a wrong or no password"),
    (WebEvent::OtherHost, ["request", "requests"], "for another host's name (--web.allowed-host)"),
    (WebEvent::Limited, ["request", "requests"], "above rate_limit"),
];

type WebCounts = [u64; WORDS.len()];

#[derive(Default)]
pub(super) struct WebTally {
    counts: [AtomicU64; WORDS.len()],
    counted: Notify,
}

impl WebTally {
    pub(super) fn count(&self, event: WebEvent) {
        self.counts[event as usize].fetch_add(1, Ordering::Relaxed);
        self.counted.notify_one();
    }

    pub(super) fn counts(&self) -> WebCounts {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// What is new since `before`.
fn new_counts(now: &WebCounts, before: &WebCounts) -> Option<String> {
    let new = WORDS.iter().filter_map(|&(event, [one, many], rest)| {
        let count = now[event as usize] - before[event as usize];
        (count > 0).then(|| format!("{} {rest}", counted(count, one, many)))
    });
    let new: Vec<_> = new.collect();
    (!new.is_empty()).then(|| new.join(", "))
}

/// Passes it to `write`, as long as it runs. Sleeps while there is nothing to report.
pub(super) async fn report(tally: Arc<WebTally>, mut write: impl FnMut(&str)) {
    let mut before = WebCounts::default();
    loop {
        tally.counted.notified().await;
        sleep(MINUTE).await;
        let now = tally.counts();
        if let Some(line) = new_counts(&now, &before) {
            write(&line);
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[test]
    fn each_count_has_its_text_and_is_reported_once() {
        let tally = WebTally::default();
        let before = tally.counts();
        assert_eq!(new_counts(&before, &before), None);
        for (place, (event, ..)) in WORDS.iter().enumerate() {
            assert_eq!(*event as usize, place);
            (0..=place).for_each(|_| tally.count(*event));
        }
        let now = tally.counts();
        let line = new_counts(&now, &before).unwrap();
        for (place, (_, [one, many], rest)) in WORDS.iter().enumerate() {
            let noun = if place == 0 { one } else { many };
            assert!(line.contains(&format!("{} {noun} {rest}", place + 1)), "{line}");
        }
        assert_eq!(new_counts(&now, &now), None);
    }

    // The clock advances when all tasks wait for it.
    #[tokio::test(start_paused = true)]
    async fn a_minute_has_one_line() {
        let tally = Arc::new(WebTally::default());
        let (lines, mut reported) = mpsc::unbounded_channel();
        let task = tokio::spawn(report(Arc::clone(&tally), move |line| lines.send(line.to_owned()).unwrap()));
        for number in [3, 5] {
            (0..number).for_each(|_| tally.count(WebEvent::Denied));
            assert_eq!(
                reported.recv().await.unwrap(),
                format!("{number} requests with a wrong or no password")
            );
        }
        sleep(10 * MINUTE).await;
        assert!(reported.is_empty(), "nothing is new");
        task.abort();
    }
}
