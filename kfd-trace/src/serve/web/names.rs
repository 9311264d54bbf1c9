//! Under which names the daemon may be asked. A page of a browser can have its own name resolve to 127.0.0.1 (DNS
//! rebinding), and then reads what is served there: such a request has the page's name as its Host.
//!
//! In: a request, the settings in force. Out: the line that refuses it, if it is refused.

use super::settings::Settings;
use crate::text::escape;
use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

/// In lower case, without a dot at the end. Addresses always go.
#[derive(Debug)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// `host`: the machine's own (uname), short or whole; `allowed`: those of `--web.allowed-host`.
    #[must_use]
    pub fn new(host: &str, allowed: &[String]) -> Self {
        let short = host.split('.').next().unwrap_or(host);
        let all = ["localhost", host, short].into_iter().chain(allowed.iter().map(String::as_str));
        Names(all.map(plain).collect())
    }

    /// Why a request is not answered. With passwords none is refused, since a browser does not send to one site
    /// those of another; with TLS neither, since the certificate has to be of the site's name.
    pub(super) fn refuse(&self, request: &Request, settings: &Settings) -> Option<String> {
        if settings.users.is_some() || settings.tls.is_some() {
            return None;
        }
        // RFC 9112, section 3.2.2: of a request with both, the name in the address counts. Neither may be another's.
        let of_uri = request.uri().authority().map(Authority::as_str);
        let of_head = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or("?"));
        let strange = of_uri.into_iter().chain(of_head).find(|host| !self.has(host))?;
        let strange = escape::terminal(strange);
        Some(format!(
            "{strange} is none of this daemon's names: ask by its address, or start it with --web.allowed-host\n"
        ))
    }

    /// `host`: with or without a port.
    fn has(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host();
        let inside = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address = inside
            .map_or_else(|| name.parse::<IpAddr>().is_ok(), |inside| inside.parse::<Ipv6Addr>().is_ok());
        is_address || self.0.contains(&plain(name))
    }
}

/// A name of `--web.allowed-host`.
///
/// # Errors
/// One line: it is more or less than a host name.
pub fn host_name(text: &str) -> Result<String, String> {
    let bare = text.parse::<Authority>().is_ok_and(|authority| authority.host() == text);
    if bare { Ok(text.to_owned()) } else { Err("must be a host name alone; try gpu1.example.org".to_owned()) }
}

fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowed_name_is_a_name_alone() {
        assert_eq!(host_name("gpu1.example.org"), Ok("gpu1.example.org".to_owned()));
        for text in ["", "gpu1:20200", "http://gpu1", "gpu1/metrics", "a@gpu1", "a b"] {
            assert!(host_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_and_own_names_go_and_no_other() {
        let names = Names::new("GPU1.example.org", &["metrics.example.com".to_owned()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:20200",
            "[::1]:20200",
            "10.1.2.3",
            "localhost:20200",
            "LocalHost",
            "gpu1:20200",
            "gpu1.example.org.",
            "Metrics.example.com:20200",
        ] {
            assert!(names.has(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:20200",
            "gpu1.evil.example",
            "localhost.evil.example",
            "1.2.3.4.evil.example",
            "",
            "[::1",
            "a b",
            "?",
        ] {
            assert!(!names.has(host), "{host}");
        }
    }
}
