//! The process that sends: one a connection. On its standard input, a socket, it gets where and how to send, then batches;
//! its standard output is the connection. The tracer's process looks up the host and connects.
//!
//! So what a collector responds is read by a process without a capability, that opens no file and starts no other.

use super::settings::{Protocol, Way};
use super::verdict::{Grpc, Verdict, of_grpc, of_http};
use crate::probes::error::chain;
use crate::remote::{Trust, TrustOptions};
use crate::runtime::confine::stream::UntilDropped;
use crate::runtime::confine::{self, confine};
use crate::runtime::exit::Stop;
use crate::runtime::frames::{read_frame, write_frame};
use crate::runtime::signals::{Hangups, Signals};
use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TE, USER_AGENT,
};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::io::dup;
use rustix::thread::set_name;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::thread;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The process's name: 15 bytes at most.
const NAME: &CStr = c"kfd-trace-otlp";

/// It opens none once it is confined.
const DESCRIPTORS: u64 = 0;

/// A request has some 1 MiB.
const LONGEST_REQUEST: u32 = 64 << 20;

/// Where and how to send, which comes first.
const LONGEST_WAY: u32 = 1 << 20;

/// Bytes that are read of a response.
const LONGEST_RESPONSE: usize = 1 << 20;

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// Batches may come.
    Ready,
    /// Of the last batch; or why there is no connection.
    Of(Verdict),
}

/// Sends what it is given, until that ends.
///
/// # Errors
/// If it was not started by a daemon; if it cannot give up what it must not have.
pub fn run() -> io::Result<()> {
    confine::close_inherited()?;
    set_name(NAME)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(async {
        // The daemon ends this process; a terminal and a service manager send signals to both.
        let _deaf = (Signals::of_a_daemon()?, Hangups::new()?);
        send().await
    });
    runtime.shutdown_background();
    sent
}

async fn send() -> io::Result<()> {
    let mut control = UnixStream::from(dup(io::stdin().as_fd())?);
    let way = read_frame(&mut control, LONGEST_WAY).and_then(|way| Ok(serde_json::from_slice::<Way>(&way)?));
    let way =
        way.map_err(|error| io::Error::other(format!("only `kfd-trace daemon` starts this: {error}")))?;
    let (to_read, stream) = (control.try_clone()?, TcpStream::from(dup(io::stdout().as_fd())?));
    stream.set_nonblocking(true)?;
    let trust = way.tls.then(|| trust(&way)).transpose();
    let confined = confine(way.seccomp, DESCRIPTORS, || requests(to_read));
    let mut requests = match confined {
        Ok((requests, _)) => requests,
        Err(error) => return say(&mut control, &Said::Of(Verdict::Broken(error.to_string()))),
    };
    let connected = match trust {
        Ok(trust) => {
            let stream = UntilDropped(tokio::net::TcpStream::from_std(stream)?);
            timeout(way.timeout(), connect(&way, stream, trust)).await
        }
        Err(line) => Ok(Err(line)),
    };
    let mut connection = match connected.unwrap_or_else(|_| Err(slow(&way))) {
        Ok(connection) => connection,
        Err(why) => return say(&mut control, &Said::Of(Verdict::Broken(why))),
    };
    say(&mut control, &Said::Ready)?;
    loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            // The daemon makes another one when it needs it, and learns why then.
            ended = &mut connection.task => {
                if let Ok(Some(why)) = ended {
                    say(&mut control, &Said::Of(Verdict::Broken(why)))?;
                }
                None
            }
        };
        let Some(request) = request else { return Ok(()) };
        let attempt = timeout(way.timeout(), connection.attempt(&way, request)).await;
        let verdict = attempt.unwrap_or_else(|_| Err(slow(&way))).unwrap_or_else(Verdict::Broken);
        say(&mut control, &Said::Of(verdict))?;
    }
}

fn slow(way: &Way) -> String {
    format!("no response within {} ms", way.timeout_ms)
}

fn say(control: &mut UnixStream, said: &Said) -> io::Result<()> {
    write_frame(control, &serde_json::to_vec(said)?)
}

/// Reads requests in a thread, since they come by a blocking socket, and the connection needs this one meanwhile.
fn requests(mut control: UnixStream) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, requests) = mpsc::channel(1);
    thread::Builder::new().name("requests".to_owned()).spawn(move || {
        while let Ok(request) = read_frame(&mut control, LONGEST_REQUEST) {
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
    })?;
    Ok(requests)
}

fn trust(way: &Way) -> Result<Trust, String> {
    let options = TrustOptions {
        authorities: way.authorities.as_deref(),
        cert: way.cert.as_deref(),
        key: way.key.as_deref(),
        insecure: false,
    };
    let own = |stop: Stop| stop.line.replace("give --cacert FILE", "set OTEL_EXPORTER_OTLP_CERTIFICATE");
    let trust = Trust::read(&options).map_err(own)?;
    Ok(match way.protocol {
        Protocol::Http => trust,
        Protocol::Grpc => trust.for_http2(),
    })
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

struct Connection {
    sender: Sender,
    /// Why it ended, if by an error.
    task: JoinHandle<Option<String>>,
}

async fn connect(
    way: &Way,
    stream: UntilDropped<tokio::net::TcpStream>,
    trust: Option<Trust>,
) -> Result<Connection, String> {
    let Some(trust) = trust else { return talk(way, stream).await };
    let name = ServerName::try_from(way.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(trust.settings()).connect(name, stream).await;
    talk(way, stream.map_err(|error| format!("TLS: {error}"))?).await
}

async fn talk(
    way: &Way,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Connection, String> {
    let stream = TokioIo::new(stream);
    let (sender, task) = match way.protocol {
        Protocol::Http => {
            let (sender, connection) = http1::handshake(stream).await.map_err(|error| chain(&error))?;
            (
                Sender::One(sender),
                tokio::spawn(async move { connection.await.err().map(|error| chain(&error)) }),
            )
        }
        Protocol::Grpc => {
            let made = http2::handshake(TokioExecutor::new(), stream).await;
            let (sender, connection) = made.map_err(|error| chain(&error))?;
            (
                Sender::Two(sender),
                tokio::spawn(async move { connection.await.err().map(|error| chain(&error)) }),
            )
        }
    };
    Ok(Connection { sender, task })
}

impl Connection {
    /// `Err`: the connection is lost.
    async fn attempt(&mut self, way: &Way, message: Vec<u8>) -> Result<Verdict, String> {
        let request = match request(way, message) {
            Ok(request) => request,
            // A batch that no request can carry must not stop the others.
            Err(why) => return Ok(Verdict::Refused(why)),
        };
        let sent = match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await.map_err(|error| chain(&error))?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                sender.ready().await.map_err(|error| chain(&error))?;
                sender.send_request(request).await
            }
        };
        let mut response = sent.map_err(|error| chain(&error))?;
        let (body, trailers) = read(&mut response).await?;
        let status = response.status().as_u16();
        let headers = response.headers();
        Ok(match way.protocol {
            Protocol::Http => {
                let of = |name: HeaderName| text(headers, name.as_str());
                of_http(status, of(RETRY_AFTER), of(CONTENT_TYPE), &body)
            }
            Protocol::Grpc => {
                let of =
                    |name| trailers.as_ref().and_then(|map| text(map, name)).or_else(|| text(headers, name));
                let said = Grpc {
                    code: of("grpc-status"),
                    message: of("grpc-message"),
                    details: of("grpc-status-details-bin"),
                };
                of_grpc(status, said, &body)
            }
        })
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The body, cut where it is too long for a collector's, and the trailers.
async fn read(response: &mut Response<Incoming>) -> Result<(Vec<u8>, Option<HeaderMap>), String> {
    let (mut bytes, mut trailers) = (Vec::new(), None);
    let body = response.body_mut();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        let frame = frame.map_err(|error| chain(&error))?;
        match frame.into_data() {
            // The rest says nothing more of the verdict.
            Ok(_) if bytes.len() > LONGEST_RESPONSE => break,
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((bytes, trailers))
}

fn request(way: &Way, message: Vec<u8>) -> Result<Request<Body>, String> {
    let packed = if way.gzip { zipped(&message).map_err(|error| error.to_string())? } else { message };
    let mut builder =
        Request::post(target(way)?).header(USER_AGENT, concat!("kfd-trace/", env!("CARGO_PKG_VERSION")));
    let body = match way.protocol {
        Protocol::Http => {
            builder = builder.header(HOST, &way.authority).header(CONTENT_TYPE, "application/x-protobuf");
            if way.gzip {
                builder = builder.header(CONTENT_ENCODING, "gzip");
            }
            packed
        }
        Protocol::Grpc => {
            builder = builder.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
            if way.gzip {
                builder = builder.header("grpc-encoding", "gzip");
            }
            let length = u32::try_from(packed.len()).map_err(|error| error.to_string())?;
            let mut framed = Vec::with_capacity(packed.len() + 5);
            framed.push(way.gzip.into());
            framed.extend_from_slice(&length.to_be_bytes());
            framed.extend_from_slice(&packed);
            framed
        }
    };
    let mut request = builder.body(Body::from(body)).map_err(|error| error.to_string())?;
    for (name, value) in &way.headers {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        let mut value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// HTTP/1.1 has the path alone in its first line, HTTP/2 makes its pseudo headers of the whole.
fn target(way: &Way) -> Result<Uri, String> {
    let text = match way.protocol {
        Protocol::Http => way.path.clone(),
        Protocol::Grpc => {
            let scheme = if way.tls { "https" } else { "http" };
            format!("{scheme}://{}{}", way.authority, way.path)
        }
    };
    text.parse::<Uri>().map_err(|error| error.to_string())
}

fn zipped(message: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(message.len() / 4), Compression::fast());
    encoder.write_all(message)?;
    encoder.finish()
}
