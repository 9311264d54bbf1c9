//! docs/kernels.md from the lines of the tests. In: lines of booted kernels and of images. Out: the page.
//! Pure.

use super::MARK;
use anyhow::{Result, bail};
use debversion::Version;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEAD: &str = "\
# Kernels

Made by `cargo xtask kernels`. `attached (13)`: on 13 functions, copies of the same name counted each. `missing_fields`:
nothing describes the layout of the driver's structures: no BTF of modules on 5.10, and no types file
([driver-types.md](driver-types.md)). `not_in_kernel`: the driver
has no such function, or it is inlined. `reported_by_another`: another row shows the same here. `no_gpu`: a row of functions that
exist once for each generation of GPUs; it is attached to those of the GPUs present, and here are none. Tracepoints
are attached only with `--tracepoints`, the probes of preemptions, runlists and MES only with `--runlists` or where their events are requested.
An ordinary user with the documented capabilities attaches here: `ioctl_return` is then on every handler. Where root has defined a return probe of
tracefs, as for the service, it is on `kfd_ioctl` alone ([privileges.md](privileges.md)).

## Booted
Each of these kernels is booted with its real amdgpu and the tracer attaches to it; `cargo xtask test --everything` compares on every kernel.
Where the module has BTF, a types file gives the same verdicts: a test compares all that is known by either. A driver of ROCm's
packages has no BTF of its own; `kfd-trace status` lists the verdicts on it.

";

const IMAGES: &str = "
## From the image
The newest release of every other kernel that Debian has, of each Debian and flavour (`-rt`; `-cloud` has no amdgpu). Nothing is
booted: these are the verdicts by symbols, BTF and tracepoints of the image. A test compares what this gives for the kernels
above with what they report when they are booted.

";

/// What the lines say.
#[derive(Default)]
struct Verdicts<'a> {
    /// Label of a column, and the release, in the order of the lines.
    columns: Vec<(&'a str, &'a str)>,
    /// Name, kind, what it is for, and the cell of each column, in the order of the table.
    rows: Vec<(&'a str, &'a str, &'a str, BTreeMap<&'a str, &'a str>)>,
    /// Column, probe and a function of its family that the probe does not know.
    strangers: Vec<(&'a str, &'a str, &'a str)>,
}

impl<'a> Verdicts<'a> {
    fn read(lines: &'a [String]) -> Result<Self> {
        let mut found = Self::default();
        for line in lines {
            let mut words = line.split('\t');
            if words.next() != Some(MARK) {
                continue;
            }
            match words.collect::<Vec<_>>()[..] {
                ["release", column, release] => found.columns.push((column, release)),
                ["probe", column, name, kind, feeds, cell] => found.add(column, (name, kind, feeds), cell),
                ["stranger", column, probe, function] => found.strangers.push((column, probe, function)),
                _ => bail!("a test printed a line that is not understood: {line}"),
            }
        }
        Ok(found)
    }

    fn add(&mut self, column: &'a str, (name, kind, feeds): (&'a str, &'a str, &'a str), cell: &'a str) {
        match self.rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => drop(row.3.insert(column, cell)),
            None => self.rows.push((name, kind, feeds, BTreeMap::from([(column, cell)]))),
        }
    }

    fn cells(&self, column: &str) -> Vec<&'a str> {
        self.rows.iter().map(|row| row.3.get(column).copied().unwrap_or("?")).collect()
    }

    /// A table with these columns: heading and label.
    fn table(&self, columns: &[(String, &str)]) -> String {
        let heads: Vec<&str> = columns.iter().map(|(head, _)| head.as_str()).collect();
        let mut text = format!("\n| probe | kind | what is seen by it | {} |\n", heads.join(" | "));
        text += &format!("|---|---|---|{}\n", "---|".repeat(columns.len()));
        for (name, kind, feeds, cells) in &self.rows {
            let cells = columns.iter().map(|(_, label)| cells.get(label).copied().unwrap_or("?"));
            let _ =
                writeln!(text, "| `{name}` | {kind} | {feeds} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        text
    }
}

/// The page.
pub(super) fn page(booted: &[String], images: &[String]) -> Result<String> {
    let booted = Verdicts::read(booted)?;
    let mut page = HEAD.to_owned();
    for (series, release) in &booted.columns {
        let _ = writeln!(page, "- {series}: {release}");
    }
    let columns: Vec<_> = booted.columns.iter().map(|(series, _)| ((*series).to_owned(), *series)).collect();
    page += &booted.table(&columns);
    let mut images = Verdicts::read(images)?;
    images.columns.sort_by_key(|(_, release)| release.parse::<Version>().ok());
    if images.columns.is_empty() {
        return Ok(page);
    }
    page += IMAGES;
    let mut columns = Vec::new();
    for group in groups(&images) {
        let all = group.iter().map(|release| short(release)).collect::<Vec<_>>().join(", ");
        let same = booted.columns.iter().find(|(series, _)| booted.cells(series) == images.cells(group[0]));
        let head = same.map_or_else(|| short(group[0]), |(series, _)| format!("as {series}"));
        let _ = writeln!(page, "- {head}: {all}");
        if same.is_none() {
            columns.push((short(group[0]), group[0]));
        }
    }
    if !columns.is_empty() {
        page += &images.table(&columns);
    }
    if !images.strangers.is_empty() {
        page += "\nFunctions of a probe's family that it does not know:\n\n";
    }
    for (release, probe, function) in &images.strangers {
        let _ = writeln!(page, "- `{function}` (`{probe}`) in {release}");
    }
    Ok(page)
}

/// Columns with the same cells, in ascending order of their first.
fn groups<'a>(images: &Verdicts<'a>) -> Vec<Vec<&'a str>> {
    let mut groups: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for (release, _) in &images.columns {
        let cells = images.cells(release);
        match groups.iter_mut().find(|(other, _)| *other == cells) {
            Some((_, group)) => group.push(*release),
            None => groups.push((cells, vec![*release])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// `6.12.118+deb13-rt` of `6.12.118+deb13-rt-amd64`.
fn short(release: &str) -> String {
    release.strip_suffix("-amd64").unwrap_or(release).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(column: &str, release: &str, cell: &str) -> Vec<String> {
        vec![
            format!("{MARK}\trelease\t{column}\t{release}"),
            format!("{MARK}\tprobe\t{column}\tioctl\tkprobe\tioctls\t{cell}"),
        ]
    }

    #[test]
    fn every_booted_kernel_has_a_column() {
        let booted = [lines("6.1", "6.1.0-56", "attached (1)"), lines("7.2", "7.2.12", "not_in_kernel")];
        let page = page(&booted.concat(), &[]).unwrap();
        assert!(page.contains("\n- 6.1: 6.1.0-56\n- 7.2: 7.2.12\n"), "{page}");
        assert!(page.contains("\n| probe | kind | what is seen by it | 6.1 | 7.2 |\n"), "{page}");
        assert!(page.contains("\n| `ioctl` | kprobe | ioctls | attached (1) | not_in_kernel |\n"), "{page}");
        assert!(!page.contains("## From the image"));
    }

    #[test]
    fn images_are_grouped_by_their_verdicts() {
        let of = |release: &str, cell: &str| lines(release, release, cell);
        let mut images = [
            of("6.17.1+deb13-amd64", "attached (1)"),
            of("6.16.12+deb13-rt-amd64", "not_in_kernel"),
            of("6.16.12+deb13-amd64", "attached (1)"),
        ]
        .concat();
        images.push(format!("{MARK}\tstranger\t6.17.1+deb13-amd64\tmqd_init\tinit_mqd_v99"));
        let page = page(&lines("6.1", "6.1.0-56", "attached (1)"), &images).unwrap();
        assert!(page.contains("\n- as 6.1: 6.16.12+deb13, 6.17.1+deb13\n"), "{page}");
        assert!(page.contains("\n- 6.16.12+deb13-rt: 6.16.12+deb13-rt\n"), "{page}");
        assert!(page.contains("| what is seen by it | 6.16.12+deb13-rt |\n"), "{page}");
        assert!(page.contains("\n| `ioctl` | kprobe | ioctls | not_in_kernel |\n"), "{page}");
        assert!(page.ends_with("\n- `init_mqd_v99` (`mqd_init`) in 6.17.1+deb13-amd64\n"), "{page}");
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        assert!(page(&[format!("{MARK}\trelease")], &[]).is_err());
        assert!(page(&["running 1 test".to_owned()], &[]).is_ok());
    }
}
