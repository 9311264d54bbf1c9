//! The report as text and as JSON.

use super::{FindingKind, SeenProcess, report_of};
use crate::attribute::process::Life;
use crate::doctor::json::{self, KernelSummary};
use crate::doctor::reported::Report;
use crate::doctor::sampled::Sampled;
use crate::doctor::samples::{OTHER, PID, bare, life, listed, open, process, seen, with};
use crate::doctor::seen::{KfdProcesses, Mappings};
use crate::doctor::text::{self, MadeBy};
use crate::doctor::{Diagnosis, Observed};
use crate::kernel::{Finding, FindingSeverity};
use crate::output::reported;
use std::collections::BTreeSet;

fn finding() -> Finding {
    Finding {
        severity: FindingSeverity::Limits,
        what: "no BTF\x1b".to_owned(),
        consequence: "only ioctls are traced",
        remedy: "use another kernel",
    }
}

/// The document; of what is no node, `only`.
fn document(report: &Diagnosis, only: Option<u32>) -> String {
    let facts = [("kernel", "6.12.0".to_owned()), ("driver", "module".to_owned())];
    let findings = [finding()];
    let document = json::document(report, KernelSummary { facts: &facts, findings: &findings }, only);
    document.expect("JSON")
}

/// As text, by this process or by a daemon.
fn printed(document: &str, by: MadeBy) -> String {
    let report: Report = reported::read(document.as_bytes()).expect("a report");
    let mut out = Vec::new();
    text::text(&mut out, &report, by).expect("memory");
    String::from_utf8(out).expect("UTF-8")
}

fn shown(report: &Diagnosis, only: Option<u32>) -> String {
    printed(&document(report, only), MadeBy::ThisProcess)
}

fn value(report: &Diagnosis) -> serde_json::Value {
    let text = document(report, None);
    assert!(!text.contains(['\x1b', '\n']), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn of_a_hidden_process_in_text() {
    let hidden = SeenProcess {
        comm: "a\x1b[2Jb".to_owned(),
        kfd: vec![open(OTHER)],
        mappings: None,
        inner_pid: Some(1),
        ..process()
    };
    let text = shown(
        &report_of(&Observed {
            kernel: Err("no\x1b BTF".to_owned()),
            sampled: Err("no\x1b BTF".to_owned()),
            ..with(hidden)
        }),
        None,
    );
    let begin = "kernel  6.12.0\ndriver  module\n\nfindings:\n  limits: no BTF\\u{1b}: only ioctls are traced; use another kernel\n";
    assert!(text.starts_with(begin), "{text}");
    for part in [
        "\nVIEW                          SAW           CAN MISS\n",
        "\ndescriptors by device number  318         ",
        "\nlsof, fuser: by inode         nothing     ",
        "\nthe driver's table            no\\u{1b} BTF  ",
        "\nsampled counters              no\\u{1b} BTF  ",
        "\nprocess 318 (a\\u{1b}[2Jb), lives, 2 queues, 512.0 MiB of VRAM, rocm-smi has it\n  Hidden from lsof",
        "\n  It is in another PID namespace and is 1 there",
        "\n0000:c1:00.0: VRAM in use 1.5 GiB, processes account for 1.0 GiB\n",
        "\nsomething is hidden from the usual checks: see above\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn without_access_the_report_does_not_claim_that_all_is_well() {
    let seen = Observed { closed: BTreeSet::from([7]), ..seen() };
    let text = shown(&report_of(&seen), None);
    let end = "\ncannot look into 1 of 90 processes, of other users or guarded by a security module: run as root, or with CAP_SYS_PTRACE and \
               CAP_DAC_READ_SEARCH\nnothing wrong was found, but not all could be checked\n";
    assert!(text.ends_with(end) && !text.contains("all is well"), "{text}");
    let text = shown(&report_of(&Observed { hides: true, closed: BTreeSet::new(), ..seen }), None);
    assert!(text.contains("(hidepid): run as root") && !text.contains("all is well"), "{text}");
}

#[test]
fn of_one_process_there_is_nothing_of_the_node() {
    let report = super::diagnose(&with(bare()), None, Some(PID));
    let text = shown(&report, Some(PID));
    assert!(text.starts_with("VIEW ") && text.contains(" not it ") && text.contains(" it "), "{text}");
    assert!(!text.contains("VRAM in use") && !text.contains("kernel  6.12"), "{text}");
}

#[test]
fn in_json() {
    let report = report_of(&with(SeenProcess {
        comm: "a\x1b".to_owned(),
        kfd: vec![open(OTHER)],
        mappings: None,
        ..process()
    }));
    let value = value(&report);
    assert_eq!(
        (&value["outcome"], &value["schema"], &value["pid"]),
        (&"hidden".into(), &1.into(), &().into())
    );
    let row = &value["processes"][0];
    assert_eq!(
        (&row["comm"], &row["seen_by"]["lsof"], &row["seen_by"]["sampled"]),
        (&"a\x1b".into(), &false.into(), &true.into())
    );
    assert_eq!(row["findings"][0]["kind"], "own_node");
    assert_eq!(row["findings"][0]["weight"], "hidden");
    assert_eq!(row["descriptors"][0]["node"], "own");
    assert_eq!(value["limits"][0]["severity"], "limits");
}

#[test]
fn a_daemon_is_named_where_it_is_the_one_that_may_not_look() {
    let seen = Observed { closed: BTreeSet::from([7]), hides: true, ..seen() };
    let text = printed(&document(&report_of(&seen), None), MadeBy::Daemon);
    for line in [
        "the daemon cannot look into 1 of 90 processes, of other users or guarded by a security module: start it without \
         --sample.interval=0, or run `kfd-trace doctor` there as root",
        "/proc hides other users' processes from the daemon (hidepid): start it without --sample.interval=0, or run \
         `kfd-trace doctor` there as root",
        "probes are not tried here: see `kfd-trace status` there",
        "nothing wrong was found, but not all could be checked",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} in {text}");
    }
}

#[test]
fn what_a_later_version_or_a_hostile_server_sends_is_shown_and_safe() {
    let report = report_of(&with(SeenProcess { kfd: vec![open(OTHER)], ..process() }));
    let mut later: serde_json::Value = serde_json::from_str(&document(&report, None)).expect("JSON");
    later["facts"]["a\u{9b}31m"] = "\u{202e}".into();
    later["limits"][0]["severity"] = "\x1b[2J".into();
    later["views"][0]["view"] = "by\x1b_smell".into();
    later["views"][1]["can_miss"] = "\x1b]0;x\x07".into();
    later["processes"][0]["standing"] = "asleep\u{9b}".into();
    later["processes"][0]["rocm_smi"] = "unsure\x07".into();
    later["processes"][0]["owner"] = "pod\x1b".into();
    later["processes"][0]["findings"][0]["text"] = "Not\x1b seen.".into();
    later["processes"][0]["findings"][0]["kind"] = "later".into();
    later["chips"][0]["pci"] = "\x1b".into();
    later["further"] = [1].into();
    let text = printed(&later.to_string(), MadeBy::Daemon);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    for part in ["\nby\\u{1b}_smell ", "asleep\\u{9b}", "unsure\\u{7}", "\n  Not\\u{1b} seen.\n"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = later.clone();
        change(&mut value);
        reported::read::<Report>(value.to_string().as_bytes()).expect_err("refused")
    };
    assert_eq!(refused(&|value| value["schema"] = 2.into()), reported::NotRead::Version(2));
    let changes: [&dyn Fn(&mut serde_json::Value); 3] = [
        &|value| value["outcome"] = "splendid".into(),
        &|value| value["looked_at"] = (-1).into(),
        &|value| value["processes"] = vec![value["processes"][0].clone(); 50_001].into(),
    ];
    for change in changes {
        assert!(matches!(refused(change), reported::NotRead::Foreign(_)));
    }
}

/// Names of all members, at any depth.
fn members(value: &serde_json::Value, names: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            members(value, names);
        }),
        serde_json::Value::Array(all) => all.iter().for_each(|value| members(value, names)),
        _ => {}
    }
}

const PAGE: &str = include_str!("../../../../docs/doctor.md");

#[test]
fn every_field_is_documented() {
    let mut names = BTreeSet::new();
    let mut value = value(&report_of(&seen()));
    // The names of facts are those of `kfd-trace status`.
    value["facts"] = ().into();
    members(&value, &mut names);
    let missing: Vec<_> = names.iter().filter(|name| !PAGE.contains(&format!("`{name}`"))).collect();
    assert!(
        names.len() > 50 && missing.is_empty(),
        "docs/doctor.md is missing {missing:?} of {}",
        names.len()
    );
    let documented = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let strange: Vec<_> = documented
        .filter(|name| !names.contains(*name) && !kinds().iter().any(|kind| kind.name() == *name))
        .collect();
    assert_eq!(strange, Vec::<&str>::new(), "in docs/doctor.md, and in no report");
}

fn kinds() -> Vec<FindingKind> {
    let holders = Vec::new;
    vec![
        FindingKind::Seen { fd: 3 },
        FindingKind::BindMounted { fd: 3 },
        FindingKind::OwnNode { fd: 3 },
        FindingKind::MappingOnly,
        FindingKind::ClosedDescriptor,
        FindingKind::ZombieLeader { threads: 2 },
        FindingKind::OtherPidNamespace { inner: 1 },
        FindingKind::NotPermitted,
        FindingKind::HidePid,
        FindingKind::HostNodeUnknown,
        FindingKind::Contexts { further: 1 },
        FindingKind::NotInSysfs,
        FindingKind::Evicted { gpu_ids: vec![1] },
        FindingKind::NotRestored { gpu_ids: vec![1], trigger: None, seconds: None, backlog: None },
        FindingKind::Ending,
        FindingKind::Teardown { lsof: Some(true) },
        FindingKind::Teardown { lsof: Some(false) },
        FindingKind::Teardown { lsof: None },
        FindingKind::KeptByDescriptor { holders: holders() },
        FindingKind::KeptByMemory,
        FindingKind::Execed { own: true, holders: holders() },
        FindingKind::Inherited { parent: 1, fd: 3 },
        FindingKind::Stray { fd: 3 },
        FindingKind::StrayMapping,
        FindingKind::ServiceUnknown,
        FindingKind::NotOpened { library: true },
        FindingKind::NoPart,
        FindingKind::Unlooked,
    ]
}

#[test]
fn every_verdict_is_documented_with_its_weight() {
    for kind in kinds() {
        let weight = format!("{:?}", kind.weight()).to_lowercase();
        let line = format!("| `{}` | {weight} |", kind.name());
        assert!(PAGE.contains(&line), "docs/doctor.md is missing {line}");
        assert!(kind.sentence().ends_with('.'), "{kind:?}");
    }
}

#[test]
fn the_example_of_the_page_is_what_is_printed() {
    let id = "5d0f3ac7e1b9482f6c75d1e0a94b38f7726e5c1d0b9a8f7e6d5c4b3a29180f7e";
    let belongs = crate::attribute::belongs([format!("/docker/{id}").as_str()]);
    let hidden = SeenProcess {
        comm: "python3".to_owned(),
        inner_pid: Some(41),
        own_mounts: Some(true),
        kfd: vec![open(OTHER)],
        mappings: Some(Mappings { libraries: ["libhsa-runtime64"].into(), ..Mappings::default() }),
        details: crate::state::ProcessDetails { belongs, ..crate::state::ProcessDetails::default() },
        ..process()
    };
    let child = SeenProcess { life: Life { parent: 902, ..life('S', 1) }, drm: Vec::new(), ..process() };
    let listed =
        |pids: &[u32]| pids.iter().map(|pid| (*pid, listed()[&PID].clone())).collect::<KfdProcesses>();
    let busy = Sampled { queues_measured: 2, packets_retired: 127_644, busy: true, ..Sampled::default() };
    let sampled = [(PID, busy.clone()), (902, Sampled { busy: false, ..busy })].into();
    let seen = Observed {
        sysfs: Some(listed(&[PID, 640, 902])),
        kernel: Ok(listed(&[PID, 902])),
        processes: [(PID, hidden), (641, process()), (902, process()), (925, child)].into(),
        sampled: Ok(sampled),
        chips: Vec::new(),
        ..seen()
    };
    let facts = [("kernel", "6.12.117".to_owned()), ("driver", "module".to_owned())];
    let kernel = KernelSummary { facts: &facts, findings: &[] };
    let document = json::document(&report_of(&seen), kernel, None).expect("JSON");
    let text = printed(&document, MadeBy::ThisProcess);
    assert!(PAGE.contains(&format!("$ kfd-trace doctor\n{text}```")), "{text}");
}
