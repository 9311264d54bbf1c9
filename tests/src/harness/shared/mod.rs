//! One stream and one daemon, without any argument, that the tests of an executable share: a tracer's start
//! and end take longer than most tests.
//!
//! Each is started at its first use, and ended with the executable. Out: views that begin once everything of
//! earlier tests has been reported, so that they look like a tracer that starts there, and that check at
//! their end that the tracer runs and nothing is missing. One test at a time has a view.

mod counters;
mod daemon;
mod stream;

use anyhow::{Context as _, Result, bail, ensure};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

pub use daemon::SharedDaemon;
pub use stream::SharedStream;

use super::json_process::JsonProcess;
use super::sysfs;
use super::wait::{SOON, until};

/// Ends both, for tests that count what is attached, or that let the kernel skip programs.
///
/// # Errors
/// When one does not end well, or something of the whole stream was lost.
pub fn end() -> Result<()> {
    let stream = stream::end();
    stream.and(daemon::end())
}

/// [`end`] of the stream alone, for tests that flood it.
///
/// # Errors
/// As of [`end`].
pub fn end_stream() -> Result<()> {
    stream::end()
}

/// A test that failed leaves what it shared usable.
fn lock<T>(mutex: &'static Mutex<Option<T>>) -> MutexGuard<'static, Option<T>> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running tracer, for a view: started if none runs, and returned with the value of `settle` once nothing
/// of earlier tests is left. A tracer that does not settle is ended, so that the next test gets another one.
fn begin<T, S>(
    shared: &'static Mutex<Option<T>>,
    start: impl FnOnce() -> Result<T>,
    settle: impl FnOnce(&mut T) -> Result<S>,
) -> Result<(MutexGuard<'static, Option<T>>, S)> {
    let mut running = lock(shared);
    no_kfd_process()?;
    if running.is_none() {
        end_at_exit()?;
        *running = Some(start()?);
    }
    let settled = settle(running.as_mut().context("it was just started")?);
    if settled.is_err() {
        *running = None;
    }
    Ok((running, settled?))
}

fn lives(process: &mut JsonProcess) -> Result<()> {
    match process.exited()? {
        Some(status) => bail!("it has died: {status}, stderr: {}", process.stderr()),
        None => Ok(()),
    }
}

/// The driver frees processes in a worker, after their end.
fn no_kfd_process() -> Result<()> {
    until("the KFD processes of earlier tests to go", SOON, || {
        Ok(sysfs::processes(Path::new("/sys"))?.is_empty().then_some(()))
    })
}

/// Ends both when the executable ends: statics are never dropped.
fn end_at_exit() -> Result<()> {
    extern "C" fn ended() {
        if let Err(error) = end() {
            eprintln!("{error:#}");
            // SAFETY: ends the process; the status of `exit` cannot be changed any more.
            unsafe { libc::_exit(1) };
        }
    }
    static ASKED: Once = Once::new();
    let mut refused = false;
    // SAFETY: `ended` takes no arguments and does not unwind: a panic in it aborts.
    ASKED.call_once(|| refused = unsafe { libc::atexit(ended) } != 0);
    ensure!(!refused, "atexit takes no function");
    Ok(())
}

/// Adds to an error which tracer it belongs to.
fn of_shared<T>(which: &str, result: Result<T>) -> Result<T> {
    result.with_context(|| format!("the {which} that the tests share"))
}
