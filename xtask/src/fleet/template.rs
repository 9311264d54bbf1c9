//! An exposition that the daemon's own code made, taken apart. In: its text, of one GPU, one live process and one that has
//! ended. Out: families with lines that know of what they are. Pure.

use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;

/// What a line is written once for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Node,
    Gpu,
    /// Also of a process on a GPU: each of them is on one.
    Live,
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    /// Values as they are written, escaped.
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: String,
}

impl Line {
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A whole number that is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        self.value.parse().ok()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Its lines `# HELP` and `# TYPE`.
    pub(super) head: String,
    pub(super) lines: Vec<(Scope, Line)>,
}

#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) families: Vec<Family>,
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut families: Vec<(String, Vec<Line>)> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line.starts_with("# HELP ") {
                families.push((String::new(), Vec::new()));
            }
            let (head, lines) = families.last_mut().context("a line before the first # HELP")?;
            if line.starts_with('#') {
                *head += &format!("{line}\n");
            } else {
                lines.push(parse_line(line).with_context(|| format!("not a series: {line}"))?);
            }
        }
        let all = || families.iter().flat_map(|(_, lines)| lines);
        let pids = |of: fn(&Line) -> bool| -> BTreeSet<String> {
            all().filter(|line| of(line)).filter_map(|line| line.label("pid")).map(str::to_owned).collect()
        };
        // Only of a live one are the queues exported.
        let (seen, live) = (pids(|_| true), pids(|line| line.name == "kfd_process_queues"));
        let gpus: BTreeSet<_> = all().filter_map(|line| line.label("gpu_id")).collect();
        let found = (live.len(), seen.difference(&live).count(), gpus.len());
        ensure!(
            found == (1, 1, 1),
            "live processes, ended ones and GPUs are {found:?}, one of each is needed"
        );
        let scope = |line: &Line| match (line.label("pid"), line.label("gpu_id")) {
            (Some(pid), _) if live.contains(pid) => Scope::Live,
            (Some(_), _) => Scope::Ended,
            (None, Some(_)) => Scope::Gpu,
            (None, None) => Scope::Node,
        };
        let families = families.into_iter().map(|(head, lines)| {
            let mut lines: Vec<_> = lines.into_iter().map(|line| (scope(&line), line)).collect();
            lines.sort_by_key(|(scope, _)| *scope);
            Family { head, lines }
        });
        Ok(Template { families: families.collect() })
    }

    /// Lines of a scope.
    pub(super) fn count(&self, wanted: Scope) -> usize {
        let scopes = self.families.iter().flat_map(|family| &family.lines).map(|(scope, _)| *scope);
        scopes.filter(|scope| *scope == wanted).count()
    }
}

/// `name{key="value",...} value`, without a timestamp.
pub(super) fn parse_line(line: &str) -> Option<Line> {
    let name_ends = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_ends);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, quoted) = rest.split_once("=\"")?;
            let end = closing_quote(quoted)?;
            labels.push((key.to_owned(), quoted[..end].to_owned()));
            rest = &quoted[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?;
    (!name.is_empty() && !value.is_empty() && !value.contains(' ')).then(|| Line {
        name: name.to_owned(),
        labels,
        value: value.to_owned(),
    })
}

/// Where a label's value ends: at the first quotation mark that no backslash escapes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::fleet) const SMALL: &str = r#"# HELP kfd_processes KFD processes.
# TYPE kfd_processes gauge
kfd_processes 1
# HELP kfd_processes_created_total Created.
# TYPE kfd_processes_created_total counter
kfd_processes_created_total 2
# HELP kfd_queues Queues.
# TYPE kfd_queues gauge
kfd_queues{gpu_id="58000",queue_type="compute_aql"} 3
kfd_queues{gpu_id="58000",queue_type="sdma"} 1
# HELP kfd_process_info A process.
# TYPE kfd_process_info gauge
kfd_process_info{pid="10001",kfd_process="1",comm="python3",namespace="training",pod="job-1"} 1
kfd_process_info{pid="10002",kfd_process="2",comm="python3",namespace="training",pod="job-1"} 1
# HELP kfd_process_queues Queues.
# TYPE kfd_process_queues gauge
kfd_process_queues{pid="10001",kfd_process="1",comm="python3",gpu_id="58000",queue_type="sdma"} 1
# HELP kfd_process_packets_retired_total Packets.
# TYPE kfd_process_packets_retired_total counter
kfd_process_packets_retired_total{pid="10001",kfd_process="1",comm="python3",gpu_id="58000"} 7199497
kfd_process_packets_retired_total{pid="10002",kfd_process="2",comm="python3",gpu_id="58000"} 7199497
"#;

    #[test]
    fn lines_know_of_what_they_are() {
        let template = Template::parse(SMALL).expect("a template");
        assert_eq!(template.families.len(), 6);
        let counts = [Scope::Node, Scope::Gpu, Scope::Live, Scope::Ended].map(|scope| template.count(scope));
        assert_eq!(counts, [2, 2, 3, 2]);
        assert_eq!(template.families[2].head, "# HELP kfd_queues Queues.\n# TYPE kfd_queues gauge\n");
    }

    #[test]
    fn a_text_that_is_no_template_is_refused() {
        let two_gpus = SMALL.replacen("gpu_id=\"58000\"", "gpu_id=\"58017\"", 1);
        let none_ended: String = SMALL
            .lines()
            .filter(|line| !line.contains("10002"))
            .fold(String::new(), |all, line| all + line + "\n");
        for (text, reason) in [
            (two_gpus.as_str(), "(1, 1, 2)"),
            (none_ended.as_str(), "(1, 0, 1)"),
            ("kfd_processes 1\n", "before the first"),
            ("# HELP a b\nkfd_processes{x=\"1} 2\n", "not a series"),
        ] {
            let error = format!("{:#}", Template::parse(text).expect_err("an error"));
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn labels_are_kept_as_they_are_written() {
        let line = parse_line(r#"a_total{comm="x\"},{\\",gpu="",errno="12"} 1.5e3"#).expect("a line");
        assert_eq!(line.label("comm"), Some(r#"x\"},{\\"#));
        assert_eq!((line.label("gpu"), line.label("errno"), line.label("no")), (Some(""), Some("12"), None));
        assert_eq!((line.value.as_str(), line.number()), ("1.5e3", None));
        assert_eq!(parse_line("up 1").expect("a line").number(), Some(1));
        for wrong in ["up", "up{a=\"1\"}", "up{a=1} 1", "up{a=\"1} 1", " 1", "up 1 2"] {
            assert_eq!(parse_line(wrong), None, "{wrong}");
        }
    }
}
