use super::*;
use crate::output::api::ApiQuery;
use crate::output::metrics::Format;
use crate::output::page::PageQuery;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use std::sync::atomic::{AtomicBool, Ordering};
use tower::ServiceExt;

const PAGE: &str = "<p data-tag=\"0123456789abcdef\">page</p>";

#[derive(Default)]
struct Fake {
    ready: AtomicBool,
    broken: bool,
}

impl PageSource for Fake {
    fn metrics(&self, format: Format) -> Result<String, String> {
        let end = if format == Format::OpenMetrics { "# EOF\n" } else { "" };
        if self.broken { Err("cannot read the maps".into()) } else { Ok(format!("kfd_processes 1\n{end}")) }
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        let query = PageQuery::new(place, pairs).map_err(Refusal::Bad)?;
        if self.broken {
            return Err(Refusal::Failed("cannot read the maps".into()));
        }
        if query.have.is_some_and(|have| have.contains("all")) {
            return Ok(String::new());
        }
        Ok(PAGE.into())
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        let query = ApiQuery::new(resource, pairs).map_err(Refusal::Bad)?;
        self.ready().map_err(Refusal::NotTraced)?;
        if self.broken {
            return Err(Refusal::Failed("cannot read the maps".into()));
        }
        Ok(format!("{{\"query\":\"{query:?}\"}}"))
    }

    fn ready(&self) -> Result<(), String> {
        self.ready.load(Ordering::Relaxed).then_some(()).ok_or_else(|| "no amdgpu driver".into())
    }

    fn healthy(&self) -> Result<(), String> {
        if self.broken { Err("its loop does not turn".into()) } else { Ok(()) }
    }
}

async fn answer(site: Fake, path: &str) -> Response {
    let request = Request::get(path).body(Body::empty()).expect("request");
    router(Arc::new(site)).oneshot(request).await.expect("infallible")
}

async fn get(site: Fake, path: &str) -> (StatusCode, String, String) {
    let answer = answer(site, path).await;
    let kind = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or("")
        .to_owned();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.expect("body");
    (status, kind, String::from_utf8(body.into()).expect("UTF-8"))
}

#[tokio::test]
async fn metrics_have_their_content_type_and_a_failure_is_a_500_with_a_line() {
    let (status, kind, body) = get(Fake::default(), "/metrics").await;
    let text_type = Format::Text.content_type();
    assert_eq!((status, kind.as_str(), body.as_str()), (StatusCode::OK, text_type, "kfd_processes 1\n"));
    assert!(text_type.starts_with(prometheus::TEXT_FORMAT));
    let (status, _, body) = get(Fake { broken: true, ..Fake::default() }, "/metrics").await;
    assert_eq!((status, body.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "cannot read the maps\n"));
}

#[tokio::test]
async fn a_document_that_cannot_be_made_is_a_500_with_a_line_in_json() {
    let broken = Fake { ready: true.into(), broken: true };
    let (status, kind, body) = get(broken, "/api/v1/status").await;
    assert_eq!((status, kind.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, JSON_TYPE));
    assert_eq!(body, "{\"error\":\"cannot read the maps\",\"schema\":1}\n");
}

#[tokio::test]
async fn healthy_at_once_and_ready_when_the_probes_are_attached() {
    assert_eq!(get(Fake::default(), "/-/healthy").await.0, StatusCode::OK);
    let (status, _, body) = get(Fake { broken: true, ..Fake::default() }, "/-/healthy").await;
    let hangs = "not healthy: its loop does not turn\n";
    assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, hangs));
    let (status, _, body) = get(Fake::default(), "/-/ready").await;
    assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "not ready: no amdgpu driver\n"));
    let site = Fake { ready: true.into(), ..Fake::default() };
    assert_eq!(get(site, "/-/ready").await.0, StatusCode::OK);
    assert_eq!(get(Fake::default(), "/no/such").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_api_is_json_also_when_there_is_nothing_yet() {
    let ready = || Fake { ready: true.into(), ..Fake::default() };
    for (path, query_name) in [
        ("queues", "Queues"),
        ("processes", "Processes"),
        ("gpus", "Gpus"),
        ("status", "Status"),
        ("doctor", "Doctor(None)"),
        ("doctor?pid=7", "Doctor(Some(7))"),
    ] {
        let (status, kind, body) = get(ready(), &format!("/api/v1/{path}")).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"));
        assert_eq!(body, format!("{{\"query\":\"{query_name}\"}}\n"));
        let (status, kind, body) = get(Fake::default(), &format!("/api/v1/{path}")).await;
        assert_eq!((status, kind.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "application/json"));
        assert_eq!(body, "{\"error\":\"no amdgpu driver\",\"schema\":1}\n");
    }
    let (_, _, body) = get(ready(), "/api/v1/events?event=evict&pid=7&event=restore&limit=3").await;
    for part in ["pid: Some(7)", "limit: 3", "evict", "restore"] {
        assert!(body.contains(part), "{body}");
    }
    let (_, _, body) = get(ready(), "/api/v1/queues?at=2026-09-21T16:13:20%2B02:00").await;
    assert_eq!(body, "{\"query\":\"QueuesAt(1790000000000000000)\"}\n");
    assert_eq!(get(ready(), "/api/v1/secrets").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_bad_parameter_is_a_400_with_one_clear_line() {
    let (status, kind, body) = get(Fake::default(), "/api/v1/events?since=%1b%e2%80%ae%3Cb%3E").await;
    assert_eq!((status, kind.as_str()), (StatusCode::BAD_REQUEST, "application/json"));
    assert!(body.starts_with("{\"error\":\"since is ") && body.ends_with("}\n"), "{body}");
    assert!(body.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{body}");
    assert_eq!(body.lines().count(), 1);
}

#[tokio::test]
async fn the_page_runs_nothing_but_its_own_files() {
    let answer = answer(Fake::default(), "/").await;
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    assert_eq!((answer.status(), header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
    let policy = header("content-security-policy");
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    assert_eq!((header("x-content-type-options"), header("cache-control")), ("nosniff", "no-store"));
    for (path, kind, _) in page::STATIC {
        let (status, content_type, body) = get(Fake::default(), path).await;
        assert_eq!((status, content_type.as_str(), body.is_empty()), (StatusCode::OK, kind, false), "{path}");
    }
    let (status, _, body) = get(Fake { broken: true, ..Fake::default() }, "/").await;
    assert_eq!((status, body.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "cannot read the maps\n"));
}

#[tokio::test]
async fn what_a_client_has_of_a_page_is_not_sent_again() {
    let tag = "W/\"0123456789abcdef\"";
    let ask = async |path: &str, known: Option<&str>| {
        let mut request = Request::get(path);
        if let Some(known) = known {
            request = request.header("if-none-match", known);
        }
        let request = request.body(Body::empty()).expect("request");
        let answer = router(Arc::new(Fake::default())).oneshot(request).await.expect("infallible");
        let etag = answer.headers().get("etag").map(|etag| etag.to_str().expect("ASCII").to_owned());
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let status = answer.status();
        (status.as_u16(), etag, to_bytes(answer.into_body(), usize::MAX).await.expect("body").len())
    };
    let etag = Some(tag.to_owned());
    assert_eq!(ask("/", None).await, (200, etag.clone(), PAGE.len()));
    for known in [tag, "\"0123456789abcdef\"", "W/\"a\", W/\"0123456789abcdef\"", "*"] {
        assert_eq!(ask("/", Some(known)).await, (304, etag.clone(), 0), "{known}");
    }
    assert_eq!(ask("/process?pid=1", Some("W/\"fedcba9876543210\"")).await, (200, etag.clone(), PAGE.len()));
    assert_eq!(ask("/?have=all", None).await, (204, None, 0));
    assert_eq!(ask("/queue?pid=1&queue=2&have=some", None).await, (200, etag, PAGE.len()));
}

#[tokio::test]
async fn a_bad_request_for_a_page_is_one_line() {
    for (path, line) in [
        ("/?at=noon", "at is \"noon\": give RFC 3339"),
        ("/process", "pid is missing: give a decimal number"),
        ("/queue?pid=1&queue=%1b", "queue is \"\\u{1b}\""),
    ] {
        let (status, kind, body) = get(Fake::default(), path).await;
        assert_eq!((status, kind.as_str()), (StatusCode::BAD_REQUEST, "text/plain; charset=utf-8"), "{path}");
        assert!(body.starts_with(line) && body.lines().count() == 1, "{body}");
    }
}

#[tokio::test]
async fn the_state_of_a_moment_is_kept_nowhere() {
    for path in ["/api/v1/status", "/api/v1/events?since=%1b"] {
        let answer = answer(Fake::default(), path).await;
        assert_eq!(answer.headers()["cache-control"], "no-store", "{path}");
    }
}

/// The response to a client that accepts compression and OpenMetrics: its headers, and its body unpacked.
async fn negotiated(request: axum::http::request::Builder, path: &str) -> (HeaderMap, Vec<u8>) {
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let request = request.uri(path).header("accept", accept).header("accept-encoding", "gzip, br");
    let request = request.body(Body::empty()).expect("request");
    let site = Fake { ready: true.into(), ..Fake::default() };
    let answer = router(Arc::new(site)).oneshot(request).await.expect("infallible");
    assert_eq!(answer.status(), StatusCode::OK);
    let headers = answer.headers().clone();
    (headers, to_bytes(answer.into_body(), usize::MAX).await.expect("body").to_vec())
}

#[tokio::test]
async fn a_client_gets_the_format_and_the_compression_that_it_accepts() {
    for (path, vary, text) in [
        ("/metrics", "accept, accept-encoding", "kfd_processes 1\n# EOF\n"),
        ("/api/v1/gpus", "accept-encoding", "{\"query\":\"Gpus\"}\n"),
        ("/", "accept-encoding", PAGE),
    ] {
        let (headers, body) = negotiated(Request::builder().method("GET"), path).await;
        assert!(headers["content-encoding"] == "gzip" && headers["vary"] == vary, "{path}: {headers:?}");
        let mut unpacked = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&body[..]), &mut unpacked)
            .expect("gzip");
        assert_eq!(unpacked, text, "{path}");
        let plain = answer(Fake { ready: true.into(), ..Fake::default() }, path).await;
        assert_eq!(
            (plain.headers().get("content-encoding"), &plain.headers()["vary"]),
            (None, &HeaderValue::from_static(vary))
        );
        let (head, none) = negotiated(Request::builder().method("HEAD"), path).await;
        assert_eq!((head.get("content-length"), none.len()), (headers.get("content-length"), 0), "{path}");
        assert_eq!(head["content-encoding"], "gzip");
    }
    let (headers, _) = negotiated(Request::builder().method("GET"), "/metrics").await;
    assert_eq!(headers["content-type"], Format::OpenMetrics.content_type());
}
