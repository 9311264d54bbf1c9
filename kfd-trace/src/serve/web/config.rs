//! The file given by `--web.config.file`, in the format of the Prometheus exporters' web configuration
//! (<https://prometheus.io/docs/prometheus/latest/configuration/https/>). Pure: takes text, returns values or
//! one line.

mod tls;

pub(super) use tls::{ClientAuth, Pem, Tls, Version};

use super::rate::{RateLimit, RateSection};
use super::users::Hash;
use crate::text::escape;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use tls::TlsSection;

/// Bytes shown at either end of a reason that is longer than both: a name or value in it may be as long as
/// the file, and what to do is at its end.
const REPORTED: usize = 300;

/// Maximum nesting of lists and maps. The format has three.
const DEEPEST: usize = 8;

/// The requested configuration. Paths are relative to the file's folder.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) tls: Option<Tls>,
    /// Also offer HTTP/2 in the handshake.
    pub(super) http2: bool,
    /// For every response.
    pub(super) headers: HeaderMap,
    /// Empty: every client may make requests.
    pub(super) users: BTreeMap<String, Hash>,
    pub(super) rate: Option<RateLimit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    tls_server_config: Option<TlsSection>,
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<UserHashes>,
    rate_limit: Option<RateSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpSection {
    http2: Option<bool>,
    headers: Option<Headers>,
}

/// The headers that the format knows, with the values that it allows; none: any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, Option<String>>")]
struct Headers(HeaderMap);

impl TryFrom<BTreeMap<String, Option<String>>> for Headers {
    type Error = String;

    fn try_from(named: BTreeMap<String, Option<String>>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in named {
            let Some((known, allowed)) = HEADERS.iter().find(|(known, _)| *known == name) else {
                let known = HEADERS.map(|(known, _)| known).join(", ");
                return Err(format!("header `{name}` cannot be set; these can: {known}"));
            };
            let value = value.unwrap_or_default();
            if value.is_empty() {
                continue;
            }
            if !allowed.is_empty() && !allowed.contains(&value.as_str()) {
                return Err(format!("header {name} must be {}, not `{value}`", allowed.join(" or ")));
            }
            let value = HeaderValue::from_str(&value)
                .map_err(|_| format!("header {name} has a character that no header may have"))?;
            headers.insert(HeaderName::from_bytes(known.as_bytes()).map_err(|e| e.to_string())?, value);
        }
        Ok(Headers(headers))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
struct UserHashes(BTreeMap<String, Hash>);

impl TryFrom<BTreeMap<String, String>> for UserHashes {
    type Error = String;

    fn try_from(named: BTreeMap<String, String>) -> Result<Self, String> {
        let hash = |(name, hash): (String, String)| {
            if name.contains(':') {
                return Err(format!(
                    "user `{name}` of basic_auth_users has a colon, which no client can send"
                ));
            }
            // The text is not shown: it may be the password itself.
            let hash = hash.parse().map_err(|why| format!("user `{name}` of basic_auth_users: {why}"))?;
            Ok((name, hash))
        };
        named.into_iter().map(hash).collect::<Result<_, _>>().map(UserHashes)
    }
}

/// Without aliases no file reaches these limits: a text that is in the file once (an anchor) may not be held
/// many times.
fn limits(length: usize) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEEPEST,
            // An escape of two bytes may represent a character of three, and a tag a longer one.
            max_total_scalar_bytes: 2 * length + 4096,
            max_recorded_anchor_events: length / 2,
            max_recorded_anchor_bytes: 2 * length,
        },
    }
}

fn shortened(why: String) -> String {
    if why.len() <= 2 * REPORTED {
        return why;
    }
    let (begin, end) = (why.floor_char_boundary(REPORTED), why.ceil_char_boundary(why.len() - REPORTED));
    format!("{}...{}", &why[..begin], &why[end..])
}

/// `path`: of the file with this text.
///
/// # Errors
/// One line without control characters: the file, the line if known, what is wrong.
pub fn parse(text: &str, path: &Path) -> Result<Config, String> {
    let shown_path = escape::terminal(&path.display().to_string());
    let at = |line: Option<u64>, why: &dyn Display| {
        let why = shortened(escape::terminal(&why.to_string()));
        match line {
            Some(line) => format!("{shown_path}: line {line}: {why}"),
            None => format!("{shown_path}: {why}"),
        }
    };
    let file: Option<File> =
        serde_saphyr::from_str_with_options(text, limits(text.len())).map_err(|error| {
            let line = error.location().map(|location| location.line());
            at(line, &UserMessageFormatter.format_message(error.without_snippet()))
        })?;
    let file = file.unwrap_or_default();
    let http = file.http_server_config.unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let tls = file.tls_server_config.unwrap_or_default().meant(folder);
    Ok(Config {
        tls: tls.map_err(|why| at(None, &format_args!("tls_server_config: {why}")))?,
        http2: http.http2.unwrap_or(true),
        headers: http.headers.unwrap_or_default().0,
        users: file.basic_auth_users.unwrap_or_default().0,
        rate: file.rate_limit.and_then(RateSection::meant),
    })
}

#[cfg(test)]
mod tests;
