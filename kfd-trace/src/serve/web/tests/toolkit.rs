//! The configurations that exporter-toolkit tests, and what each does here. One row for each file below its web/testdata/, with
//! texts and certificates of our own: the file's name, the configuration, what its tests expect.
//!
//! The rows that are refused here and not there are in docs/web.md, with the reason.

mod rows;

use super::authority::{Authority, Pair};
use super::basic;
use super::harness::{Server, request};
use crate::serve::web::serve::ClientLimits;
use rcgen::{BasicConstraints, IsCa};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::CipherSuite;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

const WEB_MD: &str = include_str!("../../../../../docs/web.md");

/// What a configuration does.
enum Does {
    /// It is refused, in a line with these words.
    Refuses(&'static str),
    /// It is refused, and is not there.
    DiffersAndRefuses(&'static str),
    Serves(Vec<(Client, Gets)>),
}

#[derive(Clone, Default)]
struct Client {
    plain: bool,
    /// A hello of TLS 1.1.
    old: bool,
    /// What it offers; empty: all that rustls has.
    suites: Vec<CipherSuite>,
    own: Option<Pair>,
    password: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy)]
enum Gets {
    Page,
    /// The page, by this suite.
    By(CipherSuite),
    /// A response with this status.
    Status(&'static str),
    /// The page, with this header.
    Header(&'static str),
    /// No response.
    Nothing,
}

/// Version 3.2 in a hello without extensions.
async fn old_hello(server: &Server) -> String {
    let random = [7; 32];
    let hello = [&[3, 2][..], &random, &[0, 0, 2, 0xc0, 0x09, 1, 0]].concat();
    let length = u8::try_from(hello.len()).unwrap();
    let mut stream = server.connect().await;
    stream.write_all(&[&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length][..], &hello].concat()).await.unwrap();
    let mut alert = Vec::new();
    stream.read_to_end(&mut alert).await.unwrap();
    // Fatal: handshake_failure or protocol_version. That it is no hello would be another.
    assert!(matches!(alert[..], [0x15, _, _, 0, 2, 2, 40 | 70]), "{alert:?}");
    String::new()
}

/// The response, with the suite that it came by.
async fn response(server: &Server, authority: &Authority, client: &Client) -> (String, Option<CipherSuite>) {
    let headers = client.password.map(|(name, password)| basic(name, password)).unwrap_or_default();
    if client.old {
        return (old_hello(server).await, None);
    }
    if client.plain {
        return (request(server.connect().await, "/", &headers).await.unwrap_or_default(), None);
    }
    let all = ring::default_provider();
    let offered =
        |suite: &CipherSuite| all.cipher_suites.iter().find(|known| known.suite() == *suite).copied();
    let provider = match &client.suites[..] {
        [] => all,
        suites => CryptoProvider {
            cipher_suites: suites.iter().filter_map(offered).collect(),
            ..ring::default_provider()
        },
    };
    let Ok(stream) = server.handshake_by(authority, client.own.as_ref(), provider).await else {
        return Default::default();
    };
    let suite = stream.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite());
    (request(stream, "/", &headers).await.unwrap_or_default(), suite)
}

#[tokio::test]
async fn configurations_do_what_they_do_with_exporters() {
    let authority = Authority::new("ca");
    let server = authority.server();
    let (own, _) = Authority::own(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let files = [("web.crt", &*server.cert), ("web.key", &server.key), ("own.crt", &own.cert)];
    let rows = rows::all(&server, &own);
    let (mut same, mut other) = (0, 0);
    for (theirs, config, does) in rows {
        let server = Server::try_with(ClientLimits::default(), &config, &files);
        match (does, server) {
            (Does::Refuses(words) | Does::DiffersAndRefuses(words), Ok(_)) => {
                panic!("{theirs}: is not refused: {words}")
            }
            (Does::Refuses(words), Err(line)) => {
                assert!(line.contains(words), "{theirs}: {line}");
                same += 1;
            }
            (Does::DiffersAndRefuses(words), Err(line)) => {
                assert!(line.contains(words), "{theirs}: {line}");
                assert!(WEB_MD.contains(&format!("`{theirs}`")), "{theirs} is not in docs/web.md");
                other += 1;
            }
            (Does::Serves(_), Err(line)) => panic!("{theirs}: {line}"),
            (Does::Serves(tries), Ok(server)) => {
                for (number, (client, gets)) in tries.into_iter().enumerate() {
                    let (response, suite) = response(&server, &authority, &client).await;
                    let page = response.starts_with("HTTP/1.1 200") && response.ends_with("served\n");
                    let good = match gets {
                        Gets::Page => page,
                        Gets::By(wanted) => page && suite == Some(wanted),
                        Gets::Status(status) => response.starts_with(&format!("HTTP/1.1 {status}")),
                        Gets::Header(line) => page && response.contains(&format!("\r\n{line}\r\n")),
                        Gets::Nothing => !response.contains("HTTP"),
                    };
                    assert!(good, "{theirs}, client {number}: {suite:?} {response}");
                }
                same += 1;
            }
        }
    }
    assert_eq!((same, other), (38, 3));
}
