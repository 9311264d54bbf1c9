use super::*;
use crate::serve::web::tls::tests::sample;
use tokio_rustls::rustls::{CipherSuite, ProtocolVersion};

const GCM: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
const CBC: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA";
const NEW: &str = "TLS_AES_128_GCM_SHA256";

fn suites(names: &[&str]) -> Tls {
    Tls { cipher_suites: Some(names.iter().map(|name| (*name).to_owned()).collect()), ..sample() }
}

fn curves(names: &[&str]) -> Tls {
    Tls { curves: Some(names.iter().map(|name| (*name).to_owned()).collect()), ..sample() }
}

fn made(tls: &Tls, http2: bool) -> Algorithms {
    Algorithms::new(tls, http2).unwrap_or_else(|line| panic!("{line}"))
}

fn refused(tls: &Tls, http2: bool) -> String {
    let line = Algorithms::new(tls, http2).map(|_| ()).expect_err("refused");
    assert!(line.starts_with("tls_server_config: ") && !line.contains('\n'), "{line}");
    line
}

/// Suites of TLS 1.2.
fn old(algorithms: &Algorithms) -> Vec<CipherSuite> {
    let of_12 = |suite: &&SupportedCipherSuite| matches!(suite, SupportedCipherSuite::Tls12(_));
    algorithms.provider.cipher_suites.iter().filter(of_12).map(SupportedCipherSuite::suite).collect()
}

fn versions(algorithms: &Algorithms) -> Vec<ProtocolVersion> {
    algorithms.versions.iter().map(|version| version.version).collect()
}

#[test]
fn suites_and_curves_are_the_named_ones_in_their_order() {
    let names = ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"];
    let algorithms = made(&suites(&names), false);
    assert_eq!(
        old(&algorithms),
        [
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        ]
    );
    assert_eq!(algorithms.provider.cipher_suites.len(), 5, "1.3 has all of its own");
    let algorithms = made(&curves(&["CurveP384", "X25519", "CurveP256"]), true);
    let groups: Vec<_> = algorithms.provider.kx_groups.iter().map(|group| group.name()).collect();
    assert_eq!(groups, [NamedGroup::secp384r1, NamedGroup::X25519, NamedGroup::secp256r1]);
    assert!(algorithms.notes.is_empty(), "{:?}", algorithms.notes);
}

#[test]
fn known_names_that_are_not_offered_are_left_out_with_one_line() {
    let algorithms = made(&suites(&[CBC, NEW, GCM, OLD_SUITES[6]]), true);
    assert_eq!(old(&algorithms), [CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);
    assert_eq!(versions(&algorithms), [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3]);
    assert_eq!(algorithms.notes.len(), 1);
    let note = &algorithms.notes[0];
    assert!(note.ends_with(&format!("not offered here: {CBC}, {}", OLD_SUITES[6])), "{note}");
    let algorithms = made(&curves(&["CurveP521", "X25519"]), true);
    assert_eq!(algorithms.provider.kx_groups.len(), 1);
    assert!(algorithms.notes[0].ends_with("not offered here: CurveP521"), "{:?}", algorithms.notes);
}

#[test]
fn unknown_names_are_refused_with_those_that_exist() {
    let unknown =
        ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA2048", "TLS_RSA_WITH_RC4_128_SHA", "", "a\nb\u{202e}"];
    for name in unknown {
        let line = refused(&suites(&[GCM, name]), true);
        assert!(
            line.contains("cipher_suites: ") && line.contains("is not known; these are: TLS_ECDHE_"),
            "{line}"
        );
        assert_eq!(line, escape::terminal(&line));
    }
    let line = refused(&curves(&["CurveP257"]), true);
    assert!(
        line.contains("curve_preferences: CurveP257 is not known") && line.contains("CurveP384"),
        "{line}"
    );
    assert!(refused(&curves(&[&"n".repeat(5_000)]), true).len() < 200);
}

#[test]
fn a_version_without_a_suite_is_not_offered() {
    let algorithms = made(&suites(&[CBC, NEW]), false);
    assert_eq!(versions(&algorithms), [ProtocolVersion::TLSv1_3]);
    assert_eq!(algorithms.notes.len(), 2);
    assert!(algorithms.notes[0].contains("TLS 1.3 alone is offered"), "{:?}", algorithms.notes);
    let line = refused(&Tls { max: Version::Tls12, ..suites(&[CBC]) }, false);
    assert!(line.contains("cipher_suites: none of them is offered here; these are: "), "{line}");
    // The suites of 1.2 do not matter where it is not offered anyway.
    let only_new = Tls { min: Version::Tls13, ..suites(&[NEW]) };
    assert!(made(&only_new, true).notes.is_empty());
    let line = refused(&curves(&["CurveP521"]), true);
    assert!(line.contains("curve_preferences: none of them is offered here; these are: "), "{line}");
}

#[test]
fn http2_has_a_suite_of_tls_1_2_that_it_takes() {
    let chacha = suites(&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"]);
    let line = refused(&chacha, true);
    assert!(line.contains("none that HTTP/2 takes") && line.contains(GCM), "{line}");
    made(&chacha, false);
    made(&Tls { min: Version::Tls13, ..chacha }, true);
    made(&suites(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]), true);
}
