//! The process that sends records (`kfd-trace otlp-sender`), against servers of HTTP/1.1 and gRPC: here is the daemon's side.

use axum::body::Body;
use flate2::read::GzDecoder;
use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fs;
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// A request, as the server got it.
#[derive(Debug)]
struct Got {
    version: hyper::Version,
    uri: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// What the server answers.
#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    /// With trailers.
    Grpc(&'static str),
    Never,
}

/// A body with trailers.
struct Trailed(Option<Bytes>, Option<HeaderMap>);

impl hyper::body::Body for Trailed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.0.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.1.take().map(Frame::trailers)).map(Ok))
    }
}

async fn respond(request: Request<Incoming>, answer: Answer, got: Sender<Got>) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        bytes.extend(frame.expect("a frame").into_data().unwrap_or_default());
    }
    let uri = parts.uri.to_string();
    got.send(Got { version: parts.version, uri, headers: parts.headers, body: bytes }).expect("taken");
    let mut response = match answer {
        Answer::Status(_) => Response::new(Body::empty()),
        Answer::Never => std::future::pending().await,
        Answer::Grpc(status) => {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.parse().expect("a header"));
            trailers.insert("grpc-message", "go%20away".parse().expect("a header"));
            Response::new(Body::new(Trailed(Some(Bytes::from_static(&[0; 5])), Some(trailers))))
        }
    };
    if let Answer::Status(status) = answer {
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    }
    response
}

/// Serves one connection.
fn serve(answer: Answer, tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let (sender, got) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (stream, _) = listener.accept().expect("accepted");
            stream.set_nonblocking(true).expect("set");
            let stream = tokio::net::TcpStream::from_std(stream).expect("a stream");
            let service = service_fn(|request| {
                let got = sender.clone();
                async move { Ok::<_, Infallible>(respond(request, answer, got).await) }
            });
            let server = Builder::new(TokioExecutor::new());
            // A client that goes away is no error of the test.
            let _ = match tls {
                None => server.serve_connection(TokioIo::new(stream), service).await,
                Some(config) => match TlsAcceptor::from(config).accept(stream).await {
                    Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => Ok(()),
                },
            };
        });
    });
    (address, got)
}

/// The process, and the socket by which it gets what to send.
struct Sending {
    child: Child,
    control: UnixStream,
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sending {
    fn start(address: SocketAddr, more: &Value) -> Self {
        let (control, theirs) = UnixStream::pair().expect("a pair");
        control.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let connection = TcpStream::connect(address).expect("connected");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-trace"));
        command.arg("otlp-sender").stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(connection));
        let child = command.spawn().expect("started");
        drop(command);
        let mut sending = Sending { child, control };
        let mut way = json!({
            "tls": false, "host": "localhost", "port": address.port(), "authority": format!("localhost:{}", address.port()),
            "path": "/v1/logs", "protocol": "Http", "headers": [["x-tenant", "gpu"]], "gzip": false, "timeout_ms": 20_000,
            "authorities": null, "cert": null, "key": null,
        });
        let more = more.as_object().expect("an object").clone();
        way.as_object_mut().expect("an object").extend(more);
        sending.tell(&serde_json::to_vec(&way).expect("JSON"));
        sending
    }

    fn tell(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("short").to_le_bytes();
        self.control.write_all(&[&length, bytes].concat()).expect("written");
    }

    fn said(&mut self) -> Value {
        let mut length = [0; 4];
        self.control.read_exact(&mut length).expect("an answer");
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        self.control.read_exact(&mut text).expect("an answer");
        serde_json::from_slice(&text).expect("JSON")
    }
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).expect("gzip");
    text
}

/// A certificate of localhost in this folder, and a server's settings with it.
fn certificate(folder: &Path, alpn: &[u8]) -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    fs::write(folder.join("ca.pem"), made.cert.pem()).expect("written");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth();
    let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("a certificate");
    config.alpn_protocols = vec![alpn.to_vec()];
    Arc::new(config)
}

#[test]
fn by_http_each_batch_is_a_request_and_its_status_the_verdict() {
    let (address, got) = serve(Answer::Status(200), None);
    let mut sending = Sending::start(address, &json!({}));
    assert_eq!(sending.said(), json!("Ready"));
    for body in [b"first".to_vec(), vec![7; 3 << 20]] {
        sending.tell(&body);
        assert_eq!(sending.said(), json!({ "Of": { "Taken": { "refused": 0, "why": null } } }));
        let request = got.recv().expect("a request");
        assert!(request.body == body && request.uri == "/v1/logs", "{} {}", request.uri, request.body.len());
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert_eq!((request.header("x-tenant"), request.header("content-encoding")), (Some("gpu"), None));
    }
    let (address, got) = serve(Answer::Status(503), None);
    let mut sending = Sending::start(address, &json!({ "gzip": true }));
    assert_eq!(sending.said(), json!("Ready"));
    sending.tell(b"again");
    assert_eq!(sending.said(), json!({ "Of": { "Again": { "why": "HTTP status 503", "after": null } } }));
    let request = got.recv().expect("a request");
    assert_eq!(request.header("content-encoding"), Some("gzip"));
    assert_eq!(unzipped(&request.body), b"again");
}

#[test]
fn by_grpc_over_tls_the_trailers_are_the_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
    let way = json!({
        "tls": true, "protocol": "Grpc", "path": path, "gzip": true, "authorities": folder.path().join("ca.pem"),
    });
    for (status, verdict) in [
        ("0", json!({ "Taken": { "refused": 0, "why": null } })),
        ("14", json!({ "Again": { "why": "gRPC status 14: go away", "after": null } })),
        ("3", json!({ "Refused": "gRPC status 3: go away" })),
    ] {
        let (address, got) = serve(Answer::Grpc(status), Some(certificate(folder.path(), b"h2")));
        let mut sending = Sending::start(address, &way);
        assert_eq!(sending.said(), json!("Ready"));
        sending.tell(b"a message");
        assert_eq!(sending.said(), json!({ "Of": verdict }), "{status}");
        let request = got.recv().expect("a request");
        assert_eq!(request.version, hyper::Version::HTTP_2);
        assert_eq!(request.uri, format!("https://localhost:{}{path}", address.port()));
        let headers = ["content-type", "te", "grpc-encoding"].map(|name| request.header(name));
        assert_eq!(headers, [Some("application/grpc"), Some("trailers"), Some("gzip")]);
        let (prefix, message) = request.body.split_at(5);
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        assert_eq!(prefix, [&[1][..], &length].concat());
        assert_eq!(unzipped(message), b"a message");
    }
}

#[test]
fn a_server_that_is_not_trusted_or_does_not_answer_is_named() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let served = certificate(folder.path(), b"http/1.1");
    certificate(other.path(), b"");
    let broken = |said: &Value| said["Of"]["Broken"].as_str().map(str::to_owned).unwrap_or_default();
    let (address, _got) = serve(Answer::Status(200), Some(Arc::clone(&served)));
    let mut sending =
        Sending::start(address, &json!({ "tls": true, "authorities": other.path().join("ca.pem") }));
    let why = broken(&sending.said());
    assert!(why.starts_with("TLS: invalid peer certificate"), "{why}");
    let (address, _got) = serve(Answer::Status(200), Some(served));
    let mut sending = Sending::start(address, &json!({ "tls": true, "authorities": "/nowhere/ca.pem" }));
    let why = broken(&sending.said());
    assert!(why.starts_with("/nowhere/ca.pem cannot be read"), "{why}");
    let (address, _got) = serve(Answer::Never, None);
    let mut sending = Sending::start(address, &json!({ "timeout_ms": 300 }));
    assert_eq!(sending.said(), json!("Ready"));
    sending.tell(b"x");
    assert_eq!(broken(&sending.said()), "no response within 300 ms");
}

#[test]
fn it_holds_no_capability_and_ends_with_its_daemon_or_its_connection() {
    let (address, _got) = serve(Answer::Status(200), None);
    let mut sending = Sending::start(address, &json!({}));
    assert_eq!(sending.said(), json!("Ready"));
    let status = fs::read_to_string(format!("/proc/{}/status", sending.child.id())).expect("a status");
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    assert_eq!(line("Name"), "kfd-trace-otlp");
    assert_eq!((line("Seccomp"), line("NoNewPrivs")), ("2".to_owned(), "1".to_owned()));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&line(set), 16), Ok(0), "{set}");
    }
    sending.control.shutdown(std::net::Shutdown::Write).expect("shut down");
    assert!(sending.child.wait().expect("ended").success());
    // Closed by the server, as after a while.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let mut sending = Sending::start(listener.local_addr().expect("an address"), &json!({}));
    assert_eq!(sending.said(), json!("Ready"));
    drop(listener.accept().expect("accepted"));
    assert!(sending.child.wait().expect("ended").success());
}
