use super::*;
use crate::vm::boots::table::MAIN;
use crate::vm::boots::{SOAK, with_stage};
use crate::vm::matrix::{Matrix, tests::whole};
use crate::vm::series::Series;
use anyhow::bail;

fn column(series: Series) -> Column {
    let matrix = Matrix::find(&whole()).expect("a matrix");
    matrix.column(series).expect("a column")
}

/// Names of the states, and which are saved.
fn named(boot: Boot, column: Column, used: &[&str]) -> Vec<(&'static str, bool)> {
    let states = states(boot, column, |stage| used.contains(&stage));
    states.iter().map(|state| (state.name, state.saved)).collect()
}

#[test]
fn states_follow_from_the_stages_that_are_run() {
    let main = |used: &[&str]| named(MAIN, column(Series::V6_12), used);
    let saved = |saved: [bool; 3]| ["booted", "amdgpu", "kfdsim"].into_iter().zip(saved).collect::<Vec<_>>();
    assert_eq!(main(&["no_amdgpu"]), saved([true, false, false]));
    assert_eq!(main(&["no_gpu"]), saved([false, true, false]));
    for stage in ["sim", "tool", "life", "mi300", "cpx", "mes", "nohws"] {
        assert_eq!(main(&[stage]), saved([false, false, true]), "{stage}");
    }
    assert_eq!(main(&["sim", "no_gpu", "no_amdgpu"]), saved([true; 3]));
    assert_eq!(named(SOAK, column(Series::V6_12), &["soak"]), saved([false, false, true]));
    let untyped = column(Series::V5_10);
    assert_eq!(named(MAIN, untyped, &["no_gpu", "sim"]), [("booted", false), ("amdgpu", true)]);
}

#[test]
fn a_stage_is_run_in_the_last_state_of_its_guest() {
    let at = |stage: &str| {
        let boot = with_stage(Some(stage)).expect("a stage");
        states(boot, column(Series::V6_12), |_| false).len() - 1
    };
    assert_eq!(["no_amdgpu", "no_gpu", "sim", "nohws", "soak", "locked"].map(at), [0, 1, 2, 2, 2, 2]);
}

#[test]
fn the_key_changes_with_each_ingredient() {
    let (machine, other) = (["-m", "2G"].map(str::to_owned), ["-m", "3G"].map(str::to_owned));
    let files = |contents: &[&str]| contents.iter().map(|file| file.as_bytes().to_vec()).collect::<Vec<_>>();
    let (program, with_bios) = (files(&["qemu"]), files(&["qemu", "bios"]));
    let (other_bios, init) = (files(&["qemu", "b"]), files(&["i"]));
    let of =
        Ingredients { emulator: &with_bios, machine: &machine, kernel: b"k", init: &init, modules: b"m" };
    let changed = [
        Ingredients { emulator: &program, ..of },
        Ingredients { emulator: &other_bios, ..of },
        Ingredients { machine: &other, ..of },
        Ingredients { machine: &machine[..1], ..of },
        Ingredients { kernel: b"l", ..of },
        Ingredients { init: &program, ..of },
        Ingredients { modules: b"n", ..of },
        Ingredients { kernel: b"ki", init: &[], ..of },
    ];
    let mut keys: Vec<String> = changed.into_iter().chain([of]).map(Ingredients::key).collect();
    assert_eq!(of.key(), Ingredients { ..of }.key());
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), changed.len() + 1);
}

#[test]
fn a_snapshot_is_there_when_it_is_whole_and_replaces_an_older_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let shelf = |kernel: &[u8]| {
        let of = Ingredients { emulator: &[], machine: &[], kernel, init: &[], modules: b"m" };
        Shelf::new(dir.path().to_owned(), of)
    };
    let states = states(MAIN, column(Series::V6_12), |_| true);
    let (old, new) = (shelf(b"1"), shelf(b"2"));
    let write = |file: &Path| fs::write(file, "machine").context("write");
    old.keep("booted", write).expect("saved");
    old.keep("kfdsim", write).expect("saved");
    assert_eq!([0, 1, 2].map(|state| old.nearest(&states, state)), [Some(0), Some(0), Some(2)]);
    assert_eq!(new.nearest(&states, 2), None);

    let failed = new.keep("booted", |file| {
        fs::write(file, "half")?;
        assert_eq!(new.nearest(&states, 2), None, "half a machine");
        bail!("no room")
    });
    assert_eq!(failed.unwrap_err().to_string(), "no room");
    assert_eq!(new.nearest(&states, 2), None, "half a machine");
    write(&dir.path().join("console.log")).expect("a log");
    new.keep("booted", write).expect("saved");
    let left = fs::read_dir(dir.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut left: Vec<PathBuf> = left.collect();
    left.sort();
    assert_eq!(left, [new.file("booted"), dir.path().join("console.log")]);
}
