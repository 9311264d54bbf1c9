//! Runs in the VM with the real amdgpu and kfdsim's two GPUs: the life of queues, from creation or the
//! tracer's start to their end, through evictions, faults and resets.

mod caller_slots;
mod contexts;
mod controls;
mod criu;
mod crowd;
mod debugger;
mod destroy_failed;
mod durations;
mod eviction;
mod eviction_race;
mod given_up;
mod gpus;
mod late;
mod ledger;
mod memory;
mod mqd;
mod not_restored;
mod reuse;
mod runlist;
mod settings;
mod sleep;
mod teardown;
mod trouble;
