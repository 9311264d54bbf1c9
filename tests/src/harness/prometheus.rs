//! Debian's Prometheus in the guest: it scrapes the service every two seconds and evaluates the rules of
//! deploy/prometheus with their minutes turned into seconds.

use super::child::OwnChild;
use super::wait::{ATTACH, until};
use super::{http, service};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Write as _, stdout};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time runs this many times faster in [`quickened`] rules: 10 minutes are 20 seconds.
pub const QUICKER: u64 = 30;

/// The shipped rules.
pub const RULES: &str = include_str!("../../../deploy/prometheus/kfd-trace.rules.yml");

/// A fleet's, which are beside them.
const FLEET: &str = include_str!("../../../deploy/prometheus/fleet.rules.yml");

/// Both in one file.
///
/// # Panics
/// If the second one has no groups.
#[must_use]
pub fn all_rules() -> String {
    let (_, groups) = FLEET.split_once("\ngroups:\n").expect("groups");
    format!("{RULES}\n{groups}")
}

/// Interval between two evaluations of the rules, as in [`CONFIG`].
const EVALUATED: Duration = Duration::from_secs(2);

/// Interval between two progress messages of a waiting test. A guest without output for long is taken for
/// hung, and a second in which its CPU is busy takes several of the host's.
const REPORTED: Duration = Duration::from_secs(20);

const CONFIG: &str = "\
global: { scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s }
rule_files: [rules.yml]
scrape_configs:
  - job_name: kfd-trace
    static_configs: [{ targets: ['TARGET'] }]
";

/// Killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: OwnChild,
    folder: TempDir,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts it on an empty store, and waits until it responds.
    ///
    /// # Errors
    /// With its log when it does not come up.
    pub fn scraping(target: SocketAddr, rules: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let place = |name: &str| folder.path().join(name);
        fs::write(place("prometheus.yml"), CONFIG.replace("TARGET", &target.to_string()))?;
        fs::write(place("rules.yml"), quickened(rules, QUICKER)?)?;
        let log = File::create(place("log"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], 9090));
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", place("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", place("store").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--query.lookback-delta=10s")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("run prometheus")?;
        let mut server = Self { child: OwnChild(child), folder, address };
        let up = until("Prometheus to be ready", ATTACH, || {
            ensure!(server.child.try_wait()?.is_none(), "it ended");
            let ready = http::get(address, "/-/ready").is_ok_and(|answer| answer.status == 200);
            Ok(ready.then_some(()))
        });
        up.with_context(|| server.log())?;
        Ok(server)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The series that an expression returns now.
    ///
    /// # Errors
    /// With Prometheus' own message where the expression is invalid.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let answer = self.get(&format!("/api/v1/query?query={}", escaped(expression)))?;
        let result = answer["data"]["result"].as_array();
        result.cloned().with_context(|| format!("`{expression}`: {answer}"))
    }

    /// Names of the alerts that fire, each once, in order.
    pub fn firing(&self) -> Result<Vec<String>> {
        let alerts = self.query("count by (alertname) (ALERTS{alertstate=\"firing\"})")?;
        let mut names: Vec<String> = alerts
            .iter()
            .filter_map(|alert| alert["metric"]["alertname"].as_str().map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Waits until `look` accepts the firing alerts.
    ///
    /// # Errors
    /// With all alerts and the service's log, when it does not within the limit.
    pub fn until(&self, what: &str, mut look: impl FnMut(&[String]) -> Result<bool>) -> Result<()> {
        let mut reported = Instant::now();
        let looked = until(what, ALERTED, || {
            // No more often than anything can change: a query takes long on an emulated CPU.
            std::thread::sleep(EVALUATED);
            let firing = self.firing()?;
            if reported.elapsed() >= REPORTED {
                reported = Instant::now();
                writeln!(stdout(), "waits for {what}: {firing:?} so far")?;
            }
            Ok(look(&firing)?.then_some(()))
        });
        looked.with_context(|| {
            let alerts = self.query("ALERTS").unwrap_or_default();
            let alerts = alerts.iter().map(|alert| format!("{}\n", alert["metric"])).collect::<String>();
            format!("{alerts}{}", service::journal().unwrap_or_default())
        })
    }

    fn get(&self, path: &str) -> Result<Value> {
        let answer = http::get(self.address, path)?;
        serde_json::from_str(&answer.body).with_context(|| format!("{path}: {}", answer.body))
    }
}

/// Escapes for a query string (RFC 3986, 2.3: the other characters are unreserved).
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The rules with all their times divided: windows (`[10m]`), offsets, `for:`, and the ages that alerts
/// compare with (`_seconds > 60`).
///
/// # Errors
/// When a time is not divisible into whole seconds, which would change the meaning of the rule.
pub fn quickened(rules: &str, by: u64) -> Result<String> {
    let mut quick = String::with_capacity(rules.len());
    let mut rest = rules;
    let marks = ["[", "for: ", "offset ", "_seconds > "];
    let next = |text: &str| marks.iter().filter_map(|mark| Some(text.find(mark)? + mark.len())).min();
    while let Some(at) = next(rest) {
        let (head, tail) = rest.split_at(at);
        quick.push_str(head);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, unit) = (&tail[..digits], tail[digits..].chars().next());
        let seconds = match (number.parse::<u64>(), unit) {
            (Ok(number), Some('m')) => Some((number * 60, 1)),
            (Ok(number), Some('h')) => Some((number * 3600, 1)),
            (Ok(number), _) if head.ends_with("> ") => Some((number, 0)),
            _ => None,
        };
        if let Some((seconds, unit)) = seconds {
            ensure!(
                seconds % by == 0,
                "{number} is no whole number of seconds when {by} times quicker: {head}"
            );
            quick.push_str(&(seconds / by).to_string());
            quick.push_str(if unit == 1 { "s" } else { "" });
            rest = &tail[digits + unit..];
        } else {
            rest = tail;
        }
    }
    Ok(quick + rest)
}

/// Longest time from cause to alert: `for` and window of the slowest (a process is idle after an hour, two
/// minutes here), some scrapes, and an emulated CPU.
const ALERTED: Duration = Duration::from_secs(160);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_divided_and_nothing_else() {
        let rules = "record: a:b:rate5m\nexpr: rate(x[5m]) offset 10m > 60\nfor: 10m\n\
            y_seconds > 60 and last_over_time(z{a=%q}[1h] offset 10m)[1]\n";
        let quick = "record: a:b:rate5m\nexpr: rate(x[10s]) offset 20s > 60\nfor: 20s\n\
            y_seconds > 2 and last_over_time(z{a=%q}[120s] offset 20s)[1]\n";
        assert_eq!(quickened(rules, 30).unwrap(), quick);
        assert!(quickened("for: 1m", 7).is_err());
    }

    #[test]
    fn the_rules_can_be_quickened() {
        let quick = quickened(RULES, QUICKER).unwrap();
        assert!(!quick.contains("[5m]") && !quick.contains("for: 5m") && quick.contains("[20s]"), "{quick}");
    }

    #[test]
    fn a_query_is_escaped() {
        assert_eq!(escaped("a{b=\"c d\"}+1"), "a%7Bb%3D%22c%20d%22%7D%2B1");
    }
}
