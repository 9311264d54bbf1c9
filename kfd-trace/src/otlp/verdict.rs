//! What a collector's response means for a batch: OpenTelemetry Protocol Specification, OTLP/HTTP Response and OTLP/gRPC Response.

use super::proto::{ExportLogsServiceResponse, Status};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// It was taken, but for so many records; why.
    Taken { refused: u64, why: Option<String> },
    /// It may be taken later, at the earliest after this time.
    Again { why: String, after: Option<Duration> },
    /// It never will be.
    Refused(String),
    /// The connection is of no use any more.
    Broken(String),
}

/// More of a message is not shown.
const SHOWN: usize = 200;

/// A server that asks for less has as little time.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// A longer pause is not kept.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// By HTTP. `after`: the header Retry-After; `kind`: Content-Type.
pub(super) fn of_http(status: u16, after: Option<&str>, kind: Option<&str>, body: &[u8]) -> Verdict {
    let why =
        || explained(format!("HTTP status {status}"), Status::decode(body).ok().map(|status| status.message));
    match status {
        200..=299 if body.is_empty() => Verdict::Taken { refused: 0, why: None },
        200..=299 if kind.is_some_and(|kind| kind.starts_with("application/json")) => of_json(body),
        200..=299 if kind.is_none_or(|kind| kind.starts_with("application/x-protobuf")) => of_response(body),
        200..=299 => Verdict::Refused(format!("HTTP status {status} with a document: it is no collector")),
        429 | 502 | 503 | 504 => {
            let after = after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
            Verdict::Again {
                why: why(),
                after: after.map(|after| after.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)),
            }
        }
        _ => Verdict::Refused(why()),
    }
}

/// By gRPC. `code`, `message`: of the trailers (or of the headers, where there is nothing else).
pub(super) fn of_grpc(http: u16, code: Option<&str>, message: Option<&str>, body: &[u8]) -> Verdict {
    let message =
        message.map(|text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned());
    let Some(code) = code.and_then(|code| code.trim().parse::<u32>().ok()) else {
        // No gRPC: a proxy, or another server.
        return match of_http(http, None, None, &[]) {
            Verdict::Taken { .. } => {
                Verdict::Refused("the response has no grpc-status: is it a gRPC server?".to_owned())
            }
            verdict => verdict,
        };
    };
    let why = || explained(format!("gRPC status {code}"), message.clone());
    match code {
        0 => match body {
            [0, _, _, _, _, response @ ..] => of_response(response),
            [] => Verdict::Taken { refused: 0, why: None },
            _ => Verdict::Refused("the response is compressed, or cut off".to_owned()),
        },
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS. RESOURCE_EXHAUSTED is also what a batch
        // that is too large gets: with it, none behind it would ever be sent.
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::Again { why: why(), after: None },
        _ => Verdict::Refused(why()),
    }
}

fn of_response(body: &[u8]) -> Verdict {
    match ExportLogsServiceResponse::decode(body) {
        Ok(response) => {
            let partial = response.partial_success.unwrap_or_default();
            partly(u64::try_from(partial.rejected_log_records).unwrap_or(0), &partial.error_message)
        }
        Err(_) => Verdict::Refused("the response is none of a collector".to_owned()),
    }
}

/// Of a receiver that answers in JSON whatever it is sent.
fn of_json(body: &[u8]) -> Verdict {
    let Ok(response) = serde_json::from_slice::<serde_json::Value>(body) else {
        return Verdict::Refused("the response is none of a collector".to_owned());
    };
    let partial = &response["partialSuccess"];
    let count = &partial["rejectedLogRecords"];
    let refused = count.as_u64().or_else(|| count.as_str().and_then(|text| text.parse().ok()));
    partly(refused.unwrap_or(0), partial["errorMessage"].as_str().unwrap_or_default())
}

fn partly(refused: u64, why: &str) -> Verdict {
    Verdict::Taken { refused, why: Some(shown(why)).filter(|why| !why.is_empty()) }
}

fn explained(what: String, message: Option<String>) -> String {
    match message.map(|text| shown(&text)) {
        Some(text) if !text.is_empty() => format!("{what}: {text}"),
        _ => what,
    }
}

/// Safe for a terminal, and not long.
fn shown(text: &str) -> String {
    crate::text::escape::terminal(&text.chars().take(SHOWN).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::proto::ExportLogsPartialSuccess;

    fn partial(refused: i64, why: &str) -> Vec<u8> {
        let partial =
            ExportLogsPartialSuccess { rejected_log_records: refused, error_message: why.to_owned() };
        ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    }

    fn taken(refused: u64, why: Option<&str>) -> Verdict {
        Verdict::Taken { refused, why: why.map(str::to_owned) }
    }

    fn again(why: &str, seconds: Option<u64>) -> Verdict {
        Verdict::Again { why: why.to_owned(), after: seconds.map(Duration::from_secs) }
    }

    #[test]
    fn by_http_only_what_may_pass_is_tried_again() {
        let error = Status { code: 14, message: "full \u{1b}[2J".to_owned() }.encode_to_vec();
        for (status, after, body, verdict) in [
            (200, None, vec![], taken(0, None)),
            (200, None, partial(3, "too old"), taken(3, Some("too old"))),
            (200, None, partial(0, "slow down"), taken(0, Some("slow down"))),
            (200, None, partial(-1, ""), taken(0, None)),
            (429, Some("7"), vec![], again("HTTP status 429", Some(7))),
            (503, Some("Fri, 27 Nov 2026 10:00:00 GMT"), vec![], again("HTTP status 503", None)),
            (503, Some("0"), vec![], again("HTTP status 503", Some(1))),
            (503, Some("9999"), vec![], again("HTTP status 503", Some(300))),
            (502, None, vec![], again("HTTP status 502", None)),
            (504, None, vec![], again("HTTP status 504", None)),
            (500, None, vec![], Verdict::Refused("HTTP status 500".to_owned())),
            (404, None, b"<html>".to_vec(), Verdict::Refused("HTTP status 404".to_owned())),
            (301, None, vec![], Verdict::Refused("HTTP status 301".to_owned())),
        ] {
            assert_eq!(of_http(status, after, None, &body), verdict, "{status}");
        }
        let Verdict::Refused(line) = of_http(400, None, None, &error) else { panic!("not refused") };
        assert!(line.starts_with("HTTP status 400: full ") && !line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn what_is_no_answer_of_a_collector_takes_nothing() {
        let of = |kind, body: &[u8]| of_http(200, None, kind, body);
        let json = Some("application/json; charset=utf-8");
        assert_eq!(of(json, b"{}"), taken(0, None));
        let partial = br#"{"partialSuccess":{"rejectedLogRecords":"4","errorMessage":"late"}}"#;
        assert_eq!(of(json, partial), taken(4, Some("late")));
        for (kind, body) in [
            (Some("text/html"), &b"<html>login</html>"[..]),
            (Some("application/x-protobuf"), b"<html>"),
            (None, b"<html>"),
            (json, b"<html>"),
        ] {
            assert!(matches!(of(kind, body), Verdict::Refused(_)), "{kind:?}");
        }
    }

    #[test]
    fn by_grpc_the_trailer_decides() {
        let framed = |body: &[u8]| [&[0, 0, 0, 0, u8::try_from(body.len()).unwrap()], body].concat();
        assert_eq!(of_grpc(200, Some("0"), None, &framed(&[])), taken(0, None));
        assert_eq!(of_grpc(200, Some("0"), None, &[]), taken(0, None));
        assert_eq!(of_grpc(200, Some("0"), None, &framed(&partial(2, "no"))), taken(2, Some("no")));
        assert_eq!(of_grpc(200, Some("14"), Some("go%20away"), &[]), again("gRPC status 14: go away", None));
        for code in ["1", "4", "10", "11", "15"] {
            assert!(matches!(of_grpc(200, Some(code), None, &[]), Verdict::Again { .. }), "{code}");
        }
        for code in ["2", "3", "5", "7", "8", "12", "13", "16"] {
            assert!(matches!(of_grpc(200, Some(code), None, &[]), Verdict::Refused(_)), "{code}");
        }
        assert!(matches!(of_grpc(200, Some("0"), None, &[1, 0, 0, 0, 0]), Verdict::Refused(_)));
        assert!(matches!(of_grpc(200, None, None, &[]), Verdict::Refused(_)), "another server");
        assert_eq!(of_grpc(503, None, None, &[]), again("HTTP status 503", None));
    }
}
