//! Runs in the VM with two gfx 9.4.3, unpartitioned: each one KFD node with 8 XCCs.

mod arrival;
mod criu;
mod hw;
mod mqd;
mod whole_gpus;
