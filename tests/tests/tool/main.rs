//! Runs in the VM on kfdsim's GPUs, on one kernel: how kfd-trace behaves as a program, whatever the driver. Starting a tracer takes
//! an emulated machine seconds, so that this is not asked of each kernel.

mod daemon;
mod exposition_switches;
mod leftovers;
mod own_life;
mod pid_filter;
mod unprivileged;
mod without_btf;
