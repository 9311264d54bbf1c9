//! Where records go, and how: from options and OpenTelemetry's variables of the environment (its specification: OpenTelemetry
//! Protocol Exporter, Environment Variables).
//!
//! In: an option, and a look-up of a variable. Out: [`Settings`], or one line about what is wrong; `None` where nothing is exported.

use crate::remote::{Secret, Target};
use crate::runtime::confine::Seccomp;
use crate::runtime::exit::Stop;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How records are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// `http/protobuf`
    Http,
    Grpc,
}

/// What is requested by options.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    pub endpoint: Option<Secret>,
    pub protocol: Option<Protocol>,
    /// Bytes that may wait for the collector.
    pub queue_bytes: usize,
    /// Also events that the history does not keep.
    pub all: bool,
    pub seccomp: Seccomp,
}

/// Where records go.
#[derive(Clone, Debug)]
pub struct Settings {
    pub way: Way,
    pub queue_bytes: usize,
    pub all: bool,
    /// Attributes of the resource: of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.
    pub resource: Vec<(String, String)>,
}

/// What the process that sends needs. Has secrets: it has no `Debug` of its own.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// `Host` and `:authority`.
    pub authority: String,
    pub path: String,
    pub protocol: Protocol,
    pub headers: Vec<(String, String)>,
    pub gzip: bool,
    /// Of an attempt, milliseconds.
    pub timeout_ms: u64,
    pub authorities: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    #[serde(default)]
    pub seccomp: Seccomp,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Way {
    /// Without what is secret: `http://collector:4318/v1/logs`, `grpc://collector:4317`.
    #[must_use]
    pub fn shown(&self) -> String {
        let Way { authority, path, tls, protocol, .. } = self;
        match (protocol, tls) {
            (Protocol::Http, false) => format!("http://{authority}{path}"),
            (Protocol::Http, true) => format!("https://{authority}{path}"),
            (Protocol::Grpc, false) => format!("grpc://{authority}"),
            (Protocol::Grpc, true) => format!("grpcs://{authority}"),
        }
    }

    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// Of gRPC: opentelemetry/proto/collector/logs/v1/logs_service.proto.
const SERVICE: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const LOGS: &str = "/v1/logs";

/// Of an attempt, where nothing else is requested.
const TIMEOUT_MS: u64 = 10_000;

/// Characters that a header's value may have, and its name.
fn is_of_a_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || (32..127).contains(&byte))
}

fn is_of_a_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

impl Settings {
    /// `variable`: of the environment; an empty one counts as none.
    ///
    /// # Errors
    /// What is wrong, and with which option or variable; no secrets.
    pub fn read(
        options: &OtlpOptions,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Stop> {
        let plain = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        // That of logs before that of all signals.
        let either = |name: &str| {
            let [of_logs, of_all] =
                [format!("OTEL_EXPORTER_OTLP_LOGS_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
            plain(&of_logs)
                .map(|value| (of_logs, value))
                .or_else(|| plain(&of_all).map(|value| (of_all, value)))
        };
        let given =
            options.endpoint.as_ref().map(|url| ("--otlp.endpoint".to_owned(), url.text().to_owned()));
        let is_off = |name: &str, value: &str| {
            plain(name).is_some_and(|given| given.trim().eq_ignore_ascii_case(value))
        };
        let is_off = is_off("OTEL_SDK_DISABLED", "true") || is_off("OTEL_LOGS_EXPORTER", "none");
        let of_environment = || if is_off { None } else { either("ENDPOINT") };
        let Some((from, url)) = given.or_else(of_environment) else { return Ok(None) };
        let protocol = match (options.protocol, either("PROTOCOL")) {
            (Some(protocol), _) => protocol,
            (None, None) => Protocol::Http,
            (None, Some((name, value))) => match value.trim() {
                "http/protobuf" => Protocol::Http,
                "grpc" => Protocol::Grpc,
                other => {
                    return Err(Stop::usage(format!(
                        "{name}: {other:?} is not supported; use http/protobuf or grpc"
                    )));
                }
            },
        };
        let is_plain = match either("INSECURE") {
            None => None,
            Some((name, value)) => Some(boolean(&name, &value)?),
        };
        // Without a scheme it is gRPC's own way to write it: INSECURE says whether it has TLS.
        let url = match (protocol, url.contains("://")) {
            (Protocol::Grpc, false) if is_plain != Some(true) => format!("https://{url}"),
            _ => url,
        };
        let (target, login) = Target::parse(url.trim()).map_err(|why| {
            Stop::usage(format!("{from}: the URL is refused: {why}; give it as http://HOST:4318"))
        })?;
        if login.is_some() {
            return Err(Stop::usage(format!(
                "{from}: it has a user; give credentials in OTEL_EXPORTER_OTLP_HEADERS, as \
                 authorization=Basic%20..."
            )));
        }
        let path = match protocol {
            Protocol::Grpc => SERVICE.to_owned(),
            // The specification: it is taken as it is.
            Protocol::Http if from.contains("_LOGS_") => {
                if target.prefix.is_empty() {
                    "/".to_owned()
                } else {
                    target.prefix.clone()
                }
            }
            Protocol::Http if options.endpoint.is_some() && target.prefix.ends_with(LOGS) => {
                target.prefix.clone()
            }
            Protocol::Http => format!("{}{LOGS}", target.prefix),
        };
        let file = |name: &str| either(name).map(|(_, path)| PathBuf::from(path));
        let timeout_ms = match either("TIMEOUT") {
            None => TIMEOUT_MS,
            Some((name, value)) => match value.trim().parse() {
                Ok(ms @ 1..=600_000) => ms,
                _ => {
                    return Err(Stop::usage(format!(
                        "{name}: {value:?} is no time from 1 to 600000 milliseconds"
                    )));
                }
            },
        };
        let gzip = match either("COMPRESSION") {
            None => false,
            Some((name, value)) => match value.trim() {
                "gzip" => true,
                "none" => false,
                other => {
                    return Err(Stop::usage(format!("{name}: {other:?} is not supported; use gzip or none")));
                }
            },
        };
        let headers = match either("HEADERS") {
            None => Vec::new(),
            Some((name, value)) => headers(&name, &value)?,
        };
        let way = Way {
            tls: target.tls,
            host: target.host.clone(),
            port: target.port(),
            authority: target.authority(),
            path,
            protocol,
            headers,
            gzip,
            timeout_ms,
            authorities: file("CERTIFICATE"),
            cert: file("CLIENT_CERTIFICATE"),
            key: file("CLIENT_KEY"),
            seccomp: options.seccomp,
        };
        let mut resource = match plain("OTEL_RESOURCE_ATTRIBUTES") {
            None => Vec::new(),
            Some(value) => pairs("OTEL_RESOURCE_ATTRIBUTES", &value)?,
        };
        if let Some(service) = plain("OTEL_SERVICE_NAME") {
            resource.retain(|(name, _)| name != "service.name");
            resource.push(("service.name".to_owned(), service));
        }
        Ok(Some(Settings { way, queue_bytes: options.queue_bytes, all: options.all, resource }))
    }
}

fn boolean(name: &str, value: &str) -> Result<bool, Stop> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Stop::usage(format!("{name}: {value:?} is neither true nor false"))),
    }
}

/// `name=value,name=value`, each percent-encoded where it must be (W3C Baggage).
fn pairs(from: &str, list: &str) -> Result<Vec<(String, String)>, Stop> {
    let decoded =
        |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(std::borrow::Cow::into_owned);
    list.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((decoded(name)?, decoded(value)?)).filter(|(name, _)| !name.is_empty())
        })
        .collect::<Option<_>>()
        .ok_or_else(|| {
            Stop::usage(format!("{from}: write it as NAME=VALUE,NAME=VALUE, with %2C for a comma in a value"))
        })
}

/// The same for headers.
fn headers(from: &str, list: &str) -> Result<Vec<(String, String)>, Stop> {
    let all = pairs(from, list)?;
    match all.iter().position(|(name, value)| !is_of_a_name(name) || !is_of_a_value(value)) {
        // Neither is shown: where the `=` is missing, a secret may be in both.
        Some(index) => Err(Stop::usage(format!(
            "{from}: number {} is no header; write NAME=VALUE, with %XX for what a header cannot have",
            index + 1
        ))),
        None => Ok(all.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: Option<&str>, environment: &[(&str, &str)]) -> Result<Option<Settings>, Stop> {
        let endpoint = url.map(|url| Secret::new(url.to_owned()));
        let options =
            OtlpOptions { endpoint, protocol: None, queue_bytes: 1, all: false, seccomp: Seccomp::Required };
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&options, variable)
    }

    fn shown(url: Option<&str>, environment: &[(&str, &str)]) -> Option<String> {
        read(url, environment).unwrap_or_else(|stop| panic!("{stop:?}")).map(|settings| settings.way.shown())
    }

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const LOGS_ONLY: &str = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT";
    const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

    #[test]
    fn the_endpoint_is_that_of_the_option_of_logs_or_of_all() {
        let is = |shown: Option<String>, text: &str| assert_eq!(shown.as_deref(), Some(text));
        assert_eq!(shown(None, &[]), None);
        assert_eq!(shown(None, &[(ALL, " ")]), None, "an empty one is none");
        is(shown(Some("http://c:4318"), &[(ALL, "http://d")]), "http://c:4318/v1/logs");
        is(shown(Some("http://c:4318/v1/logs/"), &[]), "http://c:4318/v1/logs");
        is(shown(Some("https://gate/otlp"), &[]), "https://gate/otlp/v1/logs");
        is(shown(None, &[(ALL, "http://d:1/x"), (LOGS_ONLY, "http://e:2/own")]), "http://e:2/own");
        is(shown(None, &[(LOGS_ONLY, "http://e:2")]), "http://e:2/");
        is(shown(None, &[(ALL, "d:4317"), (PROTOCOL, "grpc")]), "grpcs://d:4317");
        is(
            shown(None, &[(ALL, "d:4317"), (PROTOCOL, "grpc"), ("OTEL_EXPORTER_OTLP_INSECURE", "true")]),
            "grpc://d:4317",
        );
        is(shown(None, &[(ALL, "http://d:4317"), (PROTOCOL, "grpc")]), "grpc://d:4317");
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_LOGS_EXPORTER", "none")] {
            assert_eq!(shown(None, &[(ALL, "http://d"), off]), None);
            is(shown(Some("c"), &[off]), "http://c/v1/logs");
        }
    }

    #[test]
    fn each_variable_has_its_meaning() {
        let settings = read(
            Some("https://c"),
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a%2Cb, x-tenant = gpu ,"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
                ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/ca.pem"),
                ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/etc/own.pem"),
                ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", "/etc/own.key"),
                ("OTEL_RESOURCE_ATTRIBUTES", "k8s.node.name=n1,service.name=other"),
                ("OTEL_SERVICE_NAME", "tracer"),
            ],
        );
        let Settings { way, resource, .. } = settings.expect("good").expect("an endpoint");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(way.headers, [pair("authorization", "Bearer a,b"), pair("x-tenant", "gpu")]);
        assert_eq!((way.timeout(), way.gzip, way.port), (Duration::from_millis(2500), true, 443));
        let files = [way.authorities.clone(), way.cert.clone(), way.key.clone()];
        assert_eq!(
            files,
            ["/etc/ca.pem", "/etc/own.pem", "/etc/own.key"].map(|path| Some(PathBuf::from(path)))
        );
        assert_eq!(resource, [pair("k8s.node.name", "n1"), pair("service.name", "tracer")]);
        assert!(!format!("{way:?}").contains("Bearer"));
    }

    #[test]
    fn what_is_wrong_is_named_without_secrets() {
        let at = |name, value| read(Some("http://c"), &[(name, value)]).expect_err(value);
        for (stop, words) in [
            (read(Some("ftp://c"), &[]).expect_err("ftp"), "--otlp.endpoint: the URL is refused"),
            (read(Some("http://u:s3cret@c"), &[]).expect_err("a user"), "--otlp.endpoint: it has a user"),
            (read(None, &[(ALL, "http://")]).expect_err("no host"), ALL),
            (at(PROTOCOL, "http/json"), "use http/protobuf or grpc"),
            (at("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"), "milliseconds"),
            (at("OTEL_EXPORTER_OTLP_TIMEOUT", "0"), "milliseconds"),
            (at("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"), "use gzip or none"),
            (at("OTEL_EXPORTER_OTLP_INSECURE", "yes"), "neither true nor false"),
            (at("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"), "NAME=VALUE"),
            (at("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret"), "number 1 is no header"),
            (at("OTEL_EXPORTER_OTLP_HEADERS", "a=b,Authorization: Basic s3cret=="), "number 2 is no header"),
            (at("OTEL_EXPORTER_OTLP_HEADERS", "Bearer s3cret="), "is no header"),
            (at("OTEL_EXPORTER_OTLP_HEADERS", "a=s3cret%0d%0ax: y"), "is no header"),
            (at("OTEL_RESOURCE_ATTRIBUTES", "=x"), "OTEL_RESOURCE_ATTRIBUTES: write it as"),
        ] {
            assert!(stop.code == 2 && stop.line.contains(words), "{stop:?}");
            assert!(!stop.line.contains("s3cret"), "{stop:?}");
        }
    }
}
