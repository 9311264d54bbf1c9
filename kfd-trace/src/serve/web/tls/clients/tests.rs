use super::*;
use crate::serve::web::tests::authority::{Authority, Pair, params};
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, SanType, date_time_ymd};
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn listed(pems: &[&str]) -> Trust {
    Trust::listed(pems.iter().map(|pem| der(pem)).collect(), &provider()).unwrap()
}

fn admits(trust: Trust, names: Option<&[&str]>, client: &Pair) -> Result<(), Error> {
    let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    let verifier = ClientVerifier::new(trust, true, names, &provider());
    verifier.verify_client_cert(&der(&client.cert), &[], UnixTime::now()).map(drop)
}

#[test]
fn who_signed_it_matters_where_there_is_a_list() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let (client, stranger) = (authority.client(), Authority::own(|_| {}).0);
    let list = || listed(&[&authority.pem()]);
    assert!(admits(list(), None, &client).is_ok());
    for client in [&stranger, &other.client(), &authority.server()] {
        assert!(admits(list(), None, client).is_err());
    }
    for client in [&client, &stranger] {
        assert!(admits(Trust::Any, None, client).is_ok());
        assert_eq!(admits(Trust::Nothing, None, client), Err(CertificateError::UnknownIssuer.into()));
    }
}

#[test]
fn a_listed_certificate_is_that_of_a_client_too() {
    let authority = |params: &mut rcgen::CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let (plain, plain_owner) = Authority::own(|_| {});
    let (signs, signs_owner) = Authority::own(authority);
    let list = || listed(&[&plain.cert, &signs.cert]);
    assert!(admits(list(), None, &plain).is_ok() && admits(list(), None, &signs).is_ok());
    assert!(admits(list(), None, &signs_owner.client()).is_ok());
    // rustls alone would admit whoever a listed client signs.
    assert!(admits(list(), None, &plain_owner.client()).is_err());
    assert!(admits(listed(&[&plain.cert]), None, &plain_owner.client()).is_err());
    let bad: [fn(&mut rcgen::CertificateParams); 3] = [
        |params| params.not_after = date_time_ymd(2020, 1, 1),
        |params| params.not_before = date_time_ymd(2999, 1, 1),
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
    ];
    for bad in bad {
        let (client, _) = Authority::own(bad);
        assert!(admits(listed(&[&client.cert]), None, &client).is_err());
    }
    let (any, _) = Authority::own(|params| params.extended_key_usages = vec![]);
    assert!(admits(listed(&[&any.cert]), None, &any).is_ok());
}

#[test]
fn a_critical_extension_that_is_not_understood_is_refused() {
    let (client, _) = Authority::own(|params| {
        let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    });
    assert!(admits(listed(&[&client.cert]), None, &client).is_err());
}

#[test]
fn each_kind_of_name_is_compared_letter_by_letter() {
    let authority = Authority::new("ca");
    let mut with =
        params(ExtendedKeyUsagePurpose::ClientAuth, &["prom.example.org", "192.0.2.7", "2001:db8::1"]);
    with.subject_alt_names.extend([
        SanType::Rfc822Name("ops@example.org".try_into().unwrap()),
        SanType::URI("spiffe://example.org/prom".try_into().unwrap()),
    ]);
    let client = authority.signed(&with);
    let admits = |name: &str| {
        let listed = || listed(&[&authority.pem()]);
        let any = admits(Trust::Any, Some(&["other", name]), &client).is_ok();
        assert_eq!(admits(listed(), Some(&["other", name]), &client).is_ok(), any);
        any
    };
    let good =
        ["prom.example.org", "192.0.2.7", "2001:db8::1", "ops@example.org", "spiffe://example.org/prom"];
    for name in good {
        assert!(admits(name), "{name}");
    }
    for name in ["Prom.example.org", "prom.example", "*.example.org", "192.0.2.70", "example.org", ""] {
        assert!(!admits(name), "{name}");
    }
    // The name does not replace the signature.
    let stranger = Authority::new("other").client_named(&["prom.example.org"]);
    assert!(
        super::tests::admits(listed(&[&authority.pem()]), Some(&["prom.example.org"]), &stranger).is_err()
    );
    let nameless = authority.client_named(&[]);
    assert!(
        super::tests::admits(listed(&[&authority.pem()]), Some(&["prom.example.org"]), &nameless).is_err()
    );
}

#[test]
fn damaged_certificates_are_read_or_refused() {
    let (client, _) = Authority::own(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let whole = der(&client.cert);
    let names = BTreeSet::from(["localhost".to_owned()]);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let verifier = ClientVerifier::new(Trust::Any, true, Some(names.clone()), &provider());
    for place in 0..whole.len() {
        let mut flipped = whole.to_vec();
        flipped[place] ^= 0x81;
        for bytes in [&flipped[..], &whole[..place], &[&whole[..], &[0]].concat()] {
            let damaged = CertificateDer::from(bytes);
            let _ = (may_sign(&damaged), is_valid(&damaged, Side::Client, now), has_name(&damaged, &names));
            let _ = verifier.verify_client_cert(&damaged, &[], now);
        }
        assert!(!has_name(&CertificateDer::from(&whole[..place]), &names), "{place}");
    }
    assert!(has_name(&whole, &names));
}
