//! Fields of an event as attributes: each field `name` is `kfd.name`; one that is not known is left out.
//!
//! A serializer, so that an event has one description: that of its JSON (output/event).

use super::attributes::{Place, Scalar, put, put_array, put_map};
use crate::text::escape;
use serde::ser::{
    self, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer, StdError,
};
use std::fmt;

/// Adds the fields of a structure or a map; none of anything else.
pub(super) fn attributes(fields: &impl Serialize, out: &mut Vec<u8>) {
    let begin = out.len();
    if fields.serialize(ToBytes::Record(out)).is_err() {
        // Not the half of them.
        out.truncate(begin);
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

/// Bytes of a name: nearly all are shorter.
const USUAL_NAME: usize = 32;

type Done = Result<(), NoAttribute>;

/// Where what is serialized goes to.
enum ToBytes<'o, 'n> {
    /// Its fields are attributes of the record.
    Record(&'o mut Vec<u8>),
    /// It is a value.
    Value(&'o mut Vec<u8>, Place<'n>),
    /// It is a name in a map.
    Name(&'o mut String),
}

impl ToBytes<'_, '_> {
    fn scalar(self, value: Scalar<'_>) -> Done {
        match (self, value) {
            (ToBytes::Value(out, place), _) => put(place, value, out),
            (ToBytes::Record(_), _) => {}
            (ToBytes::Name(out), Scalar::Text(text)) => out.push_str(text),
            (ToBytes::Name(out), Scalar::Int(number)) => out.push_str(&number.to_string()),
            (ToBytes::Name(_), _) => return Err(NoAttribute),
        }
        Ok(())
    }

    /// OTLP has no unsigned numbers: what does not fit is text, as in JSON.
    fn number<T: Copy + ToString>(self, value: T) -> Done
    where
        i64: TryFrom<T>,
    {
        match i64::try_from(value) {
            Ok(value) => self.scalar(Scalar::Int(value)),
            Err(_) => self.scalar(Scalar::Text(&value.to_string())),
        }
    }
}

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, value: $type) -> Done { self.number(value) })*
    };
}

impl<'o, 'n> Serializer for ToBytes<'o, 'n> {
    type Ok = ();
    type Error = NoAttribute;
    type SerializeSeq = List<'o, 'n>;
    type SerializeTuple = Impossible<(), NoAttribute>;
    type SerializeTupleStruct = Impossible<(), NoAttribute>;
    type SerializeTupleVariant = Impossible<(), NoAttribute>;
    type SerializeMap = Fields<'o, 'n>;
    type SerializeStruct = Fields<'o, 'n>;
    type SerializeStructVariant = Impossible<(), NoAttribute>;

    numbers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn serialize_bool(self, value: bool) -> Done {
        self.scalar(Scalar::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Done {
        self.scalar(Scalar::Double(value))
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    /// Safe for a terminal, as in metrics: a name may be chosen by anybody.
    fn serialize_str(self, value: &str) -> Done {
        self.scalar(Scalar::Text(&escape::safe(value)))
    }

    fn serialize_bytes(self, _: &[u8]) -> Done {
        Err(NoAttribute)
    }

    fn serialize_none(self) -> Done {
        match self {
            ToBytes::Value(_, Place::Element) => self.scalar(Scalar::Missing),
            ToBytes::Value(..) | ToBytes::Record(_) => Ok(()),
            ToBytes::Name(_) => Err(NoAttribute),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_none()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Done {
        Err(NoAttribute)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'o, 'n>, NoAttribute> {
        Ok(List { whole: self, elements: Vec::new() })
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

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'o, 'n>, NoAttribute> {
        Ok(Fields { whole: self, name: String::new(), values: Vec::new() })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Fields<'o, 'n>, NoAttribute> {
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

struct List<'o, 'n> {
    whole: ToBytes<'o, 'n>,
    elements: Vec<u8>,
}

impl SerializeSeq for List<'_, '_> {
    type Ok = ();
    type Error = NoAttribute;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(ToBytes::Value(&mut self.elements, Place::Element))
    }

    fn end(self) -> Done {
        match self.whole {
            ToBytes::Value(out, place) => put_array(place, &self.elements, out),
            ToBytes::Record(_) => {}
            ToBytes::Name(_) => return Err(NoAttribute),
        }
        Ok(())
    }
}

struct Fields<'o, 'n> {
    whole: ToBytes<'o, 'n>,
    /// Of the next value of a map.
    name: String,
    /// Of what is no record: they have a length before them.
    values: Vec<u8>,
}

impl Fields<'_, '_> {
    fn add<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Done {
        value.serialize(match &mut self.whole {
            ToBytes::Record(out) => ToBytes::Value(out, Place::Own(name)),
            ToBytes::Value(..) => ToBytes::Value(&mut self.values, Place::Named(name)),
            ToBytes::Name(_) => return Err(NoAttribute),
        })
    }

    fn done(self) -> Done {
        if let ToBytes::Value(out, place) = self.whole {
            put_map(place, &self.values, out);
        }
        Ok(())
    }
}

impl SerializeStruct for Fields<'_, '_> {
    type Ok = ();
    type Error = NoAttribute;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        self.add(name, value)
    }

    fn end(self) -> Done {
        self.done()
    }
}

impl SerializeMap for Fields<'_, '_> {
    type Ok = ();
    type Error = NoAttribute;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.name.clear();
        self.name.reserve(USUAL_NAME);
        key.serialize(ToBytes::Name(&mut self.name))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        let name = std::mem::take(&mut self.name);
        self.add(&name, value)?;
        self.name = name;
        Ok(())
    }

    fn end(self) -> Done {
        self.done()
    }
}

#[cfg(test)]
mod tests {
    use super::attributes;
    use crate::otlp::proto::{AnyValue, ArrayValue, KeyValue, KeyValueList, LogRecord, Value, pair, text};
    use crate::text::escape;
    use prost::Message as _;
    use serde_json::json;

    fn made(fields: &impl serde::Serialize) -> Vec<KeyValue> {
        let mut bytes = Vec::new();
        attributes(fields, &mut bytes);
        LogRecord::decode(&bytes[..]).expect("a message").attributes
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

    #[test]
    fn what_has_no_fields_has_no_attributes() {
        assert_eq!(made(&()), []);
        assert_eq!(made(&json!({})), []);
        assert_eq!(made(&"text"), []);
    }
}
