//! Runs in the VM on kfdsim's GPUs, on one kernel: how kfd-trace behaves as a program, independent of the
//! driver. Starting a tracer takes seconds on an emulated machine, so this is not run on each kernel.

mod daemon;
mod exposition_switches;
mod faults;
mod leftovers;
mod listing;
mod own_life;
mod pid_filter;
mod table;
mod types;
mod unprivileged;
mod without_btf;
