//! Serves a router on sockets, with timeouts and limits per client.
//!
//! In: bound listeners, a router, settings, a stop. Out: all connections have ended.

use super::connections::{Connection, Connections};
use super::deaf::Deaf;
use super::gate::{Gate, pass};
use super::names::Names;
use super::settings::Settings;
use super::tally::{WebEvent, WebTally, report};
use super::tls::H2;
use crate::runtime::confine::stream::UntilDropped;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware::from_fn_with_state;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{self, IpAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// How long a stop waits for requests in progress.
pub const GRACE: Duration = Duration::from_secs(3);

/// Maximum size of a request head. No header that a scraper sends comes near.
const HEAD_BYTES: u32 = 16 << 10;

/// Concurrent requests on one connection (HTTP/2).
const STREAMS: u32 = 8;

/// Limits per client. The defaults are far beyond what a scraper needs, and protect it from a thousand other
/// clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// On all addresses together.
    pub connections: usize,
    /// Time in which a new connection is not closed for others: for the handshake and a request.
    pub(super) fresh: Duration,
    /// For the TLS handshake.
    pub(super) handshake: Duration,
    /// For a request head, from the start of the connection or the end of the previous response: also how
    /// long a connection may be idle.
    pub(super) head: Duration,
    /// Without any of a response being accepted.
    pub(super) write: Duration,
    /// Without any data received, also while a response is prepared.
    pub(super) read: Duration,
    /// For requests in progress when an HTTP/2 connection is to end: its client need not confirm that.
    pub(super) end: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        ClientLimits {
            connections: 128,
            fresh: seconds(1),
            handshake: seconds(10),
            head: seconds(20),
            write: seconds(20),
            read: seconds(300),
            end: seconds(20),
        }
    }
}

/// What is served, and under which names.
pub struct Site {
    pub pages: Router,
    pub names: Names,
    /// Connections for which there are descriptors.
    pub most: usize,
}

/// Serves until `stop` ends; then completes requests in progress, for a few seconds at most. `in_force`: the settings,
/// read anew for each connection and request.
///
/// # Errors
/// If a listener's task fails.
pub async fn serve(
    listeners: Vec<net::TcpListener>,
    site: Site,
    in_force: watch::Receiver<Arc<Settings>>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let limits = ClientLimits::default();
    let limits = ClientLimits { connections: limits.connections.min(site.most), ..limits };
    serve_within(limits, Arc::default(), listeners, site, in_force, stop).await
}

pub(super) async fn serve_within(
    limits: ClientLimits,
    tally: Arc<WebTally>,
    listeners: Vec<net::TcpListener>,
    Site { pages, names, .. }: Site,
    in_force: watch::Receiver<Arc<Settings>>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listeners: Vec<TcpListener> =
        listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<_>>()?;
    let (stopping, stopped) = watch::channel(false);
    let mut beside = JoinSet::new();
    beside.spawn(report(Arc::clone(&tally), |line| log::warn!("in the last minute: {line}")));
    let gate = Gate { in_force: in_force.clone(), names: Arc::new(names), tally: Arc::clone(&tally) };
    let pages = pages.layer(from_fn_with_state(gate, pass));
    let connections = Connections::new(limits.connections, limits.fresh, Arc::clone(&tally));
    let door = Door { pages, limits, connections, tally, in_force, stopped };
    let mut doors: JoinSet<()> =
        listeners.into_iter().map(|listener| door.clone().attend(listener)).collect();
    let ended = tokio::select! {
        () = stop => Ok(()),
        Some(ended) = doors.join_next() => ended.map_err(io::Error::other),
    };
    stopping.send_replace(true);
    while doors.join_next().await.is_some() {}
    ended
}

/// What all connections share.
#[derive(Clone)]
struct Door {
    pages: Router,
    limits: ClientLimits,
    connections: Arc<Connections>,
    tally: Arc<WebTally>,
    in_force: watch::Receiver<Arc<Settings>>,
    stopped: watch::Receiver<bool>,
}

impl Door {
    /// Accepts clients until the stop.
    async fn attend(mut self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let (stream, from) = tokio::select! {
                // Ended connections are freed before another is accepted: else a crowd that keeps coming leaves
                // them in memory.
                biased;
                // An error means that the sender was dropped, which is a stop, too.
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
                Some(_) = connections.join_next() => continue,
                stream = accept(&listener, &self.connections, &self.tally) => stream,
            };
            let connection = tokio::select! {
                connection = self.connections.take(from) => connection,
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            };
            let Some((connection, mut leave)) = connection else { continue };
            let door = self.clone();
            connections.spawn(async move {
                tokio::select! {
                    () = door.receive(stream, connection) => {}
                    _ = &mut leave => {}
                }
            });
        }
        drop(listener);
        // A client that does not read its response must not block the daemon's end.
        let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
    }

    /// One connection, to its end.
    async fn receive(mut self, stream: TcpStream, connection: Connection) {
        let mut stream = TimeoutStream::new(UntilDropped(stream));
        stream.set_read_timeout(Some(self.limits.read));
        stream.set_write_timeout(Some(self.limits.write));
        let deaf = Arc::new(AtomicBool::new(false));
        let stream = Deaf::new(Box::pin(stream), Arc::clone(&deaf));
        let tls = self.in_force.borrow_and_update().tls.clone();
        let Some(tls) = tls else { return self.talk(stream, false, deaf, connection).await };
        match timeout(self.limits.handshake, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                self.talk(stream, http2, deaf, connection).await;
            }
            Ok(Err(error)) => {
                log::debug!("no TLS handshake: {error}");
                self.tally.count(WebEvent::Handshake);
            }
            Err(_) => self.tally.count(WebEvent::Handshake),
        }
    }

    async fn talk(
        mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        http2: bool,
        deaf: Arc<AtomicBool>,
        connection: Connection,
    ) {
        let pages = self.pages;
        let has_requested = Arc::new(AtomicBool::new(false));
        let on_request = Arc::clone(&has_requested);
        let service = service_fn(move |request: Request<Incoming>| {
            on_request.store(true, Ordering::Relaxed);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection.clone());
            pages.clone().oneshot(request)
        });
        let builder = builder(self.limits, http2);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut last = false;
        let mut end = pin!(sleep(self.limits.end));
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        log::debug!("a connection ended: {error}");
                        let (has_requested, deaf) = (has_requested.load(Ordering::Relaxed), deaf.load(Ordering::Relaxed));
                        if is_to_blame(error.as_ref(), has_requested, deaf) {
                            self.tally.count(WebEvent::Broken);
                        }
                    }
                    return;
                }
                _ = self.stopped.wait_for(|stopped| *stopped), if !last => {}
                // A client that was accepted with other settings must connect again with these.
                _ = self.in_force.changed(), if !last => {}
                // An HTTP/1 connection ends with its response, which has limits of its own.
                () = end.as_mut(), if last && http2 => return,
            }
            last = true;
            end.as_mut().reset(Instant::now() + self.limits.end);
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Whether the client was bad or slow. One that just disconnects is neither, nor is one that made a
/// request before and was silent since. `deaf`: it accepted nothing of a response. An error of our own (`is_user`):
/// it accepted so little that the rest was dropped.
fn is_to_blame(error: &(dyn Error + Send + Sync + 'static), has_requested: bool, deaf: bool) -> bool {
    let Some(error) = error.downcast_ref::<hyper::Error>() else { return false };
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let in_time = source.is_none_or(|source| source.kind() != io::ErrorKind::TimedOut);
    error.is_parse() || error.is_user() || deaf || (!has_requested && (error.is_timeout() || !in_time))
}

/// Time for a connection that makes room to be closed.
const MADE_ROOM: Duration = Duration::from_millis(10);

async fn accept(listener: &TcpListener, connections: &Connections, tally: &WebTally) -> (TcpStream, IpAddr) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    loop {
        match listener.accept().await {
            Ok((stream, from)) => return (stream, from.ip()),
            // Of one client, which gave up.
            Err(error) if [ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind()) => {
            }
            Err(error) => {
                log::debug!("no connection can be accepted: {error}");
                tally.count(WebEvent::NotAccepted);
                // There is no descriptor or no memory now, which an idle connection may have. Retrying at once would take a
                // whole CPU.
                let pause = if connections.make_room() { MADE_ROOM } else { Duration::from_secs(1) };
                sleep(pause).await;
            }
        }
    }
}

fn builder(limits: ClientLimits, http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES as usize);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(HEAD_BYTES).max_concurrent_streams(STREAMS);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}
