//! A simulated GPU that is suspended, as with the whole machine.

use super::workload::kfdsim_at;
use anyhow::Result;

/// Resumes it when dropped, so that a failing test leaves no GPU that refuses every open.
#[derive(Debug)]
pub struct Asleep(Option<u32>);

impl Asleep {
    /// Suspends the GPU with this number (`kgd2kfd_suspend`).
    pub fn put(gpu: u32) -> Result<Self> {
        kfdsim_at("suspend", gpu, 1)?;
        Ok(Self(Some(gpu)))
    }

    /// Resumes it (`kgd2kfd_resume`).
    pub fn wake(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |gpu| kfdsim_at("suspend", gpu, 0))
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|gpu| kfdsim_at("suspend", gpu, 0)) {
            eprintln!("{error:#}");
        }
    }
}
