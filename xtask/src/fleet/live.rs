//! A run: Prometheus scrapes the simulated nodes, evaluates the rules and sends the fleet's sums to one VictoriaMetrics,
//! while another one scrapes the same nodes itself; what each of them takes, and whether they keep up.

use super::Args;
use super::http::{self, Own, number};
use super::programs::{self, Program, RULES, Sends, Taken};
use super::render::Sheet;
use super::serve::Server;
use crate::run::note;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(super) struct Run {
    server: Server,
    prometheus: Program,
    /// What a fleet keeps: `fleet:.*`.
    pub(super) store: Program,
    /// All that the nodes export, and what kfd-trace.rules.yml records of it.
    pub(super) full: Option<Program>,
    interval: u64,
    /// Bytes that the programs may have together.
    memory: u64,
    list: PathBuf,
}

pub(super) struct Stores {
    pub(super) store: Program,
    pub(super) full: Option<Program>,
    /// Else the nodes would have no series now.
    _server: Server,
}

/// What is counted from its begin on.
struct Counted {
    at: Instant,
    appended: f64,
    missed: f64,
    failed: f64,
    sent: f64,
    full_rows: f64,
    served: u64,
    busy_ms: u64,
    taken: Vec<(&'static str, Taken)>,
}

/// Of a time in which it was watched.
pub(super) struct Watched {
    pub(super) nodes: u64,
    pub(super) up: f64,
    pub(super) series: f64,
    pub(super) samples_a_second: f64,
    pub(super) kept_a_second: f64,
    pub(super) full_a_second: f64,
    pub(super) served_a_second: f64,
    pub(super) slowest_scrape: f64,
    /// Seconds of each group's longest evaluation.
    pub(super) rules: Vec<(&'static str, f64)>,
    pub(super) missed: f64,
    pub(super) failed: f64,
    /// Share of one CPU, and memory.
    pub(super) programs: Vec<(&'static str, f64, Taken)>,
    /// CPUs that this machine has, and how many of them all else took.
    pub(super) cpus: f64,
    pub(super) others: f64,
}

impl Run {
    pub(super) fn start(sheet: Sheet, args: &Args) -> Result<Self> {
        let Args { shape, interval, .. } = *args;
        let with_full = !args.sums_only && !args.grow;
        let memory = args.memory.map_or(programs::available()? / 2, |gib| gib << 30);
        let list = programs::folder("nodes")?.join("nodes.json");
        let server = Server::start(sheet, shape)?;
        programs::write_nodes(&list, server.port, 0)?;
        let store = programs::victoria_metrics("store", None)?;
        let full = with_full
            .then(|| programs::victoria_metrics("full-store", Some((&list, interval))))
            .transpose()?;
        let mut sends = vec![Sends { to: &store, names: "fleet:.*" }];
        sends.extend(full.iter().map(|to| Sends { to, names: "instance_.*|ALERTS.*" }));
        let prometheus = programs::prometheus(&list, interval, &sends, args.needed)?;
        Ok(Run { server, prometheus, store, full, interval, memory, list })
    }

    /// Has so many nodes scraped, and waits until they are.
    pub(super) fn grow(&self, nodes: u64) -> Result<()> {
        let (server, interval, port) = (self.server.port, self.interval, self.prometheus.port);
        programs::scrape_nodes(&self.list, server, nodes, interval, port, |seconds| self.rest(seconds))?;
        // Rules over them, and the first long scrapes, are over.
        self.rest(interval * 3)
    }

    fn rest(&self, seconds: u64) -> Result<()> {
        programs::rest(&self.programs().collect::<Vec<_>>(), seconds, self.memory)
    }

    /// Ends Prometheus, whose memory the queries may need; the stores stay.
    pub(super) fn only_stores(self) -> Stores {
        let Run { server, prometheus, store, full, .. } = self;
        // What it has in memory is not needed any more.
        drop(prometheus);
        Stores { store, full, _server: server }
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        [&self.prometheus, &self.store].into_iter().chain(&self.full)
    }

    fn count(&self) -> Result<Counted> {
        let own = Own::of(self.prometheus.port)?;
        let full = self.full.as_ref().map(|full| Own::of(full.port)).transpose()?;
        let taken = self.programs().map(|program| Ok((program.name, program.taken()?)));
        let mut taken = taken.collect::<Result<Vec<_>>>()?;
        taken.push(("simulator", programs::taken(std::process::id())?));
        Ok(Counted {
            at: Instant::now(),
            appended: own.sum("prometheus_tsdb_head_samples_appended_total", ""),
            missed: own.sum("prometheus_rule_group_iterations_missed_total", ""),
            failed: own.sum("prometheus_rule_evaluation_failures_total", ""),
            sent: own.sum("prometheus_remote_storage_samples_total", &format!(":{}/", self.store.port)),
            full_rows: full.map_or(0.0, |full| full.sum("vm_rows_inserted_total", "promscrape")),
            served: self.server.fleet.bytes.load(Ordering::Relaxed),
            busy_ms: programs::busy_ms()?,
            taken,
        })
    }

    pub(super) fn watch(&self, nodes: u64, seconds: u64) -> Result<Watched> {
        note(format!("watching for {seconds} s"));
        let before = self.count()?;
        let mut rules = RULES.map(|file| (file, 0.0));
        for _ in 0..seconds.div_ceil(5) {
            self.rest(5)?;
            let own = Own::of(self.prometheus.port)?;
            for (file, longest) in &mut rules {
                let last = own.sum("prometheus_rule_group_last_duration_seconds", &format!("/{file};"));
                *longest = last.max(*longest);
            }
        }
        let after = self.count()?;
        let took = (after.at - before.at).as_secs_f64();
        let ask = |expr: &str| number(self.prometheus.port, expr);
        let cpus = |before: u64, after: u64| after.saturating_sub(before) as f64 / 1000.0 / took;
        let programs = before.taken.iter().zip(&after.taken);
        let programs: Vec<_> = programs
            .map(|((name, before), (_, after))| (*name, cpus(before.cpu_ms, after.cpu_ms), *after))
            .collect();
        let own_cpus: f64 = programs.iter().map(|(_, cpus, _)| cpus).sum();
        Ok(Watched {
            nodes,
            up: ask("sum(up{job=\"kfd-trace\"})")?,
            series: ask("sum(scrape_samples_post_metric_relabeling{job=\"kfd-trace\"})")?,
            samples_a_second: (after.appended - before.appended) / took,
            kept_a_second: (after.sent - before.sent) / took,
            full_a_second: (after.full_rows - before.full_rows) / took,
            served_a_second: (after.served - before.served) as f64 / took,
            slowest_scrape: ask("max(scrape_duration_seconds{job=\"kfd-trace\"})")?,
            rules: rules.to_vec(),
            missed: after.missed - before.missed,
            failed: after.failed - before.failed,
            programs,
            cpus: std::thread::available_parallelism()?.get() as f64,
            others: (cpus(before.busy_ms, after.busy_ms) - own_cpus).max(0.0),
        })
    }

    /// Each rule's last evaluation, the slowest first.
    pub(super) fn slowest_rules(&self) -> Result<Vec<(String, f64)>> {
        let answer: serde_json::Value =
            serde_json::from_str(&http::get(self.prometheus.port, "/api/v1/rules")?)?;
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default());
        let named = rules
            .filter_map(|rule| Some((rule["name"].as_str()?.to_owned(), rule["evaluationTime"].as_f64()?)));
        let mut all: Vec<_> = named.collect();
        all.sort_by(|one, other| other.1.total_cmp(&one.1));
        Ok(all)
    }
}

impl Watched {
    /// The limits that it has hit.
    pub(super) fn limits(&self, interval: u64) -> Vec<String> {
        let seconds = interval as f64;
        let mut hit = Vec::new();
        if self.up < self.nodes as f64 {
            hit.push(format!("{} of {} scrapes fail", self.nodes as f64 - self.up, self.nodes));
        }
        if self.samples_a_second < self.series / seconds * 0.95 {
            hit.push(format!(
                "{:.0} of {:.0} samples/s arrive",
                self.samples_a_second,
                self.series / seconds
            ));
        }
        let slow = self.rules.iter().filter(|(_, took)| *took > seconds);
        hit.extend(slow.map(|(name, took)| format!("{name} takes {took:.1} s")));
        if self.missed > 0.0 {
            hit.push(format!("{} evaluations of rules are left out", self.missed));
        }
        if self.failed > 0.0 {
            hit.push(format!("{} rules fail", self.failed));
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named() {
        let well = || Watched {
            nodes: 10,
            up: 10.0,
            series: 3_000.0,
            samples_a_second: 100.0,
            kept_a_second: 1.0,
            full_a_second: 0.0,
            served_a_second: 1.0,
            slowest_scrape: 0.1,
            rules: vec![("fleet.rules.yml", 0.2)],
            missed: 0.0,
            failed: 0.0,
            programs: Vec::new(),
            cpus: 2.0,
            others: 0.0,
        };
        assert!(well().limits(30).is_empty());
        for (worse, expected) in [
            (Watched { up: 8.0, ..well() }, "2 of 10 scrapes fail"),
            (Watched { samples_a_second: 90.0, ..well() }, "90 of 100 samples/s arrive"),
            (Watched { rules: vec![("fleet.rules.yml", 31.0)], ..well() }, "fleet.rules.yml takes 31.0 s"),
            (Watched { missed: 1.0, ..well() }, "1 evaluations of rules are left out"),
            (Watched { failed: 3.0, ..well() }, "3 rules fail"),
        ] {
            assert_eq!(worse.limits(30), [expected]);
        }
    }
}
