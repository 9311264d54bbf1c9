//! `cargo xtask picture`: docs/page.png, the picture of the daemon's page in README.md. In: the page that a
//! daemon in the guest answers while its workloads run. Out: what a browser shows of it.

use crate::paths;
use crate::run::{self, step};
use crate::setup;
use crate::vm;
use crate::vm::boots;
use crate::vm::qemu::End;
use crate::vm::testbed::{Bench, Mode};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

/// The stage and test that print the page, between these lines (tests/tests/service/load.rs).
const STAGE: &str = "service";
const TEST: &str = "pictures";
const BETWEEN: [&str; 2] = ["PAGE BEGINS", "PAGE ENDS"];

/// The files that the page names, below /static/.
const FILES: [(&str, &str); 3] =
    [("page.css", "text/css"), ("page.js", "text/javascript"), ("icon.svg", "image/svg+xml")];

/// Width and height, CSS pixels.
const SIZE: (u32, u32) = (1280, 900);

/// Writes docs/page.png.
///
/// # Errors
/// There is no browser and it cannot be installed, or the guest printed no page.
pub(crate) fn picture() -> Result<()> {
    setup::browser()?;
    let boot = boots::with_stage(Some(STAGE)).context("no such stage")?;
    let words = ["--ignored", "--nocapture", TEST].map(str::to_owned);
    let mut report = Vec::new();
    let mode = Mode::Test(&[STAGE]);
    let bench = Bench::new()?;
    let booted = bench.boot(bench.matrix().main()?, boot, mode, &words, vm::LIMIT, &mut report)?;
    let report = String::from_utf8_lossy(&report);
    let Some(page) = page(&report).filter(|_| matches!(booted.run.end, End::Exit(0))) else {
        bail!("the guest printed no page:\n{report}");
    };
    let server = Server::start(page)?;
    let png = paths::root().join("docs/page.png");
    step(format!("chromium: {}", png.display()));
    // A profile that was used before may be locked by a browser that did not end.
    let profile = paths::target().join("picture");
    let _ = fs::remove_dir_all(&profile);
    let mut browser = Command::new(setup::BROWSER);
    browser
        .args(["--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={},{}", SIZE.0, SIZE.1))
        .arg(format!("--screenshot={}", png.display()))
        .arg(format!("http://{}/", server.0));
    run::output(&mut browser).map(drop)
}

/// The lines between the marks.
fn page(report: &str) -> Option<String> {
    let (_, rest) = report.split_once(BETWEEN[0])?;
    let (page, _) = rest.split_once(BETWEEN[1])?;
    Some(page.trim().to_owned())
}

/// The page and its files on a port of the loopback interface, for as long as this program runs.
struct Server(std::net::SocketAddr);

impl Server {
    fn start(page: String) -> Result<Self> {
        let folder = paths::root().join("kfd-trace/src/output/page");
        let mut files = vec![("/".to_owned(), "text/html; charset=utf-8", page.into_bytes())];
        for (name, kind) in FILES {
            let bytes = fs::read(folder.join(name)).with_context(|| format!("cannot read {name}"))?;
            files.push((format!("/static/{name}"), kind, bytes));
        }
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        thread::spawn(move || {
            // A browser that closes early is no reason to end.
            listener.incoming().flatten().for_each(|stream| drop(answer(stream, &files)));
        });
        Ok(Server(address))
    }
}

fn answer(mut stream: TcpStream, files: &[(String, &str, Vec<u8>)]) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let length = stream.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..length]);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let Some((_, kind, bytes)) = files.iter().find(|(name, ..)| name == path) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        bytes.len()
    )?;
    stream.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn the_page_is_what_the_test_prints_between_its_marks() {
        let source = include_str!("../../../tests/tests/service/load.rs");
        assert!(super::BETWEEN.iter().all(|mark| source.contains(mark)));
        assert!(source.contains("fn pictures()"));
        assert_eq!(page("ps\nPAGE BEGINS\n<p>\nPAGE ENDS\nok"), Some("<p>".to_owned()));
        assert_eq!(page("PAGE BEGINS\n<p>"), None);
    }
}
