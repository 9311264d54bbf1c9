//! The law of layers: a module uses only modules before it in [`LAYERS`], and no files import each other in a
//! circle.
//! Tests may use any module.

mod source;

use source::{Edge, Module, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The top modules of the crate, lowest first, each with its purpose. docs/architecture.md has the same list.
const LAYERS: [(&str, &str); 22] = [
    ("model", "what KFD is, as plain data"),
    ("text", "text for people: times, errnos, tables, control characters"),
    ("kernel", "what this kernel is and offers: symbols, types, offsets, capabilities"),
    ("events", "records and maps of the programs, decoded"),
    ("attribute", "who a PID and a gpu_id is: procfs, cgroups, topology"),
    ("probes", "the probe table, attached programs and their maps"),
    ("state", "who has which queue: rules, rows, history"),
    ("recording", "what changed the state, in a file: written, read and played"),
    ("output", "the state as text, JSON, metrics, page and screen; pure"),
    ("amd_log", "logs of AMD_LOG_LEVEL: bytes in, a report out"),
    ("timeline", "a recording, and logs, as a trace for Perfetto; pure"),
    ("doctor", "each view of a node in, a diagnosis out"),
    ("hw", "dumps of hardware queues in, a table out"),
    ("runtime", "the process: standard streams, the terminal, signals, capabilities, exit codes"),
    ("log_files", "logs of AMD_LOG_LEVEL from files and pipes"),
    ("driver_types", "types of a driver without BTF, from its source"),
    ("tracer", "the engine: probes, driver, lists and samples keep the state true"),
    ("serve", "HTTP: routes, answers, TLS and passwords"),
    ("remote", "the API of a running daemon, here or on another node, as a client"),
    ("otlp", "events as OpenTelemetry logs, sent to a collector"),
    ("cli", "the command line"),
    ("command", "one file a command"),
];

fn sources() -> Sources {
    Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

fn layer(module: &Module) -> Option<usize> {
    LAYERS.iter().position(|(name, _)| Some(*name) == module.first().map(String::as_str))
}

#[test]
fn every_module_has_a_layer() {
    let without: Vec<Module> =
        sources().modules().filter(|module| !module.is_empty() && layer(module).is_none()).cloned().collect();
    assert_eq!(without, Vec::<Module>::new(), "give them a place in LAYERS");
}

#[test]
fn a_module_uses_only_what_stands_before_it() {
    let sources = sources();
    let edges = sources.edges();
    assert!(edges.len() > 300, "{} uses were found", edges.len());
    let breaks = |edge: &&Edge| layer(&edge.from) < layer(&edge.to);
    let broken: Vec<String> = edges.iter().filter(breaks).map(|edge| sources.show(edge)).collect();
    assert!(broken.is_empty(), "against the law:\n{}", broken.join("\n"));
}

/// Files that can be reached from each file by its uses.
fn reached(edges: &BTreeSet<Edge>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let mut reached: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for edge in edges {
        reached.entry(&edge.from).or_default().insert(&edge.to);
    }
    loop {
        let further: Vec<(&Module, BTreeSet<&Module>)> = reached
            .iter()
            .map(|(from, to)| {
                (*from, to.iter().filter_map(|next| reached.get(next)).flatten().copied().collect())
            })
            .collect();
        let before: usize = reached.values().map(BTreeSet::len).sum();
        for (from, more) in further {
            reached.entry(from).or_default().extend(more);
        }
        if before == reached.values().map(BTreeSet::len).sum() {
            return reached;
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let sources = sources();
    let edges = sources.edges();
    let reached = reached(&edges);
    let back = |edge: &&Edge| reached.get(&edge.to).is_some_and(|all| all.contains(&edge.from));
    let circles: Vec<String> = edges.iter().filter(back).map(|edge| sources.show(edge)).collect();
    assert!(circles.is_empty(), "in a circle:\n{}", circles.join("\n"));
}

#[test]
fn the_architecture_has_the_same_list() {
    let document = include_str!("../../../docs/architecture.md");
    let rows: Vec<String> = LAYERS.iter().map(|(name, what)| format!("| `{name}` | {what} |")).collect();
    assert!(document.contains(&rows.join("\n")), "docs/architecture.md, Layers:\n{}", rows.join("\n"));
}
