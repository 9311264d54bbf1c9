//! The language of `script`: one operation, parsed from its words.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::kfd::uapi::{self, CreateQueueOld, QueueType};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Version,
    Clock {
        gpu: Place,
    },
    Apertures,
    Create {
        queue_type: QueueType,
        spoil: Spoil,
        old: bool,
        gpu: Place,
    },
    Destroy {
        queue_id: u32,
    },
    Update {
        queue_id: u32,
        percent: u32,
    },
    CuMask {
        queue_id: u32,
    },
    MemoryPolicy {
        gpu: Place,
    },
    /// CRIU_OP: for its capability check.
    Criu,
    Unknown {
        nr: u8,
        size: usize,
    },
    ForkIoctl,
    Sleep(Duration),
    Open,
    Close,
    Wait,
    Exec,
}

/// Which GPU an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The N-th of the topology, from 0.
    Gpu(usize),
    /// One that is not there: the driver refuses the call.
    Nowhere,
}

/// What is made wrong with a CREATE_QUEUE, for its errno.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spoil {
    #[default]
    Nothing,
    /// 101 per cent: EINVAL.
    Percentage,
    /// A type nobody knows: ENOTSUPP, which user space has no name for.
    QueueType,
}

impl Spoil {
    pub(crate) fn apply(self, args: &mut CreateQueueOld) {
        match self {
            Self::Nothing => {}
            Self::Percentage => args.queue_percentage = 101,
            Self::QueueType => args.queue_type = 99,
        }
    }
}

/// The size of the one unknown ioctl that real programs issue (0x82, by older ROCm).
const UNKNOWN_SIZE: usize = 0x28;

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Clock { .. } => "clock",
            Self::Apertures => "apertures",
            Self::Create { .. } => "create",
            Self::Destroy { .. } => "destroy",
            Self::Update { .. } => "update",
            Self::CuMask { .. } => "cu-mask",
            Self::MemoryPolicy { .. } => "memory-policy",
            Self::Criu => "criu",
            Self::Unknown { .. } => "unknown",
            Self::ForkIoctl => "fork-ioctl",
            Self::Sleep(_) => "sleep",
            Self::Open => "open",
            Self::Close => "close",
            Self::Wait => "wait",
            Self::Exec => "exec",
        }
    }
}

impl FromStr for Operation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let name = words.next().context("no word")?;
        let rest: Vec<&str> = words.collect();
        match (name, rest.as_slice()) {
            ("version", []) => Ok(Self::Version),
            ("clock", rest) => Ok(Self::Clock { gpu: only_gpu(rest)? }),
            ("apertures", []) => Ok(Self::Apertures),
            ("create", [queue_type, options @ ..]) => create(queue_type, options),
            ("destroy", [id]) => Ok(Self::Destroy { queue_id: id.parse()? }),
            ("update", [id, percent]) => {
                Ok(Self::Update { queue_id: id.parse()?, percent: percent.parse()? })
            }
            ("cu-mask", [id]) => Ok(Self::CuMask { queue_id: id.parse()? }),
            ("memory-policy", rest) => Ok(Self::MemoryPolicy { gpu: only_gpu(rest)? }),
            ("criu", []) => Ok(Self::Criu),
            ("unknown", [nr]) => unknown(nr, UNKNOWN_SIZE),
            ("unknown", [nr, size]) => unknown(nr, number(size)?),
            ("fork-ioctl", []) => Ok(Self::ForkIoctl),
            ("sleep", [ms]) => Ok(Self::Sleep(Duration::from_millis(ms.parse()?))),
            ("open", []) => Ok(Self::Open),
            ("close", []) => Ok(Self::Close),
            ("wait", []) => Ok(Self::Wait),
            ("exec", []) => Ok(Self::Exec),
            _ => bail!("not known, or wrong words after it"),
        }
    }
}

fn create(queue_type: &str, options: &[&str]) -> Result<Operation> {
    let queue_type = match queue_type {
        "aql" => QueueType::ComputeAql,
        "sdma" => QueueType::Sdma,
        "compute" => QueueType::Compute,
        other => bail!("no queue type `{other}`: aql, sdma or compute"),
    };
    let (mut spoil, mut old, mut gpu) = (Spoil::Nothing, false, Place::Gpu(0));
    for option in options {
        match *option {
            "bad" => spoil = Spoil::Percentage,
            "bad-type" => spoil = Spoil::QueueType,
            "old" => old = true,
            other => gpu = gpu_word(other)?,
        }
    }
    Ok(Operation::Create { queue_type, spoil, old, gpu })
}

fn unknown(nr: &str, size: usize) -> Result<Operation> {
    let nr = u8::try_from(number(nr)?).context("an ioctl number has eight bits")?;
    ensure!(!uapi::NEEDS_GPU_MEMORY.contains(&nr), "ioctl {nr:#x} needs real GPU memory");
    ensure!(size <= 256, "at most 256 bytes of arguments");
    Ok(Operation::Unknown { nr, size })
}

fn only_gpu(words: &[&str]) -> Result<Place> {
    match words {
        [] => Ok(Place::Gpu(0)),
        [word] => gpu_word(word),
        _ => bail!("at most gpu=N or gpu=none"),
    }
}

/// `gpu=N` or `gpu=none`
fn gpu_word(word: &str) -> Result<Place> {
    match word.strip_prefix("gpu=").with_context(|| format!("`{word}` is not gpu=N"))? {
        "none" => Ok(Place::Nowhere),
        number => number.parse().map(Place::Gpu).context("gpu=N"),
    }
}

fn number(text: &str) -> Result<usize> {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| usize::from_str_radix(hex, 16));
    parsed.with_context(|| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Operation> {
        text.parse()
    }

    #[test]
    fn words_become_operations() {
        let spoiled = Operation::Create {
            queue_type: QueueType::Sdma,
            spoil: Spoil::Percentage,
            old: true,
            gpu: Place::Gpu(1),
        };
        assert_eq!(parse("create sdma bad old gpu=1").unwrap(), spoiled);
        assert_eq!(parse("unknown 0x82").unwrap(), Operation::Unknown { nr: 0x82, size: 0x28 });
        assert_eq!(parse("unknown 130 64").unwrap(), Operation::Unknown { nr: 0x82, size: 64 });
        assert_eq!(parse("update 3 0").unwrap(), Operation::Update { queue_id: 3, percent: 0 });
        assert_eq!(parse(" clock ").unwrap(), Operation::Clock { gpu: Place::Gpu(0) });
        assert_eq!(parse("memory-policy gpu=none").unwrap(), Operation::MemoryPolicy { gpu: Place::Nowhere });
    }

    #[test]
    fn what_would_crash_a_fake_gpu_is_refused() {
        assert!(parse("unknown 0x16").is_err());
        assert!(parse("unknown 0x82 4096").is_err());
        assert!(parse("unknown 300").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "create", "create gfx", "create aql fast", "destroy", "version 2", "clock gpu=x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
