//! Queues of KFD to join with.

use super::input::End;
use crate::amd_log::recorded::{KfdQueue, Recorded, Recorder};
use crate::amd_log::report::Kfd;
use crate::command::ps;
use crate::kernel::Roots;
use crate::output::ps::PsRow;
use crate::runtime::exit::Stop;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

/// Longest line of a stream that is accepted: `ps --json` writes one line.
const LONGEST: u64 = 64 << 20;

/// The output of `kfd-trace --json` or `kfd-trace ps --json`.
pub(super) struct Stream {
    name: String,
    file: BufReader<File>,
}

impl Stream {
    /// # Errors
    /// One line: it cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Stream, Stop> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| cannot(&name, &error))?;
        Ok(Stream { name, file: BufReader::new(file) })
    }

    /// Reads to its end.
    ///
    /// # Errors
    /// One line: it cannot be read, or has no queue and is no stream.
    pub(super) fn read(mut self, end: &End) -> Result<Kfd, Stop> {
        let mut recorder = Recorder::default();
        let mut line = Vec::new();
        while !end.is_asked() {
            line.clear();
            let read = self.file.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            if read.map_err(|error| cannot(&self.name, &error))? == 0 {
                break;
            }
            recorder.line(&line);
        }
        let (queues, unreadable, left_out) = recorder.finish();
        if queues.is_empty() && unreadable > 0 {
            return Err(cannot(&self.name, &"it is no stream"));
        }
        Ok(Kfd { asked: vec!["stream"], queues, unreadable, left_out })
    }
}

fn cannot(name: &str, why: &impl fmt::Display) -> Stop {
    Stop::failed(format!("cannot read {name}: {why}; --stream takes what kfd-trace --json wrote"))
}

/// What exists now, as `kfd-trace ps` lists it, and why addresses are not available.
///
/// # Errors
/// There is no driver.
pub(super) fn live(roots: &Roots) -> Result<(Vec<Recorded>, Option<String>), Stop> {
    let (listed, problem) = ps::list(roots, ps::Measure::Nothing)?;
    let queues = listed.rows.iter().filter_map(|row| standing(row, &listed.topology));
    Ok((queues.collect(), problem))
}

fn standing(row: &PsRow, topology: &crate::attribute::Topology) -> Option<Recorded> {
    let queue = row.queue.as_ref()?;
    queue.ring_address.or(queue.write_pointer_address)?;
    let kfd = KfdQueue {
        pid: row.pid,
        ns_pid: row.ns_pid,
        comm: row.comm.clone(),
        gpu: queue.gpu_id.and_then(|id| topology.label(id)),
        gpu_id: queue.gpu_id,
        queue_id: queue.queue_id,
        queue_type: queue.queue_type.map(|kind| kind.name().to_owned()),
    };
    Some(Recorded {
        kfd,
        ring: queue.ring_address,
        write_pointer: queue.write_pointer_address,
        created_us: None,
        ended_us: None,
        live: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Origin, QueueCreate, QueueType};

    #[test]
    fn rows_of_ps_stand_with_their_addresses_and_others_are_left_out() {
        let queue = QueueCreate {
            queue_id: Some(3),
            gpu_id: Some(9),
            queue_type: Some(QueueType::ComputeAql),
            ring_address: Some(0x20),
            write_pointer_address: Some(0x48),
            ..QueueCreate::unknown(Origin::Standing)
        };
        let row = PsRow { pid: Some(40), ns_pid: Some(7), queue: Some(queue), ..PsRow::default() };
        let topology = crate::attribute::Topology::default();
        let reported = standing(&row, &topology).unwrap();
        let kfd = KfdQueue {
            pid: Some(40),
            ns_pid: Some(7),
            queue_id: Some(3),
            gpu_id: Some(9),
            queue_type: Some("compute_aql".to_owned()),
            ..KfdQueue::default()
        };
        let wanted =
            Recorded { kfd, ring: Some(0x20), write_pointer: Some(0x48), live: true, ..Recorded::default() };
        assert_eq!(reported, wanted);
        // As sysfs alone reports it.
        let bare = QueueCreate { queue_id: Some(3), ..QueueCreate::unknown(Origin::Standing) };
        assert_eq!(standing(&PsRow { queue: Some(bare), ..row }, &topology), None);
        assert_eq!(standing(&PsRow::default(), &topology), None);
    }
}
