use super::{Message, attributes};
use crate::otlp::proto::{AnyValue, ArrayValue, KeyValue, KeyValueList, LogRecord, Value, pair, text};
use crate::text::escape;
use prost::Message as _;
use serde_json::json;

fn made(fields: &impl serde::Serialize) -> Vec<KeyValue> {
    let mut record = Message::default();
    attributes(fields, &mut record);
    LogRecord::decode(record.written()).expect("a message").attributes
}

#[test]
fn each_field_is_an_attribute_and_what_is_not_known_is_none() {
    let fields = json!({
        "gpu_id": 7, "address": "0x10", "read_only": false, "errno": null, "big": u64::MAX, "share": 0.5,
        "hit_pids": [3, null, 4], "queues": [{ "queue_id": 1, "result": null }],
        "by_comm": "a\u{1b}[2J",
    });
    let list = |values: Vec<Option<Value>>| {
        let values = values.into_iter().map(|value| AnyValue { value }).collect();
        Value::Array(ArrayValue { values })
    };
    let named = Value::Map(KeyValueList { values: vec![pair("queue_id", Value::Int(1))] });
    let mut made = made(&fields);
    made.sort_by(|a, b| a.key.cmp(&b.key));
    let expected = [
        text("kfd.address", "0x10"),
        text("kfd.big", u64::MAX.to_string()),
        text("kfd.by_comm", escape::terminal("a\u{1b}[2J")),
        pair("kfd.gpu_id", Value::Int(7)),
        pair("kfd.hit_pids", list(vec![Some(Value::Int(3)), None, Some(Value::Int(4))])),
        pair("kfd.queues", list(vec![Some(named)])),
        pair("kfd.read_only", Value::Bool(false)),
        pair("kfd.share", Value::Double(0.5)),
    ];
    assert_eq!(made, expected);
}

/// What an attribute of this value in JSON is; none for one that is not known.
fn value_of(json: &serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    let fields = |map: &serde_json::Map<String, Json>| {
        map.iter().filter_map(|(name, json)| Some(pair(name.as_str(), value_of(json)?))).collect()
    };
    Some(match json {
        Json::Null => return None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => number.as_i64().map_or_else(|| Value::Text(number.to_string()), Value::Int),
        Json::String(text) => Value::Text(escape::terminal(text)),
        Json::Array(list) => {
            let values = list.iter().map(|json| AnyValue { value: value_of(json) }).collect();
            Value::Array(ArrayValue { values })
        }
        Json::Object(map) => Value::Map(KeyValueList { values: fields(map) }),
    })
}

/// The order of fields is of no meaning.
fn sorted(value: Value) -> Value {
    let any = |any: AnyValue| AnyValue { value: any.value.map(sorted) };
    match value {
        Value::Array(list) => Value::Array(ArrayValue { values: list.values.into_iter().map(any).collect() }),
        Value::Map(map) => {
            let inside = |pair: KeyValue| KeyValue { value: pair.value.map(any), ..pair };
            let mut values: Vec<_> = map.values.into_iter().map(inside).collect();
            values.sort_by(|a, b| a.key.cmp(&b.key));
            Value::Map(KeyValueList { values })
        }
        other => other,
    }
}

#[test]
fn every_kind_of_event_has_the_fields_of_its_json() {
    let mut count = 0;
    for event in crate::output::golden::events() {
        let (json, made) = crate::output::samples::shown(&event, |event, context| {
            let fields = crate::output::event::json::own(event, context);
            (serde_json::to_value(&fields).expect("JSON"), made(&fields))
        });
        let own = |pair: KeyValue| {
            let key = pair.key.strip_prefix("kfd.").expect("ours").to_owned();
            KeyValue { key, ..pair }
        };
        let values = made.into_iter().map(own).collect::<Vec<_>>();
        count += values.len();
        let made = sorted(Value::Map(KeyValueList { values }));
        assert_eq!(Some(made), value_of(&json).map(sorted), "{event:?}");
    }
    assert!(count > 200, "{count}");
}

#[test]
fn what_has_no_fields_has_no_attributes() {
    assert_eq!(made(&()), []);
    assert_eq!(made(&json!({})), []);
    assert_eq!(made(&"text"), []);
}
