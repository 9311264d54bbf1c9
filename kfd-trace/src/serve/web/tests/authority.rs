//! Certificates, made for one test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

pub(in crate::serve::web) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// In PEM.
#[derive(Clone)]
pub(in crate::serve::web) struct Pair {
    pub(in crate::serve::web) cert: String,
    pub(in crate::serve::web) key: String,
}

impl Authority {
    pub(in crate::serve::web) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(in crate::serve::web) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For `localhost`.
    pub(in crate::serve::web) fn server(&self) -> Pair {
        self.signed(ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(in crate::serve::web) fn client(&self) -> Pair {
        self.signed(ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn signed(&self, usage: ExtendedKeyUsagePurpose) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }
}
