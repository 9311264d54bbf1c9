//! A server with small pages, and clients of it.

use super::authority::{Authority, Pair};
use crate::serve::web::listen::bind;
use crate::serve::web::names::Names;
use crate::serve::web::serve::{ClientLimits, Site, serve_within};
use crate::serve::web::settings::{Loaded, Settings, SettingsSource, follow, put_in_force};
use crate::serve::web::tally::{WebEvent, WebTally};
use axum::Router;
use axum::routing::get;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Size of the page `/long`.
pub(super) const LONG: usize = 16 << 20;

pub(crate) struct Server {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) task: JoinHandle<io::Result<()>>,
    tally: Arc<WebTally>,
    folder: TempDir,
    in_force: Arc<watch::Sender<Arc<Settings>>>,
    /// Its end ends the checks of the files.
    _follows: mpsc::Sender<()>,
}

impl Server {
    /// Plain HTTP.
    pub(super) fn plain(limits: ClientLimits) -> Self {
        Self::with(limits, "", &[])
    }

    /// `config`: the text of its configuration; `files`: the files that it names.
    pub(super) fn with(limits: ClientLimits, config: &str, files: &[(&str, &str)]) -> Self {
        Self::try_with(limits, config, files).unwrap_or_else(|line| panic!("{line}"))
    }

    /// An error: why the configuration is refused.
    pub(super) fn try_with(
        limits: ClientLimits,
        config: &str,
        files: &[(&str, &str)],
    ) -> Result<Self, String> {
        let folder = written(config, files);
        let (source, loaded) = SettingsSource::open(&folder.path().join("web.yml"))?;
        let pages = Router::new()
            .route("/", get(async || "served\n"))
            .route("/long", get(async || "x".repeat(LONG)))
            .route("/never", get(async || std::future::pending::<()>().await));
        Ok(Self::start(limits, loaded, source, folder, pages))
    }

    /// With other pages, and the usual limits.
    pub(crate) fn serving(pages: Router, config: &str, files: &[(&str, &str)]) -> Self {
        let folder = written(config, files);
        let opened = SettingsSource::open(&folder.path().join("web.yml"));
        let (source, loaded) = opened.unwrap_or_else(|line| panic!("{line}"));
        Self::start(ClientLimits::default(), loaded, source, folder, pages)
    }

    fn start(
        limits: ClientLimits,
        loaded: Loaded,
        source: SettingsSource,
        folder: TempDir,
        pages: Router,
    ) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = bind(&[any, any], "").expect("free ports");
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let (sender, in_force) = watch::channel(Arc::default());
        put_in_force(&loaded.files, &sender).unwrap();
        let (follows, end) = mpsc::channel();
        let in_force_now = Arc::new(sender);
        let sender = Arc::clone(&in_force_now);
        thread::spawn(move || {
            follow(source, loaded.settings, &end, |files| put_in_force(&files, &sender).unwrap());
        });
        let tally = Arc::new(WebTally::default());
        let site = Site { pages, names: Names::new("x", &[]), most: 128 };
        let task = tokio::spawn(serve_within(limits, Arc::clone(&tally), listeners, site, in_force, stopped));
        Server { addresses, stop: Some(stop), task, tally, folder, in_force: in_force_now, _follows: follows }
    }

    /// How often the event was counted.
    pub(super) fn count(&self, event: WebEvent) -> u64 {
        self.tally.counts()[event as usize]
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts another configuration in force at once: where the clock is paused, none that was written is ever found.
    pub(super) fn put(&self, config: &str) {
        std::fs::write(self.path("web.yml"), config).unwrap();
        let loaded = SettingsSource::open(&self.path("web.yml")).unwrap_or_else(|line| panic!("{line}")).1;
        put_in_force(&loaded.files, &self.in_force).unwrap();
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addresses[0]).await.expect("connected")
    }

    /// `own`: the client's certificate.
    pub(super) async fn handshake(
        &self,
        trusted: &Authority,
        own: Option<&Pair>,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.handshake_for(trusted, own, &[]).await
    }

    /// `provider`: what the client offers.
    pub(super) async fn handshake_by(
        &self,
        trusted: &Authority,
        own: Option<&Pair>,
        provider: CryptoProvider,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.connect_tls(client(trusted, own, provider)).await
    }

    pub(super) async fn handshake_for(
        &self,
        trusted: &Authority,
        own: Option<&Pair>,
        protocols: &[&[u8]],
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut config = client(trusted, own, ring::default_provider());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        self.connect_tls(config).await
    }

    async fn connect_tls(&self, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::new(config))
            .connect("localhost".try_into().unwrap(), self.connect().await)
            .await
    }

    /// The response of `/` over plain HTTP.
    pub(super) async fn get(&self) -> String {
        request(self.connect().await, "/", "").await.expect("an answer")
    }

    /// The same over TLS.
    pub(super) async fn get_tls(&self, trusted: &Authority, own: Option<&Pair>) -> io::Result<String> {
        request(self.handshake(trusted, own).await?, "/", "").await
    }
}

fn written(config: &str, files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files.iter().chain(&[("web.yml", config)]) {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn client(trusted: &Authority, own: Option<&Pair>, provider: CryptoProvider) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let Some(pair) = own else { return builder.with_no_client_auth() };
    let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    // Not by `with_client_auth_cert`: that one refuses a key that is not of this certificate.
    let key = ring::sign::any_supported_type(&key).unwrap();
    let own = CertifiedKey::new(vec![cert], key);
    builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
}

/// `headers`: lines that end in CRLF. Returns the whole response.
pub(super) async fn request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    headers: &str,
) -> io::Result<String> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer).await {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(answer),
        Err(error) => Err(error),
    }
}

/// Waits until the other side has closed it; returns how much came before.
pub(super) async fn closed(mut stream: impl AsyncRead + Unpin) -> usize {
    let (mut part, mut length) = (vec![0; 64 << 10], 0);
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return length,
            Ok(count) => length += count,
        }
    }
}
