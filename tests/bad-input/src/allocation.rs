//! Memory and time of one thread, compared with the size of its input.

use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the current thread's allocated bytes and their peak. Memory allocated by one thread and freed by
/// another is counted wrongly: the readers have one thread.
struct Counting;

#[derive(Clone, Copy)]
struct Held {
    now: isize,
    most: isize,
}

thread_local! {
    // Without a destructor, so that it can be used while a thread ends.
    static HELD: Cell<Held> = const { Cell::new(Held { now: 0, most: 0 }) };
}

fn count(more: usize, less: usize) {
    let mut held = HELD.get();
    held.now = held.now.wrapping_add_unsigned(more).wrapping_sub_unsigned(less);
    held.most = held.most.max(held.now);
    HELD.set(held);
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it copies, both blocks exist.
        count(size, 0);
        count(0, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that may be allocated at once: so many per byte of input, plus a constant.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub a_byte: usize,
    pub always: usize,
}

/// CPU time limit of any input, in seconds: a hundred times what the largest takes in a debug build.
const SECONDS: f64 = 10.0;

/// Runs a reader on an input of `size` bytes; may be nested. Returns the reader's result.
///
/// # Panics
/// When the reader held more than its bound, or took too long.
pub fn within<T>(name: &str, size: usize, bound: Bound, read: impl FnOnce() -> T) -> T {
    let Held { now: before, most: most_before } = HELD.get();
    HELD.set(Held { now: before, most: before });
    // Ensures that this program counts at all.
    drop(std::hint::black_box(vec![0u8; 64]));
    assert_eq!(HELD.get().most - before, 64, "allocations are not counted");
    let begin = seconds();
    let reported = read();
    let took = seconds() - begin;
    let held = HELD.get();
    HELD.set(Held { most: held.most.max(most_before), ..held });
    let most = held.most.saturating_sub(before).unsigned_abs();
    let allowed = bound.a_byte * size + bound.always;
    assert!(most <= allowed, "{name}: {most} bytes were held for an input of {size}, {allowed} are allowed");
    assert!(took < SECONDS, "{name}: an input of {size} bytes took {took} s");
    if std::env::var_os("KFD_TRACE_SHOW_BOUNDS").is_some() {
        eprintln!("{name}: {most} bytes and {took:.6} s for {size} bytes");
    }
    reported
}

fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "seconds of a test")]
    let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    seconds
}
