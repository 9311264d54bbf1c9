//! Attributes of a record as bytes, without an object for each: a daemon under load makes millions of them.
//!
//! `KeyValue`, `AnyValue`, `ArrayValue` and `KeyValueList` of opentelemetry's common.proto; tests read them by [`super::proto`].

use crate::text::escape;
use prost::encoding::{encode_varint, encoded_len_varint};

/// Before each name of ours.
pub(super) const PREFIX: &str = "kfd.";

/// How fields of messages are written.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;

/// `LogRecord.attributes`
const ATTRIBUTES: u8 = tag(6, LENGTH);

/// `KeyValueList.values`, and `ArrayValue.values`
const VALUES: u8 = tag(1, LENGTH);

/// Fields of `KeyValue`.
const KEY: u8 = tag(1, LENGTH);
const VALUE: u8 = tag(2, LENGTH);

/// Fields of `AnyValue`.
const TEXT: u8 = tag(1, LENGTH);
const BOOL: u8 = tag(2, VARINT);
const INT: u8 = tag(3, VARINT);
const DOUBLE: u8 = tag(4, FIXED64);
const ARRAY: u8 = tag(5, LENGTH);
const MAP: u8 = tag(6, LENGTH);

/// All fields have numbers below 16.
const fn tag(field: u8, kind: u8) -> u8 {
    field << 3 | kind
}

/// What a value is of the message that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'n> {
    /// An attribute of the record.
    Attribute(&'n str),
    /// The same, with [`PREFIX`] before its name.
    Own(&'n str),
    /// Has this name in a map.
    Named(&'n str),
    /// One of an array.
    Element,
}

/// A value that has no attributes or elements in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar<'v> {
    Text(&'v str),
    /// A text with [`PREFIX`] before it.
    Own(&'v str),
    Bool(bool),
    Int(i64),
    Double(f64),
    /// In an array: keeps the places of those behind it.
    Missing,
}

impl Scalar<'_> {
    /// Bytes of its `AnyValue`.
    fn len(self) -> usize {
        match self {
            Scalar::Text(text) => 1 + of_bytes(text.len()),
            Scalar::Own(text) => 1 + of_bytes(PREFIX.len() + text.len()),
            Scalar::Bool(_) => 2,
            Scalar::Int(value) => 1 + encoded_len_varint(value.cast_unsigned()),
            Scalar::Double(_) => 9,
            Scalar::Missing => 0,
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        match self {
            Scalar::Text(text) => put_bytes(TEXT, text.as_bytes(), out),
            Scalar::Own(text) => put_own(TEXT, text, out),
            Scalar::Bool(value) => out.extend_from_slice(&[BOOL, value.into()]),
            Scalar::Int(value) => {
                out.push(INT);
                put_varint(value.cast_unsigned(), out);
            }
            Scalar::Double(value) => {
                out.push(DOUBLE);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Scalar::Missing => {}
        }
    }
}

/// Adds a value.
pub(super) fn put(place: Place<'_>, value: Scalar<'_>, out: &mut Vec<u8>) {
    begin(place, value.len(), out);
    value.put(out);
}

/// Adds what was written as [`Place::Element`]s.
pub(super) fn put_array(place: Place<'_>, elements: &[u8], out: &mut Vec<u8>) {
    begin(place, 1 + of_bytes(elements.len()), out);
    put_bytes(ARRAY, elements, out);
}

/// Adds what was written as [`Place::Named`].
pub(super) fn put_map(place: Place<'_>, values: &[u8], out: &mut Vec<u8>) {
    begin(place, 1 + of_bytes(values.len()), out);
    put_bytes(MAP, values, out);
}

/// Adds an attribute of the record.
pub(super) fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    put(Place::Attribute(name), Scalar::Text(value), out);
}

/// [`text`] of what anybody may choose: safe for a terminal, as in metrics.
pub(super) fn foreign(name: &str, value: &str, out: &mut Vec<u8>) {
    text(name, &escape::safe(value), out);
}

pub(super) fn int(name: &str, value: impl Into<i64>, out: &mut Vec<u8>) {
    put(Place::Attribute(name), Scalar::Int(value.into()), out);
}

/// OTLP has no unsigned numbers: what does not fit is text, as in JSON.
pub(super) fn unsigned(name: &str, value: u64, out: &mut Vec<u8>) {
    match i64::try_from(value) {
        Ok(value) => int(name, value, out),
        Err(_) => text(name, &value.to_string(), out),
    }
}

pub(super) fn truth(name: &str, value: bool, out: &mut Vec<u8>) {
    put(Place::Attribute(name), Scalar::Bool(value), out);
}

/// A field of a message: text, bytes, or a message of its own.
pub(super) fn bytes(field: u8, content: &[u8], out: &mut Vec<u8>) {
    put_bytes(tag(field, LENGTH), content, out);
}

/// The same of a text with [`PREFIX`] before it.
pub(super) fn own(field: u8, text: &str, out: &mut Vec<u8>) {
    put_own(tag(field, LENGTH), text, out);
}

/// A field of a message: a number.
pub(super) fn varint(field: u8, value: u64, out: &mut Vec<u8>) {
    out.push(tag(field, VARINT));
    put_varint(value, out);
}

/// A field of a message: a number of eight bytes.
pub(super) fn fixed64(field: u8, value: u64, out: &mut Vec<u8>) {
    out.push(tag(field, FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}

/// A field of a message: an `AnyValue` that is a text.
pub(super) fn any_text(field: u8, text: &str, out: &mut Vec<u8>) {
    let value = Scalar::Text(text);
    head(tag(field, LENGTH), value.len(), out);
    value.put(out);
}

/// All but the content of the `AnyValue`, which has `len` bytes.
fn begin(place: Place<'_>, len: usize, out: &mut Vec<u8>) {
    let (tag, prefix, name) = match place {
        Place::Attribute(name) => (ATTRIBUTES, "", name),
        Place::Own(name) => (ATTRIBUTES, PREFIX, name),
        Place::Named(name) => (VALUES, "", name),
        Place::Element => return head(VALUES, len, out),
    };
    let key = prefix.len() + name.len();
    let all = 1 + of_bytes(key) + 1 + of_bytes(len);
    // Once for all that is added below and behind it.
    out.reserve(all + ROOM);
    match u8::try_from(all) {
        // Nearly always: then each length has one byte.
        Ok(short) if short < 0x80 => {
            let (key, len) = (low_byte(key), low_byte(len));
            out.extend_from_slice(&[tag, short, KEY, key]);
            if !prefix.is_empty() {
                out.extend_from_slice(PREFIX.as_bytes());
            }
            append(name.as_bytes(), out);
            out.extend_from_slice(&[VALUE, len]);
        }
        _ => {
            head(tag, all, out);
            head(KEY, key, out);
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(name.as_bytes());
            head(VALUE, len, out);
        }
    }
}

/// The tag and the length of a field's `KeyValue`.
const ROOM: usize = 16;

/// Of a number below 256.
fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

fn put_bytes(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    head(tag, content.len(), out);
    append(content, out);
}

fn put_own(tag: u8, text: &str, out: &mut Vec<u8>) {
    head(tag, PREFIX.len() + text.len(), out);
    out.extend_from_slice(PREFIX.as_bytes());
    append(text.as_bytes(), out);
}

/// As `extend_from_slice`, without a call for what names and most values have: its two ends, of a size that is known here,
/// the second one over the end of the first. A third of the cost of a record was in copies of a dozen bytes.
#[inline]
fn append(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        4..=8 => append_ends::<4>(bytes, out),
        9..=16 => append_ends::<8>(bytes, out),
        17..=32 => append_ends::<16>(bytes, out),
        _ => out.extend_from_slice(bytes),
    }
}

/// `bytes` has at least `N` and at most twice as many.
#[inline]
fn append_ends<const N: usize>(bytes: &[u8], out: &mut Vec<u8>) {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return };
    let begin = out.len();
    out.extend_from_slice(first);
    out.truncate(begin + bytes.len() - N);
    out.extend_from_slice(last);
}

/// Begins a field of so many bytes.
#[inline]
fn head(tag: u8, len: usize, out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(len as u64, out);
}

#[inline]
fn put_varint(value: u64, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(byte) if byte < 0x80 => out.push(byte),
        _ => encode_varint(value, out),
    }
}

/// So many bytes, with their number before them.
fn of_bytes(len: usize) -> usize {
    encoded_len_varint(len as u64) + len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::proto::{LogRecord, Value, pair};
    use prost::Message as _;

    #[test]
    fn values_of_each_length_are_read_as_they_were_written() {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        // With names and tags the lengths go through 127 and 16,383, above which they have a byte more.
        for len in (0..150).chain(16_340..16_400) {
            let value = "x".repeat(len);
            put(Place::Own("name"), Scalar::Text(&value), &mut bytes);
            expected.push(pair("kfd.name", Value::Text(value.clone())));
            text(&value, "short", &mut bytes);
            expected.push(pair(value.clone(), Value::Text("short".to_owned())));
            put(Place::Attribute("own"), Scalar::Own(&value), &mut bytes);
            expected.push(pair("own", Value::Text(format!("kfd.{value}"))));
        }
        for number in [0, 1, 127, 128, 16_383, 16_384, i64::MAX, -1, i64::MIN] {
            int("i", number, &mut bytes);
            expected.push(pair("i", Value::Int(number)));
        }
        unsigned("u", u64::MAX, &mut bytes);
        expected.push(pair("u", Value::Text(u64::MAX.to_string())));
        truth("t", true, &mut bytes);
        expected.push(pair("t", Value::Bool(true)));
        put(Place::Attribute("d"), Scalar::Double(-0.5), &mut bytes);
        expected.push(pair("d", Value::Double(-0.5)));
        assert_eq!(LogRecord::decode(&bytes[..]).expect("a message").attributes, expected);
    }
}
