//! The tracer itself: probes, records, losses, limits.

use super::family::{Family, number};
use super::scrape::Scrape;
use super::table as t;
use crate::events::tables::{NOT_DECODED, RING_FULL};
use crate::events::undecoded::probe_name;
use crate::model::missed::MissCause;
use crate::model::verdict::Verdict;
use crate::output::exported::ExportFigures;
use crate::recording::Figures;
use crate::state::{Anomaly, Difference, Source};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let mut all = vec![
        build_info(scrape),
        Family::single(&t::START_TIME, scrape.start_time_seconds),
        Family::single(&t::DRIVER_LOADED, number(scrape.driver_loaded.into())),
        Family::single(&t::DRIVER_LOADS, number(scrape.driver_loads)),
        types(scrape),
        types_refuted(scrape),
        Family::single(&t::SCRAPE_DURATION, scrape.duration_seconds),
        Family::single(&t::QUEUES_ADOPTED, number(scrape.snapshot.totals.queues_adopted)),
        decode_errors(scrape),
        anomalies(scrape),
        comparisons(scrape),
        differences(scrape),
    ];
    all.extend(remembered(scrape));
    all.extend(verdicts(scrape));
    all.extend(counters(scrape));
    all.extend(maps(scrape));
    all.extend(scrape.recording.iter().flat_map(recording));
    all.extend(scrape.exported.iter().flat_map(exported));
    all
}

fn recording(figures: &Figures) -> [Family; 4] {
    [
        Family::single(&t::RECORDING_UP, number(figures.writing.into())),
        Family::single(&t::RECORDING_LOST, number(figures.lost)),
        Family::single(&t::RECORDING_BYTES, number(figures.bytes)),
        Family::single(&t::RECORDING_FILES, number(figures.files)),
    ]
}

fn exported(figures: &ExportFigures) -> [Family; 3] {
    let mut records = Family::new(&t::OTLP_RECORDS);
    let ExportFigures { accepted, refused, dropped, .. } = *figures;
    for (result, count) in [("accepted", accepted), ("refused", refused), ("dropped", dropped)] {
        records.set(&[result], number(count));
    }
    [
        Family::single(&t::OTLP_UP, number(figures.up.into())),
        records,
        Family::single(&t::OTLP_WAITING, number(figures.waiting)),
    ]
}

fn build_info(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::BUILD_INFO);
    let build = &scrape.build;
    family.set(&[build.version, build.revision.unwrap_or("unknown"), build.target], 1.0);
    family
}

fn types(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::DRIVER_TYPES);
    family.set(&[scrape.types.source.name(), scrape.types.checked()], 1.0);
    family
}

fn types_refuted(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::TYPES_REFUTED);
    for source in ["file", "table"] {
        let count = scrape.types.refuted.iter().filter(|(refuted, _)| refuted.name() == source).count();
        family.add(&[source], u64::try_from(count).unwrap_or(u64::MAX));
    }
    family
}

/// None while nothing is traced: what is remembered is not among what is shown then, and is shown again later.
fn remembered(scrape: &Scrape<'_>) -> Option<Family> {
    if scrape.probes.is_empty() {
        return None;
    }
    let ended = scrape.snapshot.processes.iter().filter(|row| !row.alive()).count();
    Some(Family::single(&t::PROCESSES_REMEMBERED, number(u64::try_from(ended).unwrap_or(u64::MAX))))
}

fn decode_errors(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::DECODE_ERRORS);
    for (reason, count) in scrape.undecoded.by_reason() {
        family.add(&[reason], count);
    }
    family
}

fn anomalies(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::ANOMALIES);
    for anomaly in Anomaly::ALL {
        let count = scrape.snapshot.totals.anomalies.get(anomaly).copied().unwrap_or(0);
        family.add(&[anomaly.name()], count);
    }
    family
}

fn comparisons(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::COMPARISONS);
    for source in [Source::Sysfs, Source::Kernel] {
        let count = scrape.snapshot.totals.comparisons.get(&source).copied().unwrap_or(0);
        family.add(&[source.name()], count);
    }
    family
}

fn differences(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::DIFFERENCES);
    for difference in Difference::ALL {
        let count = scrape.snapshot.totals.differences.get(difference).copied().unwrap_or(0);
        family.add(&[difference.name()], count);
    }
    family
}

fn verdicts(scrape: &Scrape<'_>) -> [Family; 2] {
    let (mut attached, mut info) = (Family::new(&t::PROBE_ATTACHED), Family::new(&t::PROBE_INFO));
    for probe in scrape.probes {
        // A probe that was not requested, or that no GPU here needs, is not a fault to alert on.
        if !matches!(probe.verdict, Verdict::NotAsked | Verdict::NoGpu) {
            let is_attached = probe.verdict == Verdict::Attached;
            attached.add(&[probe.id.name(), probe.kind], u64::from(is_attached));
        }
        info.set(&[probe.id.name(), probe.kind, probe.verdict.word()], 1.0);
    }
    [attached, info]
}

/// The programs' own counters, over all programs ever loaded; none before the first load.
fn counters(scrape: &Scrape<'_>) -> Vec<Family> {
    let Some(tables) = scrape.tables else { return Vec::new() };
    let counters = &tables.counters;
    if scrape.probes.is_empty() && counters.is_empty() {
        return Vec::new();
    }
    let (mut hits, mut trouble) = (Family::new(&t::PROBE_HITS), Family::new(&t::TROUBLE));
    let (mut sent, mut lost) = (Family::new(&t::RECORDS), Family::new(&t::RECORDS_LOST));
    let (mut of_probes, mut troubles) = (Family::new(&t::PROBE_RECORDS_LOST), Family::new(&t::PROBE_TROUBLE));
    let mut missed = Family::new(&t::PROBE_MISSED);
    let was_on = |probe: &ProbeId| tables.missed.contains_key(probe);
    for probe in ProbeId::ALL {
        if scrape.sees(&[*probe]) || was_on(probe) {
            hits.add(&[probe.name()], counters.hits(*probe) + scrape.calls_of(*probe));
            of_probes.add(&[probe.name(), RING_FULL], counters.lost_by(*probe));
            of_probes.add(&[probe.name(), NOT_DECODED], scrape.undecoded.of(Some(*probe)));
        }
        for (reason, count) in counters.troubles_of(*probe) {
            troubles.add(&[probe.name(), reason.name()], count);
        }
    }
    of_probes.add(&[probe_name(None), NOT_DECODED], scrape.undecoded.of(None));
    for (probe, of_probe) in &tables.missed {
        for cause in MissCause::ALL {
            if let Some(count) = of_probe.of(cause) {
                missed.add(&[probe.name(), cause.name()], count);
            }
        }
    }
    for reason in Trouble::ALL {
        trouble.add(&[reason.name()], counters.trouble(*reason));
    }
    for kind in Kind::ALL {
        sent.add(&[kind.name()], counters.sent(*kind));
        lost.add(&[kind.name()], counters.lost(*kind));
    }
    vec![hits, missed, of_probes, troubles, trouble, sent, lost]
}

fn maps(scrape: &Scrape<'_>) -> [Family; 2] {
    let (mut entries, mut capacity) = (Family::new(&t::MAP_ENTRIES), Family::new(&t::MAP_CAPACITY));
    for (map, can_hold) in scrape.capacities {
        capacity.add(&[map], *can_hold);
        let Some(tables) = scrape.tables else { continue };
        let used = match *map {
            "ioctl_stats" => tables.crowded.ioctls,
            "ioctl_errors" => tables.crowded.errors,
            "in_flight" => tables.crowded.in_flight,
            "seats" => tables.crowded.slots,
            _ => continue,
        };
        entries.add(&[map], u64::try_from(used).unwrap_or(u64::MAX));
    }
    [entries, capacity]
}
