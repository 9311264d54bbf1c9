//! Runs in the VM with the real amdgpu and no GPU.

mod daemon;
mod privileges;
mod ps;
mod refused;
mod reload;
mod report;
mod rocminfo;
mod verdicts;
