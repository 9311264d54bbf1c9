//! The ring buffer of a running tracer (kernel/bpf/ringbuf.c, `struct bpf_ringbuf`): a page that begins with
//! the position up to which records were read, one with the position up to which they were sent, and the
//! records, mapped twice in a row. Each record follows a word, whose lower half is its length and two flags,
//! at a multiple of 8 bytes.

use super::bpf_maps;
use super::mapped::Mapped;
use anyhow::{Context, Result};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::record::Header;
use std::mem::offset_of;

/// kfd-trace-ebpf/src/emit.rs
const NAME: &str = "EVENTS";

const WORD: usize = size_of::<u64>();

/// Words of a page.
const PAGE: usize = 4096 / WORD;

/// `BPF_RINGBUF_BUSY_BIT` (include/uapi/linux/bpf.h): the record is being written.
const BUSY: u32 = 1 << 31;

/// The unread records in the ring buffer of a stopped tracer: for each its kind, and the probe that sent it,
/// if one has that number.
pub fn unread(tracer: u32) -> Result<Vec<(Kind, Option<ProbeId>)>> {
    let (map, bytes) = bpf_maps::find(tracer, NAME)?;
    let ring = Mapped::new(&map, 2 * PAGE + 2 * bytes / WORD)?;
    let place = |word: usize| Ok::<_, anyhow::Error>(usize::try_from(ring.word(word)?)?);
    let (mut position, end) = (place(0)?, place(PAGE)?);
    let mut records = Vec::new();
    while position < end {
        let at = 2 * PAGE + position % bytes / WORD;
        let len = lower(ring.word(at)?);
        if len & BUSY != 0 {
            break;
        }
        let member = |offset: usize| {
            Ok::<_, anyhow::Error>(lower(ring.word(at + 1 + offset / WORD)? >> (8 * (offset % WORD))))
        };
        let kind = u16::try_from(member(offset_of!(Header, kind))? & 0xffff)?;
        let probe = member(offset_of!(Header, probe))?;
        records.push((Kind::from_raw(kind).context("a kind")?, ProbeId::from_raw(probe)));
        position += WORD + usize::try_from(len)?.next_multiple_of(WORD);
    }
    Ok(records)
}

fn lower(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
