//! Real clients of the pages over TLS with a password (curl, wrk), among them clients that only occupy
//! connections: the service keeps tracing, and is scraped.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::service::{self, ADDRESS, Changed, command, journal, tracing};
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::{Metrics, Steered, until};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The service has a /tmp of its own.
const FOLDER: &str = "/run/kfd-trace-web";

/// Test vector of crypt_blowfish; the password equals the name.
const USER: &str = "U*U*U";
const HASH: &str = "$2y$05$XXXXXXXXXXXXXXXXXXXXXOAcXxm9kjPGEMsLznoKqmqw7tc8WCx4a";

/// `printf 'U*U*U:U*U*U' | base64`
const AUTHORIZATION: &str = "Authorization: Basic VSpVKlU6VSpVKlU=";

fn place(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Its own certificate and one user, which the service reads from now on.
fn served() -> Result<Changed> {
    fs::create_dir_all(FOLDER)?;
    let (cert, key, web) = (place("web.crt"), place("web.key"), place("web.yml"));
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node \
        -addext subjectAltName=IP:127.0.0.1";
    // the second pair is not the service's
    for (key, cert) in [(&key, &cert), (&place("other.key"), &place("other.crt"))] {
        let words: Vec<_> = request.split_whitespace().chain(["-keyout", key, "-out", cert]).collect();
        command("openssl", &words)?;
    }
    // the service runs as another user
    command("chmod", &["a+r", &key])?;
    let text = format!(
        "tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\nbasic_auth_users:\n  \"{USER}\": {HASH}\n"
    );
    fs::write(&web, text)?;
    Changed::arguments("tls", &[&format!("--web.config.file={web}")])
}

/// Runs curl, with these arguments for a connection other than the good one. Returns its exit status, the
/// response status (0 if there was none), and the page.
fn curl(path: &str, words: &[&str]) -> Result<(i32, u32, String)> {
    let page = place("page");
    // the file may hold an earlier response
    fs::write(&page, "")?;
    let url = if path.contains("://") { path.to_owned() } else { format!("https://{ADDRESS}{path}") };
    let done = Command::new("curl")
        .args(["--silent", "--max-time", "60", "--write-out", "%{http_code}", "--output", &page])
        .args(words)
        .arg(url)
        .output()
        .context("run curl")?;
    let status = String::from_utf8_lossy(&done.stdout).trim().parse().context("the status")?;
    Ok((done.status.code().context("curl was killed")?, status, fs::read_to_string(&page)?))
}

/// With the correct certificate, user and password.
fn good(path: &str) -> Result<(i32, u32, String)> {
    curl(path, &["--cacert", &place("web.crt"), "--user", &format!("{USER}:{USER}")])
}

/// A scrape; one without a response is repeated, as by the next scrape.
fn scrape() -> Result<Metrics> {
    let page = until("a scrape over TLS", ATTACH, || {
        let (exit, status, page) = good("/metrics")?;
        Ok((exit == 0 && status == 200).then_some(page))
    });
    Metrics::parse(&page.with_context(|| journal().unwrap_or_default())?)
}

fn ready() -> Result<()> {
    let ready = until("the service to trace", ATTACH, || Ok((good("/-/ready")?.1 == 200).then_some(())));
    ready.with_context(|| journal().unwrap_or_default())
}

#[test]
fn lets_in_who_has_certificate_and_password() -> Result<()> {
    tracing()?;
    let served = served()?;
    ready()?;
    let (cert, other, right) = (place("web.crt"), place("other.crt"), format!("{USER}:{USER}"));
    let (exit, status, page) = good("/metrics")?;
    ensure!(exit == 0 && status == 200 && page.contains("kfd_trace_build_info{"), "{exit} {status} {page}");
    for (who, words) in [
        ("nobody", &["--cacert", &cert][..]),
        ("a wrong password", &["--cacert", &cert, "--user", "U*U*U:U*U"]),
        ("an unknown user", &["--cacert", &cert, "--user", "root:U*U*U"]),
    ] {
        let (_, status, page) = curl("/metrics", words)?;
        ensure!(status == 401 && !page.contains("kfd_"), "{who}: {status} {page}");
    }
    // CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CONNECT_ERROR
    for (who, words, wanted) in [
        ("who trusts another certificate", &["--cacert", &other, "--user", &right][..], 60),
        ("TLS 1.1", &["--cacert", &cert, "--user", &right, "--tls-max", "1.1"], 35),
    ] {
        let (exit, status, page) = curl("/metrics", words)?;
        ensure!(exit == wanted && status == 0 && page.is_empty(), "{who}: {exit} {status} {page}");
    }
    let (_, status, page) = curl(&format!("http://{ADDRESS}/metrics"), &[])?;
    ensure!(status != 200 && !page.contains("kfd_"), "without TLS: {status} {page}");
    let long = format!("X-Long: {}", "x".repeat(20_000));
    let (_, status, page) = curl("/metrics", &["--cacert", &cert, "--user", &right, "--header", &long])?;
    ensure!(status == 431 || status == 0, "a long header: {status} {page}");
    ensure!(scrape()?.sum("kfd_trace_build_info", &[]) == Some(1.0));
    served.undo()
}

/// Ended when dropped.
struct Clients(Vec<Child>);

impl Drop for Clients {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // fails only if it has already ended
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Clients that read 200 bytes of their response per second.
fn slow_readers(count: usize) -> Result<Clients> {
    let (cert, user) = (place("web.crt"), format!("{USER}:{USER}"));
    let one = |_| {
        Command::new("curl")
            .args([
                "--silent",
                "--limit-rate",
                "200",
                "--output",
                "/dev/null",
                "--cacert",
                &cert,
                "--user",
                &user,
            ])
            .arg(format!("https://{ADDRESS}/metrics"))
            .stdin(Stdio::null())
            .spawn()
            .context("run curl")
    };
    (0..count).map(one).collect::<Result<_>>().map(Clients)
}

/// Idle connections, and connections on which non-TLS data arrives.
fn no_clients(count: usize) -> Result<Vec<TcpStream>> {
    let one = |i: usize| {
        let mut stream = TcpStream::connect_timeout(&ADDRESS, Duration::from_secs(10))?;
        if i.is_multiple_of(2) {
            // the other end may have closed it already
            let _ = stream.write_all(&[0x16, 3, 1, 0xff, 0xff, 0, 0, 0]);
        }
        Ok(stream)
    };
    (0..count).map(one).collect()
}

/// The output of one run of `wrk`: this many connections at once, each of which sends requests repeatedly.
fn wrk(connections: u32, url: &str) -> Result<String> {
    let connections = format!("--connections={connections}");
    let words =
        ["--threads=1", &connections, "--duration=4s", "--timeout=60s", "--header", AUTHORIZATION, url];
    let report = command("wrk", &words)?;
    // `1234 requests in 4.10s, 5.67MB read`
    let requests = report.lines().find_map(|line| line.trim().split_once(" requests in "));
    ensure!(requests.is_some_and(|(count, _)| count != "0"), "none was answered: {report}");
    Ok(report)
}

const QUEUES: u32 = 40;

/// All queues that are created under many concurrent requests are counted, and a scrape meanwhile succeeds.
fn traced_beside(
    crowd: impl FnOnce() -> Result<String> + Send,
    scrape: impl Fn() -> Result<Metrics>,
) -> Result<()> {
    let mut workload = Steered::start()?;
    let created = |metrics: &Metrics| metrics.sum("kfd_queues_created_total", &[]).unwrap_or(0.0);
    let before = created(&scrape()?);
    let (report, amid) = std::thread::scope(|scope| -> Result<_> {
        let crowd = scope.spawn(crowd);
        for _ in 0..QUEUES {
            workload.must("create aql")?;
            workload.must("destroy 0")?;
        }
        let amid = (scrape()?, crowd.is_finished());
        Ok((crowd.join().expect("its thread does not panic")?, amid))
    })?;
    println!("{report}");
    ensure!(created(&amid.0) > before && !amid.1, "a scrape before the crowd has gone counts it");
    let after = scrape()?;
    let counted = created(&after) - before;
    ensure!(counted == f64::from(QUEUES), "{counted} of {QUEUES}");
    ensure!(after.sum("kfd_trace_records_lost_total", &[]) == Some(0.0), "none is lost");
    Ok(())
}

#[test]
fn goes_on_tracing_beside_a_thousand_connections() -> Result<()> {
    tracing()?;
    let plain = || service::scrape_until("a scrape", |metrics| Some(metrics.clone()));
    traced_beside(|| wrk(1000, &format!("http://{ADDRESS}/-/healthy")), plain)
}

#[test]
fn goes_on_tracing_beside_slow_readers_and_what_is_no_tls() -> Result<()> {
    tracing()?;
    let served = served()?;
    ready()?;
    let crowd = || {
        let _slow = slow_readers(20)?;
        let _idle = no_clients(60)?;
        wrk(100, &format!("https://{ADDRESS}/-/healthy"))
    };
    traced_beside(crowd, scrape)?;
    served.undo()
}
