//! What a collector's response means for a batch: OpenTelemetry Protocol Specification, OTLP/HTTP Response and OTLP/gRPC Response.

use super::proto::{ExportLogsServiceResponse, RetryInfo, Status};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode::Indifferent;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
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

/// What gRPC says of a response, in its trailers (or in its headers, where there is nothing else).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grpc<'g> {
    /// `grpc-status`
    pub(super) code: Option<&'g str>,
    /// `grpc-message`
    pub(super) message: Option<&'g str>,
    /// `grpc-status-details-bin`
    pub(super) details: Option<&'g str>,
}

/// By gRPC.
pub(super) fn of_grpc(http: u16, said: Grpc<'_>, body: &[u8]) -> Verdict {
    let message =
        said.message.map(|text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned());
    let Some(code) = said.code.and_then(|code| code.trim().parse::<u32>().ok()) else {
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
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::Again { why: why(), after: said.details.and_then(pause) },
        // RESOURCE_EXHAUSTED is also what a batch that is too large gets, with no time after which to try again: were it tried
        // again, none behind it would ever be sent.
        8 => match said.details.and_then(pause) {
            Some(after) => Verdict::Again { why: why(), after: Some(after) },
            None => Verdict::Refused(why()),
        },
        _ => Verdict::Refused(why()),
    }
}

/// After how long to try again, by the details of a status (google/rpc/error_details.proto, `RetryInfo`).
fn pause(details: &str) -> Option<Duration> {
    let status = Status::decode(&*EITHER_PADDING.decode(details).ok()?).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    Some(Duration::from_secs(seconds).clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
}

/// gRPC: a header that ends with `-bin` may be padded, or not.
const EITHER_PADDING: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent));

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
    use crate::otlp::proto::{Any, Delay, ExportLogsPartialSuccess};

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
        let error =
            Status { code: 14, message: "full \u{1b}[2J".to_owned(), details: vec![] }.encode_to_vec();
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
        let of = |code| Grpc { code: Some(code), ..Grpc::default() };
        let framed = |body: &[u8]| [&[0, 0, 0, 0, u8::try_from(body.len()).unwrap()], body].concat();
        assert_eq!(of_grpc(200, of("0"), &framed(&[])), taken(0, None));
        assert_eq!(of_grpc(200, of("0"), &[]), taken(0, None));
        assert_eq!(of_grpc(200, of("0"), &framed(&partial(2, "no"))), taken(2, Some("no")));
        assert_eq!(
            of_grpc(200, Grpc { message: Some("go%20away"), ..of("14") }, &[]),
            again("gRPC status 14: go away", None)
        );
        for code in ["1", "4", "10", "11", "15"] {
            assert!(matches!(of_grpc(200, of(code), &[]), Verdict::Again { .. }), "{code}");
        }
        for code in ["2", "3", "5", "7", "8", "12", "13", "16"] {
            assert!(matches!(of_grpc(200, of(code), &[]), Verdict::Refused(_)), "{code}");
        }
        assert!(matches!(of_grpc(200, of("0"), &[1, 0, 0, 0, 0]), Verdict::Refused(_)));
        assert!(matches!(of_grpc(200, Grpc::default(), &[]), Verdict::Refused(_)), "another server");
        assert_eq!(of_grpc(503, Grpc::default(), &[]), again("HTTP status 503", None));
    }
    #[test]
    fn a_pause_that_grpc_asks_for_is_kept() {
        let status = |type_url: &str, seconds: i64| {
            let delay = Delay { seconds, nanos: 5 };
            let value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
            let details = vec![Any { type_url: type_url.to_owned(), value }];
            Status { code: 8, details, ..Status::default() }.encode_to_vec()
        };
        let of = |code, details: &str| {
            of_grpc(200, Grpc { code: Some(code), details: Some(details), ..Grpc::default() }, &[])
        };
        let url = "type.googleapis.com/google.rpc.RetryInfo";
        let (plain, padded) = (status(url, 200), base64::prelude::BASE64_STANDARD.encode(status(url, 200)));
        let unpadded = base64::prelude::BASE64_STANDARD_NO_PAD.encode(plain);
        assert_ne!(padded, unpadded);
        for details in [&padded, &unpadded] {
            assert_eq!(of("8", details), again("gRPC status 8", Some(200)));
            assert_eq!(of("14", details), again("gRPC status 14", Some(200)));
            assert!(matches!(of("3", details), Verdict::Refused(_)));
        }
        let encoded = |bytes| base64::prelude::BASE64_STANDARD.encode(bytes);
        assert_eq!(of("8", &encoded(status(url, 9_999))), again("gRPC status 8", Some(300)));
        for details in [encoded(status("x/google.rpc.Help", 7)), encoded(status(url, -1)), "%".to_owned()] {
            assert!(matches!(of("8", &details), Verdict::Refused(_)), "{details}");
        }
    }
}
