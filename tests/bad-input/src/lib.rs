//! Guarantees of every reader for any bytes: no panic, no more memory and time than the input's size allows,
//! and no text that controls a terminal.
//!
//! In: bytes. Out: the result of reading them; panics where a guarantee was violated. There is one function
//! per reader ([`records`], [`btf`], [`kallsyms`], [`flags`], [`procfs`], [`sysfs`], [`amd_log`], [`dumps`], [`web`],
//! [`recording`]).
//! The fuzz targets (tests/fuzz) and the property tests of CI (tests/) call the same ones: they differ in the
//! source of the bytes, which for the tests is [`inputs`].

pub mod allocation;
pub mod amd_log;
pub mod btf;
pub mod dumps;
pub mod flags;
pub mod inputs;
pub mod kallsyms;
pub mod parts;
pub mod procfs;
pub mod recording;
pub mod records;
pub mod shown;
pub mod sysfs;
pub mod web;
