//! Parses a request from its path and parameters.

use super::memory::MemoryFilter;
use crate::state::{Entry, Filter};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Events or allocations in a response if the request has no limit.
const LIMIT: usize = 1_000;

/// Highest accepted limit.
const MOST: usize = 10_000;

/// A document of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    Queues,
    Processes,
    Gpus,
    Status,
    Events,
    Memory,
    Doctor,
}

impl Resource {
    const fn parameters(self) -> &'static [&'static str] {
        match self {
            Resource::Queues => &["at"],
            Resource::Processes | Resource::Gpus | Resource::Status => &[],
            Resource::Doctor => &["pid"],
            Resource::Memory => &["pid", "gpu", "limit"],
            Resource::Events => &["since", "until", "pid", "gpu", "event", "limit"],
        }
    }
}

/// A document, with its parameters. Times are nanoseconds of the Unix epoch.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiQuery {
    Queues,
    QueuesAt(i64),
    Processes,
    Gpus,
    Status,
    Events(Filter),
    Memory(MemoryFilter),
    /// Of this process; `None`: of the node.
    Doctor(Option<u32>),
}

/// Why there is no document, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is wrong: status 400.
    Bad(String),
    /// Nothing is traced now: status 503.
    NotTraced(String),
    /// The document could not be built, for a reason in the daemon or the kernel: status 500.
    Failed(String),
}

impl ApiQuery {
    /// `pairs`: names and values of the query, decoded.
    ///
    /// # Errors
    /// What is wrong with the query, in one line.
    pub fn new(resource: Resource, pairs: &[(String, String)]) -> Result<ApiQuery, String> {
        let mut given = QueryPairs::new(resource.parameters(), pairs)?;
        Ok(match resource {
            Resource::Queues => given.time("at")?.map_or(ApiQuery::Queues, ApiQuery::QueuesAt),
            Resource::Processes => ApiQuery::Processes,
            Resource::Gpus => ApiQuery::Gpus,
            Resource::Status => ApiQuery::Status,
            Resource::Events => ApiQuery::Events(given.filter()?),
            Resource::Memory => ApiQuery::Memory(given.memory()?),
            Resource::Doctor => ApiQuery::Doctor(given.process()?),
        })
    }
}

/// Names and values of a query, each with its meaning checked when it is taken. Also of the pages.
pub(in crate::output) struct QueryPairs<'a> {
    once: BTreeMap<&'a str, &'a str>,
    events: BTreeSet<&'static str>,
}

impl<'a> QueryPairs<'a> {
    /// # Errors
    /// One line, if a name is none of `parameters`, is given twice, or is an event that is not kept.
    pub(in crate::output) fn new(
        parameters: &'static [&'static str],
        pairs: &'a [(String, String)],
    ) -> Result<Self, String> {
        let mut given = QueryPairs { once: BTreeMap::new(), events: BTreeSet::new() };
        for (name, value) in pairs {
            if !parameters.contains(&name.as_str()) {
                return Err(unknown(parameters, name));
            }
            if name == "event" {
                let known = Entry::names().into_iter().find(|event| event == value);
                let none = || format!("event {value:?} is not kept; there are {}", Entry::names().join(", "));
                given.events.insert(known.ok_or_else(none)?);
            } else if given.once.insert(name, value).is_some() {
                return Err(format!("{name} is given twice: give it once"));
            }
        }
        Ok(given)
    }

    fn filter(mut self) -> Result<Filter, String> {
        let (since_ns, until_ns) = (self.time("since")?, self.time("until")?);
        if since_ns.zip(until_ns).is_some_and(|(since, until)| since > until) {
            return Err("since is later than until: exchange them".to_owned());
        }
        let (pid, gpu_id, limit) = (self.number("pid")?, self.number("gpu")?, self.limit()?);
        Ok(Filter { since_ns, until_ns, pid, gpu_id, events: self.events, limit })
    }

    fn memory(mut self) -> Result<MemoryFilter, String> {
        let (pid, gpu_id, limit) = (self.number("pid")?, self.number("gpu")?, self.limit()?);
        Ok(MemoryFilter { pid, gpu_id, limit })
    }

    /// A PID that there can be.
    fn process(&mut self) -> Result<Option<u32>, String> {
        let pid = self.number("pid")?;
        match pid.filter(|pid| *pid == 0 || i32::try_from(*pid).is_err()) {
            Some(pid) => Err(format!("pid is {pid}: give a number from 1 to {}", i32::MAX)),
            None => Ok(pid),
        }
    }

    fn limit(&mut self) -> Result<usize, String> {
        let limit = self.number("limit")?.map_or(Ok(LIMIT), |limit| {
            usize::try_from(limit).ok().filter(|limit| (1..=MOST).contains(limit)).ok_or(limit)
        });
        limit.map_err(|limit| format!("limit is {limit}: give a number from 1 to {MOST}"))
    }

    /// Whether it has a value that is not empty.
    pub(in crate::output) fn has(&self, name: &str) -> bool {
        self.once.get(name).is_some_and(|value| !value.is_empty())
    }

    /// As it was given.
    pub(in crate::output) fn text(&mut self, name: &str) -> Option<&'a str> {
        self.once.remove(name)
    }

    pub(in crate::output) fn number(&mut self, name: &str) -> Result<Option<u32>, String> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let why = |_| format!("{name} is {value:?}: give a decimal number below 2^32");
        value.parse().map(Some).map_err(why)
    }

    /// Nanoseconds of the Unix epoch.
    pub(in crate::output) fn time(&mut self, name: &str) -> Result<Option<i64>, String> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let why = || {
            format!("{name} is {value:?}: give RFC 3339 (2026-09-21T03:00:00Z) or seconds of the Unix epoch")
        };
        time(value).map(Some).ok_or_else(why)
    }
}

fn unknown(parameters: &[&str], name: &str) -> String {
    match parameters {
        [] => format!("there is no parameter {name:?}: this document has none"),
        known => format!("there is no parameter {name:?}; there are {}", known.join(", ")),
    }
}

/// Nanoseconds of the Unix epoch. `None`: not understood, or outside of 1677 to 2262.
fn time(value: &str) -> Option<i64> {
    let seconds = || {
        let plain = value.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        let seconds = plain.then(|| value.parse::<f64>().ok())??;
        Timestamp::from_duration(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
    };
    // An unescaped + arrives as a space: that of a time zone is the last one.
    let rfc3339 = || {
        let zone = value.rsplit_once(' ').filter(|(day, _)| day.contains(['T', 't']));
        zone.map_or_else(|| value.parse().ok(), |(day, zone)| format!("{day}+{zone}").parse().ok())
    };
    let at: Timestamp = seconds().or_else(rfc3339)?;
    i64::try_from(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(resource: Resource, query: &[(&str, &str)]) -> Result<ApiQuery, String> {
        let pairs: Vec<_> =
            query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ApiQuery::new(resource, &pairs)
    }

    fn events(query: &[(&str, &str)]) -> Result<Filter, String> {
        match parse(Resource::Events, query)? {
            ApiQuery::Events(filter) => Ok(filter),
            other => Err(format!("{other:?}")),
        }
    }

    const T: i64 = 1_790_000_000_000_000_000;

    #[test]
    fn times_are_rfc_3339_or_seconds() {
        for (text, ns) in [
            ("1790000000", T),
            ("1790000000.5", T + 500_000_000),
            ("2026-09-21T14:13:20Z", T),
            ("2026-09-21T14:13:20.000000001Z", T + 1),
            ("2026-09-21T16:13:20+02:00", T),
            ("2026-09-21T16:13:20 02:00", T),
            ("2026-09-21 14:13:20Z", T),
            ("0", 0),
            ("-1", -1_000_000_000),
        ] {
            assert_eq!(time(text), Some(ns), "{text}");
            assert_eq!(parse(Resource::Queues, &[("at", text)]), Ok(ApiQuery::QueuesAt(ns)), "{text}");
        }
        for text in
            ["", "03:00", "2026-09-21", "2026-09-21T14:13:20", "NaN", "inf", "1e300", "9".repeat(40).as_str()]
        {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_asked_for() {
        assert_eq!(events(&[]), Ok(Filter::newest(LIMIT)));
        let query = [
            ("since", "1790000000"),
            ("until", "1790000000"),
            ("pid", "7"),
            ("gpu", "58270"),
            ("limit", "3"),
            ("event", "evict"),
            ("event", "driver_loaded"),
        ];
        let expected = Filter {
            since_ns: Some(T),
            until_ns: Some(T),
            pid: Some(7),
            gpu_id: Some(58270),
            events: ["evict", "driver_loaded"].into(),
            limit: 3,
        };
        assert_eq!(events(&query), Ok(expected));
        for (resource, expected) in [
            (Resource::Queues, ApiQuery::Queues),
            (Resource::Processes, ApiQuery::Processes),
            (Resource::Gpus, ApiQuery::Gpus),
            (Resource::Status, ApiQuery::Status),
            (Resource::Memory, ApiQuery::Memory(MemoryFilter { pid: None, gpu_id: None, limit: LIMIT })),
            (Resource::Doctor, ApiQuery::Doctor(None)),
        ] {
            assert_eq!(parse(resource, &[]), Ok(expected));
        }
    }

    #[test]
    fn a_bad_parameter_is_one_line_that_names_it() {
        type Query = &'static [(&'static str, &'static str)];
        assert_eq!(parse(Resource::Doctor, &[("pid", "7")]), Ok(ApiQuery::Doctor(Some(7))));
        let bad: [(Resource, Query, &str); 15] = [
            (Resource::Events, &[("since", "03:00")], "since is \"03:00\": give RFC 3339"),
            (Resource::Events, &[("until", "")], "until is \"\": give RFC 3339"),
            (Resource::Events, &[("pid", "-1")], "pid is \"-1\": give a decimal number"),
            (Resource::Events, &[("gpu", "0xe39e")], "gpu is \"0xe39e\": give a decimal number"),
            (Resource::Events, &[("limit", "0")], "limit is 0: give a number from 1 to 10000"),
            (Resource::Events, &[("limit", "10001")], "limit is 10001: give"),
            (
                Resource::Events,
                &[("event", "ioctl\n")],
                "event \"ioctl\\n\" is not kept; there are process_seen",
            ),
            (Resource::Events, &[("pid", "1"), ("pid", "1")], "pid is given twice"),
            (Resource::Events, &[("since", "2"), ("until", "1")], "since is later than until"),
            (Resource::Queues, &[("att", "1")], "there is no parameter \"att\"; there are at"),
            (Resource::Doctor, &[("pid", "0")], "pid is 0: give a number from 1 to 2147483647"),
            (Resource::Doctor, &[("pid", "2147483648")], "pid is 2147483648: give a number from 1 to"),
            (Resource::Doctor, &[("pid", "7x")], "pid is \"7x\": give a decimal number"),
            (Resource::Doctor, &[("gpu", "7")], "there is no parameter \"gpu\"; there are pid"),
            (Resource::Gpus, &[("pid", "1")], "there is no parameter \"pid\": this document has none"),
        ];
        for (resource, query, line) in bad {
            let error = parse(resource, query).expect_err(line);
            assert!(error.starts_with(line) && !error.contains('\n'), "{error}");
        }
    }
}
