//! The file given by `--web.config.file`, in the format of the Prometheus exporters' web configuration
//! (<https://prometheus.io/docs/prometheus/latest/configuration/https/>). Pure: takes text, returns values or
//! one line.

use super::users::Hash;
use crate::text::escape;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::Error as _;
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) cert: Pem,
    pub(super) key: Pem,
    pub(super) clients: Clients,
    pub(super) min: Version,
    pub(super) max: Version,
    /// Names of TLS 1.2 suites, in the order of preference; `None`: all that exist.
    pub(super) cipher_suites: Option<Vec<String>>,
    /// Names, in the order of preference; `None`: all that exist.
    pub(super) curves: Option<Vec<String>>,
    /// The server's order of suites has precedence over the client's.
    pub(super) prefer_server: bool,
}

/// Where certificates or a key are.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Pem {
    File(PathBuf),
    Inline(String),
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pem::File(path) => path.fmt(f),
            Pem::Inline(_) => f.write_str("inline"),
        }
    }
}

/// Which clients' certificates are requested, with the authorities that may have signed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Clients {
    NotAsked,
    IfGiven(Pem),
    Required(Pem),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Version {
    Tls12,
    Tls13,
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "TLS12" => Ok(Version::Tls12),
            "TLS13" => Ok(Version::Tls13),
            "TLS10" | "TLS11" => Err(format!("{name} is not supported: use TLS12 or TLS13")),
            _ => Err(format!("`{name}` is no version of TLS: use TLS12 or TLS13")),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    tls_server_config: Option<TlsSection>,
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<UserHashes>,
    #[serde(deserialize_with = "no_rate_limit")]
    rate_limit: (),
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TlsSection {
    cert: Option<String>,
    cert_file: Option<String>,
    key: Option<String>,
    key_file: Option<String>,
    client_ca: Option<String>,
    client_ca_file: Option<String>,
    client_auth_type: Option<ClientAuth>,
    min_version: Option<Version>,
    max_version: Option<Version>,
    cipher_suites: Option<Vec<String>>,
    curve_preferences: Option<Vec<String>>,
    prefer_server_cipher_suites: Option<bool>,
    #[serde(deserialize_with = "no_allowed_sans")]
    client_allowed_sans: (),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpSection {
    http2: Option<bool>,
    headers: Option<Headers>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum ClientAuth {
    #[default]
    NotAsked,
    IfGiven,
    Required,
}

impl TryFrom<String> for ClientAuth {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        const GOOD: &str = "use NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert";
        match name.as_str() {
            "" | "NoClientCert" => Ok(ClientAuth::NotAsked),
            "VerifyClientCertIfGiven" => Ok(ClientAuth::IfGiven),
            "RequireAndVerifyClientCert" => Ok(ClientAuth::Required),
            "RequestClientCert" | "RequireAnyClientCert" | "RequireClientCert" => Err(format!(
                "client_auth_type {name} is not supported, since it takes certificates unverified: {GOOD}"
            )),
            _ => Err(format!("`{name}` is no client_auth_type: {GOOD}")),
        }
    }
}

fn no_rate_limit<'de, D: serde::Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(D::Error::custom("rate_limit is not supported: leave it out"))
}

fn no_allowed_sans<'de, D: serde::Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(D::Error::custom(
        "client_allowed_sans is not supported: use a client CA that signs these clients only",
    ))
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
    })
}

impl TlsSection {
    /// `None`: the section is empty.
    fn meant(self, folder: &Path) -> Result<Option<Tls>, String> {
        if self == TlsSection::default() {
            return Ok(None);
        }
        let pem = |name: &str, file: Option<String>, inline: Option<String>| match (
            file.filter(|text| !text.is_empty()),
            inline.filter(|text| !text.is_empty()),
        ) {
            (Some(_), Some(_)) => Err(format!("{name} and {name}_file are both given: leave one out")),
            (Some(file), None) => Ok(Some(Pem::File(folder.join(file)))),
            (None, inline) => Ok(inline.map(Pem::Inline)),
        };
        let cert = pem("cert", self.cert_file, self.cert)?.ok_or("cert_file is missing")?;
        let key = pem("key", self.key_file, self.key)?.ok_or("key_file is missing")?;
        let authorities = pem("client_ca", self.client_ca_file, self.client_ca)?;
        let clients = match (self.client_auth_type.unwrap_or_default(), authorities) {
            (ClientAuth::NotAsked, None) => Clients::NotAsked,
            (ClientAuth::NotAsked, Some(_)) => {
                return Err("client_ca_file is of no use without client_auth_type: set it to \
                            RequireAndVerifyClientCert"
                    .into());
            }
            (_, None) => return Err("client_auth_type takes a client_ca_file, which is missing".into()),
            (ClientAuth::IfGiven, Some(authorities)) => Clients::IfGiven(authorities),
            (ClientAuth::Required, Some(authorities)) => Clients::Required(authorities),
        };
        let min = self.min_version.unwrap_or(Version::Tls12);
        let max = self.max_version.unwrap_or(Version::Tls13);
        if min > max {
            return Err("min_version is above max_version: no version is left".into());
        }
        Ok(Some(Tls {
            cert,
            key,
            clients,
            min,
            max,
            cipher_suites: self.cipher_suites.filter(|names| !names.is_empty()),
            curves: self.curve_preferences.filter(|names| !names.is_empty()),
            prefer_server: self.prefer_server_cipher_suites.unwrap_or(true),
        }))
    }
}

#[cfg(test)]
mod tests;
