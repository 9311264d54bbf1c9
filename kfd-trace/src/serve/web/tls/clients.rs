//! Which clients a handshake admits, by their certificates.
//!
//! In: `client_auth_type`, the authorities, the allowed names. Out: rustls's verifier. That a client has the certificate's key is
//! verified in each case; who signed it only where the type says so.

use crate::serve::certificate::{Side, is_valid, may_sign, parsed};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::extensions::GeneralName;

#[derive(Debug)]
pub(super) struct ClientVerifier {
    trust: Trust,
    /// A client without a certificate is not admitted.
    required: bool,
    /// `client_allowed_sans`: the certificate has one of these names.
    names: Option<BTreeSet<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Whose certificates are good.
#[derive(Debug)]
pub(super) enum Trust {
    /// Everybody's.
    Any,
    /// There is no authority: those of no client.
    Nothing,
    Listed {
        /// Those of the list that may sign others.
        authorities: Option<Arc<dyn ClientCertVerifier>>,
        /// The whole list. Exporters in Go accept these from a client, too, so that a file of self-signed
        /// certificates is a list of clients.
        own: Vec<CertificateDer<'static>>,
    },
}

impl Trust {
    /// # Errors
    /// One line: one of them is no certificate.
    pub(super) fn listed(
        own: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &own {
            // rustls would let each sign.
            if may_sign(certificate).ok_or("it has a certificate that cannot be read")? {
                roots.add(certificate.clone()).map_err(|error| error.to_string())?;
            }
        }
        if roots.is_empty() {
            return Ok(Trust::Listed { authorities: None, own });
        }
        let authorities =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        Ok(Trust::Listed { authorities: Some(authorities.map_err(|error| error.to_string())?), own })
    }
}

impl ClientVerifier {
    pub(super) fn new(
        trust: Trust,
        required: bool,
        names: Option<BTreeSet<String>>,
        provider: &CryptoProvider,
    ) -> Self {
        ClientVerifier { trust, required, names, algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.trust {
            Trust::Any | Trust::Nothing => &[],
            Trust::Listed { authorities, .. } => {
                authorities.as_ref().map_or(&[], |authorities| authorities.root_hint_subjects())
            }
        }
    }

    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &self.trust {
            Trust::Any => drop(ParsedCertificate::try_from(end_entity)?),
            Trust::Nothing => return Err(CertificateError::UnknownIssuer.into()),
            Trust::Listed { authorities, own } => {
                let verified = match authorities {
                    Some(authorities) => authorities.verify_client_cert(end_entity, intermediates, now),
                    None => Err(CertificateError::UnknownIssuer.into()),
                };
                let is_own =
                    || own.iter().any(|own| own == end_entity) && is_valid(end_entity, Side::Client, now);
                verified.map(drop).or_else(|error| if is_own() { Ok(()) } else { Err(error) })?;
            }
        }
        if self.names.as_ref().is_some_and(|allowed| !has_name(end_entity, allowed)) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Whether a subject alternative name (DNS, e-mail, URI, address) is one of these, letter by letter.
fn has_name(der: &CertificateDer<'_>, allowed: &BTreeSet<String>) -> bool {
    let Some(certificate) = parsed(der) else { return false };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            allowed.contains(*name)
        }
        GeneralName::IPAddress(bytes) => address(bytes).is_some_and(|address| allowed.contains(&address)),
        _ => false,
    })
}

fn address(bytes: &[u8]) -> Option<String> {
    let address = <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()?;
    Some(address.to_canonical().to_string())
}

#[cfg(test)]
mod tests;
