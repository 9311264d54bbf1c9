//! The verdict on every probe from a kernel's image alone: what the plan attaches there, with the driver loaded
//! and no GPU. docs/kernels.md lists them, for booted kernels as a guest reports them.

mod fixture;

use kfd_trace::kernel::{Kernel, Roots};
use kfd_trace::probes::facts::Facts;
use kfd_trace::probes::plan::{Action, Attach, Choice, PlanRequest, Planned, plan};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../docs/kernels.md");

/// Marks the lines from which the page is made (xtask/src/vm/verdicts.rs).
const MARK: &str = "kernels.md";

/// What `status` requests.
fn request() -> PlanRequest {
    let choice = Choice { tracepoints: true, runlists: true, attach: Attach::Tried, ..Choice::default() };
    PlanRequest { ioctl_records: true, choice }
}

/// As tests/tests/no_gpu/verdicts.rs shows a guest's verdict.
fn cell(planned: &Planned, facts: &Facts) -> String {
    match &planned.action {
        // Without a GPU no function of a generation is in use.
        Action::Attach(_) if planned.row.of_gpus && facts.mqds.is_some() => "no_gpu".to_owned(),
        Action::Attach(targets) => format!("attached ({})", targets.len()),
        Action::Skip(verdict) => verdict.word().to_owned(),
    }
}

/// The rows of the table, in its order, with their cells.
fn verdicts(roots: &Roots) -> Vec<(Planned, String)> {
    let kernel = Kernel::read(roots).expect("a fixture");
    let facts = Facts::gather(&kernel).with_tracepoints(&roots.sysfs);
    let plan = plan(&kernel.symbols, &facts, &request());
    let with_cell = |row| {
        let cell = cell(&row, &facts);
        (row, cell)
    };
    plan.rows.into_iter().map(with_cell).collect()
}

/// The release of a series and its column, from the page's first table.
fn documented(series: &str) -> Option<(&'static str, BTreeMap<&'static str, &'static str>)> {
    let release = PAGE.lines().find_map(|line| line.strip_prefix(&format!("- {series}: ")))?;
    let table =
        PAGE.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let mut rows = table.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let column = rows.next()?.iter().position(|name| *name == series)?;
    Some((release, rows.skip(1).map(|row| (row[1].trim_matches('`'), row[column])).collect()))
}

/// Series, and its column.
const COLUMNS: [(&str, &str); 6] = [
    ("5.10", "5.10"),
    ("5.10", "5.10 with a types file"),
    ("6.1", "6.1"),
    ("6.12", "6.12"),
    ("7.2", "7.2"),
    ("7.3", "7.3"),
];

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn images_show_what_guests_reported() {
    let mut compared = 0;
    for (series, column) in COLUMNS {
        let Some(folder) = fixture::folder(series) else { continue };
        let mut roots = Roots::under(&folder);
        if column != series {
            if folder.join("TYPES-LEFT-OUT").exists() {
                continue;
            }
            roots.types.file = Some(folder.join("types.btf"));
        }
        let (release, page) = documented(column).unwrap_or_else(|| panic!("no column of {column}"));
        let osrelease = std::fs::read_to_string(folder.join("proc/sys/kernel/osrelease")).expect("a release");
        let own = verdicts(&roots);
        let own: BTreeMap<&str, &str> =
            own.iter().map(|(row, cell)| (row.row.id.name(), cell.as_str())).collect();
        if osrelease.trim() == release {
            assert_eq!(own, page, "{column}");
            compared += 1;
        } else if own != page {
            // A later release may have other functions; `cargo xtask kernels` boots it and writes the page.
            println!("{column}: docs/kernels.md is about {release}, {} differs: {own:?}", osrelease.trim());
        }
    }
    println!("compared {compared} columns");
}

/// Prints what `cargo xtask kernels` writes of the kernels below $KFD_TRACE_IMAGES, one folder per release.
#[test]
#[ignore = "part of cargo xtask kernels"]
fn verdicts_of_images() {
    let Some(root) = std::env::var_os("KFD_TRACE_IMAGES") else { return };
    println!();
    for entry in std::fs::read_dir(root).expect("a folder of kernels") {
        let path = entry.expect("a kernel").path();
        let release = path.file_name().and_then(|name| name.to_str()).expect("a release").to_owned();
        println!("{MARK}\trelease\t{release}\t{release}");
        for (Planned { row, strangers, .. }, cell) in verdicts(&Roots::under(&path)) {
            println!(
                "{MARK}\tprobe\t{release}\t{}\t{}\t{}\t{cell}",
                row.id.name(),
                row.kind.name(),
                row.feeds
            );
            for stranger in strangers {
                println!("{MARK}\tstranger\t{release}\t{}\t{stranger}", row.id.name());
            }
        }
    }
}
