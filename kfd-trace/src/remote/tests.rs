//! The client with the daemon's own server, and with servers that are none.

mod tls;

use super::*;
use crate::output::api::{ApiQuery, Refusal, Resource};
use crate::output::metrics::Format;
use crate::output::page::Place;
use crate::output::reported::tests::Served;
use crate::output::top::tests::{attached, moments};
use crate::runtime::exit::Stop;
use crate::serve::question::PageSource;
use crate::serve::router::router;
use crate::serve::web::tests::harness::Server;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The daemon's pages, of a moment.
pub(crate) struct Site {
    pub(crate) served: Served,
    /// Nothing is traced.
    pub(crate) why_not: Option<String>,
}

impl PageSource for Site {
    fn metrics(&self, _: Format) -> Result<String, String> {
        Err("none".to_owned())
    }

    fn page(&self, _: Place, _: &[(String, String)]) -> Result<String, Refusal> {
        Err(Refusal::Failed("none".to_owned()))
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        ApiQuery::new(resource, pairs).map_err(Refusal::Bad)?;
        let live = |text: &String| self.ready().map_err(Refusal::NotTraced).map(|()| text.clone());
        match resource {
            Resource::Queues => live(&self.served.queues),
            Resource::Processes => live(&self.served.processes),
            Resource::Gpus => live(&self.served.gpus),
            Resource::Status => Ok(self.served.status.clone()),
            Resource::Events => Ok(self.served.events.clone()),
            Resource::Memory | Resource::Doctor => Err(Refusal::Failed("none".to_owned())),
        }
    }

    fn ready(&self) -> Result<(), String> {
        self.why_not.clone().map_or(Ok(()), Err)
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

pub(crate) fn site(why_not: Option<&str>) -> Site {
    let mut moment = moments().next().expect("one");
    moment.why_not = why_not.map(str::to_owned);
    Site { served: Served::of(&moment, &attached()), why_not: moment.why_not }
}

fn serving(config: &str, files: &[(&str, &str)]) -> Server {
    Server::serving(router(Arc::new(site(None))), config, files)
}

fn url(scheme: &str, host: &str, server: &Server) -> String {
    format!("{scheme}://{host}:{}", server.addresses[0].port())
}

fn options(url: String) -> AccessOptions {
    AccessOptions {
        url: Secret::new(url),
        user: None,
        password_file: None,
        cacert: None,
        cert: None,
        key: None,
        insecure: false,
        max_time: Duration::from_secs(10),
    }
}

/// How many queues there are, or the line.
async fn queues(options: &AccessOptions) -> Result<usize, Stop> {
    let access = Access::open(options)?;
    let lists = Client::new(access.clone()).lists().await.map_err(|failure| failure.stop(&access))?;
    Ok(lists.queues.queues.len())
}

/// The line of a failure, with the exit code 1.
async fn refused(options: &AccessOptions) -> String {
    let stop = queues(options).await.expect_err("refused");
    assert_eq!((stop.code, stop.line.lines().count()), (1, 1), "{stop:?}");
    stop.line
}

const ALL: usize = 7;

fn hash(password: &str) -> String {
    bcrypt::hash(password, 4).expect("a hash")
}

#[tokio::test]
async fn a_daemon_is_read_over_http_as_anybody() {
    let server = serving("", &[]);
    assert_eq!(queues(&options(url("http", "127.0.0.1", &server))).await, Ok(ALL));
    let without_scheme = format!("localhost:{}/", server.addresses[0].port());
    assert_eq!(queues(&options(without_scheme)).await, Ok(ALL));
    let access = Access::open(&options(url("http", "127.0.0.1", &server))).expect("access");
    let mut client = Client::new(access);
    for _ in 0..3 {
        let documents = client.documents(2).await.expect("documents");
        assert!(documents.lists.is_ok() && documents.status.why_not().is_none());
    }
}

#[tokio::test]
async fn a_password_is_right_wrong_or_missing() {
    let server = serving(&format!("basic_auth_users:\n  ann: {}\n", hash("wön:der")), &[]);
    let open = options(url("http", "127.0.0.1", &server));
    let user = |text: &str| AccessOptions { user: Some(Login::of_option(text)), ..open.clone() };
    assert_eq!(queues(&user("ann:wön:der")).await, Ok(ALL));
    let in_url = url("http", "ann:w%C3%B6n%3Ader@127.0.0.1", &server);
    assert_eq!(queues(&options(in_url)).await, Ok(ALL));
    let line = refused(&user("ann:s3cret")).await;
    assert!(line.ends_with("refuses the login (401); check user and password"), "{line}");
    assert!(!line.contains("s3cret"), "{line}");
    let line = refused(&options(url("http", "ann:s3cret@127.0.0.1", &server))).await;
    assert!(!line.contains("s3cret") && !line.contains("ann"), "{line}");
    let line = refused(&open).await;
    assert!(line.ends_with("(401); give a user by --user NAME"), "{line}");
}

/// A server that answers each connection in the same way, if at all. Returns its URL and what it received.
async fn answering(answer: Option<Vec<u8>>) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut kept: Vec<TcpStream> = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&head[..length]).into_owned());
            match &answer {
                Some(answer) => drop(stream.write_all(answer).await),
                None => kept.push(stream),
            }
        }
    });
    (url, received)
}

fn response(status: &str, headers: &str, body: &str) -> Option<Vec<u8>> {
    let length = body.len();
    Some(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes())
}

async fn line_of(answer: Option<Vec<u8>>) -> String {
    let (url, _received) = answering(answer).await;
    refused(&options(url)).await
}

#[tokio::test]
async fn each_status_is_one_line_with_what_to_do() {
    for (status, body, words) in [
        ("403 Forbidden", "", "it denies access (403); ask who runs it"),
        ("404 Not Found", "<html>", "no kfd-trace daemon is there (404); check port and path"),
        ("421 Misdirected Request", "", "start the daemon with --web.allowed-host 127.0.0.1"),
        ("429 Too Many Requests", "", "raise rate_limit"),
        ("500 x", r#"{"error": "why \u001b[2J"}"#, "with status 500: why \\u{1b}[2J; "),
        (
            "503 x",
            r#"{"error": "no healthy upstream"}"#,
            "with status 503: no healthy upstream; check the daemon, or",
        ),
        ("503 x", "not ready: starting", "it is not ready (503); see `kfd-trace status`"),
        ("200 OK", "<html>", "no document of kfd-trace's API: "),
        ("200 OK", r#"{"schema": 7}"#, "version 7 of the API, and this is for 1; use the kfd-trace of"),
    ] {
        let line = line_of(response(status, "", body)).await;
        assert!(line.starts_with("http://127.0.0.1:") && line.contains(words), "{status}: {line}");
    }
    let line = line_of(Some(b"SSH-2.0-x\r\n\r\n".to_vec())).await;
    assert!(line.contains("it does not speak HTTP; "), "{line}");
    let line = line_of(Some(Vec::new())).await;
    assert!(line.contains("the connection broke: "), "{line}");
}

#[tokio::test]
async fn a_daemon_that_traces_nothing_is_no_failure_of_the_connection() {
    let server = Server::serving(router(Arc::new(site(Some("no amdgpu driver")))), "", &[]);
    let options = options(url("http", "127.0.0.1", &server));
    let stop = queues(&options).await.expect_err("nothing is traced");
    assert_eq!(stop.code, crate::runtime::exit::NOTHING_TO_TRACE);
    assert!(stop.line.contains("nothing is traced there: no amdgpu driver"), "{stop:?}");
    let mut client = Client::new(Access::open(&options).expect("access"));
    let documents = client.documents(2).await.expect("documents");
    assert_eq!(documents.lists.err().as_deref(), Some("no amdgpu driver"));
}

#[tokio::test]
async fn a_redirect_gets_no_password() {
    let (elsewhere, mut received) = answering(response("200 OK", "", "{}")).await;
    for status in ["301 x", "302 x", "307 x", "308 x"] {
        let headers = format!("Location: {elsewhere}/api/v1/queues\u{9b}\r\n");
        let (url, mut own) = answering(response(status, &headers, "")).await;
        let user = Some(Login::of_option("ann:s3cret"));
        let line = refused(&AccessOptions { user, ..options(url) }).await;
        assert!(
            line.contains("it redirects to http://127.0.0.1:") && line.contains("not followed"),
            "{line}"
        );
        assert!(!line.contains('\u{9b}'), "{line:?}");
        let head = own.recv().await.expect("a request");
        assert!(head.to_lowercase().contains("authorization: basic"), "{head}");
    }
    assert!(received.try_recv().is_err(), "it was asked");
}

#[tokio::test]
async fn a_path_before_the_daemons_is_kept() {
    let (url, mut received) = answering(response("404 x", "", "")).await;
    let line = refused(&options(format!("{url}/gate/node7/"))).await;
    assert!(line.contains("/gate/node7: no kfd-trace daemon is there"), "{line}");
    let head = received.recv().await.expect("a request");
    assert!(head.starts_with("GET /gate/node7/api/v1/queues HTTP/1.1\r\n"), "{head}");
}

#[tokio::test]
async fn a_server_that_is_silent_or_slow_is_given_up() {
    let soon = |url| AccessOptions { max_time: Duration::from_millis(300), ..options(url) };
    for scheme in ["http", "https"] {
        let (url, _received) = answering(None).await;
        let begun = Instant::now();
        let options = AccessOptions { insecure: scheme == "https", ..soon(url.replace("http", scheme)) };
        let line = refused(&options).await;
        assert!(
            line.ends_with("does not answer within 0.3s; raise --max-time, or look whether the daemon hangs"),
            "{line}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    // The head comes, and of the body a part.
    let part = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        stream.write_all(&part).await.expect("written");
        std::future::pending::<()>().await;
    });
    assert!(refused(&soon(url)).await.contains("does not answer within 0.3s"));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let long = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
    assert!(line_of(Some(long)).await.contains("its answer is larger than 64 MiB; "));
    // Without its length, and without end.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let sent = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("written");
        let (part, mut sent) = (vec![b' '; 64 << 10], 0);
        while stream.write_all(&part).await.is_ok() {
            sent += part.len();
        }
        sent
    });
    let mut client = Client::new(Access::open(&options(url)).expect("access"));
    let failure = client.get("/api/v1/queues", 1 << 20).await.expect_err("too much");
    assert_eq!(failure, Failure::TooLarge(1 << 20));
    drop(client);
    let sent = sent.await.expect("no panic");
    assert!(sent < 32 << 20, "{sent} bytes were taken");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let line = refused(&options(format!("http://{address}"))).await;
    let advice =
        "it refuses the connection; start the daemon there with --web.listen-address, or check the port";
    assert_eq!(line, format!("http://{address}: {advice}"));
    let line = refused(&options("http://no-such-host.invalid:20200".to_owned())).await;
    assert!(
        line.contains("its name is not found: ") && line.ends_with("check the name in the URL"),
        "{line}"
    );
    let plain = serving("", &[]);
    let https = AccessOptions { insecure: true, ..options(url("https", "localhost", &plain)) };
    let line = refused(&https).await;
    assert!(line.ends_with("it does not speak TLS; begin the URL with http://"), "{line}");
}

#[tokio::test]
async fn a_lost_connection_is_made_again() {
    let mut server = serving("", &[]);
    let access = Access::open(&options(url("http", "127.0.0.1", &server))).expect("access");
    let mut client = Client::new(access);
    client.queues().await.expect("queues");
    server.stop.take().expect("it runs").send(()).expect("it runs");
    (&mut server.task).await.expect("no panic").expect("ended");
    assert_eq!(client.queues().await.err(), Some(Failure::Refused));
    let listener = TcpListener::bind(server.addresses[0]).await.expect("the port again");
    let answer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let text = r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": []}"#;
        stream.write_all(&response("200 OK", "", text).expect("one")).await.expect("written");
        stream
    });
    assert_eq!(client.queues().await.expect("an answer").queues.len(), 0);
    drop(answer.await);
}
