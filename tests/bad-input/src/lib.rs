//! What every reader promises of any bytes: no panic, no more memory and time than the input's size allows, and text
//! that no terminal obeys.
//!
//! Takes in bytes; gives out what became of them, and panics where a promise was broken. There is one function a reader
//! ([`records`], [`btf`], [`kallsyms`], [`flags`], [`procfs`], [`sysfs`], [`amd_log`], [`web`]). The fuzz targets (tests/fuzz) and the
//! property tests of CI (tests/) call the same ones: they differ in where the bytes come from, which for the tests is
//! [`inputs`].

pub mod allocation;
pub mod amd_log;
pub mod btf;
pub mod flags;
pub mod inputs;
pub mod kallsyms;
pub mod parts;
pub mod procfs;
pub mod records;
pub mod shown;
pub mod sysfs;
pub mod web;
