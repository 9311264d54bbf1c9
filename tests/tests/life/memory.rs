//! Memory of processes: what the daemon says by ioctls and by sysfs, checked against the workload's own ledger and
//! the driver's counts.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, nodes, sysfs, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const PAGE: u64 = 4096;

fn gpus() -> Result<Vec<u32>> {
    let all: Vec<u32> = nodes(Path::new("/sys"))?.iter().map(|node| node.gpu_id).collect();
    ensure!(all.len() >= 2, "two GPUs");
    Ok(all)
}

/// `memory` of a process of the API.
fn of(daemon: &Daemon, pid: u32) -> Result<Option<Value>> {
    let all = daemon.json("/api/v1/processes")?["processes"].clone();
    let live = |row: &&Value| row["pid"] == pid && row["alive"] == true;
    Ok(all.as_array().context("processes")?.iter().find(live).map(|row| row["memory"].clone()))
}

fn on_gpu(memory: &Value, gpu_id: u32) -> Value {
    let all = memory["gpus"].as_array().into_iter().flatten();
    all.clone().find(|row| row["gpu_id"] == gpu_id).cloned().unwrap_or_default()
}

/// The handle of what was allocated.
fn hold(workload: &mut Steered, operation: &str) -> Result<u64> {
    let answer = workload.act(operation)?;
    answer["handle"].as_u64().with_context(|| format!("`{operation}`: {answer}"))
}

fn release() -> Result<String> {
    Ok(nix::sys::utsname::uname()?.release().to_string_lossy().into_owned())
}

/// Whether it imports by descriptor, which is looked at by nobody on a simulated GPU.
fn imports() -> Result<bool> {
    let release = release()?;
    Ok(!release.starts_with("5.") && !release.starts_with("6.1."))
}

#[test]
fn what_a_process_holds_is_shown_by_gpu_kind_and_age() -> Result<()> {
    let [first, second] = gpus()?[..] else { anyhow::bail!("two GPUs") };
    let mut daemon = Daemon::quick(&[])?;
    let mut workload = Steered::start()?;
    let pid = workload.pid();
    let old = hold(&mut workload, "alloc vram 5000000")?;
    hold(&mut workload, "alloc vram 8192 gpu=1")?;
    hold(&mut workload, "alloc gtt 4096")?;
    hold(&mut workload, "alloc userptr 1")?;
    let freed = hold(&mut workload, "alloc gtt 1048576")?;
    workload.must(&format!("free {freed}"))?;
    let refused = workload.act("alloc vram 4096 gpu=none")?;
    assert_eq!(refused["errno"], "EINVAL");
    let rounded = 5_000_000_u64.next_multiple_of(PAGE);
    // 5.10 adds the size of the call as it is.
    let counted = if release()?.starts_with("5.") { 5_000_000 } else { rounded };
    let sum = |bytes: u64, allocations: u64| json!({"bytes": bytes, "allocations": allocations});
    let expected = json!({"vram": sum(rounded, 1), "gtt": sum(PAGE, 1), "userptr": sum(PAGE, 1)});
    let memory = until("the driver's own count", SOON, || {
        Ok(of(&daemon, pid)?.filter(|memory| on_gpu(memory, second)["vram_bytes"] == 8192))
    })?;
    assert_eq!(
        (&memory["complete"], &on_gpu(&memory, first)["domains"]),
        (&json!(true), &expected),
        "{memory}"
    );
    assert_eq!(on_gpu(&memory, second)["domains"], json!({"vram": sum(8192, 1)}));

    if imports()? {
        let handle = hold(&mut workload, "import")?;
        let imported = json!({"bytes": null, "allocations": 1});
        until("the import", SOON, || {
            let memory = of(&daemon, pid)?.context("it lives")?;
            Ok((on_gpu(&memory, first)["domains"]["imported"] == imported).then_some(()))
        })?;
        workload.must(&format!("free {handle}"))?;
    }
    let path = format!("/api/v1/memory?pid={pid}&gpu={first}&limit=1");
    let listed =
        until("the rest", SOON, || Ok(Some(daemon.json(&path)?).filter(|listed| listed["matched"] == 3)))?;
    let oldest = &listed["allocations"][0];
    assert_eq!(
        (&oldest["handle"], &oldest["bytes"]),
        (&json!(format!("{old:#x}")), &json!(rounded)),
        "{listed}"
    );
    assert_eq!((&oldest["pid"], &oldest["domain"]), (&json!(pid), &json!("vram")));
    let ages = listed["ages"].as_array().context("ages")?;
    let all: u64 = ages.iter().filter_map(|age| age["allocations"].as_u64()).sum();
    assert_eq!((ages.len(), all), (5, 3), "{listed}");

    let own = pid.to_string();
    let metrics = daemon.scrape()?;
    let of_gpu = |name: &str, gpu_id: u32, domain: Option<&str>| {
        let gpu_id = gpu_id.to_string();
        let mut labels = vec![("pid", own.as_str()), ("gpu_id", gpu_id.as_str())];
        labels.extend(domain.map(|domain| ("domain", domain)));
        metrics.sum(name, &labels)
    };
    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    let [by_driver, expected] = [counted, rounded].map(|bytes| Some(bytes as f64));
    assert_eq!(of_gpu("kfd_process_vram_bytes", first, None), by_driver);
    assert_eq!(of_gpu("kfd_process_memory_bytes", first, Some("vram")), expected);
    assert_eq!(of_gpu("kfd_process_memory_allocations", second, None), Some(1.0));

    workload.must("create aql")?;
    let table = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let row = table["queues"].as_array().context("queues")?.iter().find(|row| row["pid"] == pid);
    assert_eq!(row.context("its queue")?["vram_bytes"], counted);
    let wide = String::from_utf8(run(&["ps", "--wide"])?.stdout)?;
    assert!(wide.contains(" VRAM ") && wide.contains(" 4.8M "), "{wide}");

    workload.kill()?;
    until("its end", SOON, || Ok(of(&daemon, pid)?.is_none().then_some(())))?;
    assert_eq!(daemon.json(&format!("/api/v1/memory?pid={pid}"))?["matched"], 0);
    daemon.stop()
}

/// What a process allocated and did not free, by handle: GPU and bytes of VRAM.
type Ledger = BTreeMap<u64, (usize, u64)>;

fn vram(ledger: &Ledger, gpu: usize) -> u64 {
    ledger.values().filter(|(at, _)| *at == gpu).map(|(_, bytes)| bytes).sum()
}

#[test]
fn vram_by_ioctls_is_what_sysfs_counts_in_a_random_mix() -> Result<()> {
    const SEED: u64 = 20;
    const OPERATIONS: usize = 400;
    let gpus = gpus()?;
    let mut daemon = Daemon::quick(&[])?;
    let mut rng = Rng::with_seed(SEED);
    let mut workloads: Vec<(Steered, Ledger)> = Vec::new();
    let (mut compared, mut ended) = (0, 0);
    for step in 0..OPERATIONS {
        if workloads.len() < 3 {
            workloads.push((Steered::start()?, Ledger::new()));
        }
        let at = rng.usize(..workloads.len());
        let (workload, ledger) = &mut workloads[at];
        match rng.u8(..20) {
            0 => {
                let (mut workload, _) = workloads.swap_remove(at);
                let pid = workload.pid();
                // Half of them free nothing of theirs, and end by themselves.
                if rng.bool() {
                    workload.kill()?;
                } else {
                    workload.finish().map(drop)?;
                }
                until("its end", SOON, || Ok(of(&daemon, pid)?.is_none().then_some(())))?;
                ended += 1;
            }
            1 => workload.must("fork")?,
            2 if imports()? => drop(hold(workload, "import gpu=1")?),
            3..=8 if !ledger.is_empty() => {
                let nth = rng.usize(..ledger.len());
                let handle = *ledger.keys().nth(nth).context("a handle")?;
                workload.must(&format!("free {handle}"))?;
                ledger.remove(&handle);
            }
            kind => {
                let gpu = rng.usize(..2);
                let pages = rng.u64(1..2_000);
                let (kind, counted) = match kind {
                    9 => ("gtt", 0),
                    10 => ("userptr", 0),
                    // Counted whole on 5.10, and taken off by half.
                    11 if imports()? => ("ring", (pages * PAGE / 2).next_multiple_of(PAGE)),
                    _ => ("vram", pages * PAGE),
                };
                let handle = hold(workload, &format!("alloc {kind} {} gpu={gpu}", pages * PAGE))?;
                ledger.insert(handle, (gpu, counted));
            }
        }
        if step % 20 == 19 {
            for (workload, ledger) in &workloads {
                for (index, gpu_id) in gpus.iter().take(2).enumerate() {
                    let pid = workload.pid();
                    let by_driver = sysfs::vram(Path::new("/sys"), pid, *gpu_id)?;
                    assert_eq!(by_driver, vram(ledger, index), "step {step}: the ledger");
                    until(&format!("step {step}: {by_driver} of {pid} on {gpu_id}"), SOON, || {
                        let memory = of(&daemon, pid)?.unwrap_or_default();
                        let by_ioctls = on_gpu(&memory, *gpu_id)["domains"]["vram"]["bytes"].as_u64();
                        Ok((by_ioctls.unwrap_or(0) == by_driver).then_some(()))
                    })?;
                    compared += 1;
                }
            }
        }
    }
    for (workload, _) in &workloads {
        assert_eq!(of(&daemon, workload.pid())?.context("it lives")?["complete"], true);
    }
    eprintln!("seed {SEED}: {OPERATIONS} operations, {compared} comparisons, {ended} ends, 0 differences");
    ensure!(compared > 50 && ended > 5, "{compared} comparisons, {ended} ends");
    daemon.stop()
}

#[test]
fn what_was_allocated_before_the_tracer_is_the_drivers_count_alone() -> Result<()> {
    let first = gpus()?[0];
    let mut workload = Steered::start()?;
    let pid = workload.pid();
    let before = hold(&mut workload, "alloc vram 1048576")?;
    let mut daemon = Daemon::quick(&[])?;
    hold(&mut workload, "alloc vram 4096")?;
    let memory = until("both", SOON, || {
        Ok(of(&daemon, pid)?.filter(|memory| on_gpu(memory, first)["vram_bytes"] == 1_052_672))
    })?;
    assert_eq!(memory["complete"], false, "{memory}");
    assert_eq!(on_gpu(&memory, first)["domains"]["vram"], json!({"bytes": 4096, "allocations": 1}));
    workload.must(&format!("free {before}"))?;
    until("the driver's count", SOON, || {
        Ok(of(&daemon, pid)?.filter(|memory| on_gpu(memory, first)["vram_bytes"] == 4096))
    })?;
    workload.kill()?;
    daemon.stop()
}

#[test]
fn after_lost_records_the_sums_are_known_to_be_uncertain() -> Result<()> {
    const CALLS: usize = 100;
    let mut daemon = Daemon::quick(&["--buffer-size=4KiB"])?;
    let mut workload = Steered::start()?;
    let pid = workload.pid();
    hold(&mut workload, "alloc vram 4096")?;
    let is = |complete: bool| {
        until("what is known of it", SOON, || {
            Ok(of(&daemon, pid)?.filter(|memory| memory["complete"] == complete).map(drop))
        })
    };
    is(true)?;
    // Nobody reads the ring buffer meanwhile.
    let tracer = Pid::from_raw(daemon.pid().try_into()?);
    kill(tracer, Signal::SIGSTOP)?;
    for _ in 0..CALLS {
        hold(&mut workload, "alloc gtt 4096")?;
    }
    kill(tracer, Signal::SIGCONT)?;
    is(false)?;
    let lost = daemon.scrape()?.sum("kfd_trace_records_lost_total", &[("kind", "ioctl")]);
    ensure!(lost > Some(0.0), "{lost:?}");
    workload.kill()?;
    daemon.stop()
}
