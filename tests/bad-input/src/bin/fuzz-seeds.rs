//! Writes inputs of the property tests as the first inputs of the fuzz targets: `fuzz-seeds FOLDER`, one
//! folder per target.

use kfd_trace_bad_input::inputs;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::fs;
use std::path::Path;

/// Per target.
const SEEDS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: fuzz-seeds FOLDER")?;
    let folder = Path::new(&folder);
    write(&folder.join("records"), inputs::records())?;
    write(&folder.join("btf"), inputs::btf())?;
    write(&folder.join("kallsyms"), inputs::kallsyms())?;
    write(&folder.join("flags"), inputs::flags())?;
    write(&folder.join("procfs"), inputs::procfs())?;
    write(&folder.join("sysfs"), inputs::sysfs())?;
    write(&folder.join("amd_log"), inputs::amd_log())?;
    write(&folder.join("dumps"), inputs::dumps())?;
    write(&folder.join("recording"), inputs::recording())?;
    write(&folder.join("web"), inputs::web())
}

fn write(folder: &Path, input: impl Strategy<Value = Vec<u8>>) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(folder)?;
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(1), ..Config::default() });
    for number in 0..SEEDS {
        let bytes = input.new_tree(&mut runner).map_err(|reason| reason.to_string())?.current();
        fs::write(folder.join(format!("{number:03}")), bytes)?;
    }
    Ok(())
}
