//! See kfd_trace_bad_input::btf.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = kfd_trace_bad_input::btf::read_twice(input);
});
