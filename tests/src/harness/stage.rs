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
    /// As `Sim`, without the hardware scheduler (amdgpu's `sched_policy=2`).
    NoHws,
    /// As `Sim`, on one CPU, with clocks that count the guest's instructions.
    Soak,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmKernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// `5.10`, `6.1`, `6.12` or `7.2`.
    pub series: String,
    pub stage: Stage,
}

impl VmKernel {
    /// From `KFD_VM_KERNEL`, `KFD_VM_SERIES` and `KFD_VM_STAGE`.
    pub fn from_env() -> Result<Self> {
        let variable = |name: &str| {
            std::env::var(name)
                .with_context(|| format!("{name} is not set: run this test by `cargo xtask vm`"))
        };
        Ok(Self {
            release: variable("KFD_VM_KERNEL")?,
            series: variable("KFD_VM_SERIES")?,
            stage: match variable("KFD_VM_STAGE")?.as_str() {
                "no_amdgpu" => Stage::NoAmdgpu,
                "no_gpu" => Stage::NoGpu,
                "sim" => Stage::Sim,
                "tool" => Stage::Tool,
                "life" => Stage::Life,
                "mi300" => Stage::Mi300,
                "cpx" => Stage::Cpx,
                "nohws" => Stage::NoHws,
                "soak" => Stage::Soak,
                other => bail!("KFD_VM_STAGE={other}: no such stage"),
            },
        })
    }
}
