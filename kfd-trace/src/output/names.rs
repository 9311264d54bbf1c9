//! Values in JSON, for events and the API.

use crate::attribute::{Pool, Topology};
use crate::model::event::Origin;
use crate::model::incident::CuMask;
use crate::model::queue::priority_level;
use crate::state::{Source, Sources};
use serde::{Serialize, Serializer};

pub(super) fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// A number as [`hex`] writes it, without a text of its own: events have several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.0.to_be_bytes().map(|byte| [byte >> 4, byte & 15]);
        let length = 16 - (self.0 | 1).leading_zeros() as usize / 4;
        let mut text = *b"0x0000000000000000";
        for (byte, digit) in text[2..].iter_mut().zip(&digits.as_flattened()[16 - length..]) {
            *byte = b"0123456789abcdef"[usize::from(*digit)];
        }
        serializer.serialize_str(str::from_utf8(&text[..2 + length]).unwrap_or_default())
    }
}

/// A number as text, since readers hold numbers as doubles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal(pub u64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The words of a mask in hex, starting with the one that has bit 0.
pub(super) fn mask(mask: &CuMask) -> Vec<String> {
    mask.words.iter().map(|word| format!("{word:#010x}")).collect()
}

/// The number, and its level.
pub(super) fn priority(priority: u32) -> String {
    priority_level(priority).map_or_else(|| priority.to_string(), |level| format!("{priority} ({level})"))
}

/// `gpu 0`, or its number in KFD if the topology does not have it.
pub(super) fn gpu(gpu_id: u32, topology: &Topology) -> String {
    topology.gpu(gpu_id).map_or_else(|| format!("gpu_id={gpu_id}"), |gpu| format!("gpu {}", gpu.index))
}

pub(super) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Ioctl => "ioctl",
        Origin::Criu => "criu",
        Origin::Standing => "standing",
        Origin::Other => "other",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(super) fn sources<S: Serializer>(sources: &Sources, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sources.iter().map(Source::name))
}

/// `null` for none: they are not known.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(super) fn known_sources<S: Serializer>(known: &Sources, serializer: S) -> Result<S::Ok, S::Error> {
    if known.iter().next().is_none() { serializer.serialize_none() } else { sources(known, serializer) }
}

/// One value per pool of slots.
#[derive(Debug, Serialize)]
pub(super) struct ByPool<T> {
    cp: T,
    sdma: T,
    sdma_xgmi: T,
}

impl<T> ByPool<T> {
    pub(super) fn each(of: impl Fn(Pool) -> T) -> Self {
        ByPool { cp: of(Pool::Cp), sdma: of(Pool::Sdma), sdma_xgmi: of(Pool::SdmaXgmi) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Decimal, Hex, hex};

    #[test]
    fn numbers_are_written_as_texts_of_their_own_would_be() {
        for value in [0, 9, 0xf, 0x10, 0xabc, 0x7fad_66c0_0000, u64::MAX] {
            let text = |json: serde_json::Value| json.as_str().map(str::to_owned);
            assert_eq!(text(serde_json::json!(Hex(value))), Some(hex(value)));
            assert_eq!(text(serde_json::json!(Decimal(value))), Some(value.to_string()));
        }
    }
}
