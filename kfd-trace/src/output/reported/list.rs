//! Values of JSON that are kept in a bounded size: a small document must not become much in memory.

use crate::state::{Source, Sources};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A list of at most `N`.
struct AtMost<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for AtMost<T, N> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {N}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            if all.len() == N {
                return Err(A::Error::custom(format_args!("a list has more than {N} entries")));
            }
            all.push(one);
        }
        Ok(all)
    }
}

/// For `deserialize_with`.
pub(crate) fn at_most<'de, D, T, const N: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost::<T, N>(PhantomData))
}

/// Part of the document, unless it has escapes: serde copies any other `Cow`.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Bytes of a name that are kept: more than any has.
const NAME: usize = 256;
/// Bytes of a path that are kept: PATH_MAX.
const PATH: usize = 4_096;

/// A name; a longer one is cut, and ends with `...`.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    cut(deserializer, NAME)
}

/// As [`name`], of a path.
pub(crate) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    cut(deserializer, PATH)
}

fn cut<'de, D: Deserializer<'de>>(deserializer: D, bytes: usize) -> Result<Option<String>, D::Error> {
    let text = Option::<Text<'_>>::deserialize(deserializer)?;
    Ok(text.map(|Text(text)| {
        if text.len() <= bytes {
            return text.into_owned();
        }
        // A new one: the long one's memory is not kept.
        let mut kept = text[..text.floor_char_boundary(bytes)].to_owned();
        kept.push_str("...");
        kept
    }))
}

/// A number as `0x1f`; `None` for any other text.
pub(super) fn hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<Text<'_>>::deserialize(deserializer)?;
    Ok(text.and_then(|Text(text)| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()))
}

/// A number as `17`; `None` for any other text.
pub(super) fn decimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Text<'_>>::deserialize(deserializer)?.and_then(|Text(text)| text.parse().ok()))
}

/// Words of a mask, as `0x000000ff`.
#[derive(Clone, Copy, Debug)]
struct Word(Option<u32>);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Word(hex(deserializer)?.and_then(|word| u32::try_from(word).ok())))
    }
}

/// More CUs than any GPU has.
const WORDS: usize = 128;

/// `None` also where a word is none.
pub(super) fn mask<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u32>>, D::Error> {
    struct Words(Option<Vec<u32>>);
    impl<'de> Deserialize<'de> for Words {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let words = at_most::<D, Word, WORDS>(deserializer)?;
            Ok(Words(words.into_iter().map(|word| word.0).collect()))
        }
    }
    Ok(Option::<Words>::deserialize(deserializer)?.and_then(|words| words.0))
}

/// Names that are not known are of a later version.
pub(super) fn sources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sources, D::Error> {
    let names = at_most::<D, Text<'_>, 16>(deserializer)?;
    let known = Source::ALL.iter().filter(|source| names.iter().any(|name| name.0 == source.name()));
    Ok(known.fold(Sources::default(), |all, source| all.with(*source)))
}

/// A time in RFC 3339, as nanoseconds of the Unix epoch.
pub(super) fn unix_ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let Text(text) = Text::deserialize(deserializer)?;
    let at = text.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_nanosecond()).ok());
    at.ok_or_else(|| D::Error::custom("a time is not in RFC 3339"))
}
