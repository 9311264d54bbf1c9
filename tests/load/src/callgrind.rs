//! Requests to callgrind, under which this program may run. Without it they do nothing.
//!
//! Numbers and calling convention are valgrind's interface with programs: `callgrind.h`
//! (`Vg_CallgrindClientRequest`) and `valgrind.h` (`VALGRIND_DO_CLIENT_REQUEST_EXPR`) of valgrind 3.19.

use std::arch::asm;
use std::ffi::CStr;

/// `VG_USERREQ_TOOL_BASE('C', 'T')`.
const BASE: usize = 0x4354_0000;
const DUMP_STATS_AT: usize = BASE + 3;
const START_INSTRUMENTATION: usize = BASE + 4;
const STOP_INSTRUMENTATION: usize = BASE + 5;

/// Counts from here on.
pub(crate) fn start() {
    request(START_INSTRUMENTATION, 0);
}

/// Writes the counts since the last dump; `trigger` is in its line `desc: Trigger:`.
pub(crate) fn dump(trigger: &CStr) {
    request(DUMP_STATS_AT, trigger.as_ptr().addr());
}

/// Stops counting, which runs faster.
pub(crate) fn stop() {
    request(STOP_INSTRUMENTATION, 0);
}

#[inline(always)]
fn request(number: usize, argument: usize) {
    let words = [number, argument, 0, 0, 0, 0];
    // SAFETY: on a CPU these instructions change nothing: rdi turns by 128 bits in all, and rbx is exchanged
    // with itself. valgrind takes them for a request with `words`, of which it reads as many as the request
    // has, and returns the result in rdx; the argument is 0 or the address of a string that outlives the
    // call.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") 0_usize => _,
            options(nostack),
        );
    }
}
