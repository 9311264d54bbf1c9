//! What every request passes before a page: the limit of requests, its Host, names and passwords, and the headers of every response.
//!
//! In: a request, its connection's slot, the settings in force. Out: the page's response, 400, 401, 421 or 429, with
//! the configured headers.

use super::connections::Connection;
use super::names::Names;
use super::settings::Settings;
use super::tally::{WebEvent, WebTally};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use headers::HeaderMapExt as _;
use headers::authorization::{Authorization, Basic};
use std::sync::Arc;
use tokio::sync::watch;

/// What it checks.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) in_force: watch::Receiver<Arc<Settings>>,
    pub(super) names: Arc<Names>,
    pub(super) tally: Arc<WebTally>,
}

pub(super) async fn pass(
    State(gate): State<Gate>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let settings = Arc::clone(&gate.in_force.borrow());
    let mut response = if settings.rate.as_ref().is_some_and(|rate| !rate.admits()) {
        gate.tally.count(WebEvent::Limited);
        (StatusCode::TOO_MANY_REQUESTS, "Too Many Requests\n").into_response()
    } else if !names_one_host(&request) {
        (StatusCode::BAD_REQUEST, "an HTTP/1.1 request needs one Host header\n").into_response()
    } else if let Some(line) = gate.names.refuse(&request, &settings) {
        gate.tally.count(WebEvent::OtherHost);
        (StatusCode::MISDIRECTED_REQUEST, line).into_response()
    } else if admits(&settings, request.headers(), &connection).await {
        // Not before: a client without a password keeps no connection by trying.
        let _work = connection.work();
        next.run(request).await
    } else {
        gate.tally.count(WebEvent::Denied);
        let challenge = "Basic realm=\"kfd-trace\", charset=\"UTF-8\"";
        (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, challenge)],
            "a name and password are needed\n",
        )
            .into_response()
    };
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    for (name, value) in &settings.headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

/// RFC 9112, section 3.2.
fn names_one_host(request: &Request) -> bool {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    if request.version() == Version::HTTP_11 { hosts == 1 } else { hosts <= 1 }
}

async fn admits(settings: &Settings, headers: &HeaderMap, connection: &Connection) -> bool {
    let Some(users) = &settings.users else { return true };
    match headers.typed_get::<Authorization<Basic>>() {
        Some(given) => users.admit(&given, connection.turn()).await,
        None => false,
    }
}
