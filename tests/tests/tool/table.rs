//! The shipped table of the driver's types, in the tracer itself: with the right version and sizes it shows all,
//! with other sizes it is refused, and 8 bytes off it is noticed within the first queue, and nothing wrong is shown.
//!
//! On a driver that the table knows (`cargo xtask vm --driver`) this is about the table as shipped. On a driver of
//! Debian's it is about a table with that driver's layout, made from its BTF, in the place of the shipped one.

use super::listing::{QUEUES, Rows, of_workload, rows, wrong};
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::btf_file::BtfFile;
use kfd_trace_tests::harness::other_sysfs::{VERSION, flag, without_btf};
use kfd_trace_tests::harness::shipped_table::{OtherTable, TABLE};
use kfd_trace_tests::harness::stage::{Types, VmKernel};
use kfd_trace_tests::harness::tracer::{self, run_program};
use kfd_trace_tests::harness::wait::{SOON, until};
use kfd_trace_tests::harness::{Daemon, Steered, Stream, events};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A tracer whose only source of types is its table.
struct Tables {
    programs: OtherTable,
    /// As it is right here.
    table: Value,
    /// With it as it is right.
    right: String,
    version: String,
    /// Without BTF of the driver, and with a version of it.
    sysfs: TempDir,
}

impl Tables {
    fn new() -> Result<Self> {
        let mut programs = OtherTable::new()?;
        let shipped: Value = serde_json::from_str(TABLE)?;
        let sysfs = without_btf()?;
        let (table, right, version) = if VmKernel::from_env()?.types == Types::Table {
            let version = fs::read_to_string(Path::new("/sys").join(VERSION))?.trim().to_owned();
            (shipped, tracer::path(), version)
        } else {
            let version = "99.9";
            // The newest, on a kernel without PREEMPT_RT.
            let mut entries = shipped.as_array().into_iter().flatten();
            let model = entries.find(|entry| entry["driver"] == "6.12.12").context("6.12.12")?;
            let table = json!([entry(model, &BtfFile::of_driver()?, version)?]);
            let right = programs.tracer(&table)?;
            (table, right, version.to_owned())
        };
        fs::write(sysfs.path().join(VERSION), format!("{version}\n"))?;
        Ok(Self { programs, table, right, version, sysfs })
    }

    fn flags(&self) -> [String; 2] {
        [flag(&self.sysfs), format!("--path.drivers={}", self.sysfs.path().join("no-drivers").display())]
    }

    /// The table with a change to each entry of this driver.
    fn changed(&self, change: impl Fn(&mut Value)) -> Value {
        let mut table = self.table.clone();
        let entries = table.as_array_mut().into_iter().flatten();
        entries.filter(|entry| entry["driver"] == self.version).for_each(change);
        table
    }

    fn with_moved(&self, structure: &str, member: &str) -> Value {
        self.changed(|entry| {
            let members = entry["structures"][structure]["members"].as_array_mut().into_iter().flatten();
            for one in members.filter(|one| one[0] == member) {
                one[1] = json!(one[1].as_u64().unwrap_or(0) + 8);
            }
        })
    }

    /// The members of the entry, with their structures.
    fn members(&self) -> Vec<(String, String)> {
        let own = self.table.as_array().into_iter().flatten().find(|entry| entry["driver"] == self.version);
        let structures = own.and_then(|entry| entry["structures"].as_object()).into_iter().flatten();
        let members = structures.flat_map(|(name, about)| {
            let members = about["members"].as_array().into_iter().flatten();
            members.filter_map(move |one| Some((name.clone(), one[0].as_str()?.to_owned())))
        });
        members.collect()
    }

    /// The rows of one process in `ps --json`, and what `ps` prints on standard error.
    fn ps(&self, program: &str, pid: u32) -> Result<(Rows, String)> {
        let [sysfs, drivers] = self.flags();
        let output = run_program(program, &["ps", "--json", &sysfs, &drivers])?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{stderr}");
        Ok((rows(&serde_json::from_slice(&output.stdout)?, pid)?, stderr))
    }

    fn status(&self, program: &str) -> Result<String> {
        let [sysfs, drivers] = self.flags();
        Ok(String::from_utf8(run_program(program, &["status", &sysfs, &drivers])?.stdout)?)
    }
}

/// An entry with the members of `model` where this driver has them.
fn entry(model: &Value, driver: &BtfFile, version: &str) -> Result<Value> {
    let mut entry = model.clone();
    entry["driver"] = json!(version);
    for (name, about) in entry["structures"].as_object_mut().into_iter().flatten() {
        about["size"] = json!(driver.size(name).unwrap_or(0));
        let members = about["members"].as_array_mut().context("members")?;
        members.retain_mut(|member| {
            let path = member[0].as_str().unwrap_or_default();
            // The first member of the kernel's mutex, which is not among the module's types.
            let inner = path.strip_suffix(".owner").and_then(|mutex| driver.offset(name, mutex));
            let offset = driver.offset(name, path).or(inner);
            member[1] = json!(offset);
            offset.is_some()
        });
    }
    // (p, trigger); ROCm's driver has a third one.
    entry["parameters"] = json!({"kfd_process_evict_queues": 2});
    Ok(entry)
}

#[test]
fn with_the_right_version_and_sizes_all_is_shown() -> Result<()> {
    let tables = Tables::new()?;
    let mut workload = Steered::having(&QUEUES)?;
    let truth = of_workload(&workload)?;
    let (shown, stderr) = tables.ps(&tables.right, workload.pid())?;
    ensure!(wrong(&shown, &truth).is_empty() && stderr.is_empty(), "{:?} {stderr}", wrong(&shown, &truth));
    for (id, right) in &truth {
        for (name, _) in right.as_object().context("a row")? {
            ensure!(!shown[id][name].is_null(), "{name} is not shown: {}", shown[id]);
        }
    }
    let status = tables.status(&tables.right)?;
    let line = status.lines().find(|line| line.starts_with("types of the driver")).context("no line")?;
    let source = format!("shipped table, driver {}, agrees with the driver", tables.version);
    ensure!(line.ends_with(&source), "{line}");
    println!("{} members: {line}", tables.members().len());
    workload.finish().map(drop)
}

#[test]
fn on_a_kernel_with_other_sizes_it_is_refused() -> Result<()> {
    let mut tables = Tables::new()?;
    let mut workload = Steered::having(&QUEUES)?;
    let truth = of_workload(&workload)?;
    let own = tables.table.as_array().into_iter().flatten().find(|entry| entry["driver"] == tables.version);
    let sizes = own.and_then(|entry| entry["rests_on"].as_object()).context("sizes")?.clone();
    ensure!(sizes.len() == 7, "{sizes:?}");
    let of_others = tables.changed(|entry| entry["driver"] = json!("1.0"));
    let no_such = format!("has no driver {}", tables.version);
    let mut cases = vec![(of_others, no_such)];
    for (name, size) in &sizes {
        let larger = tables.changed(|entry| {
            entry["rests_on"][name] = json!(entry["rests_on"][name].as_u64().unwrap_or(0) + 8);
        });
        cases.push((larger, format!("struct {name} has {size} bytes here")));
    }
    for (table, why) in cases {
        let program = tables.programs.tracer(&table)?;
        let status = tables.status(&program)?;
        let shown = status.lines().find(|line| line.contains(&why));
        println!("{}", shown.unwrap_or("").trim());
        ensure!(shown.is_some() && status.contains("only ioctls are traced"), "not {why}: {status}");
        let (shown, stderr) = tables.ps(&program, workload.pid())?;
        let wrong = wrong(&shown, &truth);
        ensure!(wrong.is_empty() && stderr.contains("addresses from debugfs: "), "{why}: {wrong:?} {stderr}");
        ensure!(shown.values().all(|row| row["sources"] == json!(["sysfs", "debugfs"])), "{why}: {shown:?}");
    }
    workload.finish().map(drop)
}

/// Members of which nothing that is shown depends: read by no program, by their presence alone, or only to put off
/// a comparison (probes/walk/check/tests.rs).
const UNUSED: [(&str, &str); 3] =
    [("device_queue_manager", "lock_hidden.owner"), ("kfd_process", "exception_status"), ("queue", "mqd")];

/// Compared where it is read: see [`a_cu_mask_is_right_or_not_shown`].
const MASK: [&str; 2] = ["cu_mask.count", "cu_mask.ptr"];

#[test]
fn a_member_that_is_8_bytes_off_is_noticed_and_nothing_wrong_is_shown() -> Result<()> {
    let mut tables = Tables::new()?;
    let mut workload = Steered::having(&QUEUES)?;
    let (truth, _) = tables.ps(&tables.right, workload.pid())?;
    let (mut noticed, mut failures) = (0, Vec::new());
    for (structure, member) in tables.members() {
        let program = tables.programs.tracer(&tables.with_moved(&structure, &member))?;
        let (shown, stderr) = tables.ps(&program, workload.pid())?;
        let wrong = wrong(&shown, &truth);
        println!("{structure}.{member}: {}", stderr.trim());
        let is_noticed = stderr.contains("contradict") || stderr.contains("cannot use");
        let need_not = UNUSED.contains(&(&structure, &member)) || MASK.contains(&&*member);
        if wrong.is_empty() && (is_noticed || need_not) {
            noticed += u32::from(is_noticed);
        } else {
            failures.push(format!("{structure}.{member}: {wrong:?} {stderr}"));
        }
    }
    println!("{noticed} of {} members noticed", tables.members().len());
    ensure!(noticed > 60 && failures.is_empty(), "{noticed}, not: {failures:#?}");
    workload.finish().map(drop)
}

/// The masks that the stream shows of one queue.
fn masks(tables: &Tables, program: &str) -> Result<Vec<Value>> {
    let [sysfs, drivers] = tables.flags();
    let mut stream = Stream::tracing_program(program, &["--attach=multi", &sysfs, &drivers])?;
    let mut workload = Steered::having(&["create aql", "cu-mask 0 0x5", "cu-mask 0 0x3"])?;
    let lines = events::so_far(&stream, &mut workload)?;
    workload.finish()?;
    stream.interrupt()?;
    let updates = events::of(&lines, "queue_update", workload.pid());
    ensure!(updates.len() == 2, "{lines:?}");
    Ok(updates.iter().map(|update| update["cu_mask"].clone()).collect())
}

#[test]
fn a_cu_mask_is_right_or_not_shown() -> Result<()> {
    let mut tables = Tables::new()?;
    let right = masks(&tables, &tables.right)?;
    println!("{right:?}");
    ensure!(right.iter().all(|mask| !mask.is_null()) && right[0] != right[1], "{right:?}");
    for member in MASK {
        let program = tables.programs.tracer(&tables.with_moved("mqd_update_info", member))?;
        let shown = masks(&tables, &program)?;
        println!("{member}: {shown:?}");
        let is_right = |(shown, right): (&Value, &Value)| shown.is_null() || shown == right;
        ensure!(shown.iter().zip(&right).all(is_right), "{member}: {shown:?}, not {right:?}");
    }
    Ok(())
}

/// Read by a probe of the first queue, or compared once it exists: at least one of each structure.
const OF_THE_FIRST_QUEUE: [(&str, &str); 6] = [
    ("queue", "process"),
    ("queue", "device"),
    ("queue", "properties"),
    ("kfd_node", "id"),
    ("kfd_process", "lead_thread"),
    ("kfd_process_device", "qpd"),
];

#[test]
fn the_daemon_notices_within_the_first_queue() -> Result<()> {
    let mut tables = Tables::new()?;
    for (structure, member) in OF_THE_FIRST_QUEUE {
        let program = tables.programs.tracer(&tables.with_moved(structure, member))?;
        let about = format!("{structure}.{member}");
        let [sysfs, drivers] = tables.flags();
        let mut daemon = Daemon::ready_program(&program, &["--attach=multi", &sysfs, &drivers])?;
        // Nothing to compare with before the first queue exists. What no compiler makes is refused at once.
        let types =
            |daemon: &Daemon| Ok::<_, anyhow::Error>(daemon.json("/api/v1/status")?["driver_types"].clone());
        let before = types(&daemon)?;
        let mut workload = Steered::having(&["create aql"])?;
        let truth = of_workload(&workload)?;
        if before["source"] == "table" {
            ensure!(before["checked"] == "pending", "{about}: {before}");
            until("the table to be refuted", SOON, || {
                // 503 while the probes are attached anew.
                let Ok(queues) = daemon.json("/api/v1/queues") else { return Ok(None) };
                let all = queues["queues"].as_array().context("queues")?.len();
                let shown = rows(&queues, workload.pid())?;
                ensure!(all == shown.len(), "{about}: of another process: {queues}");
                let wrong = if shown.is_empty() { Vec::new() } else { wrong(&shown, &truth) };
                ensure!(wrong.is_empty(), "{about}: {wrong:?}");
                let now = types(&daemon)?;
                ensure!(now["checked"] != "agrees", "{about} was not noticed: {now}");
                Ok((now["source"] == "none" && now["refuted"][0]["reason"].is_string()).then_some(()))
            })?;
        } else {
            ensure!(daemon.stderr().contains("cannot use"), "{about}: {before} {}", daemon.stderr());
        }
        let why = types(&daemon)?["refuted"][0]["reason"].clone();
        println!("{about}: {why}");
        // What is shown then rests on ioctls and sysfs.
        let shown = until("the queue", SOON, || {
            let Ok(queues) = daemon.json("/api/v1/queues") else { return Ok(None) };
            let rows = rows(&queues, workload.pid())?;
            Ok((rows.len() == 1).then_some(rows))
        })?;
        ensure!(wrong(&shown, &truth).is_empty(), "{about}: {:?}", wrong(&shown, &truth));
        workload.finish()?;
        daemon.stop()?;
    }
    Ok(())
}
