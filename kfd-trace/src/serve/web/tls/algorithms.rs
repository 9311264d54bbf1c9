//! Versions, suites and curves: what the configuration names, as far as rustls with ring offers it.
//!
//! A name that the format has and that is not offered here is left out, since a file may be shared with exporters in Go. What
//! is left is never weaker than what was named.

use crate::serve::web::config::{Tls, Version};
use crate::text::escape;
use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

/// Suites of TLS 1.2 and older that Go names, or named in an earlier version, and that rustls does not offer.
const OLD_SUITES: [&str; 10] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// Suites of TLS 1.3. The format cannot choose between them: all are always offered.
const NEW_SUITES: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// HTTP/2 over TLS 1.2 takes one of these: RFC 9113, section 9.2.2, where that for RSA is mandatory.
const HTTP2_SUITES: [&str; 2] =
    ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];

const OLD_CURVES: [&str; 1] = ["CurveP521"];

/// Longest name shown in a message.
const SHOWN: usize = 60;

pub(super) struct Algorithms {
    pub(super) provider: CryptoProvider,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
    /// What was left out, a line each.
    pub(super) notes: Vec<String>,
}

impl Algorithms {
    /// # Errors
    /// One line: the key, the name that is unknown, or why nothing is left, and what can be named.
    pub(super) fn new(tls: &Tls, http2: bool) -> Result<Self, String> {
        let (mut provider, mut notes) = (ring::default_provider(), Vec::new());
        let mut min = tls.min;
        if let Some(names) = &tls.cipher_suites {
            let (old, new): (Vec<_>, Vec<_>) = provider
                .cipher_suites
                .into_iter()
                .partition(|suite| matches!(suite, SupportedCipherSuite::Tls12(_)));
            let name = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite());
            let names: Vec<_> =
                names.iter().map(String::as_str).filter(|name| !NEW_SUITES.contains(name)).collect();
            let chosen = Chosen::new("cipher_suites", &names, &old, name, &OLD_SUITES)?;
            if http2 && min == Version::Tls12 && !names.iter().any(|name| HTTP2_SUITES.contains(&&**name)) {
                return Err(format!(
                    "tls_server_config: cipher_suites has none that HTTP/2 takes with TLS 1.2: add {}, or set http2 to \
                     false or min_version to TLS13",
                    HTTP2_SUITES.join(" or ")
                ));
            }
            if chosen.offered.is_empty() && min == Version::Tls12 {
                if tls.max == Version::Tls12 {
                    return Err(chosen.nothing_left());
                }
                min = Version::Tls13;
                notes.push(
                    "tls_server_config: cipher_suites leaves none of TLS 1.2: TLS 1.3 alone is offered"
                        .into(),
                );
            }
            notes.extend(chosen.left_out());
            provider.cipher_suites = new.into_iter().chain(chosen.offered).collect();
        }
        if let Some(names) = &tls.curves {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let chosen = Chosen::new(
                "curve_preferences",
                &names,
                &provider.kx_groups,
                |group| curve(*group),
                &OLD_CURVES,
            )?;
            if chosen.offered.is_empty() {
                return Err(chosen.nothing_left());
            }
            notes.extend(chosen.left_out());
            provider.kx_groups = chosen.offered;
        }
        let versions = [(Version::Tls12, &TLS12), (Version::Tls13, &TLS13)]
            .into_iter()
            .filter(|(version, _)| (min..=tls.max).contains(version))
            .map(|(_, version)| version)
            .collect();
        Ok(Algorithms { provider, versions, notes })
    }
}

/// The name of the curve in the format.
fn curve(group: &dyn SupportedKxGroup) -> String {
    match group.name() {
        NamedGroup::secp256r1 => "CurveP256".into(),
        NamedGroup::secp384r1 => "CurveP384".into(),
        other => format!("{other:?}"),
    }
}

/// What a list of names chooses.
struct Chosen<T> {
    key: &'static str,
    /// In the order of the list.
    offered: Vec<T>,
    left_out: Vec<String>,
    /// Names of all that can be chosen.
    known: String,
}

impl<T: Copy> Chosen<T> {
    /// `all`: what is offered here, each with this `name`; `others`: names that are known, and left out.
    fn new(
        key: &'static str,
        names: &[&str],
        all: &[T],
        name: impl Fn(&T) -> String,
        others: &[&str],
    ) -> Result<Self, String> {
        let known: Vec<_> = all.iter().map(&name).collect();
        let (mut offered, mut left_out) = (Vec::new(), Vec::new());
        for wanted in names {
            if let Some(place) = known.iter().position(|known| known == wanted) {
                offered.push(all[place]);
            } else if others.contains(wanted) {
                left_out.push((*wanted).to_owned());
            } else {
                let wanted = escape::terminal(&wanted.chars().take(SHOWN).collect::<String>());
                return Err(format!(
                    "tls_server_config: {key}: {wanted} is not known; these are: {}",
                    known.join(", ")
                ));
            }
        }
        Ok(Chosen { key, offered, left_out, known: known.join(", ") })
    }

    fn left_out(&self) -> Option<String> {
        let names = self.left_out.join(", ");
        (!names.is_empty()).then(|| {
            format!("tls_server_config: {}: left out, since they are not offered here: {names}", self.key)
        })
    }

    fn nothing_left(&self) -> String {
        let Chosen { key, known, .. } = self;
        format!("tls_server_config: {key}: none of them is offered here; these are: {known}")
    }
}

#[cfg(test)]
mod tests;
