//! The counts of a workload and of the tracer, in the same terms: ioctl name, errno name, number.

use super::exposition::Metrics;
use super::functions::driver_has;
use super::workload::Count;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// Numbers by name, or by names; none of them 0.
pub type Sums<K> = BTreeMap<K, u64>;

/// The names of `kfd_ioctl.h` for the ioctls that workloads issue; a number where it has none.
pub fn ioctl_name(nr: u64) -> String {
    let known = match nr {
        0x01 => "GET_VERSION",
        0x02 => "CREATE_QUEUE",
        0x03 => "DESTROY_QUEUE",
        0x04 => "SET_MEMORY_POLICY",
        0x05 => "GET_CLOCK_COUNTERS",
        0x07 => "UPDATE_QUEUE",
        0x0c => "WAIT_EVENTS",
        0x14 => "GET_PROCESS_APERTURES_NEW",
        0x1a => "SET_CU_MASK",
        0x22 => "CRIU_OP",
        // DBG_TRAP of ROCm's own driver
        0x82 if has_old_debugger() => "DBG_TRAP_DEPRECATED",
        _ => return format!("{nr:#04x}"),
    };
    known.to_owned()
}

/// Whether the driver has ROCm's own interface of the debugger, at 0x82.
pub fn has_old_debugger() -> bool {
    ["kfd_ioctl_dbg_set_debug_trap", "kfd_ioctl_dbg_set_debug_trap_deprecated"].into_iter().any(driver_has)
}

/// How the driver refuses a number that it has no command of. ROCm's own drivers do it in their own way.
pub fn no_command() -> &'static str {
    if has_old_debugger() { "EINVAL" } else { "ENOTTY" }
}

/// Calls by ioctl.
pub fn calls(counts: &[Count]) -> Sums<String> {
    let mut sums = Sums::new();
    for count in counts {
        *sums.entry(ioctl_name(count.nr)).or_default() += count.count;
    }
    sums
}

/// Failed calls by ioctl and errno.
pub fn errors(counts: &[Count]) -> Sums<(String, String)> {
    let mut sums = Sums::new();
    for count in counts {
        if let Some(errno) = &count.errno {
            *sums.entry((ioctl_name(count.nr), errno.clone())).or_default() += count.count;
        }
    }
    sums
}

pub fn total(counts: &[Count]) -> u64 {
    counts.iter().map(|count| count.count).sum()
}

/// Series of one metric by one label, those that are not 0.
pub fn by_label(metrics: &Metrics, name: &str, label: &str) -> Result<Sums<String>> {
    let sums = metrics.series(name).map(|(labels, value)| {
        let key = labels.get(label).with_context(|| format!("{name} has no label {label}"))?;
        Ok((key.clone(), whole(value)?))
    });
    let sums: Vec<(String, u64)> = sums.collect::<Result<_>>()?;
    Ok(sums.into_iter().filter(|(_, value)| *value > 0).collect())
}

/// `kfd_ioctl_errors_total` by ioctl and errno, those that are not 0.
pub fn metric_errors(metrics: &Metrics) -> Result<Sums<(String, String)>> {
    let sums = metrics.series("kfd_ioctl_errors_total").map(|(labels, value)| {
        let label = |key: &str| labels.get(key).cloned().with_context(|| format!("no label {key}"));
        Ok(((label("ioctl")?, label("errno")?), whole(value)?))
    });
    let sums: Vec<_> = sums.collect::<Result<_>>()?;
    Ok(sums.into_iter().filter(|(_, value)| *value > 0).collect())
}

/// `{"name": number, ...}`
pub fn object(value: &Value) -> Result<Sums<String>> {
    let object = value.as_object().with_context(|| format!("no object: {value}"))?;
    let number = |(key, value): (&String, &Value)| {
        Ok((key.clone(), value.as_u64().with_context(|| format!("{key}: no number"))?))
    };
    object.iter().map(number).collect()
}

/// Records of a kind that found the ring buffer full, in the summary of a stream: the sum over the probes
/// that sent them.
pub fn lost(summary: &Value, kind: &str) -> Result<u64> {
    let of_kind = format!("records lost, {kind}, ");
    Ok(object(&summary["lost"])?
        .iter()
        .filter(|(name, _)| name.starts_with(&of_kind))
        .map(|(_, count)| count)
        .sum())
}

/// Calls by ioctl in the summary of a stream.
pub fn summary_calls(summary: &Value) -> Result<Sums<String>> {
    let rows = summary["ioctls"].as_array().context("no ioctls in the summary")?;
    let row = |row: &Value| {
        let name = row["ioctl"].as_str().context("ioctl")?;
        Ok((name.to_owned(), row["calls"].as_u64().context("calls")?))
    };
    rows.iter().map(row).collect()
}

/// A count as Prometheus writes it.
fn whole(value: f64) -> Result<u64> {
    // parsing is exact where a cast would hide a fraction, a sign or a NaN
    format!("{value}").parse().with_context(|| format!("{value} is no count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(nr: u64, errno: Option<&str>, count: u64) -> Count {
        Count { nr, cmd: nr, size: 8, errno: errno.map(ToOwned::to_owned), count }
    }

    #[test]
    fn sizes_and_outcomes_of_one_ioctl_are_one_sum() {
        let counts = [count(2, None, 3), count(2, Some("EINVAL"), 4), count(0x60, Some("ENOTTY"), 1)];
        let calls = calls(&counts);
        assert_eq!((calls["CREATE_QUEUE"], calls["0x60"], total(&counts)), (7, 1, 8));
        assert_eq!(errors(&counts)[&("CREATE_QUEUE".to_owned(), "EINVAL".to_owned())], 4);
    }

    #[test]
    fn lost_records_are_those_of_all_probes() {
        let lost_by = serde_json::json!({
            "records lost, ioctl, ioctl": 2, "records lost, ioctl, ioctl_return": 30, "lines dropped, ioctl": 9,
            "records lost, open, open": 4,
        });
        let summary = serde_json::json!({ "lost": lost_by });
        assert_eq!((lost(&summary, "ioctl").unwrap(), lost(&summary, "open").unwrap()), (32, 4));
        assert_eq!(lost(&summary, "close").unwrap(), 0);
    }

    #[test]
    fn series_at_0_are_left_out_and_fractions_are_refused() {
        let metrics = Metrics::parse("a{l=\"x\"} 2\na{l=\"y\"} 0\nb{l=\"x\"} 0.5\n").unwrap();
        assert_eq!(by_label(&metrics, "a", "l").unwrap(), Sums::from([("x".to_owned(), 2)]));
        assert!(by_label(&metrics, "b", "l").is_err());
        assert!(by_label(&metrics, "a", "m").is_err());
    }
}
