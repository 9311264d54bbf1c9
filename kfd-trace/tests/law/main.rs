//! The law of layers: a module uses only what stands above it in [`LAYERS`], and no two files use each other.

mod source;

use source::{Edge, Module, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn sources() -> Sources {
    Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn show() {
    let sources = sources();
    let edges = sources.edges();
    for e in &edges {
        println!("E {} -> {}", e.from.join("::"), e.to.join("::"));
    }
    for e in &edges {
        if e.from < e.to && edges.contains(&Edge { from: e.to.clone(), to: e.from.clone() }) {
            println!("PAIR {} <-> {}", e.from.join("::"), e.to.join("::"));
        }
    }
    let _: Option<(BTreeMap<Module, ()>, BTreeSet<()>)> = None;
}
