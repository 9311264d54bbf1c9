//! The daemon's web pages: `/`, `/metrics`, `/api/v1/...`, `/-/healthy`, `/-/ready`.
//!
//! Where the pages' contents come from is behind [`Site`]; addresses are bound by [`bind`], served by [`serve`].

use std::fmt::Write as _;
use std::future::{Future, IntoFuture};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use html_escape::encode_safe;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Where the daemon serves if not told otherwise: loopback only.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 20_200));

/// How long a stop waits for answers that are under way.
const GRACE: Duration = Duration::from_secs(3);

/// `Content-Type` of the text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `Content-Type` of the API.
const JSON_TYPE: &str = "application/json";

/// A document of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Queues,
    Processes,
    Gpus,
}

/// What the pages show. Called on a thread that may block.
pub trait Site: Send + Sync + 'static {
    /// The exposition, in the text format.
    ///
    /// # Errors
    /// One line for the scraper, which gets it with status 500.
    fn metrics(&self) -> Result<String, String>;

    /// Live queues and processes for the landing page: names of the columns, and rows. Plain text: it is
    /// escaped here.
    ///
    /// # Errors
    /// Why nothing is traced now, in one line: the page tells it.
    fn live(&self) -> Result<(Vec<String>, Vec<Vec<String>>), String>;

    /// A document, as JSON.
    ///
    /// # Errors
    /// Why there is none, in one line: it is told with status 503.
    fn api(&self, resource: Resource) -> Result<String, String>;

    /// `Err`: why not yet, in one line.
    ///
    /// # Errors
    /// Before the probes are attached.
    fn ready(&self) -> Result<(), String>;
}

type Shared = Arc<dyn Site>;

/// All pages.
pub fn router(site: Shared) -> Router {
    Router::new()
        .route("/", get(landing))
        .route("/metrics", get(metrics))
        .route("/api/v1/queues", get(async |site| api(site, Resource::Queues).await))
        .route("/api/v1/processes", get(async |site| api(site, Resource::Processes).await))
        .route("/api/v1/gpus", get(async |site| api(site, Resource::Gpus).await))
        .route("/-/healthy", get(async || "healthy\n"))
        .route("/-/ready", get(ready))
        .with_state(site)
}

async fn blocking<T: Send + 'static>(
    site: Shared,
    ask: impl FnOnce(&dyn Site) -> T + Send + 'static,
) -> Result<T, Response> {
    tokio::task::spawn_blocking(move || ask(site.as_ref())).await.map_err(|error| failed(&error.to_string()))
}

fn failed(line: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{line}\n")).into_response()
}

async fn metrics(State(site): State<Shared>) -> Result<Response, Response> {
    let text = blocking(site, <dyn Site>::metrics).await?.map_err(|line| failed(&line))?;
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response())
}

async fn api(State(site): State<Shared>, resource: Resource) -> Result<Response, Response> {
    let answer = blocking(site, move |site| site.api(resource)).await?;
    let (status, body) = match answer {
        Ok(body) => (StatusCode::OK, body),
        Err(line) => (StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({ "error": line }).to_string()),
    };
    Ok((status, [(header::CONTENT_TYPE, JSON_TYPE)], body + "\n").into_response())
}

async fn ready(State(site): State<Shared>) -> Result<&'static str, Response> {
    let answer = blocking(site, <dyn Site>::ready).await?;
    answer
        .map_err(|line| (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {line}\n")).into_response())?;
    Ok("ready\n")
}

async fn landing(State(site): State<Shared>) -> Result<Html<String>, Response> {
    Ok(Html(page(&blocking(site, <dyn Site>::live).await?)))
}

fn page(live: &Result<(Vec<String>, Vec<Vec<String>>), String>) -> String {
    let mut html = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>kfd-trace</title>\
         <style>body{font-family:sans-serif}td,th{text-align:left;padding:0 1em 0 0}</style></head><body>\n\
         <h1>kfd-trace</h1>\n<p>AMD compute queues (KFD) on this machine. <a href=\"/metrics\">Metrics</a>, \
         <a href=\"/api/v1/queues\">queues</a>, <a href=\"/api/v1/processes\">processes</a> and \
         <a href=\"/api/v1/gpus\">GPUs</a> as JSON</p>\n",
    );
    match live {
        Err(why) => {
            let _ = writeln!(html, "<p>Nothing is traced now: {}</p>", encode_safe(why));
        }
        Ok((_, rows)) if rows.is_empty() => html.push_str("<p>No process uses KFD now.</p>\n"),
        Ok((header, rows)) => {
            html.push_str("<table>\n");
            row(&mut html, "th", header);
            for cells in rows {
                row(&mut html, "td", cells);
            }
            html.push_str("</table>\n");
        }
    }
    html.push_str("</body></html>\n");
    html
}

fn row(html: &mut String, tag: &str, cells: &[String]) {
    html.push_str("<tr>");
    for cell in cells {
        let _ = write!(html, "<{tag}>{}</{tag}>", encode_safe(cell));
    }
    html.push_str("</tr>\n");
}

/// Why an address cannot be served on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; {}", hint(source))]
pub struct BindError {
    pub address: SocketAddr,
    source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another with --web.listen-address",
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has it: choose another with --web.listen-address"
        }
        io::ErrorKind::PermissionDenied => "choose a port above 1023 with --web.listen-address",
        _ => "choose another with --web.listen-address",
    }
}

/// Binds all addresses, or none.
///
/// # Errors
/// The first that cannot be bound, in one line.
pub async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, BindError> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses.iter().copied() {
        let listener = TcpListener::bind(address).await.map_err(|source| BindError { address, source })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Serves until `stop` ends; then answers what is under way, for a few seconds at most.
///
/// # Errors
/// When a listener fails.
pub async fn serve(
    listeners: Vec<TcpListener>,
    site: Shared,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stopped, _) = watch::channel(false);
    let router = router(site);
    let mut servers = JoinSet::new();
    for listener in listeners {
        let mut stopped = stopped.subscribe();
        let server = axum::serve(listener, router.clone()).with_graceful_shutdown(async move {
            // An error means that the sender is gone, which is a stop, too.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        });
        servers.spawn(server.into_future());
    }
    tokio::select! {
        () = stop => {}
        Some(ended) = servers.join_next() => return ended.unwrap_or_else(|error| Err(io::Error::other(error))),
    }
    stopped.send_replace(true);
    // A client that does not read its answer must not hold the daemon.
    let _ = tokio::time::timeout(GRACE, async { while servers.join_next().await.is_some() {} }).await;
    Ok(())
}

#[cfg(test)]
mod tests;
