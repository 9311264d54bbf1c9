//! The first block of README.md is what a real run prints: a workload that `lsof` does not see.

use super::usual::Eyes;
use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::{Workload, nodes};
use std::path::Path;

/// Numbers differ from run to run, and with them the widths of columns.
fn masked(text: &str) -> Vec<String> {
    let number =
        |word: &str| if word.bytes().any(|byte| byte.is_ascii_digit()) { "N" } else { word }.to_owned();
    let line = |line: &str| line.split_whitespace().map(number).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect()
}

#[test]
fn the_readme_shows_what_a_real_run_prints() -> Result<()> {
    let _workload = Workload::ready(&["hold", "--hidden", "--aql=2", "--sdma=1"])?;
    let lsof = Eyes::Root.found_by("lsof")?;
    let ps = String::from_utf8(run(&["ps"])?.stdout)?;
    let shown = format!("# lsof /dev/kfd\n{lsof}# kfd-trace ps\n{ps}");
    println!("{shown}");
    let readme = include_str!("../../../README.md");
    let (_, block) = readme.split_once("```console\n").context("the block of README.md")?;
    let (block, _) = block.split_once("```").context("its end")?;
    // 5.10 does not show the generation of a GPU
    let generation = nodes(Path::new("/sys"))?[0].properties.contains_key("gfx_target_version");
    let expected = if generation { block.to_owned() } else { block.replace(", gfx900", "") };
    assert_eq!(masked(&expected), masked(&shown), "README.md on the left");
    assert!(block.lines().all(|line| line.chars().count() <= 100), "at most 100 columns");
    Ok(())
}
