//! Bytes that a sample takes on disk: two hours of one node's expositions, with the times that they would have, given to
//! VictoriaMetrics and to promtool, which makes a block as Prometheus does.

use super::budget::series;
use super::http::{self, Own};
use super::programs::{self, bytes_below};
use super::render::Sheet;
use super::shape::{Node, Shape};
use crate::check::rules;
use crate::run;
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// As much as Prometheus has in one of its blocks.
const HOURS: u64 = 2;

/// Bytes of one sample, in either.
pub(super) struct Stored {
    pub(super) samples: u64,
    pub(super) victoria_metrics: f64,
    /// Of these, what the names and labels take.
    pub(super) index: f64,
    pub(super) prometheus: f64,
}

pub(super) fn of(sheet: &Sheet, shape: Shape, interval: u64) -> Result<Stored> {
    let node = Node::new(1, shape);
    let store = programs::victoria_metrics("storage", None)?;
    let dir = programs::folder("blocks")?;
    let lines = dir.join("lines");
    let mut file = BufWriter::new(File::create(&lines).context("cannot write samples")?);
    // A whole block of Prometheus: these begin at even hours of UTC.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let begin = now / (HOURS * 3600) * (HOURS * 3600) - HOURS * 3600;
    let (mut text, mut samples) = (String::new(), 0);
    for scrape in 0..HOURS * 3600 / interval {
        let at = begin + scrape * interval;
        text.clear();
        sheet.render(&node, scrape * interval * 1000, &mut text);
        samples += series(&text).count() as u64;
        http::post(store.port, &format!("/api/v1/import/prometheus?timestamp={at}000"), &text)?;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            writeln!(file, "{line} {at}")?;
        }
    }
    writeln!(file, "# EOF")?;
    file.flush()?;
    for path in ["/internal/force_flush", "/internal/force_merge"] {
        http::get(store.port, path)?;
    }
    let rows = Own::of(store.port)?.sum("vm_rows", "type=\"storage/");
    ensure!(rows == samples as f64, "{rows} of {samples} samples were stored");
    let mut promtool = Command::new(rules::promtool()?);
    promtool.args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"]).arg(&lines).arg(dir.join("data"));
    run::output(&mut promtool)?;
    // What it has merged is placed when it ends at the latest.
    let data = store.data.clone();
    store.stop()?;
    let each = |bytes: u64| bytes as f64 / samples as f64;
    let stored = Stored {
        samples,
        // Its caches, beside them, do not grow with the samples.
        victoria_metrics: each(bytes_below(&data.join("data"))? + bytes_below(&data.join("indexdb"))?),
        index: each(bytes_below(&data.join("indexdb"))?),
        prometheus: each(bytes_below(&dir.join("data"))?),
    };
    fs::remove_file(lines).context("cannot remove the samples")?;
    Ok(stored)
}
