//! The daemon's web pages: `/`, `/process`, `/queue`, `/static/...`, `/metrics`, `/api/v1/...`, `/-/healthy`, `/-/ready`.
//!
//! Their contents come from [`PageSource`]; [`super::web`] serves them.

use super::documents::{Documents, Made};
use super::negotiate::{self, Encoding};
use super::question::{PageSource, Question};
use crate::output::api::{Refusal, Resource, SCHEMA};
use crate::output::page::{self, Place};
use crate::text::escape;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// `Content-Type` of the API.
const JSON_TYPE: &str = "application/json";

/// Time for the tracer to say that it is ready or healthy: one that hangs says nothing, and a kubelet waits for 5 s
/// (deploy/kubernetes).
const DEADLINE: Duration = Duration::from_secs(2);

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
    let sign = |question: Question, good: &'static str, bad: &'static str| {
        get(async move |State(pages): State<Pages>| sign(pages, question, good, bad).await)
    };
    Router::new()
        .route("/-/healthy", sign(Question::Healthy, "healthy\n", "not healthy"))
        .route("/-/ready", sign(Question::Ready, "ready\n", "not ready"))
}

/// Whether it is so, by the tracer's own word within the deadline.
async fn sign(
    Pages { site, documents }: Pages,
    question: Question,
    good: &'static str,
    bad: &'static str,
) -> Result<&'static str, Response> {
    let asked = documents.get(&site, question, Encoding::Identity);
    let why = match timeout(DEADLINE, asked).await {
        Ok(Ok(_)) => return Ok(good),
        Ok(Err(Refusal::Bad(line) | Refusal::NotTraced(line) | Refusal::Failed(line))) => line,
        Err(_) => format!("the tracer does not answer within {} s", DEADLINE.as_secs()),
    };
    Err((StatusCode::SERVICE_UNAVAILABLE, format!("{bad}: {why}\n")).into_response())
}

async fn metrics(State(pages): State<Pages>, accept: HeaderMap) -> Result<Response, Response> {
    let Pages { site, documents } = pages;
    let (format, encoding) = (negotiate::format(&accept), Encoding::accepted(&accept));
    let made = documents.get(&site, Question::Metrics(format), encoding).await;
    let body = made.map_err(refused)?.body();
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
    let answer: Made = match pairs(&uri) {
        Ok(pairs) => documents.get(&site, Question::Api(resource, pairs), encoding).await,
        Err(line) => Err(Refusal::Bad(line)),
    };
    let error = |line: &str| Body::from(error(line) + "\n");
    let headers = [(header::CONTENT_TYPE, JSON_TYPE), (header::CACHE_CONTROL, "no-store"), VARIES];
    let (status, body) = match answer {
        Ok(document) => return Ok(encoded(encoding, (headers, document.body()))),
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

async fn page(
    State(pages): State<Pages>,
    uri: Uri,
    headers: HeaderMap,
    place: Place,
) -> Result<Response, Response> {
    let (Pages { site, documents }, encoding) = (pages, Encoding::accepted(&headers));
    let pairs = pairs(&uri).map_err(|line| refused(Refusal::Bad(line)))?;
    let made = documents.get(&site, Question::Page(place, pairs), encoding).await;
    let document = made.map_err(refused)?;
    let tag = document.etag().map(str::to_owned);
    let known = headers.get(header::IF_NONE_MATCH);
    let has_it = known.zip(tag.as_deref()).is_some_and(|(known, tag)| matches(known, tag));
    let mut response = if document.is_empty() {
        // The client has all of its sections.
        StatusCode::NO_CONTENT.into_response()
    } else if has_it {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        encoded(encoding, Html(document.body()))
    };
    let headers = response.headers_mut();
    headers.extend([
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ]);
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
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
