//! Runs in the VM with one gfx 9.4.3 in CPX: 8 partitions, each a KFD node with one XCC, of one PCI device.

mod hangs;
mod hw;
mod names;
mod partitions;
