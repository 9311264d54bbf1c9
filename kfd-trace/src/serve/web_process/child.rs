//! The process of the web server.

use super::control::{Descriptors, receive_files, receive_orders, report_started};
use super::lane::Lanes;
use crate::runtime::confine;
use crate::runtime::signals::{Hangups, Signals};
use crate::serve::router::{self, PageSource};
use crate::serve::web::names::Names;
use crate::serve::web::settings::{Settings, put_in_force};
use crate::serve::web::{self, Site};
use rustix::io::dup;
use rustix::thread::set_name;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// The process's name: 15 bytes at most.
const NAME: &CStr = c"kfd-trace-web";

/// Threads for what may block: expositions, documents, checks of passwords.
const BLOCKING: usize = 8;

/// Serves what it is given on standard input, until that ends; then completes requests in progress.
///
/// # Errors
/// If it was not started by a tracer; if it cannot give up what it must not have.
pub fn run() -> io::Result<()> {
    confine::close_inherited()?;
    // Else it is that of the link by which this was started.
    set_name(NAME)?;
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
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
    let (orders, Descriptors { lanes, listeners, health }) = receive_orders(&mut control)
        .map_err(|error| io::Error::other(format!("only `kfd-trace daemon` starts this: {error}")))?;
    let host = rustix::system::uname();
    let name = host.nodename().to_string_lossy();
    confine::confine()?;
    let (in_force, settings) = watch::channel(Arc::new(Settings::default()));
    if let Some(files) = &orders.files {
        put_in_force(files, &in_force).map_err(io::Error::other)?;
    }
    report_started(&mut control)?;
    let (stop, stopped) = watch::channel(false);
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        while let Ok(files) = receive_files(&mut control) {
            // The tracer's process has checked them.
            if let Err(line) = put_in_force(&files, &in_force) {
                log::error!("{line}; what was read before stays in force");
            }
        }
        stop.send_replace(true);
    })?;
    // The tracer starts another one.
    let source: Arc<dyn PageSource> = Arc::new(Lanes::new(lanes, || std::process::exit(1)));
    let site = |pages| Site { pages, names: Names::new(&name, &orders.allowed_hosts) };
    // Without the passwords and certificates of the others, and without their crowd.
    let (_never_replaced, open) = watch::channel(Arc::default());
    let checked = web::serve(health, site(router::health(source.clone())), open, ended(stopped.clone()));
    let pages = web::serve(listeners, site(router::router(source)), settings, ended(stopped));
    tokio::try_join!(pages, checked).map(drop)
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which is a stop, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
