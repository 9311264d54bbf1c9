//! Memory of processes: what the daemon says by ioctls and by sysfs, checked against the workload's own ledger and
//! the driver's counts.

mod mix;

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, nodes, until};
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

/// What the driver itself counts of a process: `vram_<gpu_id>` in sysfs.
fn counted(pid: u32, gpu_id: u32) -> Result<u64> {
    let file = format!("/sys/class/kfd/kfd/proc/{pid}/vram_{gpu_id}");
    let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    text.trim().parse().with_context(|| format!("{file}: {text}"))
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
    // Some drivers add the size of the call as it is, others whole pages: kfd_chardev.c.
    let counted = counted(pid, first)?;
    ensure!([5_000_000, rounded].contains(&counted), "the driver counts {counted}");
    let sum =
        |bytes: u64, allocations: u64| json!({"bytes": bytes, "allocations": allocations, "mapped": []});
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
        let imported = json!({"bytes": null, "allocations": 1, "mapped": []});
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

/// On which GPUs the daemon has each allocation, by handle.
fn mapped(daemon: &Daemon, pid: u32) -> Result<BTreeMap<String, Value>> {
    let listed = daemon.json(&format!("/api/v1/memory?pid={pid}&limit=10000"))?;
    let rows = listed["allocations"].as_array().context("allocations")?.iter();
    rows.map(|row| Ok((row["handle"].as_str().context("handle")?.to_owned(), row["mapped"].clone())))
        .collect()
}

/// Sums of what is mapped, of one kind and GPU.
fn mapped_of(memory: &Value, gpu_id: u32, domain: &str) -> Value {
    on_gpu(memory, gpu_id)["domains"][domain]["mapped"].clone()
}

#[test]
fn the_gpus_that_can_access_an_allocation_are_shown() -> Result<()> {
    let [first, second] = gpus()?[..] else { anyhow::bail!("two GPUs") };
    let mut daemon = Daemon::quick(&[])?;
    let mut workload = Steered::start()?;
    let pid = workload.pid();
    let vram = hold(&mut workload, "alloc vram 8192")?;
    let gtt = hold(&mut workload, "alloc gtt 4096")?;
    workload.must(&format!("map {vram} gpu=0"))?;
    workload.must(&format!("map {vram} gpu=1"))?;
    let is = |what: &str, expected: [(u64, Value); 2]| {
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(handle, gpus)| (format!("{handle:#x}"), gpus)).collect();
        until(what, SOON, || Ok((mapped(&daemon, pid)? == expected).then_some(())))
    };
    let both = json!([first, second]);
    is("a peer's", [(vram, both.clone()), (gtt, json!([]))])?;
    let memory = of(&daemon, pid)?.context("it lives")?;
    let on = |gpu_id: u32| json!({"gpu_id": gpu_id, "bytes": 8192, "allocations": 1});
    assert_eq!(mapped_of(&memory, first, "vram"), json!([first, second].map(on)), "{memory}");
    assert_eq!((mapped_of(&memory, first, "gtt"), &memory["complete"]), (json!([]), &json!(true)));

    assert_eq!(workload.act(&format!("free {vram}"))?["errno"], "EBUSY");
    workload.must(&format!("unmap {vram} gpu=0"))?;
    assert_eq!(workload.act(&format!("unmap {vram} gpu=0 gpu=1"))?["errno"], "EINVAL");
    is("what is left", [(vram, json!([second])), (gtt, json!([]))])?;

    // As many GPUs as a record has, and one more.
    let words = |count: usize| vec!["gpu=1"; count].join(" ");
    workload.must(&format!("map {gtt} {}", words(64)))?;
    is("64 of them", [(vram, json!([second])), (gtt, json!([second]))])?;
    workload.must(&format!("map {gtt} {}", words(65)))?;
    is("more than a record has", [(vram, json!([second])), (gtt, Value::Null)])?;
    let memory = of(&daemon, pid)?.context("it lives")?;
    assert_eq!((mapped_of(&memory, first, "gtt"), &memory["complete"]), (Value::Null, &json!(true)));

    workload.must(&format!("unmap {vram} gpu=1"))?;
    workload.must(&format!("free {vram}"))?;
    until("it is freed", SOON, || Ok((mapped(&daemon, pid)?.len() == 1).then_some(())))?;
    let troubles = daemon.scrape()?.sum("kfd_trace_probe_trouble_total", &[]).unwrap_or(0.0);
    ensure!(troubles == 0.0, "{troubles}");
    workload.kill()?;
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
    assert_eq!(
        on_gpu(&memory, first)["domains"]["vram"],
        json!({"bytes": 4096, "allocations": 1, "mapped": []})
    );
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
    let on = |daemon: &Daemon| -> Result<Value> {
        let listed = daemon.json(&format!("/api/v1/memory?pid={pid}"))?;
        Ok(listed["allocations"][0]["mapped"].clone())
    };
    assert_eq!(on(&daemon)?, json!([]));
    // Nobody reads the ring buffer meanwhile.
    let tracer = Pid::from_raw(daemon.pid().try_into()?);
    kill(tracer, Signal::SIGSTOP)?;
    for _ in 0..CALLS {
        hold(&mut workload, "alloc gtt 4096")?;
    }
    kill(tracer, Signal::SIGCONT)?;
    is(false)?;
    assert_eq!(on(&daemon)?, Value::Null, "it may have been mapped meanwhile");
    let lost = daemon.scrape()?.sum("kfd_trace_records_lost_total", &[("kind", "ioctl")]);
    ensure!(lost > Some(0.0), "{lost:?}");
    workload.kill()?;
    daemon.stop()
}
