//! The whole server, on loopback.

mod admission;
pub(crate) mod authority;
pub(crate) mod harness;
mod toolkit;

use super::serve::{ClientLimits, GRACE};
use super::tally::WebEvent;
use super::users::tests::hash;
use authority::Authority;
use axum::body::Body;
use axum::http::Request;
use harness::{LONG, Server, closed, request};
use headers::HeaderMapExt as _;
use headers::authorization::Authorization;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const TLS: &str = "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n";
const MUTUAL: &str =
    "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n  client_ca_file: ca.crt\n";

fn tls(authority: &Authority, config: &str) -> Server {
    let pair = authority.server();
    let files = [("web.crt", pair.cert.as_str()), ("web.key", &pair.key), ("ca.crt", &authority.pem())];
    Server::with(ClientLimits::default(), config, &files)
}

fn basic(name: &str, password: &str) -> String {
    let mut headers = axum::http::HeaderMap::new();
    headers.typed_insert(Authorization::basic(name, password));
    format!("Authorization: {}\r\n", headers["authorization"].to_str().unwrap())
}

#[tokio::test]
async fn all_addresses_are_served_until_the_stop_even_with_a_silent_client() {
    let mut server = Server::plain(ClientLimits::default());
    for address in &server.addresses {
        let stream = tokio::net::TcpStream::connect(address).await.expect("connected");
        let answer = request(stream, "/", "").await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("served\n"), "{answer}");
    }
    // One connects and makes no request, one makes requests and never reads, one requests what never ends:
    // none must block the stop.
    let _silent = server.connect().await;
    let mut deaf = server.connect().await;
    deaf.write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut patient = server.connect().await;
    patient.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    server.stop.take().unwrap().send(()).expect("server runs");
    let ended = timeout(GRACE * 3, &mut server.task).await.expect("stops in time");
    assert!(ended.expect("no panic").is_ok());
    assert!(tokio::net::TcpStream::connect(server.addresses[1]).await.is_err(), "nothing listens any more");
}

#[tokio::test]
async fn a_stop_without_clients_is_immediate() {
    let mut server = Server::plain(ClientLimits::default());
    server.stop.take().unwrap().send(()).expect("server runs");
    assert!(timeout(GRACE / 2, server.task).await.expect("at once").is_ok());
}

#[tokio::test]
async fn tls_is_spoken_and_nothing_else() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let server = tls(&authority, TLS);
    let answer = server.get_tls(&authority, None).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("served\n"), "{answer}");
    assert!(server.get_tls(&other, None).await.is_err(), "the certificate is not its own");
    let plain = request(server.connect().await, "/", "").await;
    assert!(!plain.is_ok_and(|answer| answer.contains("HTTP")), "plain HTTP");
    // Bad handshakes do not block others.
    for _ in 0..50 {
        let mut stream = server.connect().await;
        stream.write_all(&[0x16, 3, 1, 0xff, 0xff, 0, 1]).await.unwrap();
        stream.shutdown().await.unwrap();
        closed(stream).await;
    }
    assert!(server.get_tls(&authority, None).await.is_ok());
    assert!(server.count(WebEvent::Handshake) >= 51);
}

#[tokio::test]
async fn client_certificates_are_required_and_checked() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let server = tls(&authority, &format!("{MUTUAL}  client_auth_type: RequireAndVerifyClientCert\n"));
    assert!(server.get_tls(&authority, Some(&authority.client())).await.is_ok());
    assert!(server.get_tls(&authority, None).await.is_err(), "without one");
    assert!(server.get_tls(&authority, Some(&other.client())).await.is_err(), "of another authority");
    assert!(server.get_tls(&authority, Some(&authority.server())).await.is_err(), "made for a server");
    let server = tls(&authority, &format!("{MUTUAL}  client_auth_type: VerifyClientCertIfGiven\n"));
    assert!(server.get_tls(&authority, Some(&authority.client())).await.is_ok());
    assert!(server.get_tls(&authority, None).await.is_ok());
    assert!(server.get_tls(&authority, Some(&other.client())).await.is_err(), "of another authority");
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_offered() {
    let authority = Authority::new("ca");
    for (config, spoken) in
        [(TLS.to_owned(), true), (format!("{TLS}http_server_config:\n  http2: false\n"), false)]
    {
        let server = tls(&authority, &config);
        let stream = server.handshake_for(&authority, None, &[b"h2", b"http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), spoken);
        if !spoken {
            assert!(request(stream, "/", "").await.unwrap().ends_with("served\n"));
            continue;
        }
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("https://localhost/").body(Body::empty()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, hyper::Version::HTTP_2));
    }
}

#[tokio::test]
async fn versions_are_the_configured_ones() {
    let authority = Authority::new("ca");
    for (version, name) in [("TLS12", "TLSv1_2"), ("TLS13", "TLSv1_3")] {
        let server = tls(&authority, &format!("{TLS}  min_version: {version}\n  max_version: {version}\n"));
        let stream = server.handshake(&authority, None).await.unwrap();
        assert_eq!(format!("{:?}", stream.get_ref().1.protocol_version().unwrap()), name);
    }
}

#[tokio::test]
async fn passwords_stand_before_every_page() {
    let config = format!(
        "basic_auth_users:\n  alice: {}\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n",
        hash("wonder")
    );
    let server = Server::with(ClientLimits::default(), &config, &[]);
    let answer =
        async |path: &str, headers: &str| request(server.connect().await, path, headers).await.unwrap();
    assert!(answer("/", &basic("alice", "wonder")).await.ends_with("served\n"));
    assert!(answer("/none", &basic("alice", "wonder")).await.starts_with("HTTP/1.1 404"));
    let wrong = [
        String::new(),
        basic("alice", "Wonder"),
        basic("bob", "wonder"),
        "Authorization: Basic !\r\n".into(),
        "Authorization: Bearer wonder\r\n".into(),
    ];
    for headers in wrong {
        for path in ["/", "/none"] {
            let denied = answer(path, &headers).await;
            assert!(denied.starts_with("HTTP/1.1 401") && !denied.contains("served"), "{headers}{denied}");
            assert!(
                denied.contains("www-authenticate: Basic realm=") && denied.contains("x-frame-options: deny"),
                "{denied}"
            );
        }
    }
    assert_eq!(server.count(WebEvent::Denied), 10);
}

#[tokio::test]
async fn a_change_is_taken_by_the_next_connection_and_ends_those_that_stand() {
    let (authority, renewed) = (Authority::new("ca"), Authority::new("renewed"));
    let server = tls(&authority, TLS);
    let standing = server.handshake(&authority, None).await.unwrap();
    let (reader, mut writer) = tokio::io::split(standing);
    writer.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let pair = renewed.server();
    for (name, text) in [("web.crt", pair.cert), ("web.key", pair.key)] {
        std::fs::write(server.path(name), text).unwrap();
    }
    let taken = async {
        while server.get_tls(&renewed, None).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(30), taken).await.expect("it is read again");
    assert!(server.get_tls(&authority, None).await.is_err(), "the old one is no longer accepted");
    assert!(timeout(Duration::from_secs(10), closed(reader)).await.expect("it is ended") > 0);
    std::fs::write(server.path("web.crt"), "nothing").unwrap();
    sleep(Duration::from_secs(3)).await;
    assert!(server.get_tls(&renewed, None).await.is_ok(), "what was good stays");
}

// The clock is paused, and advances when all tasks wait for it.
#[tokio::test(start_paused = true)]
async fn who_is_slow_is_cut_off() {
    let server = Server::plain(ClientLimits::default());
    assert_eq!(closed(server.connect().await).await, 0, "sends no request");
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
    let (reader, mut writer) = slow.into_split();
    let dripping = tokio::spawn(async move {
        while writer.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    timeout(Duration::from_secs(600), closed(reader)).await.expect("it is cut off");
    dripping.await.unwrap();
    assert_eq!(server.count(WebEvent::Broken), 2);
    // A client that has made a request may be idle until the timeout.
    let mut idle = server.connect().await;
    idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(closed(idle).await > 0);
    assert_eq!(server.count(WebEvent::Broken), 2);
    let mut deaf = server.connect().await;
    deaf.write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let came = closed(deaf).await;
    assert!(0 < came && came < LONG, "{came}: the rest was not waited for");
    assert_eq!(server.count(WebEvent::Broken), 3);
    let authority = Authority::new("ca");
    let server = tls(&authority, TLS);
    assert_eq!(closed(server.connect().await).await, 0, "shakes no hand");
    assert_eq!(server.count(WebEvent::Handshake), 1);
}

/// An HTTP/2 connection that begins and sends no more: not even a response to a ping.
async fn mute(server: &Server, authority: &Authority) -> impl tokio::io::AsyncRead + Unpin {
    let mut stream = server.handshake_for(authority, None, &[b"h2"]).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream
}

// The clock is paused, and advances when all tasks wait for it.
#[tokio::test(start_paused = true)]
async fn an_idle_http2_client_that_made_a_request_is_not_counted_as_broken() {
    let authority = Authority::new("ca");
    let server = tls(&authority, TLS);
    let stream = server.handshake_for(&authority, None, &[b"h2"]).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://localhost/").body(Body::empty()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status().as_u16(), 200);
    let ended = timeout(Duration::from_secs(600), connection).await.expect("it is closed");
    drop((sender, ended));
    assert_eq!(server.count(WebEvent::Broken), 0);
    assert!(closed(mute(&server, &authority).await).await > 0);
    assert_eq!(server.count(WebEvent::Broken), 1, "made no request");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_confirm_the_end_is_cut_off() {
    let authority = Authority::new("ca");
    let server = tls(&authority, TLS);
    let stream = mute(&server, &authority).await;
    sleep(Duration::from_secs(1)).await;
    server.put(&format!("{TLS}  min_version: TLS13\n"));
    timeout(Duration::from_secs(60), closed(stream)).await.expect("it was requested to end");
    assert_eq!(server.count(WebEvent::Broken), 0);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = Server::plain(ClientLimits::default());
    for headers in [format!("X: {}\r\n", "x".repeat(20 << 10)), "A: b\r\n".repeat(200)] {
        let answer = request(server.connect().await, "/", &headers).await;
        assert!(!answer.as_ref().is_ok_and(|answer| answer.contains("served")), "{answer:?}");
    }
    assert_eq!(server.count(WebEvent::Broken), 2);
    // A client that disconnects without a request, or in the middle of one, is not logged.
    for text in ["", "GET / HTTP/1.1\r\n"] {
        let mut stream = server.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        closed(stream).await;
    }
    assert_eq!(server.count(WebEvent::Broken), 2);
    let fits = format!("X: {}\r\n", "x".repeat(4 << 10));
    assert!(request(server.connect().await, "/", &fits).await.unwrap().ends_with("served\n"));
}

#[tokio::test]
async fn a_thousand_idle_connections_keep_no_scrape_out() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let server = Server::plain(ClientLimits::default());
    let mut idle = Vec::new();
    for number in 0..1000 {
        let mut stream = server.connect().await;
        if number % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
        }
        idle.push(stream);
    }
    for _ in 0..3 {
        assert!(server.get().await.ends_with("served\n"));
    }
    // The earlier ones were closed for the later ones.
    assert!(server.count(WebEvent::MadeRoom) >= 872 && server.count(WebEvent::Refused) == 0);
    assert_eq!(closed(idle.swap_remove(0)).await, 0);
}

#[tokio::test]
async fn a_crowd_that_comes_at_once_is_answered() {
    // However late this machine makes the requests.
    let fresh = Duration::from_secs(1200);
    let server = Server::plain(ClientLimits { connections: 2, fresh, ..ClientLimits::default() });
    let mut crowd = JoinSet::new();
    for _ in 0..30 {
        let stream = server.connect().await;
        crowd.spawn(async move {
            // as long as a handshake over a network
            sleep(Duration::from_millis(20)).await;
            request(stream, "/", "").await
        });
    }
    while let Some(answer) = crowd.join_next().await {
        assert!(answer.unwrap().unwrap().ends_with("served\n"));
    }
    assert_eq!((server.count(WebEvent::MadeRoom), server.count(WebEvent::Refused)), (0, 0));
}

#[tokio::test]
async fn who_is_being_answered_is_not_sent_away_for_others() {
    let server = Server::plain(ClientLimits { connections: 2, ..ClientLimits::default() });
    let mut first = server.connect().await;
    first.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(server.get().await.ends_with("served\n"));
    for made_room in 1..5 {
        let _idle = server.connect().await;
        assert!(server.get().await.ends_with("served\n"));
        assert_eq!(server.count(WebEvent::MadeRoom), made_room);
    }
    assert!(timeout(Duration::from_millis(200), closed(first)).await.is_err(), "it waits for its answer");
}

#[tokio::test]
async fn a_request_names_one_host_which_is_this_one() {
    let server = Server::plain(ClientLimits::default());
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n", "200"),
        ("GET / HTTP/1.1\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n", "400"),
        ("GET / HTTP/1.0\r\n", "200"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n", "421"),
        ("GET / HTTP/1.0\r\nHost: evil.example\r\n", "421"),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n", "421"),
        ("GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n", "200"),
    ] {
        let mut stream = server.connect().await;
        stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{head}: {answer}");
        assert!(answer.contains("\r\nx-content-type-options: nosniff\r\n"), "{head}: {answer}");
    }
    assert_eq!(server.count(WebEvent::OtherHost), 3);
    let config = format!("basic_auth_users:\n  alice: {}\n", hash("wonder"));
    let with_passwords = Server::with(ClientLimits::default(), &config, &[]);
    let mut stream = with_passwords.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}
