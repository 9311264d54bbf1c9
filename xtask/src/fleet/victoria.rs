//! A run without Prometheus: VictoriaMetrics scrapes the simulated nodes, vmalert evaluates the rules by queries to it and
//! writes the sums into it, and all questions are asked of it.

use super::Args;
use super::http::{self, Own};
use super::programs::{self, Program, RULES, Taken};
use super::queries;
use super::render::Sheet;
use super::report::{self, ask_all};
use super::serve::Server;
use crate::run::note;
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::Instant;

struct Run {
    server: Server,
    store: Program,
    rules: Program,
    list: PathBuf,
    interval: u64,
    memory: u64,
}

pub(super) fn run(sheet: Sheet, args: &Args) -> Result<()> {
    let run = Run::start(sheet, args)?;
    run.grow(args.nodes)?;
    run.watch(args.nodes, args.minutes * 60)?;
    let Run { server: _server, store, rules, .. } = run;
    // The nodes are scraped on while the questions are asked, as they are in a fleet.
    rules.stop()?;
    ask_all(&store, &queries::of_sums()?)?;
    ask_all(&store, &queries::of_nodes()?)
}

impl Run {
    fn start(sheet: Sheet, args: &Args) -> Result<Self> {
        let Args { shape, interval, .. } = *args;
        let memory = args.memory.map_or(programs::available()? / 2, |gib| gib << 30);
        let list = programs::folder("nodes")?.join("nodes.json");
        let server = Server::start(sheet, shape)?;
        programs::write_nodes(&list, server.port, 0)?;
        let store = programs::victoria_metrics("full-store", Some((&list, interval)))?;
        let rules = programs::vmalert(&store, interval)?;
        Ok(Run { server, store, rules, list, interval, memory })
    }

    /// Has so many nodes scraped, and waits until they are and the rules have seen them.
    fn grow(&self, nodes: u64) -> Result<()> {
        let (server, interval, port) = (self.server.port, self.interval, self.store.port);
        programs::scrape_nodes(&self.list, server, nodes, interval, port, |seconds| self.rest(seconds))?;
        self.rest(interval * 4)
    }

    fn rest(&self, seconds: u64) -> Result<()> {
        programs::rest(&self.programs(), seconds, self.memory)
    }

    fn programs(&self) -> [&Program; 2] {
        [&self.store, &self.rules]
    }

    fn number(&self, expr: &str) -> Result<f64> {
        http::number(self.store.port, expr)
    }

    fn taken(&self) -> Result<Vec<(&'static str, Taken)>> {
        let taken = self.programs().map(|program| Ok((program.name, program.taken()?)));
        let mut all = taken.into_iter().collect::<Result<Vec<_>>>()?;
        all.push(("simulator", programs::taken(std::process::id())?));
        Ok(all)
    }

    fn watch(&self, nodes: u64, seconds: u64) -> Result<()> {
        note(format!("watching for {seconds} s"));
        let own = |program: &Program| Own::of(program.port);
        let rows = |own: &Own| own.sum("vm_rows_inserted_total", "");
        let (begin, busy_ms, before) = (Instant::now(), programs::busy_ms()?, self.taken()?);
        let (of_store, of_rules) = (own(&self.store)?, own(&self.rules)?);
        self.rest(seconds)?;
        let (store, rules) = (own(&self.store)?, own(&self.rules)?);
        let took = begin.elapsed().as_secs_f64();
        let up = self.number("sum(up{job=\"kfd-trace\"})")?;
        ensure!(up == nodes as f64, "{up} of {nodes} nodes are scraped");
        let series = self.number("sum(scrape_samples_post_metric_relabeling{job=\"kfd-trace\"})")?;
        let kept = self.number("count({__name__=~\"fleet:.+\"})")?;
        println!("| figure | |\n|---|--:|");
        let row = |name: &str, value: String| println!("| {name} | {value} |");
        let a_node = |count: f64| format!("{count:.0}, {:.1}", count / nodes as f64);
        row("series scraped, a node", a_node(series));
        row("series kept, a node", a_node(kept));
        row("samples/s, rules included", format!("{:.0}", (rows(&store) - rows(&of_store)) / took));
        row(
            "slowest scrape, s",
            format!("{:.2}", self.number("max(scrape_duration_seconds{job=\"kfd-trace\"})")?),
        );
        for file in RULES {
            let longest =
                rules.sum("vmalert_iteration_duration_seconds", &format!("/{file}\",quantile=\"1\""));
            row(&format!("{file}, longest evaluation, s"), format!("{longest:.2}"));
        }
        for family in
            ["vmalert_iteration_total", "vmalert_iteration_missed_total", "vmalert_execution_errors_total"]
        {
            row(family, format!("{:.0}", rules.sum(family, "") - of_rules.sum(family, "")));
        }
        let mut all = 0.0;
        for ((name, before), (_, after)) in before.iter().zip(self.taken()?) {
            let cpus = after.cpu_ms.saturating_sub(before.cpu_ms) as f64 / 1000.0 / took;
            all += cpus;
            println!("{}", report::taken(name, cpus, after));
        }
        let busy = programs::busy_ms()?.saturating_sub(busy_ms) as f64 / 1000.0 / took;
        row("CPUs, taken by all else", format!("{:.2}", (busy - all).max(0.0)));
        Ok(())
    }
}
