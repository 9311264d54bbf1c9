//! `cargo xtask dashboards`: Grafana's dashboards below deploy/grafana, from one row per panel, and the
//! checks on them.

use crate::check::rules::{self, Names};
use crate::paths;
use crate::run::{self, note};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

mod activity;
mod check;
mod fleet;
mod json;
mod node;
mod panel;
mod process;
mod schema;
mod sums;
mod totals;
mod variable;

const FOLDER: &str = "deploy/grafana";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing: fail where a file is not as it would be written
    #[arg(long)]
    check: bool,
    /// Hold the files against the schema of the Grafana that they are made for; needs npm, which fetches the
    /// schema
    #[arg(long)]
    schema: bool,
}

fn all() -> [panel::Dashboard; 4] {
    [sums::dashboard(), fleet::dashboard(), node::dashboard(), process::dashboard()]
}

fn file(dashboard: &panel::Dashboard) -> PathBuf {
    paths::root().join(FOLDER).join(format!("{}.json", dashboard.name))
}

fn text(dashboard: &panel::Dashboard) -> Result<String> {
    Ok(serde_json::to_string_pretty(&json::dashboard(dashboard)).context("cannot write JSON")? + "\n")
}

/// # Errors
/// When a dashboard is wrong or cannot be written; each problem is reported.
pub(crate) fn dashboards(args: &Args) -> Result<()> {
    if args.schema {
        return schema::check(&all());
    }
    if args.check {
        return check();
    }
    for dashboard in all() {
        let file = file(&dashboard);
        fs::write(&file, text(&dashboard)?).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    check()
}

/// The part of the checks for `cargo xtask test`, which does not install npm.
pub(crate) fn test() -> Result<()> {
    check()?;
    if schema::has_npm() {
        return schema::check(&all());
    }
    note("not checked against Grafana's schema: npm is not installed");
    Ok(())
}

fn check() -> Result<()> {
    let dashboards = all();
    let root = paths::root();
    let rules = rules::read_rules()?;
    let metrics = rules::read(&root.join(rules::METRICS))?;
    let runbooks = rules::read(&root.join(rules::RUNBOOKS))?;
    let mut problems = check::problems(&dashboards, &Names::read(&metrics, &rules), &runbooks);
    for dashboard in &dashboards {
        let file = file(dashboard);
        if fs::read_to_string(&file).unwrap_or_default() != text(dashboard)? {
            let what = "not as xtask/src/check/dashboards has it: run `cargo xtask dashboards`";
            problems.push(format!("{}: {what}", file.display()));
        }
    }
    for problem in &problems {
        note(problem);
    }
    let queries = paths::target().join("dashboards.rules.yml");
    // JSON is YAML, too.
    fs::write(&queries, check::as_rules(&dashboards).to_string())
        .with_context(|| format!("cannot write {}", queries.display()))?;
    run::run(Command::new(rules::promtool()?).args(["check", "rules"]).arg(&queries))?;
    if !problems.is_empty() {
        bail!("problems with {FOLDER}: {}, see above", problems.len());
    }
    Ok(())
}
