//! Prometheus and VictoriaMetrics of Debian's packages, unpacked below target/: started on free ports of loopback with data
//! in a folder of their own, and ended with the value.

use super::http;
use crate::apt::{self, Apt};
use crate::check::rules::read;
use crate::paths;
use crate::run::{self, Ended, size, step};
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a program may take to answer first.
const STARTS: Duration = Duration::from_secs(60);

/// Below deploy/prometheus.
pub(super) const RULES: [&str; 2] = ["fleet.rules.yml", "kfd-trace.rules.yml"];

/// Seconds between two looks at what programs take.
const LOOK: u64 = 5;

/// A run ends before this machine has less memory left.
const RESERVE: u64 = 4 << 30;

/// Of `utime` and `stime` in `/proc/PID/stat`.
const TICK_MS: u64 = 10;

pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) data: PathBuf,
    process: Ended,
}

/// What a program took since it began.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) cpu_ms: u64,
    pub(super) resident: u64,
    pub(super) highest: u64,
    pub(super) disk: u64,
}

impl Program {
    fn start(name: &'static str, dir: &Path, port: u16, ready: &str, command: &mut Command) -> Result<Self> {
        let log = File::create(dir.join("log")).context("cannot write a log")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut process = Ended(command.spawn().with_context(|| format!("cannot run {name}"))?);
        let begin = Instant::now();
        while http::get(port, ready).is_err() {
            let ended = process.0.try_wait()?;
            ensure!(
                ended.is_none() && begin.elapsed() < STARTS,
                "{name} does not start: see {}",
                dir.display()
            );
            sleep(Duration::from_millis(100));
        }
        Ok(Program { name, port, data: dir.join("data"), process })
    }

    /// Ends it as a service manager would, so that it writes what it has in memory.
    pub(super) fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.process.0.id())?), Signal::SIGTERM)?;
        self.process.0.wait()?;
        Ok(())
    }

    pub(super) fn taken(&self) -> Result<Taken> {
        Ok(Taken { disk: bytes_below(&self.data)?, ..taken(self.process.0.id())? })
    }
}

pub(super) fn taken(pid: u32) -> Result<Taken> {
    let proc = Path::new("/proc").join(pid.to_string());
    let stat = fs::read_to_string(proc.join("stat")).context("it has ended")?;
    // The name, in parentheses, can have blanks.
    let (_, fields) = stat.rsplit_once(')').context("no stat")?;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    let kib =
        |name| Ok::<_, anyhow::Error>(u64::try_from(run::status_number(&proc.join("status"), name)?)? * 1024);
    Ok(Taken { cpu_ms: ticks * TICK_MS, resident: kib("VmRSS")?, highest: kib("VmHWM")?, disk: 0 })
}

/// A program that is killed when this one ends in any way: it may have gigabytes.
fn ends_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// CPU time that all programs of this machine took.
pub(super) fn busy_ms() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let cpus = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = cpus.filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, and after idle and iowait: irq, softirq (proc_stat(5)).
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum();
    Ok(busy * TICK_MS)
}

/// Memory that programs can still get.
pub(super) fn available() -> Result<u64> {
    Ok(u64::try_from(run::status_number(Path::new("/proc/meminfo"), "MemAvailable")?)? * 1024)
}

/// Of all files below a folder, some of which may vanish meanwhile.
pub(super) fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => folders.push(path),
                Ok(meta) => bytes += meta.len(),
                Err(_) => {}
            }
        }
    }
    Ok(bytes)
}

/// Sleeps, as long as these programs have no more than `most` bytes together and some are left: others need memory, too.
pub(super) fn rest(programs: &[&Program], seconds: u64, most: u64) -> Result<()> {
    for _ in 0..seconds.div_ceil(LOOK) {
        sleep(Duration::from_secs(seconds.min(LOOK)));
        let taken = programs.iter().map(|program| Ok((program.name, program.taken()?.resident)));
        has_memory(&taken.collect::<Result<Vec<_>>>()?, most)?;
    }
    Ok(())
}

fn has_memory(taken: &[(&str, u64)], most: u64) -> Result<()> {
    let (sum, left) = (taken.iter().map(|(_, bytes)| bytes).sum::<u64>(), available()?);
    let each: Vec<_> = taken.iter().map(|(name, bytes)| format!("{name} {}", size(*bytes))).collect();
    ensure!(sum < most && left > RESERVE, "memory: {}; {} are left", each.join(", "), size(left));
    Ok(())
}

/// Has so many nodes scraped, and waits until the program at this port has, `rest`ing, or a while longer than it should take.
pub(super) fn scrape_nodes(
    list: &Path,
    server: u16,
    nodes: u64,
    interval: u64,
    port: u16,
    rest: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    step(format!("{nodes} nodes, scraped every {interval} s"));
    write_nodes(list, server, nodes)?;
    let (begin, most) = (Instant::now(), Duration::from_secs(interval * 4 + 60));
    while begin.elapsed() < most {
        rest(LOOK)?;
        if http::number(port, "count(up{job=\"kfd-trace\"})").unwrap_or(0.0) >= nodes as f64 {
            break;
        }
    }
    Ok(())
}

/// An empty folder below target/fleet.
pub(super) fn folder(name: &str) -> Result<PathBuf> {
    let dir = paths::target().join("fleet").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("data")).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Which nodes are scraped, for both programs; they read the file again every few seconds.
pub(super) fn write_nodes(file: &Path, port: u16, nodes: u64) -> Result<()> {
    let target = |index: u64| {
        json!({
            "targets": [format!("127.0.0.1:{port}")],
            "labels": {"__metrics_path__": format!("/nodes/{index}"), "instance": format!("node-{index}")},
        })
    };
    let all: Vec<_> = (0..nodes).map(target).collect();
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_string(&all)?).context("cannot write the list of nodes")?;
    fs::rename(&new, file).context("cannot place the list of nodes")
}

fn scrape(nodes: &Path) -> String {
    format!(
        "scrape_configs:\n  - job_name: kfd-trace\n    file_sd_configs: [{{ files: ['{}'] }}]\n",
        nodes.display()
    )
}

/// Families that texts name.
fn names(texts: &[String]) -> BTreeSet<&str> {
    let word = |byte: char| !(byte.is_ascii_alphanumeric() || byte == '_' || byte == ':');
    texts.iter().flat_map(|text| text.split(word)).filter(|name| name.starts_with("kfd_")).collect()
}

/// What Prometheus sends where.
pub(super) struct Sends<'a> {
    pub(super) to: &'a Program,
    pub(super) names: &'static str,
}

/// As docs/fleet.md sets it up. `needed`: only families that the rules name are kept of a scrape.
pub(super) fn prometheus(nodes: &Path, interval: u64, sends: &[Sends<'_>], needed: bool) -> Result<Program> {
    let dir = folder("prometheus")?;
    let rules = paths::root().join("deploy/prometheus");
    let mut config = format!(
        "global:\n  scrape_interval: {interval}s\n  scrape_timeout: {interval}s\n  evaluation_interval: {interval}s\n  \
         external_labels: {{ cluster: simulated }}\nrule_files: ['{0}/kfd-trace.rules.yml', '{0}/fleet.rules.yml']\n{1}",
        rules.display(),
        scrape(nodes)
    );
    if needed {
        let texts = [read(&rules.join("kfd-trace.rules.yml"))?, read(&rules.join("fleet.rules.yml"))?];
        let names = names(&texts);
        config += &format!(
            "    metric_relabel_configs:\n      - {{ source_labels: [__name__], regex: '{}', action: keep }}\n",
            names.into_iter().collect::<Vec<_>>().join("|")
        );
    }
    config += "remote_write:\n";
    for Sends { to, names } in sends {
        config += &format!(
            "  - url: http://127.0.0.1:{}/api/v1/write\n    write_relabel_configs:\n      \
             - {{ source_labels: [__name__], regex: '{names}', action: keep }}\n",
            to.port
        );
    }
    let file = dir.join("prometheus.yml");
    fs::write(&file, config).context("cannot write Prometheus' configuration")?;
    let port = free_port()?;
    let mut command = ends_with_us(&apt::unpacked("prometheus", Apt::open)?.join("usr/bin/prometheus"));
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    Program::start("prometheus", &dir, port, "/-/ready", &mut command)
}

/// `scrapes`: the list of nodes, and seconds from scrape to scrape. It leaves out the last 30 s of data by default.
pub(super) fn victoria_metrics(name: &'static str, scrapes: Option<(&Path, u64)>) -> Result<Program> {
    let dir = folder(name)?;
    let port = free_port()?;
    let mut command =
        ends_with_us(&apt::unpacked("victoria-metrics", Apt::open)?.join("usr/bin/victoria-metrics"));
    command
        .arg(format!("-storageDataPath={}", dir.join("data").display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .args(["-search.latencyOffset=0s", "-retentionPeriod=1", "-search.maxUniqueTimeseries=10000000"])
        .args([
            "-search.maxSeries=10000000",
            "-search.maxQueryDuration=60s",
            "-search.maxSamplesPerQuery=2000000000",
        ]);
    if let Some((nodes, interval)) = scrapes {
        let file = dir.join("scrape.yml");
        let global = format!("global:\n  scrape_interval: {interval}s\n  scrape_timeout: {interval}s\n");
        fs::write(&file, global + &scrape(nodes)).context("cannot write its configuration")?;
        command.arg(format!("-promscrape.config={}", file.display()));
        command.args(["-promscrape.fileSDCheckInterval=5s", "-promscrape.maxScrapeSize=64MB"]);
    }
    Program::start(name, &dir, port, "/health", &mut command)
}

/// Evaluates both files of rules by queries to the store, and writes what they record into it.
pub(super) fn vmalert(store: &Program, interval: u64) -> Result<Program> {
    let dir = folder("vmalert")?;
    let port = free_port()?;
    let mut command = ends_with_us(&apt::unpacked("victoria-metrics", Apt::open)?.join("usr/bin/vmalert"));
    let rules = paths::root().join("deploy/prometheus");
    let url = format!("http://127.0.0.1:{}", store.port);
    for file in RULES {
        command.arg(format!("-rule={}", rules.join(file).display()));
    }
    command
        .args([format!("-datasource.url={url}"), format!("-remoteWrite.url={url}")])
        // It wants one; no alert of a simulation is anybody's.
        .arg(format!("-notifier.url={url}"))
        .args([
            format!("-evaluationInterval={interval}s"),
            format!("-datasource.queryStep={}s", interval * 2),
        ])
        .args(["-disableAlertgroupLabel", "-external.label=cluster=simulated"])
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"));
    Program::start("vmalert", &dir, port, "/health", &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_in_rules() {
        let text =
            "expr: sum(rate(kfd_a_total[5m])) / fleet:kfd_b:sum or kfd_a_total{x=\"kfd_c\"}".to_owned();
        assert_eq!(names(&[text]).into_iter().collect::<Vec<_>>(), ["kfd_a_total", "kfd_c"]);
    }
}
