//! Fields of an event as attributes: each field `name` is `kfd.name`; one that is not known is left out.
//!
//! A serializer, so that an event has one description: that of its JSON (output/event).

use super::message::{Message, Place};
use serde::ser::{
    self, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer, StdError,
};
use std::fmt;

/// Adds the fields of a structure or a map; none of anything else.
pub(super) fn attributes(fields: &impl Serialize, out: &mut Message) {
    let begin = out.len();
    if let Err(error) = fields.serialize(ToBytes::Record(out)) {
        debug_assert!(false, "{error}");
        log::warn!("an event is exported without its fields: {error}: report this");
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

type Done = Result<(), NoAttribute>;

/// Where what is serialized goes to.
enum ToBytes<'o, 'n> {
    /// Its fields are attributes of the record.
    Record(&'o mut Message),
    /// It is a value.
    Value(&'o mut Message, Place<'n>),
    /// It is the name of a value: in a record, or in a map.
    Name { out: &'o mut Message, in_record: bool, value: &'o dyn Put },
}

/// A value, whatever its type.
trait Put {
    fn put(&self, out: &mut Message, place: Place<'_>) -> Done;
}

impl<T: Serialize> Put for T {
    fn put(&self, out: &mut Message, place: Place<'_>) -> Done {
        self.serialize(ToBytes::Value(out, place))
    }
}

fn place(in_record: bool, name: &str) -> Place<'_> {
    if in_record { Place::own(name) } else { Place::named(name) }
}

impl ToBytes<'_, '_> {
    #[inline]
    fn text(self, text: &str) -> Done {
        match self {
            ToBytes::Value(out, place) => out.put_foreign(place, text),
            ToBytes::Name { out, in_record, value } => return value.put(out, place(in_record, text)),
            ToBytes::Record(_) => {}
        }
        Ok(())
    }

    fn int(self, number: i64) -> Done {
        match self {
            ToBytes::Value(out, place) => out.put_int(place, number),
            ToBytes::Name { .. } => return self.text(&number.to_string()),
            ToBytes::Record(_) => {}
        }
        Ok(())
    }

    fn other(self, put: impl FnOnce(&mut Message, Place<'_>)) -> Done {
        match self {
            ToBytes::Value(out, place) => put(out, place),
            ToBytes::Name { .. } => return Err(NoAttribute),
            ToBytes::Record(_) => {}
        }
        Ok(())
    }

    /// OTLP has no unsigned numbers: what does not fit is text, as in JSON.
    fn number<T: Copy + ToString>(self, value: T) -> Done
    where
        i64: TryFrom<T>,
    {
        match i64::try_from(value) {
            Ok(value) => self.int(value),
            Err(_) => self.text(&value.to_string()),
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
        self.other(|out, place| out.put_bool(place, value))
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Done {
        self.other(|out, place| out.put_double(place, value))
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    /// Safe for a terminal, as in metrics: a name may be chosen by anybody.
    fn serialize_str(self, value: &str) -> Done {
        self.text(value)
    }

    fn serialize_bytes(self, _: &[u8]) -> Done {
        Err(NoAttribute)
    }

    fn serialize_none(self) -> Done {
        match self {
            ToBytes::Value(out, place) if place.is_element() => {
                out.put_missing();
                Ok(())
            }
            ToBytes::Value(..) | ToBytes::Record(_) => Ok(()),
            ToBytes::Name { .. } => Err(NoAttribute),
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
        Ok(List { whole: self, elements: Message::default() })
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
        Ok(Fields { whole: self, values: Message::default() })
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
    elements: Message,
}

impl SerializeSeq for List<'_, '_> {
    type Ok = ();
    type Error = NoAttribute;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(ToBytes::Value(&mut self.elements, Place::ELEMENT))
    }

    fn end(self) -> Done {
        match self.whole {
            ToBytes::Value(out, place) => out.put_array(place, &self.elements),
            ToBytes::Record(_) => {}
            ToBytes::Name { .. } => return Err(NoAttribute),
        }
        Ok(())
    }
}

struct Fields<'o, 'n> {
    whole: ToBytes<'o, 'n>,
    /// Of what is no record: they have a length before them.
    values: Message,
}

impl Fields<'_, '_> {
    fn add<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Done {
        let (out, in_record) = self.inside()?;
        value.serialize(ToBytes::Value(out, place(in_record, name)))
    }

    fn inside(&mut self) -> Result<(&mut Message, bool), NoAttribute> {
        match &mut self.whole {
            ToBytes::Record(out) => Ok((out, true)),
            ToBytes::Value(..) => Ok((&mut self.values, false)),
            ToBytes::Name { .. } => Err(NoAttribute),
        }
    }

    fn done(self) -> Done {
        if let ToBytes::Value(out, place) = self.whole {
            out.put_map(place, &self.values);
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

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(&mut self, key: &K, value: &V) -> Done {
        let (out, in_record) = self.inside()?;
        // A reference has a size, as a trait object needs.
        key.serialize(ToBytes::Name { out, in_record, value: &value })
    }

    /// serde's maps and flattened structures add entries; a test has every kind of event.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Done {
        Err(NoAttribute)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, _: &T) -> Done {
        Err(NoAttribute)
    }

    fn end(self) -> Done {
        self.done()
    }
}

#[cfg(test)]
mod tests;
