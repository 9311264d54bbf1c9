//! A record's bytes, written without an object for each attribute: a daemon under load makes thousands of them a second, with
//! some twenty attributes each.
//!
//! `KeyValue`, `AnyValue`, `ArrayValue` and `KeyValueList` of opentelemetry's common.proto; tests read them by [`super::proto`].

use crate::text::escape;
use prost::encoding::{encode_varint, encoded_len_varint};

/// Before each name of ours.
const PREFIX: [u8; 4] = *b"kfd.";

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

/// Numbers below this take one byte.
const SHORT: usize = 0x80;

/// All fields have numbers below 16.
const fn tag(field: u8, kind: u8) -> u8 {
    field << 3 | kind
}

/// What a value is of the message that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'n> {
    tag: u8,
    /// Its name begins with [`PREFIX`].
    own: bool,
    /// `None`: one of an array.
    name: Option<&'n str>,
}

impl<'n> Place<'n> {
    /// One of an array.
    pub(super) const ELEMENT: Self = Place { tag: VALUES, own: false, name: None };

    /// An attribute of the record.
    pub(super) const fn attribute(name: &'n str) -> Self {
        Place { tag: ATTRIBUTES, own: false, name: Some(name) }
    }

    /// The same, with [`PREFIX`] before its name.
    pub(super) const fn own(name: &'n str) -> Self {
        Place { tag: ATTRIBUTES, own: true, name: Some(name) }
    }

    /// Has this name in a map.
    pub(super) const fn named(name: &'n str) -> Self {
        Place { tag: VALUES, own: false, name: Some(name) }
    }

    pub(super) const fn is_element(self) -> bool {
        self.name.is_none()
    }
}

/// A message, or a part of one. What is behind its end is of an earlier one: nothing is allocated for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
    end: usize,
}

impl Message {
    pub(super) fn clear(&mut self) {
        self.end = 0;
    }

    pub(super) const fn len(&self) -> usize {
        self.end
    }

    /// Takes back what was written since it had so many bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(len);
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Adds what was written elsewhere.
    pub(super) fn add(&mut self, written: &[u8]) {
        self.next(written.len()).copy_from_slice(written);
    }

    /// The place of the next so many bytes.
    #[inline]
    fn next(&mut self, count: usize) -> &mut [u8] {
        let (begin, end) = (self.end, self.end + count);
        if end > self.bytes.len() {
            self.grow(end);
        }
        self.end = end;
        &mut self.bytes[begin..end]
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        self.bytes.resize(end.next_power_of_two().max(512), 0);
    }

    /// Begins an `AnyValue` of so many bytes, and returns its place.
    #[expect(
        clippy::inline_always,
        reason = "a call costs as much as what it does; there are twenty in a record"
    )]
    #[inline(always)]
    fn begin(&mut self, place: Place<'_>, len: usize) -> &mut [u8] {
        let prefix = if place.own { PREFIX.len() } else { 0 };
        // The two lengths and the two tags in a `KeyValue`.
        if let Some(name) = place.name
            && prefix + name.len() + len + 4 < SHORT
        {
            let key = prefix + name.len();
            let to = self.next(key + len + 6);
            let mut to = place_bytes([place.tag, low_byte(key + len + 4), KEY, low_byte(key)], to);
            if place.own {
                to = place_bytes(PREFIX, to);
            }
            let (first, to) = to.split_at_mut(name.len());
            copy(name.as_bytes(), first);
            return place_bytes([VALUE, low_byte(len)], to);
        }
        self.begin_long(place, len)
    }

    /// The same of what is long, or of an array.
    #[cold]
    fn begin_long(&mut self, place: Place<'_>, len: usize) -> &mut [u8] {
        let mut head = Vec::new();
        match place.name {
            None => put_head(place.tag, len, &mut head),
            Some(name) => {
                let prefix: &[u8] = if place.own { &PREFIX } else { &[] };
                let key = prefix.len() + name.len();
                put_head(place.tag, 1 + of_bytes(key) + 1 + of_bytes(len), &mut head);
                put_head(KEY, key, &mut head);
                head.extend_from_slice(prefix);
                head.extend_from_slice(name.as_bytes());
                put_head(VALUE, len, &mut head);
            }
        }
        let (first, rest) = self.next(head.len() + len).split_at_mut(head.len());
        first.copy_from_slice(&head);
        rest
    }

    fn put_block(&mut self, place: Place<'_>, tag: u8, block: &[u8]) {
        if block.len() < SHORT {
            let to = self.begin(place, 2 + block.len());
            return copy(block, place_bytes([tag, low_byte(block.len())], to));
        }
        let mut head = Vec::new();
        put_head(tag, block.len(), &mut head);
        let (first, rest) = self.begin(place, head.len() + block.len()).split_at_mut(head.len());
        first.copy_from_slice(&head);
        rest.copy_from_slice(block);
    }

    pub(super) fn put_text(&mut self, place: Place<'_>, text: &str) {
        self.put_block(place, TEXT, text.as_bytes());
    }

    /// What anybody may choose: safe for a terminal, as in metrics.
    pub(super) fn put_foreign(&mut self, place: Place<'_>, text: &str) {
        if escape::is_plain(text) {
            self.put_text(place, text);
        } else {
            self.put_text(place, &escape::terminal(text));
        }
    }

    pub(super) fn put_int(&mut self, place: Place<'_>, number: i64) {
        if let Ok(short) = u8::try_from(number)
            && usize::from(short) < SHORT
        {
            place_bytes([INT, short], self.begin(place, 2));
            return;
        }
        let number = number.cast_unsigned();
        let to = self.begin(place, 1 + encoded_len_varint(number));
        place_varint(number, place_bytes([INT], to));
    }

    pub(super) fn put_bool(&mut self, place: Place<'_>, value: bool) {
        place_bytes([BOOL, value.into()], self.begin(place, 2));
    }

    pub(super) fn put_double(&mut self, place: Place<'_>, value: f64) {
        let to = place_bytes([DOUBLE], self.begin(place, 1 + size_of::<f64>()));
        place_bytes(value.to_le_bytes(), to);
    }

    /// In an array: keeps the places of those behind it.
    pub(super) fn put_missing(&mut self) {
        self.begin(Place::ELEMENT, 0);
    }

    /// `elements`: written as [`Place::ELEMENT`].
    pub(super) fn put_array(&mut self, place: Place<'_>, elements: &Message) {
        self.put_block(place, ARRAY, elements.written());
    }

    /// `values`: written as [`Place::named`].
    pub(super) fn put_map(&mut self, place: Place<'_>, values: &Message) {
        self.put_block(place, MAP, values.written());
    }

    /// Adds an attribute of the record.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.put_text(Place::attribute(name), value);
    }

    /// [`Self::text`] of what anybody may choose: safe for a terminal, as in metrics.
    pub(super) fn foreign(&mut self, name: &str, value: &str) {
        self.put_foreign(Place::attribute(name), value);
    }

    #[inline]
    pub(super) fn int(&mut self, name: &str, value: impl Into<i64>) {
        self.put_int(Place::attribute(name), value.into());
    }

    /// OTLP has no unsigned numbers: what does not fit is text, as in JSON.
    #[inline]
    pub(super) fn unsigned(&mut self, name: &str, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.int(name, value),
            Err(_) => self.text(name, &value.to_string()),
        }
    }

    pub(super) fn truth(&mut self, name: &str, value: bool) {
        self.put_bool(Place::attribute(name), value);
    }

    /// Adds a field of the record itself: a text.
    pub(super) fn field(&mut self, field: u8, text: &str) {
        self.head(tag(field, LENGTH), text.len());
        self.add(text.as_bytes());
    }

    /// The same: an `AnyValue` that is a text.
    pub(super) fn value_field(&mut self, field: u8, text: &str) {
        self.head(tag(field, LENGTH), 1 + of_bytes(text.len()));
        self.head(TEXT, text.len());
        self.add(text.as_bytes());
    }

    fn head(&mut self, tag: u8, len: usize) {
        let to = self.next(1 + encoded_len_varint(len as u64));
        place_varint(len as u64, place_bytes([tag], to));
    }

    /// The same: a number below 128.
    pub(super) fn small_field(&mut self, field: u8, number: u8) {
        place_bytes([tag(field, VARINT), number], self.next(2));
    }

    /// The same: a number of eight bytes.
    pub(super) fn fixed64_field(&mut self, field: u8, number: u64) {
        let to = place_bytes([tag(field, FIXED64)], self.next(9));
        place_bytes(number.to_le_bytes(), to);
    }
}

/// Adds a message as a field of another one.
pub(super) fn put_message(field: u8, message: &Message, out: &mut Vec<u8>) {
    put_head(tag(field, LENGTH), message.len(), out);
    out.extend_from_slice(message.written());
}

fn put_head(tag: u8, len: usize, out: &mut Vec<u8>) {
    out.push(tag);
    encode_varint(len as u64, out);
}

/// So many bytes, with their number before them.
fn of_bytes(len: usize) -> usize {
    encoded_len_varint(len as u64) + len
}

/// Of a number below 256.
const fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

/// Places bytes at the begin, and returns what is behind them.
#[inline]
fn place_bytes<const N: usize>(bytes: [u8; N], to: &mut [u8]) -> &mut [u8] {
    match to.split_first_chunk_mut::<N>() {
        Some((first, rest)) => {
            *first = bytes;
            rest
        }
        None => {
            debug_assert!(false, "a length that is not that of what is written");
            &mut []
        }
    }
}

/// As `copy_from_slice`, without a call for what names and most values have: a third of the cost of a record was in copies of a
/// dozen bytes.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    debug_assert_eq!(from.len(), to.len(), "else there is something of an earlier record in this one");
    match from.len() {
        0..=3 => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
        4..=8 => copy_ends::<4>(from, to),
        9..=16 => copy_ends::<8>(from, to),
        17..=32 => copy_ends::<16>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// Both ends, the second one over the end of the first: at least `N` bytes, at most twice as many.
#[inline]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(first), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *first;
    }
    if let (Some(last), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        *to = *last;
    }
}

/// `to` is as long as the number: seven bits in each byte, the lowest first, and all but the last one marked.
#[inline]
fn place_varint(number: u64, to: &mut [u8]) {
    let mut left = number;
    for byte in &mut *to {
        *byte = left.to_le_bytes()[0] | 0x80;
        left >>= 7;
    }
    if let Some(last) = to.last_mut() {
        *last &= 0x7f;
    }
}

#[cfg(test)]
mod tests;
