//! The promises of every reader, checked with a fixed sequence of synthetic input: what fails once fails
//! again.

use kfd_trace_bad_input::btf::Verdict;
use kfd_trace_bad_input::{
    amd_log, btf, dumps, flags, inputs, kallsyms, procfs, recording, records, sysfs, web,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::cell::RefCell;

/// Holds `cases` inputs against a reader; returns its result for each.
fn each<T>(cases: u32, input: impl Strategy<Value = Vec<u8>>, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    let config =
        Config { cases, rng_seed: RngSeed::Fixed(20_200), failure_persistence: None, ..Config::default() };
    let reported = RefCell::new(Vec::new());
    let done = TestRunner::new(config).run(&input, |bytes| {
        let one = read(&bytes);
        reported.borrow_mut().push(one);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    reported.into_inner()
}

/// Of the cases, how many came out this way: enough for both to have been tried.
fn at_least<T>(reported: &[T], least: usize, which: impl Fn(&T) -> bool) {
    let count = reported.iter().filter(|one| which(one)).count();
    assert!(count >= least, "{count} of {} inputs", reported.len());
}

#[test]
fn records_are_decoded_taken_in_and_shown() {
    let reported = each(150, inputs::records(), records::read);
    let (decoded, refused) = reported.iter().fold((0, 0), |sum, (yes, no)| (sum.0 + yes, sum.1 + no));
    assert!(decoded > 2_000 && refused > 100, "{decoded} records were decoded, {refused} refused");
}

#[test]
fn btf_is_read_or_refused() {
    let reported = each(1_500, inputs::btf(), btf::read_twice);
    let (reported, of_modules): (Vec<_>, Vec<_>) = reported.into_iter().unzip();
    let of_modules: Vec<_> = of_modules.into_iter().flatten().collect();
    // A module's types are numbered behind those of its base: its own members are the base's.
    at_least(&of_modules, 300, |verdict| matches!(verdict, Verdict::Parsed { .. }));
    at_least(&reported, 150, |verdict| matches!(verdict, Verdict::Refused(_)));
    at_least(&reported, 300, |verdict| matches!(verdict, Verdict::Parsed { answered: 1.., not: 1.. }));
}

#[test]
fn every_line_of_kallsyms_is_a_symbol_or_counted() {
    let reported = each(500, inputs::kallsyms(), kallsyms::read);
    at_least(&reported, 150, |symbols| *symbols > 3);
    at_least(&reported, 20, |symbols| *symbols == 0);
}

#[test]
fn dumps_of_hardware_queues_are_read_and_shown() {
    let reported = each(400, inputs::dumps(), dumps::read);
    at_least(&reported, 100, |(queues, _)| *queues > 1);
    at_least(&reported, 50, |(_, strange)| *strange > 0);
}

#[test]
fn recordings_of_others_are_replayed_or_refused() {
    let reported = each(400, inputs::recording(), recording::read);
    at_least(&reported, 80, |(items, refused)| *items > 5 && !refused);
    at_least(&reported, 100, |(_, refused)| *refused);
}

#[test]
fn flags_are_taken_or_refused() {
    let reported = each(400, inputs::flags(), flags::read);
    at_least(&reported, 60, |taken| *taken);
    at_least(&reported, 100, |taken| !taken);
}

#[test]
fn a_process_is_read_or_reported_why_not() {
    let reported = each(300, inputs::procfs(), procfs::read);
    at_least(&reported, 30, |read| *read);
    at_least(&reported, 30, |read| !read);
}

#[test]
fn gpus_and_queues_in_sysfs_are_read() {
    let reported = each(150, inputs::sysfs(), sysfs::read);
    at_least(&reported, 30, |gpus| *gpus == 2);
    at_least(&reported, 10, |gpus| *gpus < 2);
}

#[test]
fn every_line_of_a_log_is_in_one_count() {
    let reported = each(400, inputs::amd_log(), amd_log::read);
    at_least(&reported, 200, |(read, _)| *read > 20);
    at_least(&reported, 200, |(_, not)| *not > 5);
}

#[test]
fn a_web_configuration_is_taken_or_refused_in_one_line() {
    let reported = each(1_000, inputs::web(), web::read);
    at_least(&reported, 180, |taken| *taken);
    at_least(&reported, 250, |taken| !taken);
}
