//! The section `tls_server_config`: from the text's fields to what was meant.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve::web) struct Tls {
    pub(in crate::serve::web) cert: Pem,
    pub(in crate::serve::web) key: Pem,
    pub(in crate::serve::web) clients: ClientAuth,
    /// Who may have signed their certificates, and certificates of clients.
    pub(in crate::serve::web) authorities: Option<Pem>,
    /// Subject alternative names, one of which a client's certificate must have; `None`: any.
    pub(in crate::serve::web) client_names: Option<BTreeSet<String>>,
    pub(in crate::serve::web) min: Version,
    pub(in crate::serve::web) max: Version,
    /// Names of TLS 1.2 suites, in the order of preference; `None`: all that exist.
    pub(in crate::serve::web) cipher_suites: Option<Vec<String>>,
    /// Names, in the order of preference; `None`: all that exist.
    pub(in crate::serve::web) curves: Option<Vec<String>>,
    /// The server's order of suites has precedence over the client's.
    pub(in crate::serve::web) prefer_server: bool,
}

/// Where certificates or a key are.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::serve::web) enum Pem {
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

/// Which clients are admitted, by their certificates: later ones keep out more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::serve::web) enum ClientAuth {
    #[default]
    NotAsked,
    /// With any certificate, or none.
    Requested,
    /// With one of the authorities, or none.
    IfGiven,
    /// With any certificate, which everybody can make.
    AnyRequired,
    /// With one of the authorities.
    Required,
}

impl ClientAuth {
    pub(super) const NAMES: [(&str, ClientAuth); 7] = [
        ("NoClientCert", ClientAuth::NotAsked),
        ("RequestClientCert", ClientAuth::Requested),
        ("VerifyClientCertIfGiven", ClientAuth::IfGiven),
        ("RequireAnyClientCert", ClientAuth::AnyRequired),
        ("RequireAndVerifyClientCert", ClientAuth::Required),
        // Those of the exporters, too.
        ("", ClientAuth::NotAsked),
        ("RequireClientCert", ClientAuth::AnyRequired),
    ];

    pub(in crate::serve::web) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, auth)| *auth == self).map_or("", |(name, _)| name)
    }
}

impl TryFrom<String> for ClientAuth {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, auth)| *auth).ok_or_else(|| {
            format!(
                "`{name}` is no client_auth_type: use RequireAndVerifyClientCert, VerifyClientCertIfGiven or NoClientCert"
            )
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::serve::web) enum Version {
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

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsSection {
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
    client_allowed_sans: Option<Vec<String>>,
}

impl TlsSection {
    /// `None`: the section is empty.
    pub(super) fn meant(self, folder: &Path) -> Result<Option<Tls>, String> {
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
        let clients = self.client_auth_type.unwrap_or_default();
        match (clients, &authorities) {
            (ClientAuth::Required, None) => {
                return Err(
                    "client_auth_type RequireAndVerifyClientCert takes a client_ca_file, which is missing"
                        .into(),
                );
            }
            (ClientAuth::NotAsked | ClientAuth::Requested | ClientAuth::AnyRequired, Some(_)) => {
                return Err(format!(
                    "client_ca_file is of no use with client_auth_type {}: set it to RequireAndVerifyClientCert",
                    clients.name()
                ));
            }
            _ => {}
        }
        let client_names =
            self.client_allowed_sans.map(|names| names.iter().map(String::as_str).map(client_name).collect());
        if client_names.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err("client_allowed_sans has no name: add one, or leave it out".into());
        }
        if client_names.is_some() && !matches!(clients, ClientAuth::AnyRequired | ClientAuth::Required) {
            return Err(format!(
                "client_allowed_sans is of no use with client_auth_type {}: set it to RequireAndVerifyClientCert",
                clients.name()
            ));
        }
        let min = self.min_version.unwrap_or(Version::Tls12);
        let max = self.max_version.unwrap_or(Version::Tls13);
        if min > max {
            return Err("min_version is above max_version: no version is left".into());
        }
        Ok(Some(Tls {
            cert,
            key,
            clients,
            authorities,
            client_names,
            min,
            max,
            cipher_suites: self.cipher_suites.filter(|names| !names.is_empty()),
            curves: self.curve_preferences.filter(|names| !names.is_empty()),
            prefer_server: self.prefer_server_cipher_suites.unwrap_or(true),
        }))
    }
}

/// Addresses are compared as they are usually written.
fn client_name(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |address| address.to_canonical().to_string())
}
