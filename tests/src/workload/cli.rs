//! The words of `kfd-workload`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::{NonZeroU64, NonZeroUsize};
use std::str::FromStr;

/// Issues KFD ioctls as a ROCm program would and says on standard output, as JSON lines, what it did.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(subcommand)]
    pub workload: Workload,
}

#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Make queues, say ready, keep them until standard input ends or SIGTERM comes
    Hold(Hold),
    /// Make queues over several GPUs and wait to be killed
    KillMe {
        #[arg(long, default_value = "2")]
        gpus: NonZeroUsize,
        #[arg(long, default_value = "8")]
        queues: NonZeroUsize,
    },
    /// Run operations in order: the arguments, or the lines of standard input if there are none
    ///
    /// version | clock [gpu=N] | apertures | create aql|sdma|compute|xgmi|sdma-engine [bad|bad-type] [old]
    /// [gpu=N] [percent=N] [priority=N] [ring=BYTES] [engine=N] [unreadable] | destroy ID | update ID PERCENT
    /// [priority=N] [ring=BYTES] [no-ring] | cu-mask ID [0xWORD...] | memory-policy [gpu=N] | criu
    /// [info|checkpoint FILE|unpause|restore FILE|resume] | unknown NR [SIZE] | submit ID|all N | retire
    /// ID|all N | busy ID|all N [BURST] | scribble ID [BYTE] | restore ID | unmap ID | fork | fork-ioctl |
    /// runtime-enable | threads N | sleep MS | close | open | context | use N | wait | exec; gpu=none is a GPU that is not
    /// there
    Script { operations: Vec<String> },
    /// Greet the driver as a thunk does, then run operations as for `script`, a line each, answering each
    Agent,
    /// Issue many short ioctls from several threads as fast as they can
    Burst {
        #[arg(long, default_value = "4")]
        threads: NonZeroU64,
        /// Of all threads together
        #[arg(long, default_value = "100000")]
        count: NonZeroU64,
        /// All of them on this CPU
        #[arg(long)]
        cpu: Option<usize>,
    },
    /// Issue many short ioctls from several threads for some time
    Flood {
        #[arg(long, default_value = "2")]
        threads: NonZeroU64,
        #[arg(long)]
        seconds: u64,
    },
    /// Look up a large value of a BPF map of its own on one CPU until standard input ends
    Lookups {
        #[arg(long, default_value_t = 0)]
        cpu: usize,
    },
    /// Issue short ioctls, hundreds a second, from a line on standard input until its end
    Noise,
    /// Save another process as CRIU does, and stay in CHECKPOINT until standard input ends
    CriuTracer { pid: u32 },
    /// Trace another process and do what standard input says, a line each: enable, snapshot, suspend GRACE ID...,
    /// resume ID..., disable
    Debugger { pid: u32 },
    /// Make a queue, then exec this program again, which makes another
    ExecSelf,
    /// Make a queue, and start a child that makes its own
    ForkChild,
    /// Say ready and do nothing until standard input ends
    Idle,
    /// Make and destroy one queue and be gone
    Short {
        /// Move to this cgroup (made if missing) below /sys/fs/cgroup first
        #[arg(long, value_name = "NAME")]
        cgroup: Option<String>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct Hold {
    /// AQL queues per GPU
    #[arg(long, default_value_t = 1)]
    pub aql: usize,
    /// SDMA queues per GPU
    #[arg(long, default_value_t = 1)]
    pub sdma: usize,
    /// `all`, or how many of the GPUs
    #[arg(long, default_value = "1")]
    pub gpus: Gpus,
    /// In a mount and a PID namespace of its own, with its own /dev/kfd made by mknod: as in a container
    #[arg(long)]
    pub hidden: bool,
    /// Apart from the others in one way alone
    #[arg(long, value_enum, conflicts_with = "hidden")]
    pub apart: Option<Apart>,
    /// Move to this cgroup (made if missing) below /sys/fs/cgroup first
    #[arg(long, value_name = "NAME")]
    pub cgroup: Option<String>,
    /// Close the device once the queues stand; the queues live on
    #[arg(long)]
    pub close_fd: bool,
    /// Map the doorbells of the first queue
    #[arg(long)]
    pub map: bool,
    /// Start a child by fork that keeps the device open, until standard input ends
    #[arg(long)]
    pub fork: bool,
    /// Exec this program as `idle` once the queues stand, with the device kept open
    #[arg(long)]
    pub exec: bool,
    /// End the first thread once the queues stand; another one lives on
    #[arg(long)]
    pub dead_leader: bool,
    /// Exit without destroying the queues
    #[arg(long)]
    pub leave: bool,
}

/// How a process is set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Apart {
    /// In a mount namespace, with its own /dev/kfd made by mknod
    Node,
    /// In a mount namespace, with the host's /dev/kfd mounted into its own /dev
    Bind,
    /// In a PID namespace
    Pids,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    All,
    First(usize),
}

impl Gpus {
    pub fn of<T>(self, all: &[T]) -> &[T] {
        match self {
            Self::All => all,
            Self::First(n) => &all[..n.min(all.len())],
        }
    }
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "all" => Ok(Self::All),
            Ok(n) if n > 0 => Ok(Self::First(n)),
            _ => Err("`all` or a number from 1".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn gpus_are_all_or_a_number() {
        assert_eq!("all".parse(), Ok(Gpus::All));
        assert_eq!("2".parse(), Ok(Gpus::First(2)));
        assert!("0".parse::<Gpus>().is_err());
        assert_eq!(Gpus::First(5).of(&[1, 2]), [1, 2]);
        assert_eq!(Gpus::First(1).of(&[1, 2]), [1]);
    }
}
