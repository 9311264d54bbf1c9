//! Arguments of one call, from the layout of their structure and the size that user space passed.

use super::{Def, FieldKind, nr, operation, size};
use crate::model::event::{Body, Event, IoctlCall};
use kfd_trace_common::rules::{MAP_ARGS, MAP_COUNT_AT, maps_memory};
use std::collections::BTreeMap;

/// One decoded argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Name in the uapi structure.
    pub name: &'static str,
    pub value: u64,
    /// Addresses, handles and flags are shown in hexadecimal.
    pub hex: bool,
    /// What the value of `op` stands for.
    pub word: Option<&'static str>,
}

/// The arguments of a call of the ioctl `def`. Members past the available bytes (an older user space, or a call that never
/// reached its handler) are omitted, not shown as 0.
#[must_use]
pub fn decode_args(def: Option<&Def>, bytes: &[u8]) -> Vec<Arg> {
    let Some(def) = def else { return Vec::new() };
    let mut rest = bytes;
    let mut args = Vec::with_capacity(def.fields.len());
    take_fields(def.fields, &mut rest, &mut args);
    if let Some(op) = args.iter_mut().find(|arg| arg.name == "op")
        && let Some(operation) = operation(def.nr, op.value)
    {
        op.word = Some(operation.name);
        take_fields(operation.fields, &mut rest, &mut args);
    }
    args
}

/// Up to the first one without bytes.
fn take_fields(fields: &[(&'static str, FieldKind)], rest: &mut &[u8], args: &mut Vec<Arg>) {
    for (name, kind) in fields {
        let value = match kind {
            FieldKind::Dec4 | FieldKind::Hex4 => take::<4>(rest).map(|b| u64::from(u32::from_le_bytes(b))),
            FieldKind::Dec8 | FieldKind::Hex8 => take::<8>(rest).map(u64::from_le_bytes),
        };
        let Some(value) = value else { break };
        if *name != "pad" {
            args.push(Arg {
                name,
                value,
                hex: matches!(kind, FieldKind::Hex4 | FieldKind::Hex8),
                word: None,
            });
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// The array of gpu_ids of MAP_MEMORY_TO_GPU and UNMAP_MEMORY_FROM_GPU, which follows the arguments of the call. `None` where
/// it was not read, and of other calls.
#[must_use]
pub fn gpus(call: &IoctlCall) -> Option<Vec<u32>> {
    if !maps_memory(u32::from(nr(call.cmd))) || size(call.cmd) as usize != MAP_ARGS {
        return None;
    }
    let (args, array) = call.args.split_at_checked(MAP_ARGS)?;
    let count = u32::from_le_bytes(*args.get(MAP_COUNT_AT..)?.first_chunk()?);
    let (gpus, rest) = array.as_chunks();
    let all = rest.is_empty() && !gpus.is_empty() && u32::try_from(gpus.len()) == Ok(count);
    all.then(|| gpus.iter().map(|gpu| u32::from_le_bytes(*gpu)).collect())
}

/// User space and kernel were built with different layouts of the same ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Bytes that user space passed.
    pub user_size: u32,
    /// Bytes of the structure in this kernel's BTF.
    pub kernel_size: u32,
}

/// Whether user space and the kernel disagree on the size of an ioctl's arguments. `sizes`: of the kernel's own
/// structures by number, as far as they are known.
#[must_use]
pub fn mismatch_of(event: &Event, sizes: &BTreeMap<u8, u32>) -> Option<Mismatch> {
    let Body::Ioctl(call) = &event.body else { return None };
    mismatch(call.cmd, sizes.get(&nr(call.cmd)).copied())
}

/// Compares a command with this kernel's own structure. `kernel_size` is `None` without module BTF.
fn mismatch(cmd: u32, kernel_size: Option<u32>) -> Option<Mismatch> {
    let (user_size, kernel_size) = (size(cmd), kernel_size?);
    (user_size != kernel_size).then_some(Mismatch { user_size, kernel_size })
}

#[cfg(test)]
mod tests {
    use super::super::def;
    use super::*;

    const DESTROY: u32 = 0xc008_4b03;
    const CREATE_96: u32 = 0xc060_4b02;

    #[test]
    fn members_without_bytes_are_left_out() {
        let full: Vec<u8> = (0..96).collect();
        let names =
            |bytes: &[u8]| decode_args(def(nr(CREATE_96)), bytes).iter().map(|a| a.name).collect::<Vec<_>>();
        assert!(names(&full).contains(&"sdma_engine_id"));
        assert!(!names(&full[..88]).contains(&"sdma_engine_id"));
        assert_eq!(names(&full[..11]), ["ring_base_address"]);
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn values_are_little_endian_and_padding_is_not_shown() {
        let args = decode_args(def(nr(DESTROY)), &[3, 1, 0, 0, 9, 9, 9, 9]);
        assert_eq!(args, [Arg { name: "queue_id", value: 259, hex: false, word: None }]);
    }

    #[test]
    fn an_operation_has_its_name_and_its_own_members() {
        const DBG_TRAP: u8 = 0x26;
        let mut bytes = [0u8; 32];
        (bytes[0], bytes[4], bytes[8], bytes[24], bytes[28]) = (77, 6, 1, 2, 9);
        let args = decode_args(def(DBG_TRAP), &bytes);
        let shown: Vec<_> = args.iter().map(|arg| (arg.name, arg.value, arg.word)).collect();
        let named = |name, value| (name, value, None);
        let op = ("op", 6, Some("SUSPEND_QUEUES"));
        let [pid, mask, array] = [named("pid", 77), named("exception_mask", 1), named("queue_array_ptr", 0)];
        assert_eq!(shown, [pid, op, mask, array, named("num_queues", 2), named("grace_period", 9)]);
        bytes[4] = 99;
        assert_eq!(decode_args(def(DBG_TRAP), &bytes).len(), 2, "an operation that is not known");
    }

    #[test]
    fn another_size_than_the_kernels_is_a_mismatch() {
        assert_eq!(mismatch(0xc058_4b02, Some(96)), Some(Mismatch { user_size: 88, kernel_size: 96 }));
        assert_eq!(mismatch(CREATE_96, Some(96)), None);
        assert_eq!(mismatch(CREATE_96, None), None);
    }
}
