//! Certificates made on the spot: good ones, expired ones, and of names nobody asked for.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;

/// A certificate authority of one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in PEM.
pub(crate) struct Pem {
    /// The certificate.
    pub(crate) certificate: String,
    /// Its key.
    pub(crate) key: String,
}

impl Authority {
    /// Makes one. Each has a key of its own, so none trusts another's certificates.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate in PEM, for `ca_file`.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server with a certificate for `name`.
    pub(crate) fn server(&self, name: &str) -> Arc<ServerConfig> {
        self.serve(name, false, false)
    }

    /// A server with a certificate for `name` that expired long ago.
    pub(crate) fn expired_server(&self, name: &str) -> Arc<ServerConfig> {
        self.serve(name, true, false)
    }

    /// A server that asks for a client certificate of this authority.
    pub(crate) fn asking_server(&self, name: &str) -> Arc<ServerConfig> {
        self.serve(name, false, true)
    }

    /// A client's certificate.
    pub(crate) fn client(&self) -> Pem {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        Pem {
            certificate: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn serve(&self, name: &str, expired: bool, asks: bool) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if asks {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(self.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![certificate.der().clone()];
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}
