//! Differences between the ledger and another source. Pure.

use serde_json::Value;
use std::collections::BTreeMap;
use std::{error, fmt};

/// Field to value.
pub type Row = BTreeMap<&'static str, Value>;
/// Rows by the name of their object: `pid 312 queue 4`.
pub type Table = BTreeMap<String, Row>;

/// The end of a failed scenario: the tracer did not report what happened, or only because it was corrected
/// from the driver's lists.
#[derive(Debug)]
pub struct Differs(pub String);

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Differs {}

/// Differences shown at most.
const SHOWN: usize = 20;

/// One line per difference. Of a row, only the ledger's fields are compared: `reported` may have more.
pub fn diff(teller: &str, ledger: &Table, reported: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, expected) in ledger {
        let Some(row) = reported.get(name) else {
            lines.push(format!("{name}: {teller} does not have it"));
            continue;
        };
        for (field, value) in expected {
            let given = row.get(field);
            if given != Some(value) {
                let given = given.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                lines.push(format!("{name}: {field}: {teller} {given}, ledger {value}"));
            }
        }
    }
    let extra = reported.keys().filter(|name| !ledger.contains_key(*name));
    lines.extend(extra.map(|name| format!("{name}: only {teller} has it")));
    lines
}

/// The first differences, and how many more there are.
pub fn shown(lines: &[String]) -> String {
    let mut text = lines[..lines.len().min(SHOWN)].join("\n");
    if lines.len() > SHOWN {
        text.push_str(&format!("\n... and {} more", lines.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(rows: &[(&str, u64)]) -> Table {
        rows.iter().map(|(name, size)| ((*name).to_owned(), Row::from([("size", json!(size))]))).collect()
    }

    #[test]
    fn every_kind_of_difference_is_a_line() {
        let mut reported = table(&[("a", 1), ("b", 3), ("d", 5)]);
        let lines = diff("sysfs", &table(&[("a", 1), ("b", 2), ("c", 4)]), &reported);
        let expected = ["b: size: sysfs 3, ledger 2", "c: sysfs does not have it", "d: only sysfs has it"];
        assert_eq!(lines, expected);
        reported.get_mut("a").unwrap().insert("more", json!(true));
        assert_eq!(diff("sysfs", &table(&[("a", 1)]), &reported).len(), 2, "a field more is no difference");
        reported.get_mut("a").unwrap().remove("size");
        assert_eq!(diff("sysfs", &table(&[("a", 1)]), &reported)[0], "a: size: sysfs nothing, ledger 1");
    }

    #[test]
    fn twenty_are_shown() {
        let lines: Vec<String> = (0..25).map(|i| i.to_string()).collect();
        let text = shown(&lines);
        assert_eq!((text.lines().count(), text.lines().last()), (21, Some("... and 5 more")));
        assert_eq!(shown(&lines[..2]), "0\n1");
    }
}
