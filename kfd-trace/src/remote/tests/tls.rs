//! Certificates of servers and of clients.

use super::super::AccessOptions;
use super::{ALL, options, queues, refused, serving, url};
use crate::serve::web::tests::authority::{Authority, Pair};
use crate::serve::web::tests::harness::Server;
use std::path::PathBuf;
use tempfile::TempDir;

/// Files for options.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, text: &str) -> Option<PathBuf> {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("written");
        Some(path)
    }
}

const TLS: &str = "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n";

fn with_tls(pair: &Pair, more: &str, ca: &str) -> Server {
    let files = [("web.crt", pair.cert.as_str()), ("web.key", &pair.key), ("ca.crt", ca)];
    serving(&format!("{TLS}{more}"), &files)
}

#[tokio::test]
async fn an_authority_is_right_wrong_or_the_systems() {
    let (own, other, files) = (Authority::new("own"), Authority::new("other"), Files::new());
    let server = with_tls(&own.server(), "", "");
    let https = options(url("https", "localhost", &server));
    let trusting = |ca: &str| AccessOptions { cacert: files.file("ca.pem", ca), ..https.clone() };
    assert_eq!(queues(&trusting(&own.pem())).await, Ok(ALL));
    assert_eq!(queues(&trusting(&(other.pem() + &own.pem()))).await, Ok(ALL));
    let line = refused(&trusting(&other.pem())).await;
    assert!(line.contains("its certificate is signed by no trusted authority; give"), "{line}");
    assert!(line.contains("--cacert FILE (trusted are ") && line.ends_with("ca.pem)"), "{line}");
    assert_eq!(queues(&AccessOptions { insecure: true, ..https.clone() }).await, Ok(ALL));
    // The name of the certificate is `localhost`.
    let by_address = options(url("https", "127.0.0.1", &server));
    let line = refused(&AccessOptions { cacert: files.file("own.pem", &own.pem()), ..by_address }).await;
    assert!(line.ends_with("its certificate is not for this name; use a name that it has"), "{line}");
    let line = refused(&options(url("http", "localhost", &server))).await;
    assert!(line.ends_with("if it has TLS, begin the URL with https://"), "{line}");
}

#[tokio::test]
async fn a_server_whose_own_certificate_is_listed_is_trusted_like_by_curl() {
    let files = Files::new();
    let for_servers = |ca: bool| {
        Authority::own(|params| {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
            params.is_ca = if ca {
                rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained)
            } else {
                rcgen::IsCa::ExplicitNoCa
            };
        })
        .0
    };
    for ca in [false, true] {
        let pair = for_servers(ca);
        let server = with_tls(&pair, "", "");
        let cacert = files.file("own.pem", &pair.cert);
        let own = AccessOptions { cacert: cacert.clone(), ..options(url("https", "localhost", &server)) };
        assert_eq!(queues(&own).await, Ok(ALL), "{ca}");
        let line = refused(&AccessOptions { cacert, ..options(url("https", "127.0.0.1", &server)) }).await;
        assert!(line.contains("not for this name"), "{ca}: {line}");
        let another = for_servers(ca);
        let wrong = AccessOptions { cacert: files.file("other.pem", &another.cert), ..own };
        assert!(refused(&wrong).await.contains("no trusted authority"), "{ca}");
    }
    // What it signs is not trusted: it may sign nothing.
    let (leaf, as_authority) = Authority::own(|params| params.is_ca = rcgen::IsCa::ExplicitNoCa);
    let server = with_tls(&as_authority.server(), "", "");
    let signed = AccessOptions {
        cacert: files.file("leaf.pem", &leaf.cert),
        ..options(url("https", "localhost", &server))
    };
    assert!(refused(&signed).await.contains("no trusted authority"));
    let expired = Authority::own(|params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let server = with_tls(&expired.0, "", "");
    let old = AccessOptions {
        cacert: files.file("old.pem", &expired.0.cert),
        ..options(url("https", "localhost", &server))
    };
    assert!(refused(&old).await.contains("its certificate has expired, or is not valid yet; renew it"));
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let (own, other, files) = (Authority::new("own"), Authority::new("other"), Files::new());
    let mutual = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n";
    let server = with_tls(&own.server(), mutual, &own.pem());
    let https = AccessOptions {
        cacert: files.file("ca.pem", &own.pem()),
        ..options(url("https", "localhost", &server))
    };
    let client = own.client();
    let with = |pair: &Pair| AccessOptions {
        cert: files.file("client.pem", &pair.cert),
        key: files.file("client.key", &pair.key),
        ..https.clone()
    };
    assert_eq!(queues(&with(&client)).await, Ok(ALL));
    let both = files.file("both.pem", &(client.cert.clone() + &client.key));
    assert_eq!(queues(&AccessOptions { cert: both, ..https.clone() }).await, Ok(ALL));
    let line = refused(&https).await;
    assert!(line.ends_with("give one by --cert FILE and --key FILE"), "{line}");
    let line = refused(&with(&other.client())).await;
    assert!(line.contains("check --cert: the daemon's client_ca_file"), "{line}");
    let mixed = Pair { cert: client.cert.clone(), key: other.client().key };
    let line = refused(&with(&mixed)).await;
    assert!(line.contains("client.pem with ") && line.contains("client.key"), "{line}");
    let line = refused(&AccessOptions { cert: files.file("no-key.pem", &client.cert), ..https }).await;
    assert!(line.contains("no-key.pem has no private key without a passphrase"), "{line}");
}
