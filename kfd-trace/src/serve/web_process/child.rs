//! The process of the web server.

use super::control::{Descriptors, receive_files, receive_orders, report_started};
use super::lane::Lanes;
use crate::runtime::confine::{self, KEEP_ALIVE, confine, start_pool};
use crate::runtime::signals::{Hangups, Signals};
use crate::serve::question::PageSource;
use crate::serve::router;
use crate::serve::web::names::Names;
use crate::serve::web::settings::{Settings, put_in_force};
use crate::serve::web::{self, ClientLimits, Site};
use rustix::io::dup;
use rustix::thread::set_name;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// The process's name: 15 bytes at most.
const NAME: &CStr = c"kfd-trace-web";

/// Threads for what may block: a question on each lane, one about the health, checks of passwords.
const BLOCKING: usize = 8;

/// Serves what it is given on standard input, until that ends; then completes requests in progress.
///
/// # Errors
/// If it was not started by a tracer; if it cannot give up what it must not have.
pub fn run() -> io::Result<()> {
    confine::close_inherited()?;
    // Else it is that of the link by which this was started.
    set_name(NAME)?;
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING).thread_keep_alive(KEEP_ALIVE);
    let runtime = builder.build()?;
    let served = runtime.block_on(async {
        // A terminal and a service manager send them to both processes; this one ends when the tracer says so.
        let _deaf = (Signals::of_a_daemon()?, Hangups::new()?);
        serve().await
    });
    runtime.shutdown_background();
    served
}

async fn serve() -> io::Result<()> {
    let mut control = UnixStream::from(dup(io::stdin().as_fd())?);
    let (orders, Descriptors { lanes, pulse, listeners, health }) = receive_orders(&mut control)
        .map_err(|error| io::Error::other(format!("only `kfd-trace daemon` starts this: {error}")))?;
    let host = rustix::system::uname();
    let name = host.nodename().to_string_lossy();
    let (in_force, settings) = watch::channel(Arc::new(Settings::default()));
    let (stop, stopped) = watch::channel(false);
    let (starts, started) = mpsc::channel();
    let mut orders_to_come = control.try_clone()?;
    pulse.set_nonblocking(true)?;
    // An earlier process, which they are shared with, may have been another program by then.
    listeners.iter().chain(&health).try_for_each(|listener| listener.set_nonblocking(true))?;
    let all = ClientLimits::default().connections * if health.is_empty() { 1 } else { 2 };
    let ((), left) = confine(orders.seccomp, (all + SPARE) as u64, || {
        start_pool(BLOCKING)?;
        let follow = move || {
            // Until this process is confined.
            let Ok(in_force) = started.recv() else { return };
            while let Ok(files) = receive_files(&mut orders_to_come) {
                // The tracer's process has checked them.
                if let Err(line) = put_in_force(&files, &in_force) {
                    log::error!("{line}; what was read before stays in force");
                }
            }
            stop.send_replace(true);
        };
        thread::Builder::new().name("control".to_owned()).spawn(follow).map(drop)
    })?;
    if let Some(files) = &orders.files {
        put_in_force(files, &in_force).map_err(io::Error::other)?;
    }
    // The thread lives as long as this process.
    let _ = starts.send(in_force);
    tokio::spawn(beat(tokio::net::UnixStream::from_std(pulse)?));
    report_started(&mut control)?;
    let [of_pages, of_health] = shares(usize::try_from(left).unwrap_or(usize::MAX), !health.is_empty());
    // The tracer starts another one.
    let source: Arc<dyn PageSource> = Arc::new(Lanes::new(lanes, || std::process::exit(1)));
    let site = |pages, most| Site { pages, names: Names::new(&name, &orders.allowed_hosts), most };
    // Without the passwords and certificates of the others, and without their crowd.
    let (_never_replaced, open) = watch::channel(Arc::default());
    let of_health = site(router::health(source.clone()), of_health);
    let checked = web::serve(health, of_health, open, ended(stopped.clone()));
    let pages = web::serve(listeners, site(router::router(source), of_pages), settings, ended(stopped));
    tokio::try_join!(pages, checked).map(drop)
}

/// Sends back what the tracer sends, to show that this loop turns.
async fn beat(pulse: tokio::net::UnixStream) -> io::Result<()> {
    loop {
        pulse.readable().await?;
        let mut byte = [0];
        match pulse.try_read(&mut byte) {
            Ok(0) => return Ok(()),
            // The tracer sends another one when this has come.
            Ok(_) => drop(pulse.try_write(&byte)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Descriptors that are neither connections nor open at the start.
const SPARE: usize = 8;

/// Connections for which there are descriptors: of all pages, and of the health alone.
fn shares(left: usize, has_health: bool) -> [usize; 2] {
    let most = ClientLimits::default().connections;
    let left = left.saturating_sub(SPARE);
    let health = if has_health { most.min(left / 2) } else { 0 };
    [most.min(left - health).max(1), health.max(1)]
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which is a stop, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_connections_as_descriptors_but_never_none() {
        assert_eq!(shares(1000, false), [128, 1]);
        assert_eq!(shares(1000, true), [128, 128]);
        assert_eq!(shares(SPARE + 20, false), [20, 1]);
        assert_eq!(shares(SPARE + 20, true), [10, 10]);
        assert_eq!(shares(3, true), [1, 1]);
    }
}
