use super::*;
use crate::otlp::proto::{AnyValue, ArrayValue, KeyValueList, LogRecord, Value, pair};
use prost::Message as _;

#[test]
fn values_of_each_length_are_read_as_they_were_written() {
    let (mut message, mut expected) = (Message::default(), Vec::new());
    // With names and tags the lengths go through 127 and 16,383, above which they have a byte more.
    for len in (0..150).chain(16_340..16_400) {
        let value = "xyz".repeat(len / 3 + 1)[..len].to_owned();
        message.put_text(Place::own("name"), &value);
        expected.push(pair("kfd.name", Value::Text(value.clone())));
        message.text(&value, "short");
        expected.push(pair(value.clone(), Value::Text("short".to_owned())));
        let (mut array, mut map) = (Message::default(), Message::default());
        array.put_text(Place::ELEMENT, &value);
        array.put_missing();
        map.put_text(Place::named(&value), &value);
        message.put_array(Place::own("a"), &array);
        message.put_map(Place::attribute("m"), &map);
        let any = |value| AnyValue { value };
        let values = vec![any(Some(Value::Text(value.clone()))), any(None)];
        expected.push(pair("kfd.a", Value::Array(ArrayValue { values })));
        let values = vec![pair(value.clone(), Value::Text(value))];
        expected.push(pair("m", Value::Map(KeyValueList { values })));
    }
    for number in (0..63).map(|bit| 1_i64 << bit).chain([0, 127, 16_383, i64::MAX, -1, i64::MIN]) {
        message.int("i", number);
        expected.push(pair("i", Value::Int(number)));
    }
    message.unsigned("u", u64::MAX);
    expected.push(pair("u", Value::Text(u64::MAX.to_string())));
    message.truth("t", true);
    expected.push(pair("t", Value::Bool(true)));
    message.put_double(Place::attribute("d"), -0.5);
    expected.push(pair("d", Value::Double(-0.5)));
    assert_eq!(LogRecord::decode(message.written()).expect("a message").attributes, expected);
}

#[test]
fn a_message_has_nothing_of_the_one_before() {
    let mut message = Message::default();
    message.text("a", &"long ".repeat(99));
    message.clear();
    message.int("b", 1);
    let len = message.len();
    message.text("c", "taken back");
    message.truncate(len);
    let read = LogRecord::decode(message.written()).expect("a message").attributes;
    assert_eq!(read, [pair("b", Value::Int(1))]);
}
