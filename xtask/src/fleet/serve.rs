//! Serves the expositions of all nodes from one port of loopback: `/nodes/17` is what node 17's daemon would send now,
//! not compressed. A few threads answer one request per connection.

use super::render::Sheet;
use super::shape::{Node, Shape};
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest head of a request.
const HEAD: usize = 8_192;

pub(super) struct Fleet {
    sheet: Sheet,
    shape: Shape,
    begin: Instant,
    ends: AtomicBool,
    pub(super) bytes: AtomicU64,
    pub(super) answers: AtomicU64,
}

/// Ends with the value.
pub(super) struct Server {
    pub(super) fleet: Arc<Fleet>,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn start(sheet: Sheet, shape: Shape) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let port = listener.local_addr()?.port();
        let (bytes, answers) = (AtomicU64::new(0), AtomicU64::new(0));
        let fleet = Arc::new(Fleet {
            sheet,
            shape,
            begin: Instant::now(),
            ends: AtomicBool::new(false),
            bytes,
            answers,
        });
        for _ in 0..THREADS {
            let (listener, fleet) = (listener.try_clone()?, Arc::clone(&fleet));
            thread::spawn(move || fleet.answer_all(&listener));
        }
        Ok(Server { fleet, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.fleet.ends.store(true, Ordering::Relaxed);
        // Each wakes one thread that waits for a connection.
        for _ in 0..THREADS {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        }
    }
}

impl Fleet {
    pub(super) fn node(&self, index: u64) -> Node {
        Node::new(index, self.shape)
    }

    fn answer_all(&self, listener: &TcpListener) {
        let mut text = String::new();
        while !self.ends.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else { continue };
            // A scraper that has given up is no reason to end.
            let _ = self.answer(stream, &mut text);
        }
    }

    fn answer(&self, mut stream: TcpStream, text: &mut String) -> Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let Some(index) = node_index(&head(&mut stream)?) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
            return Ok(());
        };
        text.clear();
        let elapsed = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.sheet.render(&self.node(index), elapsed, text);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            text.len()
        )?;
        stream.write_all(text.as_bytes())?;
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        self.answers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn head(stream: &mut TcpStream) -> Result<String> {
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") && bytes.len() < HEAD {
        let count = stream.read(&mut part)?;
        anyhow::ensure!(count > 0, "the connection ended");
        bytes.extend_from_slice(&part[..count]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Of `GET /nodes/17 HTTP/1.1`.
fn node_index(head: &str) -> Option<u64> {
    let path = head.strip_prefix("GET ")?.split([' ', '?']).next()?;
    path.strip_prefix("/nodes/")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::http;
    use crate::fleet::template::{Template, tests::SMALL};

    #[test]
    fn a_node_is_found_by_its_path() {
        assert_eq!(node_index("GET /nodes/17 HTTP/1.1\r\n"), Some(17));
        assert_eq!(node_index("GET /nodes/17?x=1 HTTP/1.1\r\n"), Some(17));
        for other in ["GET /nodes/ HTTP/1.1", "POST /nodes/1 HTTP/1.1", "GET /metrics HTTP/1.1", ""] {
            assert_eq!(node_index(other), None, "{other}");
        }
    }

    #[test]
    fn each_node_has_its_own_exposition() {
        let sheet = Sheet::new(&Template::parse(SMALL).expect("a template"));
        let server = Server::start(sheet, Shape::Training).expect("a server");
        let of = |path| http::get(server.port, path).expect("an answer");
        assert!(of("/nodes/1").contains("namespace=\"team-1\"") && of("/nodes/2").contains("team-2"));
        assert!(http::get(server.port, "/metrics").is_err());
        assert_eq!(server.fleet.answers.load(Ordering::Relaxed), 2);
    }
}
