//! The tracer with another table of the driver's types than the shipped one. The table is in the program as text,
//! byte by byte as in the repository: a copy of the program gets other text in its place. So the tests need no
//! switch in the tracer.

use super::tracer;
use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use tempfile::TempDir;

/// The shipped table.
pub const TABLE: &str = include_str!("../../../kfd-trace/src/kernel/types/table.json");

/// A copy of the tracer's program.
pub struct OtherTable {
    program: Vec<u8>,
    /// Place of the table in it.
    at: usize,
    path: PathBuf,
    _folder: TempDir,
}

impl OtherTable {
    pub fn new() -> Result<Self> {
        let program = fs::read(tracer::path()).context("read the tracer's program")?;
        let places = Vec::from_iter(memmem::find_iter(&program, TABLE).take(2));
        let [at] = places[..] else { bail!("the table is in the program {} times as text", places.len()) };
        let folder = tempfile::Builder::new().tempdir_in("/run")?;
        Ok(Self { program, at, path: folder.path().join("kfd-trace"), _folder: folder })
    }

    /// The path of a tracer with this table; the one before has it, too, unless it still runs.
    pub fn tracer(&mut self, table: &Value) -> Result<String> {
        let text = table.to_string();
        ensure!(text.len() <= TABLE.len(), "{} bytes do not fit into {}", text.len(), TABLE.len());
        let place = &mut self.program[self.at..self.at + TABLE.len()];
        place.fill(b' ');
        place[..text.len()].copy_from_slice(text.as_bytes());
        // An emulated CPU takes a second for the whole program, which has 23 MB.
        match File::options().write(true).open(&self.path) {
            Ok(written) => written.write_all_at(place, u64::try_from(self.at)?)?,
            // The first; or the one before is executed, and can be replaced only.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ExecutableFileBusy) => {
                let new = self.path.with_extension("new");
                fs::write(&new, &self.program)?;
                fs::set_permissions(&new, Permissions::from_mode(0o755))?;
                fs::rename(new, &self.path)?;
            }
            Err(error) => return Err(error).with_context(|| format!("write to {}", self.path.display())),
        }
        Ok(self.path.display().to_string())
    }
}
