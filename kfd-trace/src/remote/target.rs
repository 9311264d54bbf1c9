//! Where a daemon is: a URL, as curl takes it.

use super::login::Login;
use hyper::Uri;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Without user and password, which no message shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub tls: bool,
    /// A name or an address; of IPv6 without brackets.
    pub host: String,
    /// `None`: that of the scheme.
    pub port: Option<u16>,
    /// Before the paths of the daemon, as behind a reverse proxy: empty, or as `/gpu7`.
    pub prefix: String,
}

impl Target {
    /// Also returns user and password of the URL. Without a scheme it is http.
    ///
    /// # Errors
    /// What is wrong, without the text: a password may be in it.
    pub fn parse(text: &str) -> Result<(Self, Option<Login>), String> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("it has a space or a control character".to_owned());
        }
        let (tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err("its scheme is neither http nor https".to_owned()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // Else a password with a slash would become a path, and be shown and sent with a part of it as the host.
        if path.contains('@') {
            return Err("write / in a password as %2F, @ in a path as %40".to_owned());
        }
        if path.contains(['?', '#']) {
            return Err("it ends with its path: leave out `?` and `#` with what follows".to_owned());
        }
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(Login::of_url(user)?), place),
            None => (None, authority),
        };
        let (host, port) = host_and_port(place)?;
        let prefix = path.trim_end_matches('/').to_owned();
        if format!("{prefix}/x").parse::<Uri>().is_err() {
            return Err("its path has characters that must be written as %XX".to_owned());
        }
        Ok((Target { tls, host, port, prefix }, user))
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.tls { 443 } else { 80 })
    }

    /// `Host` of requests.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.clone(),
        };
        self.port.map_or(host.clone(), |port| format!("{host}:{port}"))
    }

    /// Where it is, in short: `node1:20200/gpu7`.
    #[must_use]
    pub fn place(&self) -> String {
        self.authority() + &self.prefix
    }

    /// Nobody else can read what is sent there.
    #[must_use]
    pub fn is_on_this_machine(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.place())
    }
}

fn host_and_port(place: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (address, after) = rest.split_once(']').ok_or("a bracket of its address is missing")?;
        let address: Ipv6Addr = address.parse().map_err(|_| "in its brackets is no IPv6 address")?;
        (address.to_string(), after)
    } else {
        let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
        if port.get(1..).is_some_and(|port| port.contains(':')) {
            return Err("an IPv6 address has brackets: [::1]:20200".to_owned());
        }
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        if !host.chars().all(is_of_a_name) {
            return Err("its host is no name in ASCII (IDN: write xn--...)".to_owned());
        }
        (host.to_ascii_lowercase(), port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = digits.parse().ok().filter(|port| *port > 0);
            Some(port.ok_or("its port is not from 1 to 65535")?)
        }
        _ => return Err("what follows its host is no port".to_owned()),
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::super::login::Secret;
    use super::*;

    #[test]
    fn urls_are_those_of_curl() {
        for (text, shown, authority, port) in [
            ("node1:20200", "http://node1:20200", "node1:20200", 20200),
            ("node1", "http://node1", "node1", 80),
            ("HTTPS://Node1.example", "https://node1.example", "node1.example", 443),
            ("http://10.0.0.7:20200/", "http://10.0.0.7:20200", "10.0.0.7:20200", 20200),
            ("https://[::1]:20200", "https://[::1]:20200", "[::1]:20200", 20200),
            ("https://gate/kfd/n%207//", "https://gate/kfd/n%207", "gate", 443),
        ] {
            let (target, login) = Target::parse(text).expect(text);
            assert_eq!((target.to_string().as_str(), target.authority().as_str()), (shown, authority));
            assert_eq!((target.port(), login), (port, None), "{text}");
        }
    }

    #[test]
    fn user_and_password_are_taken_out() {
        let (target, login) = Target::parse("https://ann%40x:p%3Aw%2f@node1/x").expect("good");
        assert_eq!(target.to_string(), "https://node1/x");
        let login = login.expect("a user");
        assert_eq!((login.user.as_str(), login.password.as_ref().map(Secret::text)), ("ann@x", Some("p:w/")));
        let (_, login) = Target::parse("ann@node1:20200").expect("good");
        assert_eq!(login.map(|login| (login.user, login.password)), Some(("ann".to_owned(), None)));
        assert!(!format!("{target:?} {:?}", Target::parse("a:secret@b")).contains("secret"));
    }

    #[test]
    fn what_is_wrong_is_named_and_not_repeated() {
        for (text, why) in [
            ("", "no host"),
            ("http://", "no host"),
            ("http://s3cret@", "no host"),
            ("ftp://a:s3cret@b", "neither http nor https"),
            ("a:s3cret@b://c", "neither http nor https"),
            ("node1:", "from 1 to 65535"),
            ("node1:0", "from 1 to 65535"),
            ("node1:65536", "from 1 to 65535"),
            ("node1:http", "no port"),
            ("::1:20200", "brackets: [::1]"),
            ("[::1", "a bracket"),
            ("[node1]:20200", "no IPv6 address"),
            ("[::1]20200", "no port"),
            ("http://ann:12/s3cret@node1", "write / in a password as %2F"),
            ("http://ann:12?s3cret@node1:1/x", "write / in a password as %2F"),
            ("a:s3cret@b/?x", "leave out `?`"),
            ("node1/#x", "leave out `?`"),
            ("knöten:20200", "no name in ASCII"),
            ("node1/a<b", "%XX"),
            ("node 1", "a space or a control character"),
            ("node1/\u{1b}[2J", "a space or a control character"),
        ] {
            let error = Target::parse(text).expect_err(text);
            assert!(error.contains(why) && !error.contains("s3cret"), "{text}: {error}");
        }
    }

    #[test]
    fn only_loopback_is_this_machine() {
        let is_here = |text: &str| Target::parse(text).expect(text).0.is_on_this_machine();
        assert!(is_here("localhost:1") && is_here("127.0.0.9:1") && is_here("[::1]:1"));
        assert!(!is_here("node1:1") && !is_here("10.0.0.1") && !is_here("localhost.example"));
    }
}
