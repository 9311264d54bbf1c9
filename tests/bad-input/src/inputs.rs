//! Generates the bytes of the property tests and the seeds of the fuzz targets: mostly well-formed input,
//! damaged in a few places, so that it gets far into a reader; and some without any structure.

mod amd_log;
mod btf;
mod recording;
mod records;
mod text;
mod web;

use proptest::collection::vec;
use proptest::prelude::*;

pub use amd_log::amd_log;
pub use btf::btf;
pub use recording::recording;
pub use records::records;
pub use text::{dumps, flags, kallsyms, procfs, sysfs};
pub use web::web;

/// One change to some bytes; places are taken modulo their length.
#[derive(Clone, Debug)]
pub enum Damage {
    Set(usize, u8),
    Flip(usize, u8),
    Word(usize, u32),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
}

impl Damage {
    /// Makes the change.
    pub fn to(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len().max(1);
        let place = |place: &usize| place % length;
        match self {
            Damage::Set(at, value) => {
                if let Some(byte) = bytes.get_mut(place(at)) {
                    *byte = *value;
                }
            }
            Damage::Flip(at, bit) => {
                if let Some(byte) = bytes.get_mut(place(at)) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Damage::Word(at, word) => {
                if let Some(place) = bytes.get_mut(place(at)..).and_then(|rest| rest.first_chunk_mut()) {
                    *place = word.to_le_bytes();
                }
            }
            Damage::Cut(at) => bytes.truncate(place(at)),
            Damage::Insert(at, more) => {
                let at = place(at).min(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Remove(at, count) => {
                let at = place(at).min(bytes.len());
                bytes.drain(at..at.saturating_add(*count % 64).min(bytes.len()));
            }
        }
    }
}

/// Boundary values, or any number.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![0..8u32, Just(u32::MAX), Just(i32::MAX.unsigned_abs()), Just(1 << 31), any::<u32>()]
}

/// One change.
pub fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (any::<usize>(), word()).prop_map(|(at, word)| Damage::Word(at, word)),
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), vec(any::<u8>(), 1..8)).prop_map(|(at, more)| Damage::Insert(at, more)),
        (any::<usize>(), any::<usize>()).prop_map(|(at, count)| Damage::Remove(at, count)),
    ]
}

/// The bytes, damaged in half of the cases.
fn damaged(whole: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (whole, vec(damage(), 0..4), any::<bool>()).prop_map(|(mut bytes, all, damaged)| {
        if damaged {
            all.iter().for_each(|damage| damage.to(&mut bytes));
        }
        bytes
    })
}

/// Names that programs give themselves to cause trouble: escapes of both kinds, right-to-left text, bytes
/// that are no text.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let known: [&[u8]; 10] = [
        b"python3",
        b"\x1b[2J\x1b[H",
        b"\x1b]0;title\x07",
        "\u{9b}31m".as_bytes(),
        "a\u{202e}b".as_bytes(),
        b"two\nlines",
        b"a\"b\\c'",
        b"\xff\xfe\xc3(",
        b") S 1 (",
        "gr\u{f6}\u{df}e\u{1f600}".as_bytes(),
    ];
    prop_oneof![4 => proptest::sample::select(known.to_vec()).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..20)]
}
