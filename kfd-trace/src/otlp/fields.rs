//! Fields of an event as attributes: each field `name` is `kfd.name`; one that is not known is left out.
//!
//! A serializer, so that an event has one description: that of its JSON (output/event).

use super::proto::{AnyValue, ArrayValue, KeyValue, KeyValueList, Value};
use crate::text::escape;
use serde::ser::{
    self, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer, StdError,
};
use std::fmt;

/// Before each name.
const PREFIX: &str = "kfd.";

/// The fields of a structure or a map; none of anything else.
pub(super) fn attributes(fields: &impl Serialize) -> Vec<KeyValue> {
    match fields.serialize(ToValue { prefix: PREFIX }) {
        Ok(Some(Value::Map(list))) => list.values,
        _ => Vec::new(),
    }
}

/// Why something is no attribute: none of the events has such a field.
#[derive(Debug)]
struct NoAttribute;

impl fmt::Display for NoAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is no attribute")
    }
}

impl StdError for NoAttribute {}

impl ser::Error for NoAttribute {
    fn custom<T: fmt::Display>(_: T) -> Self {
        NoAttribute
    }
}

type Made = Result<Option<Value>, NoAttribute>;

#[derive(Clone, Copy)]
struct ToValue {
    /// Of the names in it; what is inside of these has none.
    prefix: &'static str,
}

/// OTLP has no unsigned numbers: what does not fit is text, as in JSON.
fn number<T: Copy + ToString>(value: T) -> Made
where
    i64: TryFrom<T>,
{
    Ok(Some(i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int)))
}

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, value: $type) -> Made { number(value) })*
    };
}

impl Serializer for ToValue {
    type Ok = Option<Value>;
    type Error = NoAttribute;
    type SerializeSeq = List;
    type SerializeTuple = Impossible<Self::Ok, NoAttribute>;
    type SerializeTupleStruct = Impossible<Self::Ok, NoAttribute>;
    type SerializeTupleVariant = Impossible<Self::Ok, NoAttribute>;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Impossible<Self::Ok, NoAttribute>;

    numbers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn serialize_bool(self, value: bool) -> Made {
        Ok(Some(Value::Bool(value)))
    }

    fn serialize_f32(self, value: f32) -> Made {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Made {
        Ok(Some(Value::Double(value)))
    }

    fn serialize_char(self, value: char) -> Made {
        Ok(Some(Value::Text(value.into())))
    }

    /// Safe for a terminal, as in metrics: a name may be chosen by anybody.
    fn serialize_str(self, value: &str) -> Made {
        Ok(Some(Value::Text(escape::terminal(value))))
    }

    fn serialize_bytes(self, _: &[u8]) -> Made {
        Err(NoAttribute)
    }

    fn serialize_none(self) -> Made {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Made {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Made {
        Ok(None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Made {
        Ok(None)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Made {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Made {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Made {
        Err(NoAttribute)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<List, NoAttribute> {
        Ok(List { values: Vec::with_capacity(length.unwrap_or(0)) })
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, NoAttribute> {
        Err(NoAttribute)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, NoAttribute> {
        Err(NoAttribute)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, NoAttribute> {
        Err(NoAttribute)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Fields, NoAttribute> {
        Ok(Fields { prefix: self.prefix, key: None, values: Vec::with_capacity(length.unwrap_or(16)) })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Fields, NoAttribute> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, NoAttribute> {
        Err(NoAttribute)
    }
}

struct List {
    values: Vec<AnyValue>,
}

impl SerializeSeq for List {
    type Ok = Option<Value>;
    type Error = NoAttribute;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoAttribute> {
        // An empty one keeps the places of those behind it.
        self.values.push(AnyValue { value: value.serialize(ToValue { prefix: "" })? });
        Ok(())
    }

    fn end(self) -> Made {
        Ok(Some(Value::Array(ArrayValue { values: self.values })))
    }
}

struct Fields {
    prefix: &'static str,
    key: Option<String>,
    values: Vec<KeyValue>,
}

impl Fields {
    fn add<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), NoAttribute> {
        let Some(value) = value.serialize(ToValue { prefix: "" })? else { return Ok(()) };
        let mut key = String::with_capacity(self.prefix.len() + name.len());
        key.push_str(self.prefix);
        key.push_str(name);
        self.values.push(KeyValue { key, value: Some(AnyValue { value: Some(value) }) });
        Ok(())
    }

    fn done(self) -> Made {
        Ok(Some(Value::Map(KeyValueList { values: self.values })))
    }
}

impl SerializeStruct for Fields {
    type Ok = Option<Value>;
    type Error = NoAttribute;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), NoAttribute> {
        self.add(name, value)
    }

    fn end(self) -> Made {
        self.done()
    }
}

impl SerializeMap for Fields {
    type Ok = Option<Value>;
    type Error = NoAttribute;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NoAttribute> {
        match key.serialize(ToValue { prefix: "" })? {
            Some(Value::Text(key)) => self.key = Some(key),
            Some(Value::Int(key)) => self.key = Some(key.to_string()),
            _ => return Err(NoAttribute),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoAttribute> {
        let key = self.key.take().ok_or(NoAttribute)?;
        self.add(&key, value)
    }

    fn end(self) -> Made {
        self.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::proto::{int, pair, text};
    use serde_json::json;

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
        let named = Value::Map(KeyValueList { values: vec![int("queue_id", 1)] });
        let mut made = attributes(&fields);
        made.sort_by(|a, b| a.key.cmp(&b.key));
        let expected = [
            text("kfd.address", "0x10"),
            text("kfd.big", u64::MAX.to_string()),
            text("kfd.by_comm", escape::terminal("a\u{1b}[2J")),
            int("kfd.gpu_id", 7),
            pair("kfd.hit_pids", list(vec![Some(Value::Int(3)), None, Some(Value::Int(4))])),
            pair("kfd.queues", list(vec![Some(named)])),
            pair("kfd.read_only", Value::Bool(false)),
            pair("kfd.share", Value::Double(0.5)),
        ];
        assert_eq!(made, expected);
    }

    #[test]
    fn what_has_no_fields_has_no_attributes() {
        assert_eq!(attributes(&()), []);
        assert_eq!(attributes(&json!({})), []);
        assert_eq!(attributes(&"text"), []);
    }
}
