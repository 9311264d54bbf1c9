//! Ioctls on /dev/kfd.

use super::context::Context;
use crate::model::event::{IoctlCall, Outcome};
use crate::model::ioctl;
use crate::output::names::hex;
use crate::text::clock::latency;
use crate::text::count::counted;
use crate::text::errno;
use crate::text::errno::failure;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct IoctlFields {
    ioctl: String,
    nr: u8,
    cmd: String,
    /// Size in bytes that user space passed.
    size: u32,
    /// `null` if no handler was entered, or its arguments could not be read.
    args: Option<BTreeMap<&'static str, Value>>,
    entered_mono_ns: u64,
    /// `returned`, `refused`, `not_measured` or `no_return_seen`.
    outcome: &'static str,
    /// Whether `result` is known.
    measured: bool,
    /// Return value of the call: 0 or more, or a negative errno.
    result: Option<i32>,
    /// Name of the error; only for a failed call.
    errno: Option<String>,
    /// Only for a call that returned.
    latency_ns: Option<u64>,
    abi_mismatch: Option<AbiMismatch>,
}

/// User space and kernel were built with different layouts of the same ioctl.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AbiMismatch {
    user_size: u32,
    kernel_size: u32,
}

pub(super) fn fields(call: &IoctlCall, context: &Context<'_>) -> IoctlFields {
    let (outcome, result, latency_ns) = match call.outcome {
        Outcome::Returned { result, latency_ns } => ("returned", Some(result), Some(latency_ns)),
        Outcome::Refused { errno } => ("refused", Some(errno.saturating_neg()), None),
        Outcome::NotMeasured => ("not_measured", None, None),
        Outcome::NoReturnSeen => ("no_return_seen", None, None),
    };
    let decoded = ioctl::decode_args(context.named.def(call.cmd), &call.args);
    let word = decoded.iter().find_map(|arg| arg.word).map(|word| ("op_name", Value::from(word)));
    let args = decoded.iter().map(|arg| {
        let value = if arg.hex { Value::from(hex(arg.value)) } else { Value::from(arg.value) };
        (arg.name, value)
    });
    let gpus = ioctl::gpus(call).map(|gpus| ("gpus", Value::from(gpus)));
    IoctlFields {
        ioctl: context.named.name(call.cmd),
        nr: ioctl::nr(call.cmd),
        cmd: format!("{:#010x}", call.cmd),
        size: ioctl::size(call.cmd),
        args: (!call.args.is_empty()).then(|| args.chain(word).chain(gpus).collect()),
        entered_mono_ns: call.entered_ns,
        outcome,
        measured: result.is_some(),
        result,
        errno: call.outcome.errno().and_then(failure),
        latency_ns,
        abi_mismatch: context
            .mismatch
            .map(|found| AbiMismatch { user_size: found.user_size, kernel_size: found.kernel_size }),
    }
}

/// The call as strace shows it.
pub(super) fn call(call: &IoctlCall, context: &Context<'_>) -> String {
    let decoded = ioctl::decode_args(context.named.def(call.cmd), &call.args);
    let args = decoded.iter().map(|arg| match (arg.word, arg.hex) {
        (Some(word), _) => format!("{}={word}", arg.name),
        (None, true) => format!("{}={:#x}", arg.name, arg.value),
        (None, false) => format!("{}={}", arg.name, arg.value),
    });
    let args: Vec<_> = args.chain(ioctl::gpus(call).map(|gpus| format!("gpus={gpus:?}"))).collect();
    let args = if call.args.is_empty() { "...".to_owned() } else { args.join(", ") };
    let mut text = format!("{}({args}) = ", context.named.name(call.cmd));
    match call.outcome {
        Outcome::Returned { result, latency_ns } => {
            let errno = call.outcome.errno().unwrap_or(0);
            let result = if errno == 0 { result.to_string() } else { format!("-{}", errno::name(errno)) };
            let _ = write!(text, "{result} <{}>", latency(latency_ns));
        }
        Outcome::Refused { errno } => {
            let _ = write!(text, "-{} (refused before its handler)", errno::name(errno));
        }
        Outcome::NotMeasured => text.push_str("? (not measured)"),
        Outcome::NoReturnSeen => text.push_str("? (no return seen)"),
    }
    if let Some(mismatch) = context.mismatch {
        let size = counted(mismatch.user_size, "byte", "bytes");
        let _ = write!(text, " [{size}, kernel has {}]", mismatch.kernel_size);
    }
    text
}
