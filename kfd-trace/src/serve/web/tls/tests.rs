use super::*;
use crate::serve::web::config::Version;
use crate::serve::web::tests::authority::Authority;

pub(super) fn sample() -> Tls {
    let pair = Authority::new("ca").server();
    Tls {
        cert: Pem::Inline(pair.cert),
        key: Pem::Inline(pair.key),
        clients: ClientAuth::NotAsked,
        authorities: None,
        client_names: None,
        min: Version::Tls12,
        max: Version::Tls13,
        cipher_suites: None,
        curves: None,
        prefer_server: true,
    }
}

fn made(tls: &Tls) -> Result<ServerConfig, String> {
    server_config(tls, true, |_| Err(io::ErrorKind::NotFound.into())).map(|(config, _)| config)
}

fn refused(tls: &Tls) -> String {
    let line = made(tls).map(|_| ()).expect_err("refused");
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn http2_is_offered_where_it_is_wanted() {
    let offers = |http2| server_config(&sample(), http2, |_| unreachable!()).unwrap().0.alpn_protocols;
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
    for clients in [ClientAuth::Required, ClientAuth::IfGiven] {
        let authorities = |text: &str| Some(Pem::Inline(text.to_owned()));
        let line = refused(&Tls { clients, authorities: authorities(""), ..sample() });
        assert!(line.contains("the inline client_ca has no certificate"), "{line}");
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let line = refused(&Tls { clients, authorities: authorities(bad), ..sample() });
        assert!(line.contains("the inline client_ca: it has a certificate that cannot be read"), "{line}");
    }
}
