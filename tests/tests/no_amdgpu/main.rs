//! Runs in the VM before amdgpu is inserted.

mod commands;
mod waiting;
