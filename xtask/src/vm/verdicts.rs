//! `cargo xtask kernels`: docs/kernels.md, the verdict on every probe on each kernel of the matrix. Each is
//! booted with the real amdgpu, and a test in the guest prints the tracer's verdicts; the same test checks
//! the page against them.

use crate::paths;
use crate::run::note;
use crate::vm::LIMIT;
use crate::vm::boots;
use crate::vm::series::Series;
use crate::vm::testbed::{Bench, Mode};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};

/// Prefix of the test's lines (tests/tests/no_gpu/verdicts.rs).
const MARK: &str = "kernels.md";

const STAGE: &str = "no_gpu";

const TEST: &str = "the_documented_verdicts_hold";

const HEAD: &str = "\
# Kernels

Made by `cargo xtask kernels`, which boots each of these kernels with its real amdgpu and runs the tracer; an integration
test compares on every kernel. `attached (13)`: on 13 functions, copies of the same name counted each. `missing_fields`:
the kernel does not tell the layout of the driver's structures (no BTF of modules on 5.10). `not_in_kernel`: the driver
has no such function, or it is inlined. `reported_by_another`: another row shows the same here. `no_gpu`: a row of functions that
exist once for each generation of GPUs; it is attached to those of the GPUs present, and these guests have none. Tracepoints
are attached only with `--tracepoints`.

";

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    let bench = Bench::new()?;
    let mut lines = Vec::new();
    for series in Series::ALL {
        let boot = boots::with_stage(Some(STAGE)).context("no such stage")?;
        let arguments = [TEST.to_owned(), "--nocapture".to_owned()];
        let mut shown = Shown::default();
        let booted = bench.boot(series, boot, Mode::Test(&[STAGE]), &arguments, LIMIT, &mut shown)?;
        if let Some(trouble) = booted.trouble {
            bail!("Linux {}: {trouble}", series.name());
        }
        lines.extend(reported(&shown.0).map(str::to_owned));
    }
    let page = page(&lines)?;
    let path = paths::root().join("docs").join(MARK);
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    note(format!("wrote {}", path.display()));
    Ok(())
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

/// The page, from the lines of all kernels.
fn page(lines: &[String]) -> Result<String> {
    let mut releases: BTreeMap<&str, &str> = BTreeMap::new();
    // In the order of the probe table: that of the first kernel.
    let mut rows: Vec<(&str, &str, &str, BTreeMap<&str, &str>)> = Vec::new();
    for line in lines {
        match line.split('\t').skip(1).collect::<Vec<_>>()[..] {
            ["release", series, release] => {
                releases.insert(series, release);
            }
            ["probe", series, name, kind, feeds, cell] => {
                let row = rows.iter_mut().find(|row| row.0 == name);
                match row {
                    Some(row) => row.3.insert(series, cell),
                    None => {
                        rows.push((name, kind, feeds, BTreeMap::from([(series, cell)])));
                        None
                    }
                };
            }
            _ => bail!("the guest reported a line that is not understood: {line}"),
        }
    }
    let series = Series::ALL.map(Series::name);
    let mut page = HEAD.to_owned();
    for name in series {
        let release = releases.get(name).with_context(|| format!("Linux {name} reported nothing"))?;
        let _ = writeln!(page, "- {name}: {release}");
    }
    let _ = writeln!(page, "\n| probe | kind | what is seen by it | {} |", series.join(" | "));
    let _ = writeln!(page, "|---|---|---|{}", "---|".repeat(series.len()));
    for (name, kind, feeds, cells) in rows {
        let cells = series.map(|series| cells.get(series).copied().unwrap_or("?"));
        let _ = writeln!(page, "| `{name}` | {kind} | {feeds} | {} |", cells.join(" | "));
    }
    Ok(page)
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

    #[test]
    fn every_kernel_has_a_column() {
        let reported = |series: &str, cell: &str| {
            [
                format!("{MARK}\trelease\t{series}\t{series}.0-1"),
                format!("{MARK}\tprobe\t{series}\tioctl\tkprobe\tioctls\t{cell}"),
            ]
        };
        let lines: Vec<String> =
            ["5.10", "6.1", "6.12"].iter().flat_map(|series| reported(series, "attached (1)")).collect();
        assert!(page(&lines).unwrap_err().to_string().contains("7.2 reported nothing"));
        let all = [lines, reported("7.2", "not_in_kernel").to_vec()].concat();
        let page = page(&all).unwrap();
        let row =
            "| `ioctl` | kprobe | ioctls | attached (1) | attached (1) | attached (1) | not_in_kernel |";
        assert!(page.lines().any(|line| line == row), "{page}");
        assert!(page.contains("- 6.12: 6.12.0-1"));
    }
}
