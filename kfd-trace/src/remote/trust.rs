//! Which servers are trusted, and what this client shows of itself. In: files. Out: rustls's settings.

use crate::runtime::exit::Stop;
use crate::serve::certificate::{Side, certificates, is_in_time, is_valid, may_sign};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Files in PEM.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustOptions<'a> {
    /// Authorities, and servers that are trusted by themselves; `None` for the authorities of the system.
    pub authorities: Option<&'a Path>,
    /// Of this client.
    pub cert: Option<&'a Path>,
    /// `None`: it is in `cert`, too.
    pub key: Option<&'a Path>,
    /// Any server is trusted.
    pub insecure: bool,
}

/// Settings of TLS.
#[derive(Clone, Debug)]
pub struct Trust {
    pub(super) config: Arc<ClientConfig>,
    /// Whose signatures count, for messages.
    pub(super) of: String,
    pub(super) has_cert: bool,
}

impl Trust {
    /// # Errors
    /// One line: which file cannot be read, or has no such thing.
    pub fn read(options: &TrustOptions<'_>) -> Result<Self, Stop> {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let (of, known, own) = match options.authorities {
            _ if options.insecure => ("any server's".to_owned(), RootCertStore::empty(), Vec::new()),
            Some(path) => {
                let (known, own) = listed(path)?;
                (path.display().to_string(), known, own)
            }
            None => ("the system's authorities".to_owned(), of_system()?, Vec::new()),
        };
        let authorities = if known.is_empty() {
            None
        } else {
            let built = WebPkiServerVerifier::builder_with_provider(Arc::new(known), Arc::clone(&provider));
            Some(built.build().map_err(|error| Stop::failed(format!("{of}: {error}")))?)
        };
        let verifier = ServerVerifier { authorities, own, any: options.insecure, algorithms };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Stop::failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match options.cert {
            None => builder.with_no_client_auth(),
            Some(cert) => {
                let key_path = options.key.unwrap_or(cert);
                let chain = certificates(&cert.display().to_string(), &read(cert)?).map_err(Stop::failed)?;
                let key = PrivateKeyDer::from_pem_slice(&read(key_path)?).map_err(|error| {
                    Stop::failed(format!(
                        "{} has no private key without a passphrase: {error}",
                        key_path.display()
                    ))
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    Stop::failed(format!("{} with {}: {error}", cert.display(), key_path.display()))
                })?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Trust { config: Arc::new(config), of, has_cert: options.cert.is_some() })
    }

    /// The same for a server of HTTP/2.
    #[must_use]
    pub fn for_http2(self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Trust { config: Arc::new(config), ..self }
    }

    #[must_use]
    pub fn settings(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Stop> {
    fs::read(path).map_err(|error| Stop::failed(format!("{} cannot be read: {error}", path.display())))
}

/// Those of a file that may sign others, and all of it.
fn listed(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Stop> {
    let own = certificates(&path.display().to_string(), &read(path)?).map_err(Stop::failed)?;
    let mut authorities = RootCertStore::empty();
    for certificate in &own {
        let why = |why: &str| Stop::failed(format!("{}: {why}", path.display()));
        // rustls would let each sign.
        if may_sign(certificate).ok_or_else(|| why("it has a certificate that cannot be read"))? {
            authorities.add(certificate.clone()).map_err(|error| why(&error.to_string()))?;
        }
    }
    Ok((authorities, own))
}

/// From where distributions have them, or SSL_CERT_FILE and SSL_CERT_DIR.
fn of_system() -> Result<RootCertStore, Stop> {
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = RootCertStore::empty();
    // A file of a distribution may have some that are not understood.
    authorities.add_parsable_certificates(found.certs);
    if authorities.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        let line = format!(
            "this machine has no authorities to verify a server by, as in /etc/ssl/certs{why}; give --cacert FILE, or install \
             ca-certificates"
        );
        return Err(Stop::failed(line));
    }
    Ok(authorities)
}

/// That a server has the certificate's key is verified in each case.
#[derive(Debug)]
struct ServerVerifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Trusted by themselves, as by curl: one that signed itself need not be an authority.
    own: Vec<CertificateDer<'static>>,
    any: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.any {
            return Ok(ServerCertVerified::assertion());
        }
        if self.own.iter().any(|own| own == end_entity) {
            if !is_in_time(end_entity, now) {
                return Err(CertificateError::Expired.into());
            }
            if is_valid(end_entity, Side::Server, now) {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                return Ok(ServerCertVerified::assertion());
            }
        }
        let verified = match &self.authorities {
            Some(known) => known.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        verified.map_err(|error| match error {
            // It is an authority itself, as one that `openssl req -x509` made, and not one that is listed.
            Error::InvalidCertificate(CertificateError::Other(_)) if may_sign(end_entity) == Some(true) => {
                CertificateError::UnknownIssuer.into()
            }
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
