//! Finds contents of a manifest that are not in its schema.
//!
//! The schemas are types: k8s-openapi's are generated from the OpenAPI document of Kubernetes,
//! kcr_monitoring_coreos_com's from the CRDs of the Prometheus operator. A document is read as its type and
//! written again: wrong contents cannot be read, and unknown contents are missing afterwards.

use serde_json::Value;

#[cfg(feature = "schemas")]
pub mod schema;

/// Paths at which both differ, each with the original value.
#[must_use]
pub fn differences(given: &Value, known: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", given, known, &mut found);
    found
}

fn compare(path: &str, given: &Value, known: &Value, found: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (key, value) in given {
                match known.get(key) {
                    Some(known) => compare(&format!("{path}/{key}"), value, known, found),
                    None => found.push(format!("{path}/{key} is unknown: {value}")),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) if given.len() == known.len() => {
            for (at, (given, known)) in given.iter().zip(known).enumerate() {
                compare(&format!("{path}/{at}"), given, known, found);
            }
        }
        _ if given == known => {}
        _ => found.push(format!("{path} is {given}, and {known} to its schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_has_no_difference_and_defaults_that_are_written_out_are_none() {
        let given = json!({"spec": {"ports": [{"name": "http", "port": 1}]}, "kind": "Service"});
        assert_eq!(differences(&given, &given), Vec::<String>::new());
        let known = json!({"spec": {"ports": [{"name": "http", "port": 1, "more": 0}]}, "kind": "Service", "status": {}});
        assert_eq!(differences(&given, &known), Vec::<String>::new());
    }

    #[test]
    fn what_is_unknown_is_named_by_its_path() {
        let given = json!({"spec": {"ports": [{"name": "http", "prot": 1}], "hostPid": true}});
        let known = json!({"spec": {"ports": [{"name": "http"}]}});
        assert_eq!(
            differences(&given, &known),
            ["/spec/hostPid is unknown: true", "/spec/ports/0/prot is unknown: 1"]
        );
    }

    #[test]
    fn what_was_read_as_something_else_is_named() {
        assert_eq!(differences(&json!({"a": [1]}), &json!({"a": []})), ["/a is [1], and [] to its schema"]);
        assert_eq!(differences(&json!({"a": 400}), &json!({"a": 256})), ["/a is 400, and 256 to its schema"]);
    }
}
