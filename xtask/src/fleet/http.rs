//! Requests to the programs on loopback, and figures of their own expositions.

use super::template::parse_line;
use anyhow::{Context as _, Result, ensure};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// Of a query over a fleet.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn get(port: u16, path: &str) -> Result<String> {
    request(port, "GET", path, "")
}

pub(super) fn post(port: u16, path: &str, body: &str) -> Result<String> {
    request(port, "POST", path, body)
}

fn request(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("nothing answers")?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // In 1.0 an answer has no chunks and ends with its connection.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer).context("an answer that is no text")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP response")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status.starts_with('2'), "{path}: status {status}: {}", body.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// The result of a query, and how long it took.
pub(super) fn query(port: u16, path: &str, parameters: &[(&str, &str)]) -> Result<(Vec<Value>, Duration)> {
    let body: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let begin = Instant::now();
    let answer = post(port, path, &body.join("&"))?;
    let took = begin.elapsed();
    let mut answer: Value = serde_json::from_str(&answer).context("an answer that is no JSON")?;
    match answer["data"]["result"].take() {
        Value::Array(result) => Ok((result, took)),
        _ => anyhow::bail!("an answer without a result"),
    }
}

/// The number that an instant query has as its only result.
///
/// # Errors
/// If it has none.
pub(super) fn number(port: u16, expr: &str) -> Result<f64> {
    let (result, _) = query(port, "/api/v1/query", &[("query", expr)])?;
    let value = result.first().and_then(|series| series["value"][1].as_str()?.parse().ok());
    value.with_context(|| format!("{expr} has no result"))
}

/// What stays as it is in a form.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// The program's own exposition.
pub(super) struct Own(String);

impl Own {
    pub(super) fn of(port: u16) -> Result<Self> {
        get(port, "/metrics").map(Own)
    }

    /// The sum of a family's series that have this in their labels.
    pub(super) fn sum(&self, family: &str, part: &str) -> f64 {
        let lines = self.0.lines().filter(|line| line.starts_with(family) && line.contains(part));
        let series = lines.filter_map(parse_line).filter(|line| line.name == family);
        series.filter_map(|line| line.value.parse::<f64>().ok()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(encoded("sum(up{job=\"a b\"}) > 0"), "sum%28up%7Bjob%3D%22a%20b%22%7D%29%20%3E%200");
    }

    #[test]
    fn figures_are_summed_by_family() {
        let own = Own("# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3.5\nab{x=\"1\"} 100\na_b 7\n".to_owned());
        let sums = [own.sum("a", ""), own.sum("a", "x=\"2\""), own.sum("a_b", ""), own.sum("c", "")];
        assert_eq!(sums, [5.5, 3.5, 7.0, 0.0]);
    }
}
