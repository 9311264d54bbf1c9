//! docs/kernels.md lists the verdict on every probe for each kernel of the matrix; this test checks the page
//! against this kernel. `cargo xtask kernels` makes the page from this test's output.

use kfd_trace_tests::harness::btf_file::BtfFile;
use kfd_trace_tests::harness::setting::Setting;
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::{VmKernel, capable};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const PAGE: &str = include_str!("../../../docs/kernels.md");

/// Marks the lines from which the page is made (xtask/src/vm/verdicts.rs).
const MARK: &str = "kernels.md";

/// Once for all tests: attaches and detaches every probe.
fn probes() -> &'static [Value] {
    static PROBES: LazyLock<Vec<Value>> =
        LazyLock::new(|| of_report(&run_json(&["status", "--json"]).expect("a report")[0]));
    &PROBES
}

/// Run as an ordinary user with only the documented capabilities (docs/privileges.md).
fn probes_of_user() -> Vec<Value> {
    let output = capable::run(&capable::needed(), &["status", "--json"]).expect("a report");
    of_report(&serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn of_report(report: &Value) -> Vec<Value> {
    report["probes"].as_array().expect("probes").clone()
}

/// One cell of the table. `attached (13)`: at this many places.
fn cell(probe: &Value) -> String {
    let verdict = probe["verdict"].as_str().expect("a verdict");
    match probe["places"].as_u64().expect("a number") {
        0 => verdict.to_owned(),
        places => format!("{verdict} ({places})"),
    }
}

/// The column of this guest: its series, and whether a file of types is in the place of the module's BTF.
fn column(kernel: &VmKernel) -> String {
    match BtfFile::path() {
        Ok(Some(_)) => format!("{} with a types file", kernel.series),
        Ok(None) | Err(_) => kernel.series.clone(),
    }
}

/// The release that a column is about, and the column: probe to cell. Of the first table only.
fn documented(series: &str) -> Option<(&'static str, BTreeMap<String, String>)> {
    let release = PAGE.lines().find_map(|line| line.strip_prefix(&format!("- {series}: ")))?;
    let table =
        PAGE.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let mut rows = table.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let column = rows.next()?.iter().position(|name| *name == series)?;
    let probes = rows.filter(|row| row[1].starts_with('`'));
    Some((release, probes.map(|row| (row[1].trim_matches('`').to_owned(), row[column].to_owned())).collect()))
}

#[test]
fn the_documented_verdicts_hold() {
    let kernel = VmKernel::from_env().expect("the kernel");
    let _open = Setting::of(capable::PARANOID.0, capable::PARANOID.1).expect("a setting");
    let probes = probes_of_user();
    let reported: BTreeMap<String, String> = probes
        .iter()
        .map(|probe| (probe["probe"].as_str().expect("a name").to_owned(), cell(probe)))
        .collect();
    let column = column(&kernel);
    // The test's own name is on this line.
    println!();
    println!("{MARK}\trelease\t{column}\t{}", kernel.release);
    for probe in &probes {
        let text = |field: &str| probe[field].as_str().expect("a text").to_owned();
        let (name, kind, feeds) = (text("probe"), text("kind"), text("feeds"));
        println!("{MARK}\tprobe\t{column}\t{name}\t{kind}\t{feeds}\t{}", cell(probe));
    }
    let (release, documented) = documented(&column).expect("a column for this kernel");
    if kernel.release == release {
        assert_eq!(reported, documented);
    } else if reported != documented {
        // Another release may have other functions; `cargo xtask kernels` writes the page anew.
        println!("docs/kernels.md is about {release}, and this one differs");
    }
}

#[test]
fn misses_are_measured_where_the_kernel_counts_them() {
    // Since 6.7.
    let counts = VmKernel::from_env().expect("the kernel").is_from("6.7");
    for probe in probes() {
        let (missed, is_kprobe) = (&probe["missed"], probe["kind"] != "tracepoint");
        let measured = |cause: &str| missed[cause].is_u64();
        if probe["places"] == 0 {
            assert!(missed.is_null() || !measured("probe_missed"), "{probe}");
            assert!(probe["lost"].is_null(), "{probe}");
        } else {
            let expected = (counts, counts && is_kprobe);
            assert_eq!((measured("program_skipped"), measured("probe_missed")), expected, "{probe}");
            assert_eq!(probe["lost"], serde_json::json!({}), "{probe}");
        }
    }
}

#[test]
fn no_required_probe_fails_where_the_driver_has_its_function() {
    for probe in probes().iter().filter(|probe| probe["required"] == true) {
        let verdict = probe["verdict"].as_str().expect("a verdict");
        // Without the driver's types queues are followed by their ioctls, and that is reported.
        assert!(["attached", "missing_fields"].contains(&verdict), "{probe}");
    }
}
