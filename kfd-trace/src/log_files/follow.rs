//! Logs that grow.

use super::bar::{Bar, INTERVAL};
use super::input::{EndFlag, LogSource};
use crate::amd_log::Tally;
use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::thread::sleep;

/// Reads what exists and what is appended, until a signal.
pub(super) fn read(sources: &mut [LogSource], tally: &mut Tally, end: &EndFlag, bar: &Bar) {
    loop {
        for source in sources.iter_mut() {
            while !end.is_set() && source.read_some(&mut |line| tally.line(line), bar) {}
            if let Err(error) = renew(source) {
                log::debug!("{}: {error}", source.path.display());
            }
        }
        if end.is_set() {
            return;
        }
        sleep(INTERVAL);
    }
}

/// Starts again if the file became shorter (clr does that at AMD_LOG_LEVEL_SIZE), or another file has its
/// name. A file whose metadata cannot be read is left as it is.
fn renew(source: &mut LogSource) -> io::Result<()> {
    let Some(file) = &mut source.file else { return Ok(()) };
    let (open, place) = (file.metadata()?, file.stream_position()?);
    let named = File::open(&source.path)?;
    let there = named.metadata()?;
    let other = (there.dev(), there.ino()) != (open.dev(), open.ino());
    if other || open.len() < place { source.begin_anew(named) } else { Ok(()) }
}
