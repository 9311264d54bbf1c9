//! Each manifest that kustomize made is as the published schemas have it.

use kfd_trace_manifests::{differences, schema};
use serde_json::Value;

#[test]
#[ignore = "needs cargo xtask manifests"]
fn every_document_is_as_its_schema_has_it() {
    let folder =
        std::env::var("KFD_TRACE_MANIFESTS").expect("KFD_TRACE_MANIFESTS: run `cargo xtask manifests`");
    let mut problems = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let kind = document["kind"].to_string();
            let found = schema::known(&document)
                .map_or_else(|error| vec![error], |known| differences(&document, &known));
            problems.extend(found.iter().map(|problem| format!("{name}, {kind}: {problem}")));
            kinds.push(kind);
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}
