use super::*;
use crate::serve::web::tests::authority::Authority;
use tokio_rustls::rustls::CipherSuite;

fn sample() -> Tls {
    let pair = Authority::new("ca").server();
    Tls {
        cert: Pem::Inline(pair.cert),
        key: Pem::Inline(pair.key),
        clients: Clients::NotAsked,
        min: Version::Tls12,
        max: Version::Tls13,
        cipher_suites: None,
        curves: None,
        prefer_server: true,
    }
}

fn made(tls: &Tls) -> Result<ServerConfig, String> {
    server_config(tls, true, |_| Err(io::ErrorKind::NotFound.into()))
}

fn refused(tls: &Tls) -> String {
    let line = made(tls).map(|_| ()).expect_err("refused");
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn suites_and_curves_are_those_that_are_named_in_their_order() {
    let names = ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"];
    let tls = Tls {
        cipher_suites: Some(names.map(str::to_owned).to_vec()),
        curves: Some(vec!["CurveP384".into(), "X25519".into(), "CurveP256".into()]),
        ..sample()
    };
    let provider = provider(&tls).unwrap();
    let of_12 = |suite: &SupportedCipherSuite| matches!(suite, SupportedCipherSuite::Tls12(_));
    let old: Vec<_> =
        provider.cipher_suites.iter().filter(|suite| of_12(suite)).map(SupportedCipherSuite::suite).collect();
    assert_eq!(
        old,
        [
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        ]
    );
    assert_eq!(provider.cipher_suites.len() - old.len(), 3, "1.3 has all of its own");
    let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
    assert_eq!(groups, [NamedGroup::secp384r1, NamedGroup::X25519, NamedGroup::secp256r1]);
}

#[test]
fn suites_and_curves_that_are_not_there_are_refused() {
    for name in ["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"] {
        let line = refused(&Tls { cipher_suites: Some(vec![name.into()]), ..sample() });
        assert!(
            line.contains(&format!("cipher_suites: {name} is not supported; these are: TLS_ECDHE_")),
            "{line}"
        );
    }
    let line = refused(&Tls { curves: Some(vec!["CurveP521".into()]), ..sample() });
    assert!(
        line.contains("curve_preferences: CurveP521 is not supported") && line.contains("CurveP384"),
        "{line}"
    );
}

#[test]
fn http2_is_offered_where_it_is_wanted() {
    let offers = |http2| server_config(&sample(), http2, |_| unreachable!()).unwrap().alpn_protocols;
    assert_eq!(offers(true), [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(offers(false), [b"http/1.1".to_vec()]);
    let order = |prefer_server| made(&Tls { prefer_server, ..sample() }).unwrap().ignore_client_order;
    assert!(order(true) && !order(false));
}

#[test]
fn files_that_are_no_good_are_named() {
    let other = sample();
    let line = refused(&Tls { cert: Pem::File("/c.crt".into()), ..sample() });
    assert!(line.contains("cert /c.crt cannot be read"), "{line}");
    let line = refused(&Tls { key: Pem::File("/k.key".into()), ..sample() });
    assert!(line.contains("key /k.key cannot be read"), "{line}");
    let line = refused(&Tls { key: other.key, ..sample() });
    assert!(line.contains("the inline cert with the inline key: "), "{line}");
    let line = refused(&Tls { cert: Pem::Inline("nothing".into()), ..sample() });
    assert!(line.contains("the inline cert has no certificate"), "{line}");
    let line = refused(&Tls { key: Pem::Inline("secret".into()), ..sample() });
    assert!(line.contains("the inline key has no private key") && !line.contains("secret"), "{line}");
    for clients in [Clients::Required, Clients::IfGiven] {
        let line = refused(&Tls { clients: clients(Pem::Inline(String::new())), ..sample() });
        assert!(line.contains("the inline client_ca has no certificate"), "{line}");
    }
}
