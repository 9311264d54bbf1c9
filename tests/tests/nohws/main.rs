//! Runs in the VM with two gfx 9.0.1 and amdgpu's `sched_policy=2`: the driver itself puts queues on hardware
//! slots.

mod eviction;
mod mqd;
mod scheduler;
