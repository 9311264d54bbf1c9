//! Certificates, made for one test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// In PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self::with(params, KeyPair::generate().unwrap())
    }

    fn with(params: CertificateParams, key: KeyPair) -> Self {
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// A certificate that signs itself, and its owner as an authority. `change`: what differs from a client's.
    pub(crate) fn own(change: impl FnOnce(&mut CertificateParams)) -> (Pair, Self) {
        let mut params = params(ExtendedKeyUsagePurpose::ClientAuth, &["localhost"]);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let text = key.serialize_pem();
        let authority = Self::with(params, key);
        (Pair { cert: authority.pem(), key: text }, authority)
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For `localhost`.
    pub(crate) fn server(&self) -> Pair {
        self.signed(&params(ExtendedKeyUsagePurpose::ServerAuth, &["localhost"]))
    }

    pub(crate) fn client(&self) -> Pair {
        self.client_named(&["localhost"])
    }

    /// `names`: host names and addresses.
    pub(crate) fn client_named(&self, names: &[&str]) -> Pair {
        self.signed(&params(ExtendedKeyUsagePurpose::ClientAuth, names))
    }

    pub(crate) fn signed(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let cert = params.clone().signed_by(&key, &self.0).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }
}

pub(crate) fn params(usage: ExtendedKeyUsagePurpose, names: &[&str]) -> CertificateParams {
    let names = names.iter().map(|name| (*name).to_owned());
    let mut params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
    params.extended_key_usages = vec![usage];
    params
}
