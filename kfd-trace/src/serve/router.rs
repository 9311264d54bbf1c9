//! The daemon's web pages: `/`, `/process`, `/queue`, `/static/...`, `/metrics`, `/api/v1/...`, `/-/healthy`, `/-/ready`.
//!
//! The contents of the pages come from [`PageSource`]; [`super::web`] serves them.

use super::documents::Documents;
use super::negotiate::{self, Encoding};
use crate::output::api::{Refusal, Resource, SCHEMA};
use crate::output::metrics::Format;
use crate::output::page::{self, Place};
use crate::text::escape;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use std::sync::{Arc, OnceLock};

/// `Content-Type` of the API.
const JSON_TYPE: &str = "application/json";

/// The contents of the pages. Called on a thread that may block.
pub trait PageSource: Send + Sync + 'static {
    /// The exposition.
    ///
    /// # Errors
    /// One line for the scraper, which gets it with status 500.
    fn metrics(&self, format: Format) -> Result<String, String>;

    /// A page for people, as HTML; also while nothing is traced. Empty: nothing of it is new to the client. `pairs`: names
    /// and values of the request's query, decoded.
    ///
    /// # Errors
    /// Why there is none.
    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal>;

    /// A document, as JSON. `pairs`: names and values of the request's query, decoded.
    ///
    /// # Errors
    /// Why there is none.
    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal>;

    /// `Err`: why not yet, in one line.
    ///
    /// # Errors
    /// Before the probes are attached.
    fn ready(&self) -> Result<(), String>;
}

#[derive(Clone)]
struct Pages {
    site: Arc<dyn PageSource>,
    documents: Arc<Documents>,
}

/// All pages.
pub fn router(site: Arc<dyn PageSource>) -> Router {
    let pages = Pages { site, documents: Arc::default() };
    Router::new()
        .merge(people())
        .merge(statics())
        .route("/metrics", get(metrics))
        .merge(resources())
        .merge(up())
        .with_state(pages)
}

fn people() -> Router<Pages> {
    let page = |router: Router<Pages>, (path, place): (&'static str, Place)| {
        router.route(path, get(async move |site, uri, headers| page(site, uri, headers, place).await))
    };
    Place::ALL.into_iter().fold(Router::new(), page)
}

fn resources() -> Router<Pages> {
    let document = |router: Router<Pages>, (path, resource): (&'static str, Resource)| {
        router.route(path, get(async move |site, uri, accept| api(site, uri, accept, resource).await))
    };
    let all = [
        ("/api/v1/queues", Resource::Queues),
        ("/api/v1/processes", Resource::Processes),
        ("/api/v1/gpus", Resource::Gpus),
        ("/api/v1/status", Resource::Status),
        ("/api/v1/events", Resource::Events),
        ("/api/v1/memory", Resource::Memory),
        ("/api/v1/doctor", Resource::Doctor),
    ];
    all.into_iter().fold(Router::new(), document)
}

/// What shows that the daemon is up, alone: for a probe that may see nothing else.
pub fn health(site: Arc<dyn PageSource>) -> Router {
    up().with_state(Pages { site, documents: Arc::default() })
}

fn up() -> Router<Pages> {
    Router::new().route("/-/healthy", get(async || "healthy\n")).route("/-/ready", get(ready))
}

fn failed(line: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{line}\n")).into_response()
}

async fn metrics(State(pages): State<Pages>, accept: HeaderMap) -> Result<Response, Response> {
    let Pages { site, documents } = pages;
    let (format, encoding) = (negotiate::format(&accept), Encoding::accepted(&accept));
    let made = documents.exposition((format, encoding), move || site.metrics(format)).await;
    let body = made.map_err(|line| failed(&line))?;
    let headers = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept, accept-encoding")];
    Ok(encoded(encoding, (headers, body)))
}

const VARIES: (HeaderName, &str) = (header::VARY, "accept-encoding");

/// A response with a body in this encoding.
fn encoded(encoding: Encoding, response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    if encoding == Encoding::Gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

async fn api(
    State(pages): State<Pages>,
    uri: Uri,
    accept: HeaderMap,
    resource: Resource,
) -> Result<Response, Response> {
    let Pages { site, documents } = pages;
    let encoding = Encoding::accepted(&accept);
    let answer = match pairs(&uri) {
        Ok(pairs) => {
            let make = move || site.api(resource, &pairs).map(|document| document + "\n");
            let document = match resource {
                Resource::Doctor => documents.doctor(encoding, make).await,
                _ => documents.other(encoding, make).await,
            };
            document.map_err(|line| failed(&line))?
        }
        Err(line) => Err(Refusal::Bad(line)),
    };
    let error = |line: &str| Body::from(error(line) + "\n");
    let headers = [(header::CONTENT_TYPE, JSON_TYPE), (header::CACHE_CONTROL, "no-store"), VARIES];
    let (status, body) = match answer {
        Ok(body) => return Ok(encoded(encoding, (headers, body))),
        Err(Refusal::Bad(line)) => (StatusCode::BAD_REQUEST, error(&line)),
        Err(Refusal::NotTraced(line)) => (StatusCode::SERVICE_UNAVAILABLE, error(&line)),
        Err(Refusal::Failed(line)) => (StatusCode::INTERNAL_SERVER_ERROR, error(&line)),
    };
    Ok((status, headers, body).into_response())
}

fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, String> {
    let pairs = Query::try_from_uri(uri).map_err(|error| format!("the query cannot be read: {error}"))?;
    Ok(pairs.0)
}

fn error(line: &str) -> String {
    serde_json::json!({ "schema": SCHEMA, "error": escape::terminal(line) }).to_string()
}

async fn ready(State(Pages { site, .. }): State<Pages>) -> Result<&'static str, Response> {
    let answer = tokio::task::spawn_blocking(move || site.ready()).await;
    answer
        .map_err(|error| failed(&error.to_string()))?
        .map_err(|line| (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {line}\n")).into_response())?;
    Ok("ready\n")
}

/// Why a page is not sent.
enum NotSent {
    /// The client has exactly this.
    NotModified,
    /// The client has all of its sections.
    NothingNew,
    Refused(Refusal),
}

async fn page(
    State(pages): State<Pages>,
    uri: Uri,
    headers: HeaderMap,
    place: Place,
) -> Result<Response, Response> {
    let (Pages { site, documents }, encoding) = (pages, Encoding::accepted(&headers));
    let pairs = pairs(&uri).map_err(|line| refused(Refusal::Bad(line)))?;
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    let tag = Arc::new(OnceLock::new());
    let put = Arc::clone(&tag);
    let make = move || {
        let html = site.page(place, &pairs).map_err(NotSent::Refused)?;
        if html.is_empty() {
            return Err(NotSent::NothingNew);
        }
        let etag = put.get_or_init(|| page::etag(&html));
        if known.is_some_and(|known| matches(&known, etag)) { Err(NotSent::NotModified) } else { Ok(html) }
    };
    let made = documents.other(encoding, make).await.map_err(|line| failed(&line))?;
    let mut response = match made {
        Ok(body) => encoded(encoding, Html(body)),
        Err(NotSent::NotModified) => StatusCode::NOT_MODIFIED.into_response(),
        Err(NotSent::NothingNew) => StatusCode::NO_CONTENT.into_response(),
        Err(NotSent::Refused(refusal)) => return Err(refused(refusal)),
    };
    let headers = response.headers_mut();
    headers.extend([
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ]);
    if let Some(tag) = tag.get().and_then(|tag: &String| HeaderValue::from_str(tag).ok()) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// By weak comparison (RFC 9110, 13.1.2).
fn matches(known: &HeaderValue, etag: &str) -> bool {
    let known = known.to_str().unwrap_or_default();
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    known.split(',').any(|tag| tag.trim() == "*" || opaque(tag) == opaque(etag))
}

/// For people: one line.
fn refused(refusal: Refusal) -> Response {
    let (status, line) = match refusal {
        Refusal::Bad(line) => (StatusCode::BAD_REQUEST, line),
        Refusal::NotTraced(line) => (StatusCode::SERVICE_UNAVAILABLE, line),
        Refusal::Failed(line) => (StatusCode::INTERNAL_SERVER_ERROR, line),
    };
    (status, format!("{}\n", escape::terminal(&line))).into_response()
}

/// The page's static files.
fn statics() -> Router<Pages> {
    let file = |router: Router<Pages>, (path, kind, content): (&'static str, &'static str, &'static str)| {
        let headers = [
            (header::CONTENT_TYPE, kind),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // Another version of the daemon has different ones.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        router.route(path, get(async move || (headers, content)))
    };
    page::STATIC.into_iter().fold(Router::new(), file)
}

#[cfg(test)]
mod tests;
