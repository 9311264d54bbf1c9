//! The kernel and the stage of its boot that the tests run in, from the environment that the VM's init sets.

use anyhow::{Context, Result, bail};

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not even amdgpu.
    NoAmdgpu,
    /// amdgpu without a GPU.
    NoGpu,
    /// amdgpu and kfdsim's GPUs: two of gfx 9.0.1.
    Sim,
    /// After `Sim` and on its GPUs: the tracer's behaviour independent of the driver.
    Tool,
    /// After those on the same GPUs, which it resets.
    Life,
    /// Two of gfx 9.4.3 with 8 XCCs each, unpartitioned.
    Mi300,
    /// One of gfx 9.4.3 in 8 partitions of one XCC.
    Cpx,
    /// Two of gfx 11.0.0, whose queues the firmware scheduler MES runs.
    Mes,
    /// As `Sim`, without the hardware scheduler (amdgpu's `sched_policy=2`).
    NoHws,
    /// As `Sim`, on one CPU, with clocks that count the guest's instructions.
    Soak,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmKernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// The first two numbers of the release, as in docs/kernels.md.
    pub series: String,
    /// The series whose driver this one is, or is like: what it supports follows from that.
    pub driver: String,
    pub stage: Stage,
    /// Tests of what is the same on every kernel are to run on this one.
    pub all: bool,
    pub types: Types,
    /// The driver's least ring, bytes; 0: it has none.
    pub min_ring: u32,
    /// CRIU_OP restores a process without buffers, as kfdsim's are. ROCm's drivers up to 6.12.12 refuse it.
    pub restores: bool,
}

/// Where the tracer has the driver's types from, unless a test gives it others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// The module, or nowhere (5.10).
    Kernel,
    /// A file in /var/lib/kfd-trace/drivers.
    File,
    /// The table in the tracer: a driver built elsewhere.
    Table,
}

impl VmKernel {
    /// From the variables that the VM's init sets, all of which begin with `KFD_VM_` (tests/src/bin/vm-init).
    pub fn from_env() -> Result<Self> {
        let variable = |name: &str| {
            std::env::var(name)
                .with_context(|| format!("{name} is not set: run this test by `cargo xtask vm`"))
        };
        Ok(Self {
            release: variable("KFD_VM_KERNEL")?,
            series: variable("KFD_VM_SERIES")?,
            driver: variable("KFD_VM_DRIVER")?,
            stage: match variable("KFD_VM_STAGE")?.as_str() {
                "no_amdgpu" => Stage::NoAmdgpu,
                "no_gpu" => Stage::NoGpu,
                "sim" => Stage::Sim,
                "tool" => Stage::Tool,
                "life" => Stage::Life,
                "mi300" => Stage::Mi300,
                "cpx" => Stage::Cpx,
                "mes" => Stage::Mes,
                "nohws" => Stage::NoHws,
                "soak" => Stage::Soak,
                other => bail!("KFD_VM_STAGE={other}: no such stage"),
            },
            all: variable("KFD_VM_ALL")? == "1",
            types: match variable("KFD_VM_TYPES")?.as_str() {
                "kernel" => Types::Kernel,
                "file" => Types::File,
                "table" => Types::Table,
                other => bail!("KFD_VM_TYPES={other}: no such source"),
            },
            min_ring: variable("KFD_VM_MIN_RING")?.parse().context("KFD_VM_MIN_RING")?,
            restores: variable("KFD_VM_RESTORES")? == "1",
        })
    }

    /// Whether the kernel is of this series or a later one.
    pub fn is_from(&self, series: &str) -> bool {
        is_from(&self.series, series)
    }

    /// Whether the driver is that of this series or of a later one.
    pub fn driver_is_from(&self, series: &str) -> bool {
        is_from(&self.driver, series)
    }

    /// Most of what the driver does otherwise changed between 6.1 and 6.12.
    pub fn before_6_12(&self) -> bool {
        !self.driver_is_from("6.12")
    }

    /// A CREATE_QUEUE whose preemption times out fails: create_queue_cpsch of 5.10 drops the error, and the queue
    /// is there.
    pub fn fails_to_create_in_a_hang(&self) -> bool {
        self.driver_is_from("5.11")
    }

    /// Queues are freed by the exiting task, not by a worker after it.
    pub fn frees_in_exiting_task(&self) -> bool {
        self.driver_is_from("7.2") || !self.driver_is_from("5.11")
    }
}

/// `6.12` comes after `6.2`. Anything but two numbers is a mistake of the test.
fn is_from(own: &str, other: &str) -> bool {
    let numbers = |text: &str| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let both = numbers(own).zip(numbers(other));
    let (own, other) = both.unwrap_or_else(|| panic!("{own} or {other} is no series"));
    own >= other
}

#[cfg(test)]
mod tests {
    use super::is_from;

    #[test]
    fn series_are_compared_by_their_numbers() {
        assert!(is_from("6.12", "6.2") && is_from("6.12", "6.12") && is_from("7.3", "7.2"));
        assert!(!is_from("6.1", "6.12") && !is_from("5.10", "6.1") && !is_from("6.12", "7.2"));
    }
}
