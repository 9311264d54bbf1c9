use super::*;
use crate::attribute::{PodNames, belongs};
use crate::events::decode::{DecodeError, Undecodable};
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::kernel::types::TypesReport;
use crate::model::counters::samples::counters;
use crate::model::event::{Body, ProcessId, QueueFacts, QueueType};
use crate::model::missed::Missed;
use crate::model::verdict::{ProbeStatus, Verdict};
use crate::output::samples::{CREATE, DESTROY, PID, WAIT, probe, sampled, topology, traced};
use crate::state::samples::{create, destroy, error_row, event, facts, ioctl_row, open_call, seen};
use crate::state::{IoctlTotals, ProcessDetails, SampleTotals, Snapshot, State, StateLimits};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::{counter, loss};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of the released binary.
const BUILD: Build =
    Build { version: "0.1.0", revision: Some("6d1f4a3c0b7e"), target: "x86_64-unknown-linux-musl" };

const DETAIL: Detail =
    Detail { processes: Some(100), new_processes: 1000, queues: None, linger: Duration::from_secs(300) };

struct World {
    state: State,
    tables: Tables,
    undecoded: Undecoded,
    retired: IoctlTotals,
    samples: SampleTotals,
    probes: Vec<ProbeStatus>,
    sysfs: Option<Snapshot>,
    collectors: Vec<Collected>,
    admitted: Option<Admitted>,
    detail: Detail,
    queues_by_ioctl: bool,
}

impl World {
    fn new(state: State) -> Self {
        let probes = ProbeId::ALL.iter().map(|id| probe(*id, Verdict::Attached)).collect();
        World {
            state,
            tables: Tables::default(),
            undecoded: Undecoded::default(),
            retired: IoctlTotals::default(),
            samples: SampleTotals { interval_ns: 1_000_000_000, ..SampleTotals::default() },
            probes,
            sysfs: None,
            collectors: Vec::new(),
            admitted: None,
            detail: DETAIL,
            queues_by_ioctl: false,
        }
    }

    /// The exposition, in each test as the library's encoder would write it.
    fn text(&self) -> String {
        let snapshot = self.state.snapshot();
        let scrape = Scrape {
            named: crate::model::ioctl::Named::default(),
            snapshot: &snapshot,
            queues_by_ioctl: self.queues_by_ioctl,
            sysfs: self.sysfs.as_ref(),
            tables: Some(&self.tables).filter(|_| self.collectors.iter().all(|one| one.failed.is_none())),
            collectors: &self.collectors,
            retired: &self.retired,
            samples: &self.samples,
            probes: &self.probes,
            topology: &topology(),
            undecoded: &self.undecoded,
            capacities: &[("ioctl_stats", 16_384)],
            admitted: self.admitted.as_ref(),
            detail: self.detail,
            now_ns: 3_000_000_000,
            wall_minus_mono_ns: 1_790_000_000_000_000_000,
            recording: Some(crate::recording::Figures { writing: true, lost: 3, bytes: 70_000, files: 4 }),
            exported: Some(crate::output::exported::ExportFigures {
                up: true,
                accepted: 90,
                refused: 2,
                dropped: 1,
                waiting: 7,
            }),
            driver_loaded: true,
            driver_loads: 2,
            build: BUILD,
            types: &TypesReport::default(),
            start_time_seconds: 1.79e9,
            duration_seconds: 0.002,
        };
        let text = exposition(&scrape, Format::Text).expect("well formed");
        assert_eq!(text, encoder::encoded(&text));
        let other = exposition(&scrape, Format::OpenMetrics).expect("well formed");
        assert_eq!(other, encoder::open_metrics(&text));
        text
    }

    /// Value of a series, by its whole name and labels.
    fn value(&self, series: &str) -> Option<f64> {
        let text = self.text();
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }
}

#[test]
fn queues_are_counted_by_gpu_type_and_cause() {
    let mut world = World::new(traced());
    world.state.apply(&event(30, 1, PID, create(4)));
    world
        .state
        .apply(&crate::model::event::Event { in_ioctl: Some(DESTROY), ..event(40, 1, PID, destroy(4)) });
    let aql = r#"gpu_id="58270",queue_type="compute_aql""#;
    assert_eq!(world.value(&format!("kfd_queues{{{aql}}}")), Some(1.0));
    assert_eq!(world.value(&format!("kfd_queues_created_total{{{aql}}}")), Some(2.0));
    assert_eq!(world.value(&format!("kfd_queues_destroyed_total{{{aql},cause=\"ioctl\"}}")), Some(1.0));
    assert_eq!(
        world.value(&format!("kfd_queues_destroyed_total{{{aql},cause=\"process_death\"}}")),
        Some(0.0)
    );
    assert_eq!(world.value("kfd_processes"), Some(1.0));
    let series = r#"kfd_process_queues{pid="4321",kfd_process="1",comm="train",gpu_id="58270",queue_type="compute_aql"}"#;
    assert_eq!(world.value(series), Some(1.0));
    let info = r#"kfd_gpu_info{gpu_id="58270",gpu="0",node="1",pci="0000:c1:00.0",render="/dev/dri/renderD128",gfx="gfx942",name="aqua_vanjaram",product_name="AMD Instinct MI300A",serial_number="692231000131",unique_id="0x18f68e602b8a790f",gpu_partition_id="0"}"#;
    assert_eq!(world.value(info), Some(1.0));
}

#[test]
fn queues_stand_against_slots() {
    let mut world = World::new(traced());
    world.state.apply(&event(30, 1, PID, Body::QueueCreate(QueueFacts { active: Some(false), ..facts(4) })));
    let sdma = QueueFacts { queue_type: Some(QueueType::Sdma), active: Some(false), ..facts(5) };
    world.state.apply(&event(40, 1, PID, Body::QueueCreate(sdma)));
    for (kind, slots, used) in [("cp", 24.0, 1.0), ("sdma", 16.0, 1.0), ("sdma_xgmi", 0.0, 0.0)] {
        let labels = format!(r#"{{gpu_id="58270",kind="{kind}"}}"#);
        assert_eq!(world.value(&format!("kfd_gpu_queue_slots{labels}")), Some(slots));
        assert_eq!(world.value(&format!("kfd_gpu_queue_slots_used{labels}")), Some(used));
    }
}

#[test]
fn queues_followed_by_ioctls_are_exported_as_probed_ones() {
    let mut world = World::new(traced());
    for probe in &mut world.probes {
        if [ProbeId::QueueAdd, ProbeId::QueueDel].contains(&probe.id) {
            probe.verdict = Verdict::NotAsked;
        }
    }
    let live = r#"kfd_queues{gpu_id="58270",queue_type="compute_aql"}"#;
    assert_eq!(world.value(live), None);
    world.queues_by_ioctl = true;
    assert_eq!(world.value(live), Some(1.0));
    assert_eq!(
        world.value(r#"kfd_queues_created_total{gpu_id="58270",queue_type="compute_aql"}"#),
        Some(1.0)
    );
    let failed = r#"kfd_queue_destroys_failed_total{gpu_id="58270",queue_type="compute_aql"}"#;
    assert_eq!(world.value(failed), None, "only the probes see a destroy that fails half way");
}

#[test]
fn known_series_are_there_from_the_start() {
    let world = World::new(State::new(StateLimits::default()));
    for series in [
        r#"kfd_queues{gpu_id="58270",queue_type="sdma"}"#,
        r#"kfd_queues_created_total{gpu_id="58270",queue_type="compute"}"#,
        r#"kfd_ioctls_total{ioctl="CREATE_QUEUE"}"#,
        r#"kfd_ioctl_duration_seconds_count{ioctl="CREATE_QUEUE"}"#,
        r#"kfd_ioctls_in_flight{ioctl="ACQUIRE_VM"}"#,
        r#"kfd_ioctls_not_measured_total{ioctl="WAIT_EVENTS"}"#,
        r#"kfd_trace_records_lost_total{kind="queue_create"}"#,
        r#"kfd_trace_trouble_total{reason="in_flight_full"}"#,
        r#"kfd_trace_probe_records_lost_total{probe="queue_add",cause="ring_full"}"#,
        r#"kfd_trace_state_anomalies_total{reason="left_at_release"}"#,
        r#"kfd_trace_decode_errors_total{reason="size"}"#,
        "kfd_opens_total",
        r#"kfd_queue_updates_total{gpu_id="58270",queue_type="sdma"}"#,
        r#"kfd_mqd_writes_total{gpu_id="58270",function="restore"}"#,
        r#"kfd_evictions_total{gpu_id="58270",trigger="ttm"}"#,
        r#"kfd_restores_total{gpu_id="58270"}"#,
        r#"kfd_evicted_seconds_total{gpu_id="58270"}"#,
        r#"kfd_evicted_processes{gpu_id="58270"}"#,
        r#"kfd_vm_faults_total{gpu_id="58270"}"#,
        r#"kfd_gpu_resets_total{gpu_id="58270"}"#,
        r#"kfd_gpu_reset_seconds_total{gpu_id="58270"}"#,
        r#"kfd_hws_hangs_total{gpu_id="58270"}"#,
        r#"kfd_trace_comparisons_total{source="kernel"}"#,
        r#"kfd_trace_differences_total{kind="ghost"}"#,
        r#"kfd_trace_differences_total{kind="properties"}"#,
    ] {
        assert_eq!(world.value(series), Some(0.0), "{series}");
    }
}

#[test]
fn what_cannot_be_seen_is_not_exported_as_zero() {
    let mut world = World::new(traced());
    let refused = Verdict::Refused("no".into());
    for probe in &mut world.probes {
        if [ProbeId::QueueDel, ProbeId::Open, ProbeId::IoctlReturn].contains(&probe.id) {
            probe.verdict = refused.clone();
        }
        if probe.id == ProbeId::IoctlHandler {
            probe.verdict = Verdict::NotAsked;
        }
    }
    let text = world.text();
    for gone in ["kfd_queues", "kfd_process_queues", "kfd_opens_total", "kfd_ioctl_duration_seconds"] {
        assert!(!text.contains(&format!("\n{gone}")), "{gone}");
    }
    assert_eq!(world.value(r#"kfd_ioctls_total{ioctl="CREATE_QUEUE"}"#), Some(0.0));
    assert_eq!(world.value(r#"kfd_trace_probe_attached{probe="open",kind="kprobe"}"#), Some(0.0));
    assert_eq!(world.value(r#"kfd_trace_probe_attached{probe="ioctl",kind="kprobe"}"#), Some(1.0));
    assert_eq!(
        world.value(r#"kfd_trace_probe_info{probe="open",kind="kprobe",verdict="refused"}"#),
        Some(1.0)
    );
    assert!(!text.contains(r#"hits_total{probe="open"}"#));
    assert_eq!(world.value(r#"kfd_trace_probe_attached{probe="ioctl_handler",kind="kprobe"}"#), None);
    let not_requested = r#"kfd_trace_probe_info{probe="ioctl_handler",kind="kprobe",verdict="not_asked"}"#;
    assert_eq!(world.value(not_requested), Some(1.0));
}

#[test]
fn a_process_shows_where_it_belongs_and_not_its_arguments() {
    let mut world = World::new(traced());
    let (hash, path) =
        ("8f".repeat(16), format!("/kubepods/pod{}/crio-{}", "8f".repeat(16), "0a".repeat(32)));
    let names = PodNames { namespace: "ml".into(), pod: "train-0".into(), container: Some("trainer".into()) };
    let cmdline = Some("train --token=secret".to_owned());
    let (cgroup, belongs) = (Some(path.clone()), belongs([path.as_str()]));
    let details = ProcessDetails { cmdline, cgroup, belongs, pod: Some(names), ..ProcessDetails::default() };
    world.state.enrich(ProcessId(1).into(), details);
    let series = format!(
        "kfd_process_info{{pid=\"4321\",kfd_process=\"1\",comm=\"train\",ns_pid=\"7\",uid=\"1000\",cgroup=\"{path}\",\
         container_id=\"{}\",runtime=\"cri-o\",pod_uid=\"{hash}\",namespace=\"ml\",pod=\"train-0\",\
         container=\"trainer\",slurm_job=\"\",slurm_step=\"\",unit=\"\"}}",
        "0a".repeat(32)
    );
    assert_eq!(world.value(&series), Some(1.0), "{}", world.text());
    assert!(!world.text().contains("secret"));
}

#[test]
fn losses_and_hits_come_from_the_counters_and_labels_are_escaped() {
    let mut world = World::new(traced());
    let counted = [(counter::sent(Kind::QueueCreate), 8), (counter::hits(ProbeId::Open), 9)];
    let lost = [(loss::lost(ProbeId::QueueAdd, Kind::QueueCreate), 7)];
    world.tables.counters = counters(&counted, &lost);
    assert_eq!(world.value(r#"kfd_trace_records_lost_total{kind="queue_create"}"#), Some(7.0));
    assert_eq!(world.value(r#"kfd_trace_records_total{kind="queue_create"}"#), Some(8.0));
    assert_eq!(world.value(r#"kfd_trace_probe_hits_total{probe="open"}"#), Some(9.0));
    let hits = |world: &World| world.value(r#"kfd_trace_probe_hits_total{probe="ioctl"}"#).unwrap();
    let (before, row) = (hits(&world), ioctl_row(1, 0xc060_4b02, 3, 1000));
    world.tables.ioctls.push(row);
    world.retired.retire(&world.tables);
    assert_eq!(hits(&world), before + 6.0, "each call is a run, and so are those of the ended");
    assert_eq!(world.value(r#"kfd_trace_map_capacity{map="ioctl_stats"}"#), Some(16_384.0));
    let Body::ProcessSeen(mut evil) = seen(false) else { unreachable!("a sample") };
    evil.comm = Some("a\"b\\c\nd\u{9b}".into());
    world.state.apply(&event(5, 2, 55, Body::ProcessSeen(evil)));
    assert!(world.text().contains(r#"comm="a\"b\\c\\u{a}d\\u{9b}""#));
}

#[test]
fn what_the_kernel_does_not_count_has_no_series() {
    let mut world = World::new(traced());
    let missed = |program_skipped, probe_missed| Missed { program_skipped, probe_missed };
    world.tables.missed =
        BTreeMap::from([(ProbeId::Ioctl, missed(Some(3), None)), (ProbeId::Open, missed(Some(0), Some(4)))]);
    let value = |probe, cause| {
        world.value(&format!(r#"kfd_trace_probe_missed_total{{probe="{probe}",cause="{cause}"}}"#))
    };
    assert_eq!((value("ioctl", "program_skipped"), value("ioctl", "probe_missed")), (Some(3.0), None));
    assert_eq!((value("open", "program_skipped"), value("open", "probe_missed")), (Some(0.0), Some(4.0)));
}

#[test]
fn losses_are_reported_for_each_probe() {
    let mut world = World::new(traced());
    let losses = [
        (loss::lost(ProbeId::QueueAdd, Kind::QueueCreate), 7),
        (loss::lost(ProbeId::QueueAdd, Kind::ProcessSeen), 1),
        (loss::lost(ProbeId::CreateProcess, Kind::ProcessSeen), 20),
        (loss::trouble(ProbeId::QueueAdd, Trouble::QueueUnreadable), 300),
        (loss::trouble(ProbeId::QueueDel, Trouble::QueueUnreadable), 4000),
    ];
    world.tables.counters = counters(&[], &losses);
    for probe in [Some(ProbeId::Open), Some(ProbeId::Open), None] {
        world.undecoded.count(&Undecodable { error: DecodeError::Kind(99), probe });
    }
    world.probes.retain(|probe| probe.id != ProbeId::Release);
    let series = |probe, cause| {
        world.value(&format!(r#"kfd_trace_probe_records_lost_total{{probe="{probe}",cause="{cause}"}}"#))
    };
    let trouble = |probe, reason| {
        world.value(&format!(r#"kfd_trace_probe_trouble_total{{probe="{probe}",reason="{reason}"}}"#))
    };
    let full =
        ["queue_add", "create_process", "queue_del", "release"].map(|probe| series(probe, "ring_full"));
    assert_eq!(full, [Some(8.0), Some(20.0), Some(0.0), None], "the last is on no function");
    let unreadable = ["queue_add", "queue_del", "open"].map(|probe| trouble(probe, "queue_unreadable"));
    assert_eq!(unreadable, [Some(300.0), Some(4000.0), None]);
    let undecoded = ["open", "unknown", "queue_add"].map(|probe| series(probe, "not_decoded"));
    assert_eq!(undecoded, [Some(2.0), Some(1.0), Some(0.0)]);
    for (sum, count) in [
        (r#"kfd_trace_records_lost_total{kind="process_seen"}"#, 21.0),
        (r#"kfd_trace_trouble_total{reason="queue_unreadable"}"#, 4300.0),
        (r#"kfd_trace_decode_errors_total{reason="kind"}"#, 3.0),
    ] {
        assert_eq!(world.value(sum), Some(count), "{sum}");
    }
}

mod activity;
mod crowd;
mod detail;
mod encoder;
mod ioctls;
mod life;
mod whole;
