//! `cargo xtask picture`: the pictures of the documentation, docs/page.png and those of docs/tour.md, from
//! one boot. In: what tests in the guest print while their workloads run, pages and pictures of terminals.
//! Out: the files; of a page, what a browser shows.

use crate::paths;
use crate::run::{self, step};
use crate::setup;
use crate::vm;
use crate::vm::boots;
use crate::vm::follow::End;
use crate::vm::testbed::{Bench, Mode};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

/// The stage and the tests that print (tests/tests/service/load.rs and tour.rs).
const STAGE: &str = "service";
const TESTS: &str = "pictures";

/// Around each picture; the first mark is followed by its file, and the size of a page's window (`1440x900`).
const BETWEEN: [&str; 2] = ["PICTURE BEGINS ", "PICTURE ENDS"];

/// The files that the page names, below /static/.
const FILES: [(&str, &str); 3] =
    [("page.css", "text/css"), ("page.js", "text/javascript"), ("icon.svg", "image/svg+xml")];

/// What the guest printed for a file.
#[derive(Debug, PartialEq, Eq)]
struct Picture<'a> {
    /// From the root, in docs.
    file: &'a str,
    /// Width and height, CSS pixels.
    window: (u32, u32),
    /// SVG, or for a .png the page.
    shown: &'a str,
}

/// Writes the pictures.
///
/// # Errors
/// There is no browser and it cannot be installed, or a test failed.
pub(crate) fn picture() -> Result<()> {
    setup::browser()?;
    let boot = boots::with_stage(Some(STAGE)).context("no such stage")?;
    let words = ["--ignored", "--nocapture", TESTS].map(str::to_owned);
    let mut report = Vec::new();
    let mode = Mode::Test(&[STAGE]);
    let bench = Bench::new()?;
    let booted = bench.boot(bench.matrix().main()?, boot, mode, &words, vm::LIMIT, &mut report)?;
    let report = String::from_utf8_lossy(&report);
    let pictures = pictures(&report);
    if pictures.is_empty() || !matches!(booted.run.end, End::Exit(0)) {
        bail!("the guest printed no pictures:\n{report}");
    }
    pictures.iter().try_for_each(write)
}

/// What is between the marks.
fn pictures(report: &str) -> Vec<Picture<'_>> {
    let one = |text| {
        let (text, _) = str::split_once(text, BETWEEN[1])?;
        let (head, shown) = text.split_once('\n')?;
        let (file, window) = head.trim().split_once(' ')?;
        let (width, height) = window.split_once('x')?;
        Some(Picture { file, window: (width.parse().ok()?, height.parse().ok()?), shown: shown.trim() })
    };
    report.split(BETWEEN[0]).skip(1).filter_map(one).collect()
}

fn write(picture: &Picture<'_>) -> Result<()> {
    let Picture { file, window, shown } = picture;
    ensure!(file.starts_with("docs/") && !file.contains(".."), "no file of the documentation: {file}");
    let path = paths::root().join(file);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => {
            step(format!("a terminal: {}", path.display()));
            fs::write(&path, format!("{shown}\n")).with_context(|| format!("cannot write {}", path.display()))
        }
        Some("png") => photograph((*shown).to_owned(), *window, &path),
        _ => bail!("neither SVG nor PNG: {file}"),
    }
}

fn photograph(page: String, (width, height): (u32, u32), file: &Path) -> Result<()> {
    let server = Server::start(page)?;
    step(format!("chromium: {}", file.display()));
    // A profile that was used before may be locked by a browser that did not end.
    let profile = paths::target().join("picture");
    let _ = fs::remove_dir_all(&profile);
    let mut browser = Command::new(setup::BROWSER);
    browser
        .args(["--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", file.display()))
        .arg(format!("http://{}/", server.0));
    run::output(&mut browser).map(drop)
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
    use super::{BETWEEN, Picture, pictures, write};

    #[test]
    fn pictures_are_what_tests_print_between_their_marks() {
        let load = include_str!("../../../tests/tests/service/load.rs");
        let tour = include_str!("../../../tests/tests/service/tour.rs");
        for source in [load, tour] {
            assert!(BETWEEN.iter().all(|mark| source.contains(mark)) && source.contains("fn pictures()"));
        }
        let report = "ps\nPICTURE BEGINS docs/a.png 40x30\n<p>\nPICTURE ENDS\nok\nPICTURE BEGINS docs/b.svg 1x1\n<svg>\n</svg>\n\nPICTURE ENDS\n";
        let found = [("docs/a.png", (40, 30), "<p>"), ("docs/b.svg", (1, 1), "<svg>\n</svg>")];
        assert_eq!(pictures(report), found.map(|(file, window, shown)| Picture { file, window, shown }));
        assert!(pictures("PICTURE BEGINS docs/a.png 40x30\n<p>\n").is_empty(), "cut");
    }

    #[test]
    fn only_pictures_of_the_documentation_are_written() {
        for file in ["README.md", "docs/../a.svg", "docs/a.md", "target/a.svg"] {
            assert!(write(&Picture { file, window: (1, 1), shown: "" }).is_err(), "{file}");
        }
    }
}
