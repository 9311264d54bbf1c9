//! `kfd-trace timeline`: a recording as a trace for Perfetto.

use super::replay::{BUFFER, Items, begin, items, open};
use crate::recording::{Item, ReadError, Replay};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::timeline::Timeline;
use crate::tracer::engine;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Beyond this, Perfetto's page may run out of the memory that a browser gives it.
const LARGE: u64 = 300 << 20;

/// Writes it. `output`: `-` for standard output; without it, the recording's name with another ending.
///
/// # Errors
/// If it is no recording, or the trace cannot be written. A recording that was cut makes a trace of what it has, and an
/// error.
pub fn run(file: &Path, output: Option<&Path>) -> Result<(), Stop> {
    let from = open(file)?;
    let to = match output {
        Some(path) => path.to_owned(),
        None if file.as_os_str() == "-" => {
            return Err(Stop::usage("say where to write it: --output FILE, or - for standard output"));
        }
        None => file.with_extension("pftrace"),
    };
    let failed = |error: io::Error| Stop::failed(format!("cannot write {}: {error}", to.display()));
    let out: Box<dyn Write> = if to.as_os_str() == "-" {
        Box::new(io::stdout().lock())
    } else {
        Box::new(File::create(&to).map_err(failed)?)
    };
    let mut items = items(from);
    let begin = begin(&mut items).map_err(|error| Stop::failed(format!("{}: {error}", file.display())))?;
    let mut replay = Replay::new(&begin, engine::wall_clock());
    let out = BufWriter::with_capacity(BUFFER, out);
    let (packets, cut) = write(&mut items, &mut replay, out).map_err(failed)?;
    if to.as_os_str() != "-" {
        report(&to, packets);
    }
    match cut {
        None => Ok(()),
        Some(why) => {
            Err(Stop::failed(format!("{}: {why}; what came before is in the trace", file.display())))
        }
    }
}

/// Returns how many packets were written, and why the recording ended before its end, if it did.
fn write(items: &mut Items, replay: &mut Replay, out: impl Write) -> io::Result<(u64, Option<ReadError>)> {
    let mut timeline = Timeline::new(out)?;
    let mut cut = None;
    for item in items {
        match item {
            Ok(Item::End { .. }) => {}
            Ok(item) => timeline.take(item, replay)?,
            Err(error) => cut = Some(error),
        }
    }
    Ok((timeline.finish(replay)?, cut))
}

fn report(to: &PathBuf, packets: u64) {
    let bytes = std::fs::metadata(to).map_or(0, |file| file.len());
    say(format_args!(
        "{}: {packets} packets, {bytes} bytes; open it at https://ui.perfetto.dev",
        to.display()
    ));
    if bytes > LARGE {
        say("its page may run out of memory: use Perfetto's own trace_processor for it");
    }
}
