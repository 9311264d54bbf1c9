//! One scenario: agents, driver, tracer and ledger run side by side and are compared repeatedly.

use super::agent::Agent;
use super::diff::{Differs, Table, diff, shown};
use super::ledger::{Ledger, Vms};
use super::op::{Answer, Kind, Op};
use super::plan::Plan;
use super::view::{self, Depth};
use crate::harness::mqd_count::MqdCount;
use crate::harness::restores::Restores;
use crate::harness::setting::{EACH_VM, Setting};
use crate::harness::tracer::run_json;
use crate::harness::wait::SOON;
use crate::harness::workload::kfdsim;
use crate::harness::{Daemon, Metrics, sysfs, until};
use crate::kfd::topology;
use anyhow::{Context, Result, ensure};
use kfd_trace_common::counter::ProbeId;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

mod outcome;
pub mod soak;

pub use outcome::Outcome;

/// Operations between two comparisons.
const STRETCH: usize = 50;
/// This many of each stretch happen while the tracer is stopped, so that records are lost.
const UNSEEN: usize = 35;
/// The smallest possible ring: room for some ten records.
const SMALL_RING: &str = "4KiB";
/// Few enough PIDs that a long scenario reuses them; the kernel's minimum is 301.
const PID_MAX: (&str, &str) = ("/proc/sys/kernel/pid_max", "450");
/// A guest that is silent for minutes is taken for hung: one line per this many operations.
const STILL_ALIVE: usize = 250;
const SYSFS: &str = "/sys";

#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub seed: u64,
    pub operations: usize,
    /// Stops the tracer repeatedly, so that it loses records.
    pub drops: bool,
    /// Whether the driver has secondary KFD processes.
    pub contexts: bool,
    /// Not on 6.1: its restore reads through a null pointer where a process has no VM.
    pub vms: Vms,
    /// The driver's least ring, bytes.
    pub min_ring: u32,
    /// A probe that is left out of the tracer.
    pub without: Option<ProbeId>,
}

/// Plays it. A persistent difference is an error ([`Differs`]), which names the seed and shows the
/// difference.
pub fn run(life: Life) -> Result<Outcome> {
    let place = format!("seed {}, {} operations, drops: {}", life.seed, life.operations, life.drops);
    let _settings = settings(life.vms)?;
    let mut world = World::new(life).with_context(|| place.clone())?;
    let mut step = 0;
    world.play(&mut step).with_context(|| format!("{place}: after operation {step}{}", world.troubles()))?;
    Ok(world.outcome)
}

/// The machine's settings for the duration of a scenario.
fn settings(vms: Vms) -> Result<[Setting; 2]> {
    let each_vm = (EACH_VM, if vms == Vms::Each { "1" } else { "0" });
    let set = |(file, value)| Setting::of(file, value);
    Ok([set(PID_MAX)?, set(each_vm)?])
}

struct World {
    life: Life,
    plan: Plan,
    ledger: Ledger,
    agents: BTreeMap<u32, Agent>,
    /// Evictions by TTM that have not ended: for each agent, the GPUs and their evicted time before.
    evicted: BTreeMap<u32, Vec<(u32, u64)>>,
    daemon: Daemon,
    stopped: bool,
    calls: MqdCount,
    restores: Restores,
    pids: BTreeSet<u32>,
    /// When each process ended.
    ended: Vec<Instant>,
    outcome: Outcome,
}

impl World {
    fn new(life: Life) -> Result<Self> {
        let gpus = topology::gpus(Path::new(SYSFS))?;
        let gpu_ids: Vec<u32> = gpus.iter().map(|gpu| gpu.gpu_id).collect();
        let mut options = Vec::new();
        if life.drops {
            options.extend(["--buffer-size", SMALL_RING]);
        }
        if let Some(probe) = life.without {
            options.extend(["--without-probe", probe.name()]);
        }
        Ok(Self {
            life,
            plan: Plan::new(life.seed, life.operations, life.contexts),
            ledger: Ledger::new(&gpu_ids, life.vms, life.min_ring),
            agents: BTreeMap::new(),
            evicted: BTreeMap::new(),
            daemon: Daemon::quick(&options)?,
            stopped: false,
            // kfdsim's GPUs are gfx9 by default
            calls: MqdCount::of("v9", &["init_mqd", "init_mqd_sdma", "update_mqd", "update_mqd_sdma"])?,
            restores: Restores::watch()?,
            pids: BTreeSet::new(),
            ended: Vec::new(),
            outcome: Outcome { life: Some(life), ..Outcome::default() },
        })
    }

    fn play(&mut self, step: &mut usize) -> Result<()> {
        self.operate(step)?;
        self.end()
    }

    /// Performs all planned operations.
    fn operate(&mut self, step: &mut usize) -> Result<()> {
        loop {
            match *step % STRETCH {
                0 if self.life.drops => self.stop(true)?,
                UNSEEN => self.stop(false)?,
                _ => {}
            }
            // only the tracer reports where a fault has got to
            let stopped = self.stopped;
            let Some(op) = self.plan.next(&self.ledger, |kind| !stopped || kind != Kind::Fault) else {
                break;
            };
            *step += 1;
            self.act(&op)?;
            if step.is_multiple_of(STRETCH) || op.kind() == Kind::Fault {
                self.compare()?;
            }
            if step.is_multiple_of(STILL_ALIVE) {
                eprintln!("seed {}: {step} operations", self.life.seed);
            }
        }
        self.stop(false)
    }

    fn act(&mut self, op: &Op) -> Result<()> {
        let before = self.ledger.processes().count();
        let answer = self.perform(op).with_context(|| format!("{op:?}"))?;
        self.ledger.apply(op, &answer)?;
        let ended = before.saturating_sub(self.ledger.processes().count());
        self.ended.extend(std::iter::repeat_n(Instant::now(), ended));
        self.count(op, &answer);
        Ok(())
    }

    /// The last comparisons, and the tracer's end.
    fn end(&mut self) -> Result<()> {
        self.compare()?;
        if !self.life.drops {
            self.compare_ps()?;
        }
        self.check_records()?;
        self.check_mended()?;
        self.check_calls()?;
        self.daemon.stop()
    }

    /// The tracer's own error counters: the likely cause of a difference.
    fn troubles(&self) -> String {
        let Ok(metrics) = self.daemon.scrape() else { return String::new() };
        let reasons = metrics.series("kfd_trace_trouble_total").filter(|(_, count)| *count > 0.0);
        reasons.map(|(labels, count)| format!(", {labels:?} {count}")).collect()
    }

    fn count(&mut self, op: &Op, answer: &Answer) {
        *self.outcome.operations.entry(op.kind()).or_default() += 1;
        self.outcome.refused += usize::from(matches!(answer, Answer::Refused(_)));
        self.outcome.queues += usize::from(matches!(answer, Answer::Created(_)));
        if let Answer::Started { pid } = answer {
            self.outcome.pids_reused += usize::from(!self.pids.insert(*pid));
        }
    }

    fn stop(&mut self, stop: bool) -> Result<()> {
        if self.stopped != stop {
            self.daemon.signal(if stop { Signal::SIGSTOP } else { Signal::SIGCONT })?;
            self.stopped = stop;
        }
        Ok(())
    }

    fn perform(&mut self, op: &Op) -> Result<Answer> {
        let number = op.agent();
        if matches!(op, Op::Exit { .. } | Op::Kill { .. }) {
            self.evicted.remove(&number);
        } else {
            self.settle(number)?;
        }
        if matches!(op, Op::Start { .. }) {
            let agent = Agent::start()?;
            let pid = agent.pid();
            self.agents.insert(number, agent);
            return Ok(Answer::Started { pid });
        }
        let agent = self.agents.get_mut(&number).context("there is no such agent")?;
        let pid = agent.pid();
        match op {
            Op::Evict { .. } => kfdsim("quiesce", pid)?,
            Op::Restore { .. } => kfdsim("resume", pid)?,
            Op::Fault { .. } => kfdsim("vmfault", pid)?,
            Op::TtmEvict { .. } => {
                let process = self.ledger.process(super::op::Owner::primary(number)).context("a process")?;
                let free =
                    process.gpus.iter().filter(|(_, gpu)| gpu.refs == 0 && gpu.vm).map(|(gpu_id, _)| *gpu_id);
                let before = free.map(|gpu| Ok((gpu, sysfs::evicted_ms(Path::new(SYSFS), pid, gpu)?)));
                self.evicted.insert(number, before.collect::<Result<_>>()?);
                kfdsim("evict", pid)?;
            }
            _ => {
                let answer = agent.perform(op, self.ledger.gpu_ids())?;
                if matches!(op, Op::Exit { .. } | Op::Kill { .. }) {
                    self.agents.remove(&number);
                }
                return Ok(answer);
            }
        }
        Ok(Answer::Done)
    }

    /// Waits for the end of an eviction by TTM, which the driver shows in sysfs, and until the restore has
    /// returned: otherwise it is a matter of timing whether the next operation nests with it.
    fn settle(&mut self, number: u32) -> Result<()> {
        let Some(before) = self.evicted.remove(&number) else { return Ok(()) };
        let pid = self.agents.get(&number).context("there is no such agent")?.pid();
        until(&format!("the restore of process {pid}"), SOON, || {
            for (gpu, before) in &before {
                if sysfs::evicted_ms(Path::new(SYSFS), pid, *gpu)? <= *before {
                    return Ok(None);
                }
            }
            Ok((!self.restores.under_way()?).then_some(()))
        })
    }

    /// Compares ledger, sysfs and tracer, until they agree.
    fn compare(&mut self) -> Result<()> {
        self.stop(false)?;
        let pending: Vec<u32> = self.evicted.keys().copied().collect();
        pending.into_iter().try_for_each(|number| self.settle(number))?;
        let root = Path::new(SYSFS);
        let ledger = &self.ledger;
        agree("sysfs", &view::queues(ledger, Depth::Sysfs), || view::sysfs_queues(root))?;
        agree("sysfs", &view::pids(ledger), || view::sysfs_processes(root))?;
        let depth = if self.life.drops { Depth::State } else { Depth::History };
        let get = |path: &str| self.daemon.json(path);
        agree("the tracer", &view::gpus(ledger, depth), || view::reported_gpus(&get("/api/v1/gpus")?))?;
        let queues = agree("the tracer", &view::queues(ledger, depth), || {
            view::reported_queues(&get("/api/v1/queues")?)
        })?;
        self.outcome.resynced +=
            queues.values().filter(|row| row.get("resynced") == Some(&true.into())).count();
        let processes = view::processes(ledger, depth);
        agree("the tracer", &processes, || {
            let reported = view::reported_processes(&get("/api/v1/processes")?)?;
            Ok(if depth == Depth::State { view::with_unseen(&processes, reported) } else { reported })
        })?;
        if !self.life.drops {
            mended(&self.daemon.scrape()?, false)?;
        }
        self.outcome.comparisons += 1;
        Ok(())
    }

    /// A second tracer, started late, finds everything that lives.
    fn compare_ps(&mut self) -> Result<()> {
        let ledger = view::queues(&self.ledger, Depth::Addresses);
        agree("ps", &ledger, || {
            view::reported_queues(&run_json(&["ps", "--json"])?.pop().context("one object")?)
        })?;
        self.outcome.comparisons += 1;
        Ok(())
    }

    /// The tracer finds missed events in the driver's lists, and agrees again: where no record is lost, there
    /// is nothing to find. Where some are, there is: a third of the operations of a stretch create queues,
    /// [`SMALL_RING`] holds only the first of them, and at its end the tracer is waited for.
    fn check_mended(&mut self) -> Result<()> {
        self.outcome.mended = mended(&self.daemon.scrape()?, self.life.drops)?;
        let resynced = self.outcome.resynced;
        ensure!((resynced > 0) == self.life.drops, "{resynced} times a queue was reported to be resynced");
        Ok(())
    }

    /// Checks that records were lost where they should be, and none elsewhere.
    fn check_records(&mut self) -> Result<()> {
        let metrics = self.daemon.scrape()?;
        let lost =
            metrics.sum("kfd_trace_records_lost_total", &[]).context("no kfd_trace_records_lost_total")?;
        self.outcome.lost = format!("{lost}").parse().context("a count")?;
        ensure!((self.outcome.lost > 0) == self.life.drops, "{lost} records were lost");
        senders(&metrics)
    }

    /// Checks the ledger's rules on MQD writes against the driver's own calls.
    fn check_calls(&mut self) -> Result<()> {
        let sum = |names: [&str; 2]| names.iter().map(|name| self.calls.count(name)).sum::<Result<u64>>();
        let init = sum(["init_mqd", "init_mqd_sdma"])?;
        let update = sum(["update_mqd", "update_mqd_sdma"])?;
        let writes = self.ledger.mqd_writes;
        // an init_mqd calls update_mqd once itself
        ensure!(
            (init, update) == (writes.init, writes.update + init),
            "the driver called init_mqd {init} and update_mqd {update} times, the ledger holds {writes:?}"
        );
        self.outcome.comparisons += 1;
        Ok(())
    }
}

/// Each lost record of these kinds is attributed to one of the probes that send them; they send others, too.
fn senders(metrics: &Metrics) -> Result<()> {
    const SENDERS: [(&[&str], &[&str]); 5] = [
        (&["queue_create"], &["queue_add"]),
        (&["queue_destroy"], &["queue_del"]),
        (&["queue_update"], &["queue_update_return"]),
        (&["evict", "restore"], &["evict_gpu_return"]),
        (&["mqd_write"], &["mqd_init", "mqd_update", "mqd_address", "mqd_restore"]),
    ];
    let sum = |name: &str, label: &str, values: &[&str]| -> f64 {
        values.iter().filter_map(|value| metrics.sum(name, &[(label, value)])).sum()
    };
    for (kinds, probes) in SENDERS {
        let of_kinds = sum("kfd_trace_records_lost_total", "kind", kinds);
        let of_probes = sum("kfd_trace_probe_records_lost_total", "probe", probes);
        ensure!(of_kinds <= of_probes, "{of_kinds} of {kinds:?} were lost, {of_probes} by {probes:?}");
    }
    Ok(())
}

/// Corrected differences: some where records were lost, and none, not even a queue missing in sysfs, where
/// none were.
fn mended(metrics: &Metrics, drops: bool) -> Result<f64> {
    let kinds: Vec<_> = metrics.series("kfd_trace_differences_total").collect();
    ensure!(!kinds.is_empty(), "no kfd_trace_differences_total");
    let counts =
        kinds.iter().filter(|(labels, _)| !drops || labels.get("kind").is_none_or(|kind| kind != "unlisted"));
    let mended = counts.map(|(_, count)| count).sum();
    ensure!(
        (mended > 0.0) == drops,
        Differs(format!("records lost: {drops}; set right by the driver's lists: {kinds:?}"))
    );
    Ok(mended)
}

/// Repeats until there is no difference, and returns the last table; the differences of the last scan are the
/// error.
fn agree(teller: &str, ledger: &Table, look: impl Fn() -> Result<Table>) -> Result<Table> {
    let mut last = Vec::new();
    let agreed = until("no difference", SOON, || {
        let reported = look()?;
        last = diff(teller, ledger, &reported);
        Ok(last.is_empty().then_some(reported))
    });
    match agreed {
        Err(_) if !last.is_empty() => {
            let found = format!("{} differences between {teller} and the ledger:", last.len());
            Err(Differs(format!("{found}\n{}", shown(&last))).into())
        }
        agreed => agreed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_must_be_mended_and_nothing_else_may_be() {
        let reported = |ghosts: u32, unlisted: u32, drops: bool| {
            let name = "kfd_trace_differences_total";
            let text = format!("{name}{{kind=\"ghost\"}} {ghosts}\n{name}{{kind=\"unlisted\"}} {unlisted}\n");
            mended(&Metrics::parse(&text).unwrap(), drops).ok()
        };
        assert_eq!([reported(3, 1, true), reported(0, 0, false)], [Some(3.0), Some(0.0)]);
        assert_eq!([reported(0, 1, true), reported(1, 0, false), reported(0, 1, false)], [None; 3]);
        assert!(mended(&Metrics::default(), false).is_err(), "not counted at all");
    }
}
