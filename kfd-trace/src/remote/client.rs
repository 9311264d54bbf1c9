//! One connection to a daemon, made again where it is lost. In: a path. Out: a body of bounded size, in bounded time.

use super::access::Access;
use super::failure::Failure;
use axum::body::Body;
use headers::{Authorization, HeaderMapExt as _};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// A host that accepts no connection in this time does not at all.
const CONNECT: Duration = Duration::from_secs(5);

/// Bytes that are read of a document that explains an error.
const REASON: usize = 64 << 10;

/// Reads documents.
#[derive(Debug)]
pub struct Client {
    access: Access,
    open: Option<Connection>,
    /// Bytes of all documents together, and how many were read.
    most: usize,
    read: usize,
}

/// Ends when it is dropped.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    #[must_use]
    pub fn new(access: Access) -> Self {
        Client { access, open: None, most: usize::MAX, read: 0 }
    }

    /// All documents together may have no more bytes.
    #[must_use]
    pub fn at_most(self, bytes: usize) -> Self {
        Client { most: bytes, ..self }
    }

    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The document at a path of the daemon; `limit`: its bytes at most.
    ///
    /// # Errors
    /// Why there is none. The next call connects again.
    pub async fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, Failure> {
        let max_time = self.access.max_time;
        let left = self.most.saturating_sub(self.read);
        let body = timeout(max_time, self.document(path, limit.min(left))).await;
        match body.unwrap_or(Err(Failure::Silent(max_time))) {
            Ok(body) => {
                self.read = self.read.saturating_add(body.len());
                Ok(body)
            }
            Err(failure) => {
                self.open = None;
                Err(if failure == Failure::TooLarge(left) { Failure::TooLarge(self.most) } else { failure })
            }
        }
    }

    async fn document(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, Failure> {
        let mut response = self.response(path).await?;
        let status = response.status();
        if status == StatusCode::OK {
            return body(response.body_mut(), limit).await;
        }
        if status.is_redirection() {
            let location = response.headers().get(LOCATION).map(hyper::header::HeaderValue::as_bytes);
            let location = location.map(|place| String::from_utf8_lossy(place).into_owned());
            return Err(Failure::Redirect(location.unwrap_or_default()));
        }
        let body = body(response.body_mut(), REASON).await.ok();
        let reason = body.and_then(|body| serde_json::from_slice::<Reason>(&body).ok());
        Err(reason.map_or(Failure::Status(status.as_u16(), None), |reason| reason.failure(status)))
    }

    /// On the open connection, or on a new one where the daemon has closed it meanwhile.
    async fn response(&mut self, path: &str) -> Result<Response<Incoming>, Failure> {
        if let Some(open) = &mut self.open
            && open.sender.ready().await.is_ok()
            && let Ok(response) = open.sender.send_request(self.access.request(path)?).await
        {
            return Ok(response);
        }
        let request = self.access.request(path)?;
        let open = self.open.insert(self.access.connect().await?);
        open.sender.send_request(request).await.map_err(Failure::of_http)
    }
}

impl Access {
    fn request(&self, path: &str) -> Result<Request<Body>, Failure> {
        let builder = Request::get(format!("{}{path}", self.target.prefix))
            .header(HOST, self.target.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("kfd-trace/", env!("CARGO_PKG_VERSION")));
        let mut request = builder.body(Body::empty()).map_err(|error| Failure::Broken(error.to_string()))?;
        if let Some((user, password)) = &self.login {
            request.headers_mut().typed_insert(Authorization::basic(user, password.text()));
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let stream = self.stream().await?;
        let Some(trust) = &self.trust else { return talk(stream).await };
        let name = ServerName::try_from(self.target.host.clone());
        let name = name.map_err(|error| Failure::NameNotFound(error.to_string()))?;
        let connector = TlsConnector::from(trust.config.clone());
        talk(connector.connect(name, stream).await.map_err(|error| Failure::of_io(&error))?).await
    }

    async fn stream(&self) -> Result<TcpStream, Failure> {
        let place = (self.target.host.as_str(), self.target.port());
        let found = lookup_host(place).await.map_err(|error| Failure::NameNotFound(error.to_string()))?;
        let addresses: Vec<SocketAddr> = found.collect();
        // Of an address that nobody has, the others are still tried.
        let each = CONNECT / u32::try_from(addresses.len().clamp(1, 5)).unwrap_or(1);
        let mut failure = Failure::NameNotFound("it has no address".to_owned());
        for address in addresses {
            failure = match timeout(each, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Failure::Refused,
                Ok(Err(error)) => Failure::Unreachable(error.to_string()),
                Err(_) => Failure::NoConnection(CONNECT),
            };
        }
        Err(failure)
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Connection, Failure> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(Failure::of_http)?;
    // Its error is that of the request, too.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(Connection { sender, task })
}

async fn body(body: &mut Incoming, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    if body.size_hint().lower() > limit as u64 {
        return Err(Failure::TooLarge(limit));
    }
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        let frame = frame.map_err(Failure::of_http)?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(Failure::TooLarge(limit));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// What a body says about an error.
#[derive(Deserialize)]
struct Reason {
    error: String,
    /// Of the API alone: gateways have an `error`, too.
    schema: Option<u64>,
}

impl Reason {
    fn failure(self, status: StatusCode) -> Failure {
        match self.schema {
            Some(_) if status == StatusCode::SERVICE_UNAVAILABLE => Failure::NotTraced(self.error),
            Some(_) if status == StatusCode::BAD_REQUEST => Failure::BadRequest(self.error),
            _ => Failure::Status(status.as_u16(), Some(self.error)),
        }
    }
}
