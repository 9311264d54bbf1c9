//! `cargo xtask kernels`: docs/kernels.md, the verdict on every probe on each kernel. In: those of the matrix,
//! booted with the real amdgpu, where a test in the guest prints the tracer's verdicts and checks the page against
//! them; and images of all others, for which a test on this machine plans. Out: the page.

mod page;

use crate::paths;
use crate::run::{self, note, step};
use crate::vm::matrix::{Column, Types};
use crate::vm::testbed::{Bench, Mode};
use crate::vm::{LIMIT, boots, guest, images};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Prefix of the test's lines (tests/tests/no_gpu/verdicts.rs).
const MARK: &str = "kernels.md";

const STAGE: &str = "no_gpu";

const TEST: &str = "the_documented_verdicts_hold";

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    let bench = Bench::new()?;
    let mut lines = Vec::new();
    let mut releases = Vec::new();
    let columns = bench.matrix().columns().iter().copied();
    let file = |column: Column| Column { types: Types::File, ..column };
    let with_files = columns.flat_map(|column| {
        let by_file = (!column.typed() && column.built).then(|| file(column));
        [Some(column), by_file].into_iter().flatten()
    });
    for column in with_files {
        let boot = boots::with_stage(Some(STAGE)).context("no such stage")?;
        let arguments = [TEST.to_owned(), "--nocapture".to_owned()];
        let mut shown = Shown::default();
        let booted = bench.boot(column, boot, Mode::Test(&[STAGE]), &arguments, LIMIT, &mut shown)?;
        if let Some(trouble) = booted.trouble {
            bail!("{}: {trouble}", column.title());
        }
        lines.extend(reported(&shown.0).map(str::to_owned));
        releases.push(booted.release);
    }
    let releases: Vec<&str> = releases.iter().map(String::as_str).collect();
    let images = of_images(&images::fixtures(&releases)?)?;
    let page = page::page(&lines, &images)?;
    let path = paths::root().join("docs").join(MARK);
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    note(format!("wrote {}", path.display()));
    Ok(())
}

/// The lines of a test that plans for each of these images.
fn of_images(folder: &Path) -> Result<Vec<String>> {
    step("verdicts from images");
    let mut test = guest::cargo();
    test.args(["test", "-q", "-p", "kfd-trace", "--test", "verdict_fixtures", "verdicts_of_images"]);
    test.args(["--", "--ignored", "--nocapture"]).env("KFD_TRACE_IMAGES", folder);
    let printed = run::output(&mut test)?;
    Ok(reported(printed.as_bytes()).map(str::to_owned).collect())
}

/// A guest's report: shown as it arrives, and kept.
#[derive(Default)]
struct Shown(Vec<u8>);

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        // A closed stdout is no reason to lose the page.
        let _ = io::stdout().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stdout().flush();
        Ok(())
    }
}

/// The lines of a guest's report from which the page is made.
fn reported(report: &[u8]) -> impl Iterator<Item = &str> {
    let lines = report.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    lines.filter(|line| line.starts_with(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_lines_are_picked_from_a_report() {
        let report = format!("running 1 test\n{MARK}\trelease\t6.1\t6.1.0-1\ntest a of {MARK} ... ok\n");
        assert_eq!(
            reported(report.as_bytes()).collect::<Vec<_>>(),
            [format!("{MARK}\trelease\t6.1\t6.1.0-1")]
        );
    }
}
