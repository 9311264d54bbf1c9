//! `cargo xtask test`: every check there is, each announced, in the order of how soon it tells.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::closing::Totals;
use crate::guest;
use crate::run::{self, step};
use crate::series::Series;
use crate::{bench_daemon, dashboards, dist, fixtures, links, manifests, overhead, rules, setup, vm};

/// Crates that cargo can build for this machine: the BPF programs have their own target.
const HOST: [&str; 3] = ["--workspace", "--exclude", "kfd-trace-ebpf"];

/// Those that need kernel packages or rendered manifests are ignored in a plain `cargo test`.
const ALL: [&str; 4] = ["test", "--no-fail-fast", "--", "--include-ignored"];

/// `Ok(false)`: something failed, and was named.
pub(crate) fn test() -> Result<bool> {
    let start = Instant::now();
    // Without its tools nothing else can run.
    announce("set-up");
    setup::setup().and_then(|()| setup::packaging()).context("set-up")?;

    let mut totals = Totals::default();
    let mut failed: Vec<&str> = Vec::new();
    let mut check = |name: &'static str, work: &mut dyn FnMut() -> Result<()>| {
        announce(name);
        let begin = Instant::now();
        if let Err(error) = work() {
            eprintln!("error: {name}: {error:#}");
            failed.push(name);
        }
        step(format!("{name}: {:.1} s", begin.elapsed().as_secs_f64()));
    };
    check("format", &mut || run::run(guest::cargo().args(["fmt", "--all", "--check"])));
    check("lints", &mut || {
        run::run(guest::cargo().arg("clippy").args(HOST).args(["--all-targets", "--", "-D", "warnings"]))
    });
    check("links of the documentation", &mut links::links);
    check("packages", &mut dist::check::check);
    check("manifests of Kubernetes", &mut manifests::schemas);
    check("rules and exposition for Prometheus", &mut rules::rules);
    check("dashboards of Grafana", &mut dashboards::test);
    check("unit tests, and the kernel model on the matrix", &mut || {
        let dir = fixtures::fixtures()?;
        let mut all = guest::cargo();
        all.args(ALL).env("KFD_TRACE_FIXTURES", dir).env(manifests::VARIABLE, manifests::render()?);
        cargo_test(&mut all, &mut totals)?;
        let tests = ["test", "--no-fail-fast", "-p", "kfd-trace-tests", "--lib", "--bins"];
        cargo_test(guest::cargo().args(tests), &mut totals)
    });
    check("cost of the daemon", &mut || {
        if !bench_daemon::check()? {
            bail!("see above; `cargo xtask bench daemon --accept` accepts it");
        }
        Ok(())
    });
    check("cost of the probes", &mut || {
        if !overhead::check()? {
            bail!("see above; `cargo xtask bench overhead --accept` accepts it");
        }
        Ok(())
    });
    check("VM on the matrix", &mut || {
        let (ok, part) = vm::test(&Series::ALL, &[], &[], vm::LIMIT)?;
        totals.add(part);
        if !ok {
            bail!("see above");
        }
        Ok(())
    });

    println!();
    for name in &failed {
        println!("failed: {name}");
    }
    println!("{}", totals.line(failed.is_empty(), start.elapsed()));
    Ok(failed.is_empty())
}

fn announce(name: &str) {
    eprintln!("\n######## {name}");
}

/// Runs `cargo test`, passes its lines on and adds up its closing lines.
fn cargo_test(command: &mut Command, totals: &mut Totals) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no stdout")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read cargo's output")?;
        println!("{line}");
        if let Some(part) = Totals::parse(&line) {
            totals.add(part);
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        bail!("cargo test failed ({status})");
    }
    Ok(())
}
