//! Each alert fires in its scenario and in no other, in a real Prometheus with the shipped rules, whose times
//! are divided. KfdTraceNothingTraced needs a driver that is loaded again (tests/install/driver.rs); alerts
//! on queue activity are in activity.rs, and KfdPreemptionSlow is in tour.rs.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::btf_file::BtfFile;
use kfd_trace_tests::harness::other_sysfs;
use kfd_trace_tests::harness::prometheus::{Prometheus, RULES};
use kfd_trace_tests::harness::service::{
    ADDRESS, Changed, UNIT, command, scrape, scrape_until, signal, tracing,
};
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Metrics, Steered, Workload};
use nix::sys::signal::Signal;
use std::any::Any;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keeps an alert's cause active, until it is dropped.
pub(super) type Cause = Box<dyn Any>;

/// How long a cause lasts at least: no other alert needs longer to fire than it. `for: 10m` of quickened
/// rules is 20 s, and a queue is stalled after 10 s; `for: 15m` is 30 s, after a rate of two scrapes. Only
/// KfdProcessIdle takes longer, two minutes: no other cause with inactive processes lasts that long.
const WATCHED: Duration = Duration::from_secs(45);

/// Creates a cause and removes it: meanwhile these alerts fire, each of them and no other, and afterwards
/// none.
pub(super) fn fire(
    server: &Prometheus,
    wanted: &[&str],
    cause: impl FnOnce() -> Result<Cause>,
) -> Result<()> {
    watch(server, wanted, WATCHED, cause)
}

/// [`fire`] with a cause that lasts at least this long.
fn watch(
    server: &Prometheus,
    wanted: &[&str],
    watched: Duration,
    cause: impl FnOnce() -> Result<Cause>,
) -> Result<()> {
    let reported = format!("{wanted:?}");
    let no_other = |firing: &[String]| {
        let others: Vec<_> = firing.iter().filter(|name| !wanted.contains(&name.as_str())).collect();
        ensure!(others.is_empty(), "{others:?} fires beside {reported}");
        Ok(firing.len())
    };
    let (begin, mut out) = (Instant::now(), stdout());
    // Not by println!, which is shown at the test's end: a guest without output is taken for hung.
    let mut say =
        |what: &str| writeln!(out, "{reported}: {what} after {:.0} s", begin.elapsed().as_secs_f64());
    let cause = cause().with_context(|| reported.clone())?;
    say("its cause is there")?;
    // not all at once: one of them may fire and resolve
    let mut seen = BTreeSet::new();
    server.until(&format!("{reported} to fire"), |firing| {
        no_other(firing)?;
        seen.extend(firing.iter().cloned());
        Ok(seen.len() == wanted.len())
    })?;
    say("fires")?;
    while begin.elapsed() < watched {
        std::thread::sleep(Duration::from_secs(5));
        no_other(&server.firing()?)?;
    }
    drop(cause);
    server.until(&format!("{reported} to end"), |firing| Ok(no_other(firing)? == 0))?;
    say("ends").map_err(Into::into)
}

/// An action repeated until this is dropped.
pub(super) struct Again(Arc<AtomicBool>, Option<JoinHandle<Result<()>>>);

impl Again {
    pub(super) fn and_again(rest: Duration, mut work: impl FnMut() -> Result<()> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                work()?;
                std::thread::sleep(rest);
            }
            Ok(())
        });
        Self(over, Some(thread))
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.1.take().and_then(|thread| thread.join().ok()) {
            eprintln!("{error:#}");
        }
    }
}

/// Slots of a kind on one GPU.
fn slots(kind: &str) -> Result<usize> {
    let metrics = scrape()?;
    let slots = metrics.series("kfd_gpu_queue_slots").find(|(labels, _)| labels["kind"] == kind);
    Ok(format!("{}", slots.with_context(|| format!("slots of {kind}"))?.1).parse()?)
}

fn storm() -> Result<Cause> {
    let workload = Steered::having(&["create aql", "create aql gpu=1"])?;
    let pid = workload.pid();
    let storm = Again::and_again(Duration::from_millis(200), move || {
        kfdsim("quiesce", pid).and_then(|()| kfdsim("resume", pid))
    });
    Ok(Box::new((storm, workload)))
}

fn oversubscribed() -> Result<Cause> {
    let queues = format!("--aql={}", slots("cp")? + 1);
    Ok(Box::new(Workload::ready(&["hold", &queues])?))
}

fn sdma_used_up() -> Result<Cause> {
    let queues = format!("--sdma={}", slots("sdma")?);
    Ok(Box::new(Workload::ready(&["hold", "--aql=0", &queues])?))
}

fn creation_fails() -> Result<Cause> {
    let mut workload = Steered::start()?;
    let reply = workload.act("create aql bad")?;
    ensure!(!reply["errno"].is_null(), "{reply}");
    Ok(Box::new(workload))
}

/// The scheduler does not respond, and the driver's timeout for it is as long as wanted.
fn patient() -> Result<(Hang, Setting)> {
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    Ok((Hang::begin()?, timeout))
}

fn left_by_dead() -> Result<Cause> {
    let workload = Steered::having(&["create aql"])?;
    let hang = patient()?;
    workload.signal(Signal::SIGKILL)?;
    Ok(Box::new((hang, workload)))
}

fn stuck() -> Result<Cause> {
    let mut workload = Steered::having(&["create aql"])?;
    let hang = patient()?;
    workload.send_line("update 0 50")?;
    Ok(Box::new((hang, workload)))
}

fn reset() -> Result<Cause> {
    let workload = Steered::having(&["create aql"])?;
    kfdsim("reset", 0)?;
    Ok(Box::new(workload))
}

/// The hang ends in a reset.
fn hang() -> Result<Cause> {
    let mut workload = Steered::having(&["create aql gpu=1"])?;
    kfdsim_at("hang", 1, 1)?;
    let reply = workload.act("update 0 50")?;
    ensure!(!reply["errno"].is_null(), "{reply}");
    Ok(Box::new(workload))
}

fn faults() -> Result<Cause> {
    let workload = Steered::having(&["create aql"])?;
    kfdsim_at("vmfault", workload.pid(), 0)?;
    Ok(Box::new(workload))
}

#[test]
fn of_the_driver() -> Result<()> {
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &[], || Ok(Box::new(Steered::having(&["create aql", "create sdma"])?)))?;
    fire(&server, &["KfdEvictionStorm"], storm)?;
    fire(&server, &["KfdQueuesOversubscribed"], oversubscribed)?;
    fire(&server, &["KfdSdmaSlotsUsedUp"], sdma_used_up)?;
    fire(&server, &["KfdQueueCreationFails"], creation_fails)?;
    // Not watched any longer: while the driver waits for the scheduler, it keeps a CPU busy.
    watch(&server, &["KfdQueuesLeftByDeadProcess"], Duration::ZERO, left_by_dead)?;
    watch(&server, &["KfdIoctlStuck"], Duration::ZERO, stuck)?;
    // Nothing restores what existed before a reset, or what a fault took off.
    fire(&server, &["KfdGpuReset", "KfdProcessNotRestored"], reset)?;
    fire(&server, &["KfdGpuReset", "KfdHwsHang", "KfdProcessNotRestored"], hang)?;
    fire(&server, &["KfdProcessNotRestored", "KfdVmFaults"], faults)
}

/// The service is stopped while more happens than its buffer holds.
fn records_lost() -> Result<Cause> {
    let mut workload = Steered::start()?;
    signal(Signal::SIGSTOP)?;
    let made =
        (0..60).try_for_each(|_| workload.must("create aql").and_then(|()| workload.must("destroy 0")));
    signal(Signal::SIGCONT)?;
    made?;
    Ok(Box::new(workload))
}

/// Processes that are in update_queue at once: a kretprobe of perf has ten instances on one CPU
/// (`alloc_trace_kprobe`'s maxactive of 0), so the returns of the others are missed.
const CROWD: usize = 16;

/// While the scheduler does not respond, all wait in the same function. The next update of each process whose
/// return was missed finds that: it is the trouble.
fn calls_missed() -> Result<Cause> {
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let mut crowd = (0..CROWD).map(|_| Steered::having(&["create aql"])).collect::<Result<Vec<_>>>()?;
    let updates = Again::and_again(Duration::from_secs(2), move || {
        let hang = Hang::begin()?;
        let begun = crowd.iter_mut().map(|one| one.begin("update 0 50")).collect::<Result<Vec<_>>>()?;
        std::thread::sleep(Duration::from_millis(300));
        drop(hang);
        crowd.iter().zip(&begun).try_for_each(|(one, begun)| one.answer(begun).map(drop))
    });
    Ok(Box::new((updates, timeout)))
}

fn down() -> Result<Cause> {
    command("systemctl", &["stop", UNIT])?;
    Ok(Box::new(Started))
}

/// Starts it when dropped.
struct Started;

impl Drop for Started {
    fn drop(&mut self) {
        if let Err(error) = command("systemctl", &["start", UNIT]).and_then(|_| tracing()) {
            eprintln!("{error:#}");
        }
    }
}

fn restarts() -> Result<Cause> {
    for _ in 0..3 {
        command("systemctl", &["restart", UNIT])?;
        tracing()?;
        // seen by a scrape before the next one
        std::thread::sleep(Duration::from_secs(2));
    }
    Ok(Box::new(()))
}

#[test]
fn of_the_tracer() -> Result<()> {
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &["KfdTraceDown"], down)?;
    fire(&server, &["KfdTraceRestarts"], restarts)?;
    drop(server);

    // Return probes of tracefs have room for the crowd.
    let other = other_sysfs::lacking(&["kernel/tracing", "kernel/debug"])?;
    let without = Changed::arguments("without-tracefs", &[&other_sysfs::flag(&other)])?;
    tracing()?;
    fire(&Prometheus::scraping(ADDRESS, RULES)?, &["KfdTraceCallsMissed", "KfdTraceTrouble"], calls_missed)?;
    without.undo()?;

    let small = Changed::arguments("small", &["--buffer-size=4KiB"])?;
    tracing()?;
    fire(&Prometheus::scraping(ADDRESS, RULES)?, &["KfdTraceRecordsLost"], records_lost)?;
    small.undo()
}

/// The driver has no BTF, and the probe that replaces those that need it was left out: queues are known from
/// sysfs only.
#[test]
fn of_a_tracer_that_is_half_blind() -> Result<()> {
    tracing()?;
    let other = other_sysfs::lacking(&["kernel/btf/amdgpu", "class/kfd/kfd/proc"])?;
    // from which no list of processes can be read
    fs::write(other.path().join("class/kfd/kfd/proc"), "")?;
    let blind = Changed::arguments("blind", &[&other_sysfs::flag(&other), FEW[0]])?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &["KfdTraceCollectorFails", "KfdTraceRequiredProbeOff"], || Ok(Box::new(blind)))?;
    drop(server);

    let other = other_sysfs::without_btf()?;
    let blind = Changed::arguments("blind", &[&other_sysfs::flag(&other), FEW[0]])?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &["KfdTraceRequiredProbeOff"], || Ok(Box::new(blind)))?;
    drop(server);

    // Types that the first queue contradicts: it is then followed by its ioctls.
    let types = BtfFile::of_driver()?.exchanged("queue_properties", "queue_address", "queue_size");
    let types = types.context("two members")?;
    let file = other.path().join("types.btf");
    fs::write(&file, types)?;
    let file = format!("--driver-btf={}", file.display());
    let wrong = Changed::arguments("wrong", &[&other_sysfs::flag(&other), &file])?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &["KfdTraceDriverTypesRefuted"], || {
        let mut workload = Steered::having(&["create aql"])?;
        let refuted = |metrics: &Metrics| {
            metrics.sum("kfd_trace_driver_types_refuted_total", &[("source", "file")]).filter(|n| *n > 0.0)
        };
        scrape_until("the types to be refuted", refuted)?;
        // A process that stays would be idle before this alert is over.
        workload.finish()?;
        Ok(Box::new(wrong))
    })
}
