//! `cargo xtask browser`: the daemon's pages in a headless Chromium, with sample contents that a unit test of kfd-trace
//! serves (output/page/tests/served.rs). They are shown in light and dark, on a desk and on a phone, followed while they
//! change, filtered, sorted and taken into the past, with and without their script. Pictures are left in target/browser.

use crate::paths;
use crate::run::{self, note, step};
use crate::setup;
use crate::vm::guest;
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cdp::Browser;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

mod cdp;
mod use_it;

/// Ports of the sample pages; [`TLS`] more for those with a password.
const EMPTY: u16 = 20_300;
const HOSTILE: u16 = 20_304;
const AWAY: u16 = 20_305;
const MOVING: u16 = 20_306;
const TLS: u16 = 10;

/// Width and height, CSS pixels.
const DESK: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (360, 740);

/// `name:password` of the pages that have one.
const USER: &str = "sre:queue";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print what pages of 0 to 10,000 queues cost the browser, too
    #[arg(long)]
    measure: bool,
}

/// As `cargo xtask test` does.
///
/// # Errors
/// As [`browser`].
pub(crate) fn check() -> Result<()> {
    browser(&Args { measure: false })
}

/// # Errors
/// If a page is wrong; each fault is reported.
pub(crate) fn browser(args: &Args) -> Result<()> {
    setup::browser()?;
    let _server = Server::start()?;
    let mut browser = Browser::start()?;
    let mut wrong: Vec<Fault> = looked_at(&mut browser)?;
    wrong.extend(use_it::all(&mut browser)?);
    let faults = summary(&wrong);
    faults.iter().for_each(note);
    if args.measure {
        measure(&mut browser)?;
    }
    if !faults.is_empty() {
        bail!("faults of the pages: {}, see above", faults.len());
    }
    Ok(())
}

/// Where, and what is wrong there.
type Fault = (String, String);

/// Each fault once: most are those of many pages.
fn summary(faults: &[Fault]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (place, what) in faults {
        places.entry(what).or_default().push(place);
    }
    let line = |(what, places): (&&str, &Vec<&str>)| match places.as_slice() {
        [place] => format!("{place}: {what}"),
        [place, others @ ..] => format!("{place}, and {} more: {what}", others.len()),
        [] => (*what).to_owned(),
    };
    places.iter().map(line).collect()
}

/// The sample pages, for as long as this lives.
struct Server(Child);

impl Server {
    fn start() -> Result<Self> {
        step("building the sample pages");
        // As the unit tests are: with kfd-trace alone, its libraries would be built with other features.
        let test = ["test", "--lib"];
        run::run(guest::cargo().args(test).arg("--no-run"))?;
        let mut cargo = guest::cargo();
        cargo.args(test).args(["--", "--ignored", "sample_pages"]).env("SHOW_PAGES", "1");
        cargo.process_group(0);
        let server = Server(cargo.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("no server")?);
        let until = Instant::now() + Duration::from_secs(120);
        let last = SocketAddr::from(([127, 0, 0, 1], MOVING + TLS));
        while TcpStream::connect(last).is_err() {
            if Instant::now() > until {
                bail!("the sample pages are not served: is one of the ports {EMPTY} to {last} in use?");
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // cargo's child is the server: a group of their own.
        if let Ok(group) = i32::try_from(self.0.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

fn url(port: u16, path: &str) -> String {
    format!("http://127.0.0.1:{port}{path}")
}

/// Every page, in every look: what is wrong with it.
fn looked_at(browser: &mut Browser) -> Result<Vec<Fault>> {
    let places = (EMPTY..=MOVING).map(|port| (port, "/")).chain([
        (EMPTY + 2, "/process?pid=4000"),
        (EMPTY + 2, "/queue?pid=4000&queue=1"),
        (MOVING, "/?at=2026-09-21T15:13:21Z"),
        (HOSTILE, "/process?pid=100"),
        (AWAY, "/process?pid=4000"),
        (EMPTY, "/queue?pid=1&queue=1"),
    ]);
    let mut wrong = Vec::new();
    for (port, path) in places {
        for (scheme, (width, height), name) in [
            ("light", DESK, "desk"),
            ("dark", DESK, "desk"),
            ("light", PHONE, "phone"),
            ("dark", PHONE, "phone"),
        ] {
            look(browser, scheme, (width, height))?;
            browser.open(&url(port, path))?;
            let found = browser.value(include_str!("audit.js"))?;
            let lines = found.as_array().into_iter().flatten().filter_map(Value::as_str);
            let place = format!("{port}{path}, {scheme}, {name}");
            let console = complaints(browser);
            let lines = lines.map(str::to_owned).chain(console);
            wrong.extend(lines.map(|line| (place.clone(), line)));
            if path == "/" || port == MOVING || scheme == "light" && name == "desk" {
                let file = path.trim_matches('/').replace(['?', '=', '&', ':'], "-");
                picture(browser, &format!("{port}-{file}-{scheme}-{name}"))?;
            }
        }
    }
    Ok(wrong)
}

fn look(browser: &mut Browser, scheme: &str, (width, height): (u32, u32)) -> Result<()> {
    let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
    browser.call("Emulation.setDeviceMetricsOverride", &size)?;
    let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
    browser.call("Emulation.setEmulatedMedia", &scheme).map(drop)
}

/// What the browser's console would show.
fn complaints(browser: &mut Browser) -> Vec<String> {
    let events = browser.events();
    let lines = events.iter().filter_map(|event| {
        let parameters = &event["params"];
        match event["method"].as_str()? {
            "Log.entryAdded" => Some(parameters["entry"]["text"].to_string()),
            "Runtime.consoleAPICalled" => Some(parameters["args"].to_string()),
            "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
            _ => None,
        }
    });
    lines.map(|line| format!("on the console: {line}")).collect()
}

fn picture(browser: &mut Browser, name: &str) -> Result<()> {
    let taken = browser.call("Page.captureScreenshot", &json!({}))?;
    let taken = STANDARD.decode(taken["data"].as_str().unwrap_or_default())?;
    let file = paths::target().join("browser").join(format!("{name}.png"));
    fs::write(&file, taken).with_context(|| format!("cannot write {}", file.display()))
}

/// Bytes, times and memory of pages of several sizes, over TLS with a password.
fn measure(browser: &mut Browser) -> Result<()> {
    look(browser, "light", DESK)?;
    use_it::with_password(browser)?;
    println!("queues  page, gzip  fetched again  interactive  heap of the script");
    for (at, queues) in (0..).zip([0, 35, 1_000, 10_000]) {
        browser.events();
        browser.open(&format!("https://127.0.0.1:{}/", EMPTY + TLS + at))?;
        let first = use_it::received(browser);
        let interactive = browser.value("performance.getEntriesByType('navigation')[0].domInteractive")?;
        browser.value("fetch('/?have=' + [...document.querySelectorAll('main > section')].map((s) => s.dataset.tag).join('.')).then((a) => a.text())")?;
        let again = use_it::received(browser);
        browser.call("HeapProfiler.collectGarbage", &json!({}))?;
        let metrics = browser.call("Performance.getMetrics", &json!({}))?;
        let heap = metrics["metrics"].as_array().into_iter().flatten();
        let heap = heap.filter(|one| one["name"] == "JSHeapUsedSize").find_map(|one| one["value"].as_f64());
        println!(
            "{queues:>6}  {first:>8} B  {again:>11} B  {:>8.0} ms  {:>15.1} MB",
            interactive.as_f64().unwrap_or(f64::NAN),
            heap.unwrap_or(f64::NAN) / 1e6
        );
    }
    Ok(())
}
