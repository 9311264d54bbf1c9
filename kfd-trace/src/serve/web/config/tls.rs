//! The section `tls_server_config`: from the text's fields to what was meant.

use serde::Deserialize;
use serde::de::Error as _;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve::web) struct Tls {
    pub(in crate::serve::web) cert: Pem,
    pub(in crate::serve::web) key: Pem,
    pub(in crate::serve::web) clients: Clients,
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

/// Which clients' certificates are requested, with the authorities that may have signed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::serve::web) enum Clients {
    NotAsked,
    IfGiven(Pem),
    Required(Pem),
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
    #[serde(deserialize_with = "no_allowed_sans")]
    client_allowed_sans: (),
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

fn no_allowed_sans<'de, D: serde::Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(D::Error::custom(
        "client_allowed_sans is not supported: use a client CA that signs these clients only",
    ))
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
