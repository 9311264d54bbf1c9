//! The reader of BTF, and all lookups in it.

use crate::allocation::{Bound, within};
use crate::shown;
use kfd_trace::kernel::types::DriverIdentity;
use kfd_trace::kernel::{Btf, BtfError, Offsets};
use kfd_trace_common::offset::FIELDS;
use std::sync::Arc;

/// Per type, which has at least 12 bytes: 4 bytes in one table and 8 in another; while a table grows, it
/// exists three times.
const PARSE: Bound = Bound { a_byte: 3, always: 2 << 10 };
/// An enum returns its names, which may all be one of 511 bytes.
const LOOK_UP: Bound = Bound { a_byte: 150, always: 64 << 10 };

/// The result for some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The reason why they are not BTF.
    Refused(BtfError),
    /// They are BTF: numbers of lookups that succeeded, and of those that returned an error.
    Parsed { answered: usize, not: usize },
}

/// Reads them, for a module on top of `base`, and looks up every field of the programs and everything else
/// that is looked up in a kernel.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(bytes: &[u8], base: Option<&Arc<Btf>>) -> Verdict {
    let (data, base, alone) = (bytes.to_vec(), base.cloned(), base.is_none());
    match within("BTF", bytes.len(), PARSE, || Btf::parse(data, base)) {
        Ok(btf) => within("questions on BTF", bytes.len(), LOOK_UP, || look_up(&btf, alone)),
        Err(error) => {
            shown::line(&error.to_string());
            Verdict::Refused(error)
        }
    }
}

/// Reads the same bytes as a kernel's types, and as a module's on top of these.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read_twice(bytes: &[u8]) -> (Verdict, Option<Verdict>) {
    let alone = read(bytes, None);
    let base = Btf::parse(bytes.to_vec(), None).ok().map(Arc::new);
    (alone, base.map(|base| read(bytes, Some(&base))))
}

/// Lookups in the kernel's own types are made only for types without a base.
fn look_up(btf: &Btf, alone: bool) -> Verdict {
    let mut reasons = Vec::new();
    let mut answered = 0;
    let mut count = |error: Option<String>| match error {
        None => answered += 1,
        Some(error) => reasons.push(error),
    };
    for (_, found) in Offsets::resolve(FIELDS, alone.then_some(btf), Some(btf)).iter() {
        count(found.err().map(ToString::to_string));
    }
    for strukt in ["queue_properties", "kfd_ioctl_create_queue_args", "kfd_process"] {
        count(btf.size_of(strukt).err().map(|error| error.to_string()));
    }
    for path in ["type", "queue_id", "queue_size", "priority", "is_evicted"] {
        count(btf.offset_of("queue_properties", path).err().map(|error| error.to_string()));
    }
    count(btf.offset_of("kfd_process", "pdds[1].qpd.evicted").err().map(|error| error.to_string()));
    for name in ["kfd_queue_type", "kfd_queue_format"] {
        count(btf.enum_values(name).err().map(|error| error.to_string()));
    }
    // What is looked up in a file of types only.
    if let Some(driver) = DriverIdentity::from_tags(btf.tags()) {
        driver.file_name().iter().for_each(|text| shown::printable(text));
        driver.differs_from(&DriverIdentity::default()).iter().for_each(|reason| shown::line(reason));
    }
    for strukt in ["queue_properties", "kfd_process", "process_queue_node"] {
        count(btf.misplaced(strukt).err().map(|error| error.to_string()));
    }
    reasons.iter().for_each(|reason| shown::line(reason));
    Verdict::Parsed { answered, not: reasons.len() }
}
