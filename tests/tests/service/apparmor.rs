//! The service under its profile of AppArmor, enforced: it does what it does without, and nothing that the profile does not have.

use anyhow::{Context, Result, anyhow, ensure};
use kfd_trace_tests::harness::otlp::Receiver;
use kfd_trace_tests::harness::service::{self, ADDRESS, Changed, command, journal, main_pid, tracing};
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::workload::program;
use kfd_trace_tests::harness::{Metrics, Steered, until};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const CONFINED: &str = include_str!("../../../deploy/systemd/apparmor.conf");
const RECORDING: &str = include_str!("../../../deploy/systemd/record.conf");
const PROFILE: &str = "kfd-trace";
/// The one of the processes that serve and that send.
const CONFINED_PROFILE: &str = "kfd-trace-confined";

/// Where the profile has a web configuration, its key and its certificate.
const FOLDER: &str = "/etc/kfd-trace";
const RECORDINGS: &str = "/var/lib/kfd-trace-recordings";

/// The settings of a drop-in, without its command.
fn settings(drop_in: &str) -> Result<String> {
    let (_, settings) = drop_in.split_once("[Service]\n").context("settings")?;
    Ok(settings
        .lines()
        .filter(|line| !line.starts_with("ExecStart="))
        .map(|line| format!("{line}\n"))
        .collect())
}

/// What AppArmor has refused a profile since the machine's start, as the kernel logged it.
fn refused(profile: &str) -> Result<Vec<String>> {
    // Else the kernel leaves out what exceeds ten messages in five seconds, also of an earlier test.
    fs::write("/proc/sys/kernel/printk_ratelimit", "0")?;
    let log = service::logged(&["--dmesg"])?;
    let profile = format!("profile=\"{profile}\"");
    let denied = log.lines().filter(|line| line.contains("apparmor=\"DENIED\"") && line.contains(&profile));
    Ok(denied.map(str::to_owned).collect())
}

/// The name of each process of the service, and its profiles.
fn profiles() -> Result<Vec<(String, String)>> {
    let group = service::property("ControlGroup")?;
    let pids = fs::read_to_string(format!("/sys/fs/cgroup{group}/cgroup.procs"))?;
    let read = |pid: &str, file: &str| -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/{pid}/{file}"))?.trim_end().to_owned())
    };
    pids.lines().map(|pid| Ok((read(pid, "comm")?, read(pid, "attr/current")?))).collect()
}

/// Probes that are attached.
fn attached(metrics: &Metrics) -> Vec<String> {
    let probes = metrics.series("kfd_trace_probe_attached").filter(|(_, value)| *value == 1.0);
    probes.filter_map(|(labels, _)| labels.get("probe").cloned()).collect()
}

/// TLS with a certificate of its own.
fn web_configuration() -> Result<()> {
    fs::create_dir_all(FOLDER)?;
    let [cert, key] = ["web.crt", "web.key"].map(|name| format!("{FOLDER}/{name}"));
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=node \
        -addext subjectAltName=IP:127.0.0.1";
    let words: Vec<_> = request.split_whitespace().chain(["-keyout", &key, "-out", &cert]).collect();
    command("openssl", &words)?;
    // the service runs as another user
    command("chmod", &["a+r", &key])?;
    let text = "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\n";
    fs::write(format!("{FOLDER}/web.yml"), text).map_err(Into::into)
}

fn page(path: &str) -> Result<String> {
    let url = format!("https://{ADDRESS}{path}");
    command(
        "curl",
        &["--silent", "--fail", "--max-time", "60", "--cacert", &format!("{FOLDER}/web.crt"), &url],
    )
}

fn scrape_until(what: &str, look: impl Fn(&Metrics) -> Option<()>) -> Result<Metrics> {
    let found = until(what, ATTACH, || {
        sleep(Duration::from_millis(500));
        let metrics = page("/metrics").and_then(|page| Metrics::parse(&page)).ok();
        Ok(metrics.filter(|metrics| look(metrics).is_some()))
    });
    found.with_context(|| format!("{:?}\n{}", refused(PROFILE), journal().unwrap_or_default()))
}

#[test]
fn confined_it_does_what_it_does_otherwise() -> Result<()> {
    tracing()?;
    web_configuration()?;
    let free = attached(&service::scrape()?);
    let collector = Receiver::start()?;
    let all_refused =
        || -> Result<Vec<String>> { Ok([refused(PROFILE)?, refused(CONFINED_PROFILE)?].concat()) };
    let before = all_refused()?.len();
    let options = format!(
        "--tracepoints --runlists --web.config.file={FOLDER}/web.yml --record={RECORDINGS} --otlp.endpoint=http://{}",
        collector.address
    );
    let settings = settings(CONFINED)? + &settings(RECORDING)?;
    let confined = Changed::with(
        "apparmor",
        &format!("{settings}ExecStart=\nExecStart=/usr/bin/kfd-trace daemon {options}"),
    )?;
    let ready = until("the service to trace", ATTACH, || Ok(page("/-/ready").ok()));
    ready.with_context(|| format!("{:?}\n{}", refused(PROFILE), journal().unwrap_or_default()))?;

    let mut workload = Steered::having(&["create aql", "submit 0 5", "retire 0 2"])?;
    let pid = workload.pid().to_string();
    let metrics = scrape_until("its queue, and what it did", |metrics| {
        let backlog = metrics.sum("kfd_process_packets_backlog", &[("pid", &pid)])?;
        (backlog == 3.0 && metrics.sum("kfd_trace_otlp_up", &[])? == 1.0).then_some(())
    })?;
    for (name, value) in [
        ("kfd_process_queues", 1.0),
        ("kfd_process_queues_not_measured", 0.0),
        ("kfd_process_packets_submitted_total", 5.0),
    ] {
        ensure!(
            metrics.sum(name, &[("pid", &pid)]) == Some(value),
            "{name}: {:?}",
            metrics.sum(name, &[("pid", &pid)])
        );
    }
    ensure!(metrics.sum("kfd_trace_recording_up", &[]) == Some(1.0), "no recording");
    let collectors: Vec<_> = metrics.series("kfd_trace_collector_success").collect();
    ensure!(collectors.iter().all(|(_, success)| *success == 1.0), "{collectors:?}");
    let now = attached(&metrics);
    ensure!(!free.is_empty() && free.iter().all(|probe| now.contains(probe)), "{free:?}, confined {now:?}");
    ensure!(now.iter().any(|probe| probe.starts_with("tp_")), "no tracepoint: {now:?}");
    let diagnosis: Value = serde_json::from_str(&page("/api/v1/doctor")?)?;
    ensure!(diagnosis["complete"] == true, "{diagnosis}");
    workload.must("destroy 0")?;
    until("the end of the queue at the collector", ATTACH, || {
        let ended = |record: &kfd_trace_tests::harness::otlp::Received| {
            record.event == "kfd.queue_destroy" && record.attributes.get("process.pid") == Some(&pid)
        };
        Ok(collector.kept().iter().any(ended).then_some(()))
    })?;
    let profiles = profiles()?;
    println!("{profiles:?}");
    let names: Vec<_> = profiles.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["kfd-trace", "kfd-trace-web", "kfd-trace-otlp"] {
        ensure!(names.contains(&name), "no {name}: {names:?}");
    }
    for (name, profile) in &profiles {
        let own = if name == "kfd-trace" { PROFILE } else { "kfd-trace//&kfd-trace-confined" };
        ensure!(*profile == format!("{own} (enforce)"), "{profiles:?} {:?}", all_refused()?);
    }

    confined.undo()?;
    tracing()?;
    let lines = command("kfd-trace", &["replay", RECORDINGS, "--json", "--pid", &pid])?;
    let events: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(events.iter().any(|line| line["event"] == "queue_destroy"), "{lines}");
    let refused = all_refused()?;
    ensure!(refused.len() == before, "refused: {refused:#?}");
    fs::remove_dir_all(fs::canonicalize(RECORDINGS)?)?;
    fs::remove_dir_all(FOLDER)?;
    workload.finish().map(drop)
}

/// The program under the profile, as the unit starts it.
fn under_the_profile(words: &[&str]) -> Result<Output> {
    Command::new("aa-exec")
        .args(["-p", PROFILE, "--", "/usr/bin/kfd-trace"])
        .args(words)
        .output()
        .context("run aa-exec")
}

#[test]
fn what_the_profile_does_not_have_is_refused() -> Result<()> {
    tracing()?;
    let before = refused(PROFILE)?.len();
    let read = under_the_profile(&["replay", "/etc/shadow"])?;
    let text = String::from_utf8_lossy(&read.stderr).into_owned();
    ensure!(!read.status.success() && text.contains("Permission denied"), "{read:?}");
    let ran = under_the_profile(&["run", "--", "/bin/true"])?;
    ensure!(!ran.status.success(), "{ran:?}");
    let refused = refused(PROFILE)?.split_off(before);
    println!("{text}{}{refused:#?}", String::from_utf8_lossy(&ran.stderr));
    for (operation, name) in [("open", "/etc/shadow"), ("exec", "/bin/true")] {
        let is = |line: &&String| line.contains(&format!("operation=\"{operation}\"")) && line.contains(name);
        ensure!(refused.iter().any(|line| is(&line)), "{name}: {refused:#?}");
    }
    // The same from a shell is confined by nothing.
    let free = Command::new("kfd-trace").args(["replay", "/etc/shadow"]).output()?;
    let text = String::from_utf8_lossy(&free.stderr).into_owned();
    ensure!(!text.contains("Permission denied"), "{text}");
    command("kfd-trace", &["run", "--", "/bin/true"])?;
    ensure!(main_pid()?.is_some(), "it runs");
    Ok(())
}

/// Without the drop-in nothing confines the daemon, and the package has loaded the profiles.
#[test]
fn the_process_that_serves_has_a_profile_by_default() -> Result<()> {
    tracing()?;
    let profiles = profiles()?;
    println!("{profiles:?}");
    let of = |process: &str| {
        let found = profiles.iter().find(|(name, _)| name == process);
        found.map(|(_, profile)| profile.as_str()).with_context(|| format!("no {process}: {profiles:?}"))
    };
    ensure!(of("kfd-trace")? == "unconfined", "{profiles:?}");
    let mut stacked: Vec<_> =
        of("kfd-trace-web")?.split(' ').next().context("a label")?.split("//&").collect();
    stacked.sort_unstable();
    ensure!(stacked == [CONFINED_PROFILE, "unconfined"], "{profiles:?}");
    Ok(())
}

/// What the daemon's profile has for the daemon alone, and what the others need of it, each as an attempt.
fn attempts() -> Vec<(&'static str, bool, io::Result<()>)> {
    let open = |path: &str| File::open(path).map(drop);
    // SAFETY: SYSLOG_ACTION_SIZE_UNREAD takes no buffer.
    let kernel_log = match unsafe { libc::klogctl(9, std::ptr::null_mut(), 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    vec![
        ("another process's mappings", false, open("/proc/1/maps")),
        ("another process's memory", false, open("/proc/1/mem")),
        ("another process's arguments", false, open("/proc/1/cmdline")),
        ("addresses of the kernel", false, open("/proc/kallsyms")),
        ("the driver", false, fs::read_dir("/sys/class/kfd").map(drop)),
        ("the machine's ID", false, open("/etc/machine-id")),
        ("to resolve names", false, UdpSocket::bind("127.0.0.1:0").map(drop)),
        ("a capability", false, kernel_log),
        ("its program", false, Command::new("/usr/bin/kfd-trace").arg("--version").output().map(drop)),
        ("its descriptors", true, fs::read_dir("/proc/self/fd").map(drop)),
        ("a connection", true, TcpStream::connect(ADDRESS).map(drop)),
    ]
}

/// One thread of this test takes the profiles as the daemon's processes do.
#[test]
fn what_only_the_daemon_may_is_refused_to_its_other_processes() -> Result<()> {
    tracing()?;
    let change = |how: &str| fs::write("/proc/thread-self/attr/apparmor/current", how);
    let tried = std::thread::spawn(move || -> Result<_> {
        change("changeprofile kfd-trace")?;
        let daemon = attempts();
        change("stack kfd-trace-confined")?;
        Ok((daemon, attempts(), change("changeprofile kfd-trace"), change("changeprofile unconfined")))
    });
    let (daemon, confined, daemon_again, unconfined) =
        tried.join().map_err(|_| anyhow!("the thread panicked"))??;
    println!("{daemon:#?}\n{confined:#?}\n{daemon_again:?} {unconfined:?}");
    for (what, _, result) in daemon {
        result.with_context(|| format!("{what} of the daemon"))?;
    }
    let is_refused = |result: &io::Result<()>| {
        result.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    for (what, needed, result) in &confined {
        ensure!(if *needed { result.is_ok() } else { is_refused(result) }, "{what}: {result:?}");
    }
    ensure!(is_refused(&daemon_again) && is_refused(&unconfined), "{daemon_again:?} {unconfined:?}");
    Ok(())
}

/// As the profiles that Docker and containerd make for containers: other processes with the same profile alone may look
/// into one.
const CONTAINER: &str = "profile kfd-test-container flags=(attach_disconnected, mediate_deleted) {
  network,
  capability,
  file,
  umount,
  signal (receive) peer=unconfined,
  ptrace (trace, read, tracedby, readby) peer=kfd-test-container,
  MORE
}
";

/// Loads it.
fn container(more: &str) -> Result<()> {
    let mut parser =
        Command::new("apparmor_parser").args(["--replace", "--skip-cache"]).stdin(Stdio::piped()).spawn()?;
    parser.stdin.take().context("a pipe")?.write_all(CONTAINER.replace("MORE", more).as_bytes())?;
    ensure!(parser.wait()?.success(), "the profile is not loaded");
    Ok(())
}

/// A process with a queue in it, which works.
fn contained() -> Result<Steered> {
    let mut command = Command::new("aa-exec");
    let mut workload =
        Steered::start_by(command.args(["-p", "kfd-test-container", "--", &program(), "script"]))?;
    ["create aql", "submit 0 5"].iter().try_for_each(|operation| workload.must(operation))?;
    Ok(workload)
}

/// Waits until its one queue is measured, or known not to be.
fn measured(workload: &Steered, wanted: bool) -> Result<()> {
    let pid = workload.pid().to_string();
    let look = |metrics: &Metrics| {
        let [queues, not] = ["kfd_process_queues", "kfd_process_queues_not_measured"]
            .map(|name| metrics.sum(name, &[("pid", &pid)]));
        (queues == Some(1.0) && not == Some(if wanted { 0.0 } else { 1.0 })).then_some(())
    };
    service::scrape_until(if wanted { "a queue that is measured" } else { "one that is not" }, look)
}

/// Why docs/install.md has the profile as a choice.
#[test]
fn confined_it_looks_into_containers_whose_profile_lets_it() -> Result<()> {
    tracing()?;
    container("")?;
    let mut early = contained()?;
    measured(&early, true)?;
    let confined = Changed::with("apparmor", &settings(CONFINED)?)?;
    tracing()?;
    measured(&early, false)?;
    let denied = service::scrape()?.sum("kfd_trace_sample_errors_total", &[("reason", "denied")]);
    ensure!(denied.is_some_and(|denied| denied > 0.0), "{denied:?}");
    let of_container = refused("kfd-test-container")?;
    ensure!(of_container.iter().any(|line| line.contains("tracedby")), "{of_container:?}");
    container("ptrace (readby, tracedby) peer=kfd-trace,")?;
    // One that is there already keeps, for this check, the profile that it started with.
    let mut late = contained()?;
    measured(&late, true)?;
    confined.undo()?;
    tracing()?;
    measured(&early, true)?;
    early.finish()?;
    late.finish().map(drop)
}
