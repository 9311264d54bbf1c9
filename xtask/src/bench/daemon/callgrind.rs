//! One run of the bench program under callgrind: the instructions of each of its regions.

use crate::run;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Prefix of the dumps: the first is `callgrind.out.1`. `callgrind.out` is written at the program's end.
const DUMP: &str = "callgrind.out";

/// Prefix of a dump's cause, followed by the name that the program gave it
/// (tests/load/src/callgrind.rs).
const TRIGGER: &str = "desc: Trigger: Client Request: ";

/// Runs `program part` and returns its output, and the instructions of each region by its name.
pub(super) fn run(program: &Path, part: &str, scratch: &Path) -> Result<(String, BTreeMap<String, u64>)> {
    // Dumps of an earlier run would be read as those of this one.
    match fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot empty {}", scratch.display()));
        }
        _ => {}
    }
    fs::create_dir_all(scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let mut command = Command::new("valgrind");
    // The program itself marks where counting begins and ends.
    command.args(["--quiet", "--tool=callgrind", "--instr-atstart=no", "--dump-line=no"]);
    command.arg(format!("--callgrind-out-file={}", scratch.join(DUMP).display()));
    let printed = run::output(command.args([program.as_os_str(), OsStr::new(part)]))?;
    Ok((printed, dumps(scratch)?))
}

/// The dumps in a folder, by the names of their regions.
fn dumps(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for number in 1_u32.. {
        let path = folder.join(format!("{DUMP}.{number}"));
        let Ok(text) = fs::read_to_string(&path) else { break };
        let (region, instructions) =
            dump(&text).with_context(|| format!("{} is not understood", path.display()))?;
        ensure!(all.insert(region.clone(), instructions).is_none(), "two regions are called {region}");
    }
    ensure!(!all.is_empty(), "callgrind wrote no dump to {}", folder.display());
    Ok(all)
}

/// Name and sum of a dump (`totals:`, of its only event `Ir`). Its `summary:` is something else: the count
/// minus that of the dump before.
fn dump(text: &str) -> Option<(String, u64)> {
    let after = |prefix| text.lines().find_map(move |line| line.strip_prefix(prefix)).map(str::trim);
    let region = after(TRIGGER).filter(|name| !name.is_empty())?;
    let counted = after("events:")? == "Ir";
    Some((region.to_owned(), after("totals:").filter(|_| counted)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(region: &str, sum: &str) -> String {
        format!(
            "# callgrind format\npart: 1\n\ndesc: Trigger: Client Request: {region}\n\nevents: Ir\nsummary: 18446744073708518526\n\
             fn=(1) x\n0 5\n\ntotals: {sum}\n"
        )
    }

    fn read(texts: &[String]) -> Result<BTreeMap<String, u64>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(DUMP), text("end", "8")).unwrap();
        for (number, text) in (1..).zip(texts) {
            fs::write(folder.path().join(format!("{DUMP}.{number}")), text).unwrap();
        }
        dumps(folder.path())
    }

    #[test]
    fn dumps_are_read_by_the_names_of_their_regions() {
        let texts: Vec<_> = (1..=11).map(|n| text(&format!("r{n}"), &(n * 100).to_string())).collect();
        let all = read(&texts).unwrap();
        assert_eq!((all.len(), all["r2"], all["r11"]), (11, 200, 1_100));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(read(&[]).is_err());
        assert!(read(&[text("a", "x")]).is_err());
        assert!(read(&[text("", "1")]).is_err());
        assert!(read(&[text("a", "1").replace("Ir", "Ge")]).is_err());
        assert!(read(&[text("a", "1"), text("a", "2")]).is_err());
        assert!(read(&[text("a", "1").replace("Client Request: a", "Program termination")]).is_err());
    }
}
