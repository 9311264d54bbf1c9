//! A random mix of calls that change the memory of processes: what the daemon says, checked against the workload's own
//! ledger and the driver's counts.

use super::{PAGE, gpus, hold, imports, mapped, of, on_gpu};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, sysfs, until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a process allocated and did not free.
struct Kept {
    gpu: usize,
    /// As the driver counts them.
    vram: u64,
    /// GPUs that it is mapped on, by their numbers.
    mapped: BTreeSet<usize>,
}

/// By handle.
type Ledger = BTreeMap<u64, Kept>;

fn vram(ledger: &Ledger, gpu: usize) -> u64 {
    ledger.values().filter(|kept| kept.gpu == gpu).map(|kept| kept.vram).sum()
}

fn pick(rng: &mut Rng, ledger: &Ledger) -> u64 {
    *ledger.keys().nth(rng.usize(..ledger.len())).expect("a handle")
}

/// Frees one, which the driver refuses while it is mapped (amdgpu_amdkfd_gpuvm_free_memory_of_gpu).
fn free_one(rng: &mut Rng, workload: &mut Steered, ledger: &mut Ledger) -> Result<()> {
    let handle = pick(rng, ledger);
    let answer = workload.act(&format!("free {handle}"))?;
    if ledger[&handle].mapped.is_empty() {
        ensure!(answer["errno"].is_null(), "{answer}");
        ledger.remove(&handle);
    } else {
        ensure!(answer["errno"] == "EBUSY", "{answer}");
    }
    Ok(())
}

/// Maps one on a GPU, on both, or on both and on one that there is not; or unmaps it, which fails at the first on which it
/// is not mapped. Returns whether the driver refused a part.
fn map_one(rng: &mut Rng, workload: &mut Steered, ledger: &mut Ledger) -> Result<bool> {
    let handle = pick(rng, ledger);
    let kept = ledger.get_mut(&handle).context("a handle")?;
    let map = rng.u8(..5) < 3;
    let gpus = match rng.u8(..6) {
        0 | 1 => vec![0],
        2 | 3 => vec![1],
        _ => vec![0, 1],
    };
    let nowhere = rng.u8(..6) == 0;
    let words: Vec<String> = gpus.iter().map(|gpu| format!("gpu={gpu}")).collect();
    let operation = format!(
        "{} {handle} {}{}",
        if map { "map" } else { "unmap" },
        words.join(" "),
        if nowhere { " gpu=none" } else { "" }
    );
    let answer = workload.act(&operation)?;
    let done = if map { gpus.len() } else { gpus.iter().take_while(|gpu| kept.mapped.contains(gpu)).count() };
    let refused = nowhere || done < gpus.len();
    assert_eq!(
        (&answer["done"], answer["errno"].is_null()),
        (&json!(done), !refused),
        "{operation}: {answer}"
    );
    for gpu in &gpus[..done] {
        if map {
            kept.mapped.insert(*gpu);
        } else {
            kept.mapped.remove(gpu);
        }
    }
    Ok(refused)
}

/// On which GPUs each allocation is, by handle, as [`mapped`] has it.
fn kept_on(ledger: &Ledger, gpus: &[u32]) -> BTreeMap<String, Value> {
    let ids = |kept: &Kept| kept.mapped.iter().map(|gpu| gpus[*gpu]).collect::<Vec<u32>>();
    ledger.iter().map(|(handle, kept)| (format!("{handle:#x}"), json!(ids(kept)))).collect()
}

#[test]
fn vram_by_ioctls_is_what_sysfs_counts_in_a_random_mix() -> Result<()> {
    const SEED: u64 = 20;
    const OPERATIONS: usize = 400;
    let gpus = gpus()?;
    let mut daemon = Daemon::quick(&[])?;
    let mut rng = Rng::with_seed(SEED);
    let mut workloads: Vec<(Steered, Ledger)> = Vec::new();
    let (mut compared, mut compared_gpus, mut ended) = (0, 0, 0);
    let (mut maps, mut refused) = (0, 0);
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
            2 if imports()? => {
                let handle = hold(workload, "import gpu=1")?;
                ledger.insert(handle, Kept { gpu: 1, vram: 0, mapped: BTreeSet::new() });
            }
            3..=6 if !ledger.is_empty() => free_one(&mut rng, workload, ledger)?,
            7..=12 if !ledger.is_empty() => {
                maps += 1;
                refused += usize::from(map_one(&mut rng, workload, ledger)?);
            }
            kind => {
                let gpu = rng.usize(..2);
                let pages = rng.u64(1..2_000);
                let (kind, counted) = match kind {
                    13 => ("gtt", 0),
                    14 => ("userptr", 0),
                    // Counted whole on 5.10, and taken off by half.
                    15 if imports()? => ("ring", (pages * PAGE / 2).next_multiple_of(PAGE)),
                    _ => ("vram", pages * PAGE),
                };
                let handle = hold(workload, &format!("alloc {kind} {} gpu={gpu}", pages * PAGE))?;
                ledger.insert(handle, Kept { gpu, vram: counted, mapped: BTreeSet::new() });
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
                let expected = kept_on(ledger, &gpus);
                let mut shown = BTreeMap::new();
                let same = until("the GPUs of each allocation", SOON, || {
                    shown = mapped(&daemon, workload.pid())?;
                    Ok((shown == expected).then_some(()))
                });
                ensure!(same.is_ok(), "step {step}: {shown:?} instead of {expected:?}");
                compared_gpus += expected.len();
            }
        }
    }
    for (workload, ledger) in &workloads {
        let complete = of(&daemon, workload.pid())?.context("it lives")?["complete"].clone();
        // Of one that has just begun none of its calls was seen.
        ensure!(complete == true || complete.is_null() && ledger.is_empty(), "{complete}");
    }
    eprintln!(
        "seed {SEED}: {OPERATIONS} operations, {compared} comparisons, {ended} ends, {maps} maps and unmaps ({refused} \
         refused), GPUs of {compared_gpus} allocations compared, 0 differences"
    );
    ensure!(compared > 50 && ended > 5, "{compared} comparisons, {ended} ends");
    ensure!(
        maps > 60 && refused > 15 && compared_gpus > 200,
        "{maps} maps, {refused} refused, {compared_gpus}"
    );
    daemon.stop()
}
