//! TLS of the server: from the configuration to rustls's settings.

mod algorithms;
mod clients;

use super::config::{ClientAuth, Pem, Tls};
use crate::serve::certificate::certificates;
use algorithms::Algorithms;
use clients::{ClientVerifier, Trust};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

pub(super) const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// `read`: reads a file of certificates or a key. Returns also what the operator should know about it, a line each.
///
/// # Errors
/// One line: what cannot be read, or does not fit, and in which file.
pub(super) fn server_config(
    tls: &Tls,
    http2: bool,
    read: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<(ServerConfig, Vec<String>), String> {
    let read = |pem: &Pem, what: &str| match pem {
        Pem::Inline(text) => Ok((format!("the inline {what}"), text.clone().into_bytes())),
        Pem::File(path) => match read(path) {
            Ok(bytes) => Ok((path.display().to_string(), bytes)),
            Err(error) => Err(format!("{what} {} cannot be read: {error}", path.display())),
        },
    };
    let Algorithms { provider, versions, mut notes } = Algorithms::new(tls, http2)?;
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| format!("tls_server_config: {error}"))?;
    let trust = match (tls.clients, &tls.authorities) {
        (ClientAuth::NotAsked, _) => None,
        (ClientAuth::Requested | ClientAuth::AnyRequired, _) => Some(Trust::Any),
        (ClientAuth::IfGiven | ClientAuth::Required, Some(authorities)) => {
            let (place, bytes) = read(authorities, "client_ca")?;
            let listed = Trust::listed(certificates(&place, &bytes)?, &provider);
            Some(listed.map_err(|why| format!("{place}: {why}"))?)
        }
        (ClientAuth::IfGiven | ClientAuth::Required, None) => {
            notes.push(format!(
                "tls_server_config: client_auth_type {} without client_ca_file: a client with a certificate is refused",
                tls.clients.name()
            ));
            Some(Trust::Nothing)
        }
    };
    let builder = match trust {
        None => builder.with_no_client_auth(),
        Some(trust) => {
            let required = tls.clients >= ClientAuth::AnyRequired;
            let verifier = ClientVerifier::new(trust, required, tls.client_names.clone(), &provider);
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
    };
    let (chain_place, chain) = read(&tls.cert, "cert")?;
    let (key_place, key) = read(&tls.key, "key")?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| format!("{key_place} has no private key without a passphrase: {error}"))?;
    let mut config = builder
        .with_single_cert(certificates(&chain_place, &chain)?, key)
        .map_err(|error| format!("{chain_place} with {key_place}: {error}"))?;
    config.ignore_client_order = tls.prefer_server;
    config.alpn_protocols = if http2 { vec![H2.to_vec(), HTTP1.to_vec()] } else { vec![HTTP1.to_vec()] };
    Ok((config, notes))
}

#[cfg(test)]
mod tests;
