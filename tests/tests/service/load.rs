//! A load of all kinds: each query of the dashboards returns data, a scrape stays cheap, and nothing is left
//! of ended processes.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::dashboards::{PanelQuery, queries};
use kfd_trace_tests::harness::prometheus::{Prometheus, all_rules};
use kfd_trace_tests::harness::service::{ADDRESS, Changed, command, main_pid, scrape, scrape_until, tracing};
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Metrics, Steered, Workload, http, until};
use nix::unistd::{SysconfVar, sysconf};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

const DASHBOARDS: [&str; 4] = [
    include_str!("../../../deploy/grafana/sums.json"),
    include_str!("../../../deploy/grafana/fleet.json"),
    include_str!("../../../deploy/grafana/node.json"),
    include_str!("../../../deploy/grafana/process.json"),
];

/// What the busy process begins with.
const MADE: [&str; 4] = ["create aql", "create aql gpu=1", "create sdma", "alloc vram 1048576"];

/// Processes with queues of all types, and one that gets into trouble later.
struct Load {
    held: Workload,
    noise: Workload,
    busy: Steered,
}

impl Load {
    fn begin() -> Result<Self> {
        let held = Workload::ready(&["hold", "--aql=30", "--sdma=2"])?;
        let noise = Workload::ready(&["noise"])?;
        Ok(Self { held, noise, busy: Steered::having(&MADE)? })
    }

    /// Something of everything that is counted. Of its packets and SDMA commands some are left in the
    /// backlog.
    fn turn(&mut self) -> Result<()> {
        let work = ["submit 0 9", "retire 0 8", "submit 2 64", "retire 2 32"];
        for operation in work.iter().chain(&["create aql", "update 0 50", "cu-mask 0", "destroy 3"]) {
            self.busy.must(operation)?;
        }
        let refused = self.busy.act("create aql bad")?;
        ensure!(!refused["errno"].is_null(), "{refused}");
        kfdsim("evict", self.held.pid())?;
        kfdsim("quiesce", self.busy.pid()).and_then(|()| kfdsim("resume", self.busy.pid()))
    }

    fn pids(&self) -> [String; 3] {
        [self.held.pid(), self.noise.pid(), self.busy.pid()].map(|pid| pid.to_string())
    }
}

/// Faults, a hang and its reset: events that occur only on a bad day.
fn bad_day() -> Result<()> {
    let faulty = Steered::having(&["create aql"])?;
    kfdsim_at("vmfault", faulty.pid(), 0)?;
    let mut hung = Steered::having(&["create aql gpu=1"])?;
    kfdsim_at("hang", 1, 1)?;
    let reply = hung.act("update 0 50")?;
    ensure!(!reply["errno"].is_null(), "{reply}");
    Ok(())
}

/// CPU seconds that a process has used.
fn cpu(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("no name")?;
    // utime and stime, the 14th and 15th (proc(5)); the name is the second
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    let second = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?;
    Ok(ticks.iter().sum::<f64>() / f64::from(i32::try_from(second)?))
}

/// Upper limit of a scrape's cost, in seconds of CPU.
const SCRAPE: f64 = 0.1;

#[test]
fn is_shown_by_every_panel_and_leaves_nothing() -> Result<()> {
    tracing()?;
    let lingering = Changed::arguments("lingering", &["--metrics.linger=10s", "--runlists"])?;
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, &all_rules())?;
    bad_day()?;
    let mut load = Load::begin()?;
    let mut empty = all_queries(&load)?;
    let total = empty.len();
    let answered = until("an answer for each panel", ATTACH, || {
        load.turn()?;
        empty.retain(|query| !server.query(&query.expr).is_ok_and(|series| !series.is_empty()));
        Ok(empty.is_empty().then_some(()))
    });
    answered.with_context(|| format!("of {total} queries no data for {empty:#?}"))?;
    println!("all {total} queries of {} dashboards return data", DASHBOARDS.len());

    let pid = main_pid()?.context("it runs")?;
    let (before, times) = (cpu(pid)?, 20);
    for _ in 0..times {
        scrape()?;
    }
    let each = (cpu(pid)? - before) / f64::from(times);
    println!("a scrape under load, with all that the daemon does meanwhile: {:.1} ms of CPU", each * 1000.0);
    // measured by the guest's instructions, not by the host's time
    ensure!(each < SCRAPE, "{each} s");

    drop(server);

    let pids = load.pids();
    drop(load);
    let of_dead = |metrics: &Metrics| {
        let dead =
            |labels: &BTreeMap<String, String>| labels.get("pid").is_some_and(|pid| pids.contains(pid));
        metrics.samples.keys().all(|(_, labels)| !dead(labels)).then_some(())
    };
    scrape_until("the series of the dead to go", of_dead)?;
    lingering.undo()
}

/// For `cargo xtask picture` (xtask/src/vm/picture.rs).
#[test]
#[ignore = "prints a table, and the page that docs/page.png shows"]
fn pictures() -> Result<()> {
    tracing()?;
    let mut load = Load::begin()?;
    // A rate takes two samples, a second apart.
    for _ in 0..5 {
        load.turn()?;
        sleep(Duration::from_secs(1));
    }
    println!("$ kfd-trace ps\n{}", command("kfd-trace", &["ps"])?);
    println!("PICTURE BEGINS docs/page.png 1440x893\n{}\nPICTURE ENDS", http::get(ADDRESS, "/")?.body);
    Ok(())
}

fn all_queries(load: &Load) -> Result<Vec<PanelQuery>> {
    let (pid, address) = (load.busy.pid().to_string(), ADDRESS.to_string());
    let values = [
        ("job", "kfd-trace"),
        ("instance", &*address),
        ("instances", ".+"),
        ("clusters", ".*"),
        ("gpu", ".+"),
        ("pid", &pid),
        ("__rate_interval", "10s"),
        ("__range", "1m"),
    ];
    let each = DASHBOARDS.map(|json| queries(json, &values));
    let mut all = each.into_iter().collect::<Result<Vec<_>>>()?.concat();
    // A Prometheus gives its label to what it sends on, and does not have it itself.
    all.retain(|query| query.panel != "variable clusters");
    Ok(all)
}
