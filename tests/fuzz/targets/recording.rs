//! See kfd_trace_bad_input::recording.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = kfd_trace_bad_input::recording::read(input);
});
