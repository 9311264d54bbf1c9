//! GET over HTTP/1.0 on loopback, one connection per request: responses are not chunked then.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Header lines, without the status line.
    pub head: String,
    pub body: String,
}

pub fn get(address: SocketAddr, path: &str) -> Result<Response> {
    let request = || -> Result<String> {
        let limit = Duration::from_secs(10);
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    request().and_then(|text| parse(&text)).with_context(|| format!("GET http://{address}{path}"))
}

/// The server closes after the response, so the body is everything after the head.
fn parse(text: &str) -> Result<Response> {
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let (status_line, head) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = status_line.split(' ').nth(1).context("no status")?.parse().context("status")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    anyhow::ensure!(!chunked, "a chunked body: not understood here");
    Ok(Response { status, head: head.to_owned(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_taken_apart() {
        let response =
            parse("HTTP/1.1 503 Service Unavailable\r\nA: b\r\nC: d\r\n\r\nnot\r\n\r\nyet\n").unwrap();
        assert_eq!((response.status, response.head.as_str()), (503, "A: b\r\nC: d"));
        assert_eq!(response.body, "not\r\n\r\nyet\n");
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for text in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 fine\r\n\r\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n").is_err());
    }
}
