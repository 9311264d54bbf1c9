//! Tables of what was found, as docs/fleet.md has them.

use super::budget;
use super::http::{Own, number};
use super::live::{Run, Stores, Watched};
use super::programs::{Program, Taken};
use super::queries::{self, Query};
use super::render::Sheet;
use super::shape::Shape;
use super::storage;
use crate::run::{note, size, step};
use anyhow::Result;

pub(super) fn budgets(sheet: &Sheet, interval: u64) -> Result<()> {
    step(format!("one node of each shape, scraped every {interval} s"));
    println!("{}", budget::HEAD);
    for shape in Shape::ALL {
        println!("{}", budget::row(shape, &budget::of(sheet, shape)?, interval));
    }
    Ok(())
}

pub(super) fn storage(sheet: &Sheet, interval: u64) -> Result<()> {
    step(format!("two hours of one node of each shape, scraped every {interval} s"));
    println!(
        "| shape | samples | VictoriaMetrics, bytes a sample | of these, index | Prometheus |\n|---|--:|--:|--:|--:|"
    );
    for shape in Shape::ALL {
        let stored = storage::of(sheet, shape, interval)?;
        println!(
            "| {} | {} | {:.2} | {:.2} | {:.2} |",
            shape.name(),
            stored.samples,
            stored.victoria_metrics,
            stored.index,
            stored.prometheus
        );
    }
    Ok(())
}

pub(super) const GROWTH: &str = "\
| nodes | series | samples/s | fleet rules, s | other rules, s | slowest scrape, s | Prometheus, CPUs | its memory | CPUs of all else | limit |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|";

pub(super) fn growth(watched: &Watched, limits: &[String]) -> String {
    let (_, cpu, taken) = watched.programs.first().copied().unwrap_or_default();
    format!(
        "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {cpu:.2} | {} | {:.2} | {} |",
        watched.nodes,
        watched.series,
        watched.samples_a_second,
        watched.rules[0].1,
        watched.rules[1].1,
        watched.slowest_scrape,
        size(taken.resident),
        watched.others,
        limits.join("; ")
    )
}

pub(super) fn run(run: Run, watched: &Watched, interval: u64) -> Result<()> {
    let nodes = watched.nodes as f64;
    let kept = number(run.store.port, "count({__name__=~\"fleet:.+\"})")?;
    println!("| figure | |\n|---|--:|");
    let row = |name: &str, value: String| println!("| {name} | {value} |");
    row("nodes, scraped", format!("{}, {}", watched.nodes, watched.up));
    row("series scraped, a node", format!("{:.0}, {:.0}", watched.series, watched.series / nodes));
    row("series kept, a node", format!("{kept:.0}, {:.1}", kept / nodes));
    row("samples/s into Prometheus, rules included", format!("{:.0}", watched.samples_a_second));
    row("samples/s into the store of sums", format!("{:.0}", watched.kept_a_second));
    row("samples/s into the store of all", format!("{:.0}", watched.full_a_second));
    row("MB/s served, not compressed", format!("{:.1}", watched.served_a_second / 1e6));
    row("slowest scrape, s", format!("{:.2}", watched.slowest_scrape));
    for (name, took) in &watched.rules {
        row(&format!("{name}, longest evaluation, s"), format!("{took:.2}"));
    }
    for (name, cpu, taken) in &watched.programs {
        println!("{}", self::taken(name, *cpu, *taken));
    }
    row("CPUs, taken by all else", format!("{:.0}, {:.2}", watched.cpus, watched.others));
    for store in std::iter::once(&run.store).chain(&run.full) {
        let own = Own::of(store.port)?;
        let (rows, bytes) = (own.sum("vm_rows", "type=\"storage/"), own.sum("vm_data_size_bytes", ""));
        row(&format!("{}: rows, bytes each on disk", store.name), format!("{rows:.0}, {:.2}", bytes / rows));
    }
    row(
        "limits",
        match watched.limits(interval) {
            limits if limits.is_empty() => "none".to_owned(),
            limits => limits.join("; "),
        },
    );
    println!("\n| slowest rules | s |\n|---|--:|");
    for (name, took) in run.slowest_rules()?.iter().take(6) {
        println!("| `{name}` | {took:.3} |");
    }
    questions(&run.only_stores())
}

/// A row: what a program took.
pub(super) fn taken(name: &str, cpus: f64, taken: Taken) -> String {
    let memory = format!("{} (at most {})", size(taken.resident), size(taken.highest));
    format!("| {name}: CPUs, memory, disk | {cpus:.2}, {memory}, {} |", size(taken.disk))
}

/// Each store is asked what it has the series for.
fn questions(run: &Stores) -> Result<()> {
    ask_all(&run.store, &queries::of_sums()?)?;
    run.full.as_ref().map_or(Ok(()), |full| ask_all(full, &queries::of_nodes()?))
}

pub(super) fn ask_all(store: &Program, all: &[Query]) -> Result<()> {
    step(format!("{} queries to {}", all.len(), store.name));
    println!("\n| {} | series | ms |\n|---|--:|--:|", store.name);
    let (mut sum, mut longest) = (0.0, 0.0_f64);
    for query in all {
        match queries::ask(store.port, query) {
            Ok(answer) => {
                let took = answer.least.as_secs_f64() * 1e3;
                sum += took;
                longest = longest.max(took);
                println!("| {}: `{}` | {} | {took:.1} |", query.from, query.expr, answer.series);
            }
            Err(error) => note(format!("{}: {}: {error:#}", query.from, query.expr)),
        }
    }
    println!("| {} queries; the longest {longest:.1} ms | | {sum:.1} |", all.len());
    Ok(())
}
