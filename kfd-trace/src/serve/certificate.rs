//! Certificates in files, and what is in one. For the server's own, and for those of clients and of other servers.

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

/// Those of a file in PEM, one at least. `place`: its name.
///
/// # Errors
/// One line.
pub(crate) fn certificates(place: &str, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{place}: {error}"))?;
    if certificates.is_empty() {
        return Err(format!("{place} has no certificate in PEM"));
    }
    Ok(certificates)
}

/// `None`: it is no certificate.
pub(crate) fn parsed<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Whether it may sign others. `None`: it is no certificate.
pub(crate) fn may_sign(der: &CertificateDer<'_>) -> Option<bool> {
    let certificate = parsed(der)?;
    let is_authority = match certificate.basic_constraints().ok()? {
        Some(constraints) => constraints.value.ca,
        None => certificate.version() != X509Version::V3,
    };
    let usage = certificate.key_usage().ok()?;
    Some(is_authority && usage.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// Who of a connection has a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Neither before its time nor after it.
pub(crate) fn is_in_time(der: &CertificateDer<'_>, now: UnixTime) -> bool {
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    parsed(der).zip(now).is_some_and(|(certificate, now)| certificate.validity().is_valid_at(now))
}

/// Whether one of this side may use it now, whoever signed it.
pub(crate) fn is_valid(der: &CertificateDer<'_>, side: Side, now: UnixTime) -> bool {
    let Some(certificate) = parsed(der) else { return false };
    // An error: it is there twice.
    let for_side = certificate.extended_key_usage().is_ok_and(|usage| {
        usage.is_none_or(|usage| {
            usage.value.any
                || match side {
                    Side::Client => usage.value.client_auth,
                    Side::Server => usage.value.server_auth,
                }
        })
    });
    let understood = certificate
        .extensions()
        .iter()
        .all(|extension| !extension.critical || !extension.parsed_extension().unsupported());
    is_in_time(der, now) && for_side && understood
}
