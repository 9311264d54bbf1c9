//! `kfd-trace timeline`: a recording as a trace for Perfetto.

use super::replay::source::{BUFFER, Ended, Items, Source, begin};
use crate::recording::{Item, Replay};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::timeline::Timeline;
use crate::tracer::engine;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Beyond this, Perfetto's page may run out of the memory that a browser gives it.
const LARGE: u64 = 300 << 20;

/// A trace has one CLOCK_MONOTONIC.
const OTHER_BOOT: &str =
    "its next file was recorded after the machine had started again; make a trace of each file";

/// Writes it. `output`: `-` for standard output; without it, the recording's name with another ending.
///
/// # Errors
/// If it is no recording, or the trace cannot be written. A recording that was cut makes a trace of what it has, and an
/// error.
pub fn run(file: &Path, output: Option<&Path>) -> Result<(), Stop> {
    let named = file.display();
    let to = match output {
        Some(path) => path.to_owned(),
        None if file.as_os_str() == "-" => {
            return Err(Stop::usage("say where to write it: --output FILE, or - for standard output"));
        }
        None => file.with_extension("pftrace"),
    };
    let mut items = Source::open(file)?.items(None).map_err(Stop::failed)?;
    // Nothing is written over for the sake of what is no recording.
    let begin = begin(&mut items).map_err(|error| Stop::failed(format!("{named}: {error}")))?;
    let out = create(file, &to)?;
    let mut replay = Replay::new(&begin, engine::wall_clock());
    let written = write(&mut items, &mut replay, BufWriter::with_capacity(BUFFER, out));
    let (packets, cut) = match written {
        Ok(written) => written,
        // The reader of a pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(Stop::failed(format!("cannot write {}: {error}", to.display()))),
    };
    if to.as_os_str() != "-" {
        report(&to, packets);
    }
    match cut {
        None => Ok(()),
        Some(why) => Err(Stop::failed(format!("{named}: {why}; what came before is in the trace"))),
    }
}

/// Opens the trace. It shows as much as the recording does, and is its owner's alone, too.
fn create(file: &Path, to: &Path) -> Result<Box<dyn Write>, Stop> {
    if to.as_os_str() == "-" {
        return Ok(Box::new(io::stdout().lock()));
    }
    let same = |one: Metadata, other: Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    if fs::metadata(file).ok().zip(fs::metadata(to).ok()).is_some_and(|(one, other)| same(one, other)) {
        return Err(Stop::usage(format!("{} is the recording: choose another --output", to.display())));
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to);
    let out = opened.map_err(|error| Stop::failed(format!("cannot write {}: {error}", to.display())))?;
    Ok(Box::new(out))
}

/// Returns how many packets were written, and why the recording is not whole, if it is not.
fn write(items: &mut Items, replay: &mut Replay, out: impl Write) -> io::Result<(u64, Option<String>)> {
    let mut timeline = Timeline::new(out)?;
    let mut ended = Ended::without_end();
    for item in items {
        match item {
            Ok(Item::Begin(next)) if next.at_ns < replay.now_ns => {
                ended = Ended::Early(OTHER_BOOT.to_owned());
                break;
            }
            Ok(item) => {
                ended = ended.with(&item);
                timeline.take(item, replay)?;
            }
            Err(error) => ended = Ended::Early(error.to_string()),
        }
    }
    let cut = match ended {
        Ended::Whole | Ended::Lacking(_) => None,
        Ended::Early(why) => Some(why),
    };
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
