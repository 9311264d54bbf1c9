//! Export: what a record costs the daemon more where events go to a collector.

use crate::load::World;
use crate::region::{region, value};
use crate::world::Daemon;
use kfd_trace::otlp::{Encoder, Item};
use kfd_trace::state::History;

/// The mix with a history that is full: as it is, with an outlet, and what the thread that makes records does.
pub(crate) fn export(world: World, daemon: &mut Daemon) {
    let (tape, mut history) = (world.lives_of_queues(), History::default());
    let case = |part: &str| world.case(&format!("export.{part}"));
    (0..crate::load::FULL).for_each(|_| daemon.follow_with_history(&tape, &mut history));
    region(&case("off"), tape.len(), "record", || daemon.follow_with_history(&tape, &mut history));
    history.start_outlet(false);
    let mut items = Vec::new();
    region(&case("tracer"), tape.len(), "record", || {
        daemon.follow_with_history(&tape, &mut history);
        items.extend(history.take_new().into_iter().map(Item::New));
    });
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::with_capacity(1024 * items.len()));
    region(&case("records"), tape.len(), "record", || {
        for item in &items {
            encoder.encode(item, 0, &mut bytes);
        }
    });
    value(&case("size"), (bytes.len() / items.len()) as u64, "bytes/record");
}
