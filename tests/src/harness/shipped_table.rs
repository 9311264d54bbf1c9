//! The tracer with another table of the driver's types than the shipped one. The table is in the program as text,
//! byte by byte as in the repository: a copy of the program gets other text in its place. So the tests need no
//! switch in the tracer.

use super::tracer;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// The shipped table.
pub const TABLE: &str = include_str!("../../../kfd-trace/src/kernel/types/table.json");

/// A copy of the tracer's program.
pub struct OtherTable {
    program: Vec<u8>,
    /// Place of the table in it.
    at: usize,
    folder: TempDir,
}

impl OtherTable {
    pub fn new() -> Result<Self> {
        let program = fs::read(tracer::path()).context("read the tracer's program")?;
        let table = TABLE.as_bytes();
        let starts = |at: &usize| program[*at..].starts_with(table);
        let first = table.first().context("an empty table")?;
        let mut places = program.iter().enumerate().filter(|(_, byte)| *byte == first).map(|(at, _)| at);
        let at = places.find(starts).context("the table is not in the program as text")?;
        ensure!(places.find(starts).is_none(), "the table is in the program twice");
        Ok(Self { program, at, folder: tempfile::Builder::new().tempdir_in("/run")? })
    }

    /// The path of a tracer with this table; the one before is overwritten.
    pub fn tracer(&mut self, table: &Value) -> Result<String> {
        let text = table.to_string();
        ensure!(text.len() <= TABLE.len(), "{} bytes do not fit into {}", text.len(), TABLE.len());
        let place = &mut self.program[self.at..self.at + TABLE.len()];
        place.fill(b' ');
        place[..text.len()].copy_from_slice(text.as_bytes());
        let path = self.folder.path().join("kfd-trace");
        // A file that is executed cannot be written to, but replaced.
        let new = self.folder.path().join("new");
        fs::write(&new, &self.program)?;
        fs::set_permissions(&new, Permissions::from_mode(0o755))?;
        fs::rename(new, &path)?;
        Ok(path.display().to_string())
    }
}
