//! Lines of recordings: those of each kind, in any order, with other values.

use super::{damaged, hostile};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const LINES: &str = include_str!("../../../../kfd-trace/tests/golden/recording-1.jsonl");

/// A first line, and others; numbers and names among them are replaced by others.
pub fn recording() -> impl Strategy<Value = Vec<u8>> {
    let (first, lines) = LINES.split_once('\n').unwrap_or_default();
    let lines: Vec<&'static str> = lines.lines().collect();
    let number = select(vec!["0", "1", "4321", "58270", "4294967295", "18446744073709551615", "null"]);
    let name = hostile().prop_map(|name| {
        let quoted = serde_json::Value::from(String::from_utf8_lossy(&name)).to_string();
        quoted.trim_matches('"').to_owned()
    });
    let line = (select(lines), select(vec!["700", "4321", "58270", "50000", "10", "3"]), number, name)
        .prop_map(|(line, old, new, name)| {
            line.replace(&format!(":{old},"), &format!(":{new},")).replace("train", &name)
        });
    let whole = vec(line, 0..30).prop_map(move |lines| {
        let all: Vec<String> = std::iter::once(first.to_owned()).chain(lines).collect();
        (all.join("\n") + "\n").into_bytes()
    });
    damaged(whole)
}
