//! Runs in the VM with two gfx 11.0.0: the firmware scheduler MES runs each queue by itself, and there are no runlists.

mod bed;
mod queues;
