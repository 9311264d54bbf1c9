//! Real BTF, damaged: that of amdgpu on top of the kernel's own, from the fixtures of `cargo xtask fixtures`.
//! Each of 10,000 variants is refused with one line that says what is wrong and where, or read.

use kfd_trace::kernel::{Btf, BtfError};
use kfd_trace_bad_input::btf::{self, Verdict};
use kfd_trace_bad_input::inputs::{Damage, damage};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::path::Path;
use std::sync::Arc;

/// include/uapi/linux/btf.h, struct btf_header.
const HEADER: usize = 24;
const TYPES_LENGTH: usize = 12;
const STRINGS: usize = 16;
const STRINGS_LENGTH: usize = 20;

struct Real {
    base: Arc<Btf>,
    bytes: Vec<u8>,
    /// Where the records stand that name something the tracer uses.
    used: Vec<usize>,
}

impl Real {
    /// BTF of a kernel of the matrix. Only the first types are kept, in per cent: each variant is
    /// read as a whole, and what the tracer uses is close together. `None`: Debian no longer has it.
    fn of(series: &str, kept: usize) -> Option<Real> {
        let fixtures =
            std::env::var_os("KFD_TRACE_FIXTURES").expect("KFD_TRACE_FIXTURES is set by cargo xtask");
        let folder = Path::new(&fixtures).join(series);
        if folder.join("LEFT-OUT").exists() {
            return None;
        }
        let folder = folder.join("sys/kernel/btf");
        let vmlinux = std::fs::read(folder.join("vmlinux")).expect("vmlinux");
        // Strings of a module are numbered behind those of its base.
        let first_string = word(&vmlinux, STRINGS_LENGTH);
        let base = Arc::new(Btf::parse(vmlinux, None).expect("BTF"));
        let mut bytes = std::fs::read(folder.join("amdgpu")).expect("amdgpu");
        if kept < 100 {
            let wanted = word(&bytes, TYPES_LENGTH) * kept / 100;
            put(&mut bytes, TYPES_LENGTH, wanted);
            // The type that the cut goes through, if it goes through one, is left out, too.
            if let Verdict::Refused(BtfError::Malformed { at, .. }) = btf::read(&bytes, Some(&base)) {
                put(&mut bytes, TYPES_LENGTH, at - HEADER);
            }
        }
        let used = used(&bytes, first_string);
        assert!(used.len() > 5, "{series}: {} records", used.len());
        Some(Real { base, bytes, used })
    }

    fn strings(&self) -> std::ops::Range<usize> {
        let start = HEADER + word(&self.bytes, STRINGS);
        start..start + word(&self.bytes, STRINGS_LENGTH)
    }

    /// A variant: where it is damaged, and how.
    fn damaged(&self, area: Area, changes: &[(usize, Damage)]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let types = HEADER..HEADER + word(&bytes, TYPES_LENGTH);
        for (place, change) in changes {
            let within = match area {
                Area::Header => 0..HEADER,
                Area::Types => types.clone(),
                Area::Asked => {
                    let start = self.used[place % self.used.len()];
                    start..(start + 240).min(types.end)
                }
                Area::Strings => self.strings(),
                Area::Anywhere => 0..bytes.len(),
                Area::End => {
                    bytes.truncate(place % self.bytes.len());
                    continue;
                }
            };
            let mut part = bytes[within.clone()].to_vec();
            change.to(&mut part);
            if matches!(area, Area::Anywhere) {
                bytes = part;
            } else {
                // The sections keep their places.
                part.resize(within.len(), 0);
                bytes[within].copy_from_slice(&part);
            }
        }
        bytes
    }
}

#[derive(Clone, Copy, Debug)]
enum Area {
    Header,
    Types,
    Asked,
    Strings,
    Anywhere,
    End,
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}

fn put(bytes: &mut [u8], at: usize, word: usize) {
    bytes[at..at + 4].copy_from_slice(&u32::try_from(word).expect("a word").to_le_bytes());
}

/// Words among the types that are the name of something used: a structure's record begins with it, and a
/// member's.
fn used(bytes: &[u8], first_string: usize) -> Vec<usize> {
    let strings = HEADER + word(bytes, STRINGS)..;
    let names = [
        "kfd_process",
        "queue_properties",
        "kfd_process_device",
        "kfd_dev",
        "kfd_queue_type",
        "queue_id",
        "dqm",
    ];
    let places: Vec<usize> = names
        .iter()
        .filter_map(|name| {
            let text = [b"\0", name.as_bytes(), b"\0"].concat();
            let found = bytes[strings.clone()].windows(text.len()).position(|window| window == text);
            found.map(|at| first_string + at + 1)
        })
        .collect();
    let types = (HEADER..HEADER + word(bytes, TYPES_LENGTH)).step_by(4);
    types.filter(|at| places.contains(&word(bytes, *at))).collect()
}

fn area() -> impl Strategy<Value = Area> {
    prop_oneof![
        2 => Just(Area::Header),
        1 => Just(Area::Types),
        4 => Just(Area::Asked),
        1 => Just(Area::Strings),
        1 => Just(Area::Anywhere),
        1 => Just(Area::End),
    ]
}

/// Reads so many variants; gives how many were refused.
fn variants(series: &str, kept: usize, count: usize) {
    let Some(real) = Real::of(series, kept) else { return };
    let whole = btf::read(&real.bytes, Some(&real.base));
    let Verdict::Parsed { answered, .. } = whole else { panic!("{series}: {whole:?}") };
    assert!(answered > 30, "{series}: {answered} questions have an answer");
    let config = Config { rng_seed: RngSeed::Fixed(20_200), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let damages = (area(), prop::collection::vec((any::<usize>(), damage()), 1..5));
    let (mut refused, mut parsed, mut fewer) = (0, 0, 0);
    for _ in 0..count {
        let (area, changes) = damages.new_tree(&mut runner).expect("a variant").current();
        match btf::read(&real.damaged(area, &changes), Some(&real.base)) {
            Verdict::Refused(_) => refused += 1,
            Verdict::Parsed { answered: now, .. } => {
                parsed += 1;
                fewer += usize::from(now < answered);
            }
        }
    }
    println!(
        "{series}: of {count} variants {refused} were refused and {parsed} read, {fewer} with fewer answers"
    );
    assert_eq!(refused + parsed, count);
    assert!(refused > count / 5 && parsed > count / 5 && fewer > count / 50, "{refused} {parsed} {fewer}");
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn variants_of_what_is_asked_for_on_6_1() {
    variants("6.1", 12, 7_300);
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn variants_of_what_is_asked_for_on_6_12() {
    variants("6.12", 27, 2_000);
}

#[test]
#[ignore = "needs cargo xtask fixtures"]
fn variants_of_whole_files() {
    variants("6.1", 100, 400);
    variants("7.2", 100, 300);
}
