//! Sequences of records.

use super::{damage, hostile, word};
use crate::parts;
use crate::records::GPU;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::record;
use kfd_trace_common::rules::maps_memory;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::mem::offset_of;

/// Four bytes of a body: repeated ids, lengths, texts.
fn body_word() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![
        4 => (0..4u32).prop_map(u32::to_le_bytes),
        2 => Just(GPU.to_le_bytes()),
        1 => select(vec![88u32, 128, 200, 256]).prop_map(u32::to_le_bytes),
        1 => select(vec![*b"\x1b[2J", *b"\xc2\x9bab", *b"\xff\xc3(\n", [0; 4]]),
        1 => word().prop_map(u32::to_le_bytes),
    ]
}

/// Few processes and threads, so that records relate to each other; times that advance, stay or jump.
fn header() -> impl Strategy<Value = (u64, u64, [u32; 4])> {
    let time = prop_oneof![4 => 0..1_000_000u64, 1 => Just(0), 1 => Just(u64::MAX), 1 => any::<u64>()];
    let process = prop_oneof![12 => 0..5u64, 1 => any::<u64>()];
    let ioctl = select(vec![
        0u32,
        0xc060_4b02,
        0xc008_4b03,
        0xc018_4b0c,
        0x4018_4b07,
        0xc010_4b82,
        ALLOC,
        MAP,
        MAP + 1,
        u32::MAX,
    ]);
    (time, process, (0..4u32, 0..4u32, 0..4u32, ioctl))
        .prop_map(|(time, process, (tgid, tid, task, ioctl))| (time, process, [tgid, tid, task, ioctl]))
}

/// ALLOC_MEMORY_OF_GPU and MAP_MEMORY_TO_GPU.
const ALLOC: u32 = 0xc028_4b16;
const MAP: u32 = 0xc018_4b18;
const COMMAND: usize = offset_of!(record::Ioctl, cmd);
const ARGS_LEN: usize = offset_of!(record::Ioctl, args_len);

/// Of one of these kinds.
fn record(kinds: Vec<Kind>) -> impl Strategy<Value = Vec<u8>> {
    (select(kinds), header(), vec(body_word(), 24), vec(hostile(), 2)).prop_map(
        |(kind, (time, process, [tgid, tid, task, ioctl]), words, texts)| {
            let maps = kind == Kind::Ioctl && maps_memory(ioctl & 0xff);
            let size = if maps { size_of::<record::MapIoctl>() } else { kind.record_size() };
            let mut bytes = Vec::with_capacity(size);
            bytes.extend(u32::try_from(size).unwrap_or(0).to_le_bytes());
            bytes.extend((kind as u16).to_le_bytes());
            bytes.extend(record::VERSION.to_le_bytes());
            bytes.extend(time.to_le_bytes());
            bytes.extend(process.to_le_bytes());
            bytes.extend([tgid, tid, task, 0, ioctl, 0].into_iter().flat_map(u32::to_le_bytes));
            bytes.extend(words.iter().cycle().take(128).flatten());
            bytes.truncate(size);
            if kind == Kind::Ioctl {
                bytes[COMMAND..COMMAND + 4].copy_from_slice(&ioctl.to_le_bytes());
            }
            if maps {
                bytes[ARGS_LEN..ARGS_LEN + 4].copy_from_slice(&24u32.to_le_bytes());
            }
            // Texts are at the end of the records that have one.
            let places: &[usize] = match kind {
                Kind::ProcessSeen => &[144, 128],
                Kind::Open | Kind::UserQueue => &[16],
                _ => &[],
            };
            for (text, back) in texts.iter().zip(places) {
                let start = size - back;
                let room = (size - start).min(if *back == 144 { 16 } else { *back });
                let text = &text[..text.len().min(room)];
                bytes[start..start + room].fill(0);
                bytes[start..start + text.len()].copy_from_slice(text);
            }
            bytes
        },
    )
}

/// A choice of a layout, and up to 60 records, of few kinds so that they relate to each other; one in eight
/// is damaged.
pub fn records() -> impl Strategy<Value = Vec<u8>> {
    let one = |kinds| {
        (record(kinds), 0..8u8, damage()).prop_map(|(mut record, chance, damage)| {
            if chance == 0 {
                damage.to(&mut record);
            }
            record
        })
    };
    let kinds = prop_oneof![1 => Just(Kind::ALL.to_vec()), 3 => vec(select(Kind::ALL.to_vec()), 2..6)];
    let records = kinds.prop_flat_map(move |kinds| vec(one(kinds), 0..60));
    (vec(any::<u8>(), 0..32), records).prop_map(|(choice, records)| {
        let all: Vec<_> = std::iter::once(choice).chain(records).collect();
        parts::join(&all)
    })
}
