//! `kfd-trace doctor` compared with lsof, fuser and rocm-smi: each case in which these differ from the
//! driver.

use super::usual::Eyes;
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::tracer::{run, run_as};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Steered, VmKernel, Workload, sysfs, until};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const NOBODY: u32 = 65534;

/// Exit codes, docs/doctor.md.
const WELL: i32 = 0;
pub(super) const HIDDEN: i32 = 4;
pub(super) const WRONG: i32 = 5;

/// The report of `doctor --json` with these arguments; it must exit with this code.
fn doctor(args: &[&str], code: i32) -> Result<Value> {
    let output = run(&[&["doctor", "--json"], args].concat())?;
    report(&output, code)
}

pub(super) fn report(output: &std::process::Output, code: i32) -> Result<Value> {
    let (stderr, reported) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    ensure!(output.status.code() == Some(code), "{}, not {code}: {stderr}{reported}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub(super) fn row(report: &Value, pid: u32) -> Result<&Value> {
    let rows = report["processes"].as_array().context("processes")?;
    rows.iter().find(|row| row["pid"] == pid).with_context(|| format!("no row of {pid}: {report}"))
}

pub(super) fn kinds(row: &Value) -> Vec<&str> {
    row["findings"].as_array().into_iter().flatten().filter_map(|finding| finding["kind"].as_str()).collect()
}

/// Checks the report on a process, alone and among all, and that lsof, fuser and rocm-smi show it exactly
/// where the report states it.
fn check(pid: u32, code: i32, expected: &[&str]) -> Result<Value> {
    let words = pid.to_string();
    let alone = doctor(&["--pid", &words], code)?;
    assert_eq!(kinds(row(&alone, pid)?), expected, "{alone}");
    let all = doctor(&[], code)?;
    let row = row(&all, pid)?.clone();
    assert_eq!(kinds(&row), expected, "{all}");
    Eyes::Root.see_what_is_reported(pid, &row)?;
    assert_eq!((&all["complete"], &all["not_permitted"]), (&json!(true), &json!(0)), "root may look: {all}");
    Ok(row)
}

fn is_zombie(pid: u32) -> Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// procfs shows users only their own processes, until this is dropped.
struct HidePid(());

impl HidePid {
    fn begin() -> Result<Self> {
        remount_proc("hidepid=invisible").map(Self)
    }
}

impl Drop for HidePid {
    fn drop(&mut self) {
        if let Err(error) = remount_proc("hidepid=off") {
            eprintln!("{error:#}");
        }
    }
}

fn remount_proc(options: &str) -> Result<()> {
    mount(None::<&str>, "/proc", None::<&str>, MsFlags::MS_REMOUNT, Some(options))
        .with_context(|| format!("remount /proc with {options}"))
}

/// Leftovers of earlier tests would be reported, too.
fn nobody_left() -> Result<()> {
    until("KFD to have no process", SOON, || {
        Ok(sysfs::processes(Path::new("/sys"))?.is_empty().then_some(()))
    })
}

pub(super) fn ready(args: &[&str]) -> Result<Workload> {
    nobody_left()?;
    Workload::ready(args)
}

fn having(operations: &[&str]) -> Result<Steered> {
    nobody_left()?;
    Steered::having(operations)
}

#[test]
fn a_plain_process_is_seen_by_all_views() -> Result<()> {
    let mut workload = ready(&["hold"])?;
    let row = check(workload.pid(), WELL, &["seen"])?;
    for (view, sees) in
        [("device_number", true), ("lsof", true), ("sysfs", true), ("kernel", true), ("drm", false)]
    {
        assert_eq!(row["seen_by"][view], sees, "{view}: {row}");
    }
    assert_eq!(json!([row["rocm_smi"], row["queues"], row["kfd"]]), json!(["named", 2, true]));
    let activity =
        json!([row["seen_by"]["sampled"], row["activity"]["queues_measured"], row["activity"]["busy"]]);
    assert_eq!(activity, json!([true, 2, false]), "{row}");
    assert_eq!(row["descriptors"][0]["cloexec"], true, "{row}");
    workload.finish()?;
    assert_eq!(doctor(&[], WELL)?["processes"], json!([]));
    assert!(Eyes::Root.listed()?.is_empty(), "no process uses KFD");
    Ok(())
}

#[test]
fn a_node_of_its_own_hides_a_process() -> Result<()> {
    let workload = ready(&["hold", "--apart=node"])?;
    let row = check(workload.host_pid(), HIDDEN, &["own_node"])?;
    assert_eq!(row["seen_by"]["device_number"], true, "{row}");
    assert_eq!(row["descriptors"][0]["node"], "own", "{row}");
    Ok(())
}

#[test]
fn a_container_hides_a_process_with_its_node_and_renumbers_it() -> Result<()> {
    let workload = ready(&["hold", "--hidden"])?;
    let row = check(workload.host_pid(), HIDDEN, &["own_node", "other_pid_namespace"])?;
    assert_eq!(row["ns_pid"], 1, "{row}");
    Ok(())
}

#[test]
fn a_bind_mounted_node_hides_nothing() -> Result<()> {
    let workload = ready(&["hold", "--apart=bind"])?;
    let row = check(workload.host_pid(), WELL, &["bind_mounted"])?;
    assert_eq!(row["descriptors"][0]["node"], "host", "{row}");
    Ok(())
}

#[test]
fn another_pid_namespace_hides_nothing_from_the_host() -> Result<()> {
    let workload = ready(&["hold", "--apart=pids"])?;
    let row = check(workload.host_pid(), WELL, &["seen", "other_pid_namespace"])?;
    assert_eq!(row["ns_pid"], 1, "{row}");
    Ok(())
}

#[test]
fn a_closed_descriptor_hides_a_process() -> Result<()> {
    let workload = ready(&["hold", "--close-fd"])?;
    let row = check(workload.pid(), HIDDEN, &["closed_descriptor"])?;
    assert_eq!(json!([row["descriptors"], row["queues"]]), json!([[], 2]), "its queues live on");
    Ok(())
}

#[test]
fn a_mapping_that_is_kept_shows_it_again() -> Result<()> {
    let workload = ready(&["hold", "--close-fd", "--map"])?;
    let row = check(workload.pid(), WELL, &["mapping_only"])?;
    assert_eq!(json!([row["descriptors"], row["seen_by"]["mappings"]]), json!([[], true]), "{row}");
    Ok(())
}

#[test]
fn a_dead_leader_hides_the_threads_behind_it() -> Result<()> {
    let mut workload = ready(&["hold", "--dead-leader"])?;
    let row = check(workload.pid(), HIDDEN, &["zombie_leader"])?;
    assert_eq!(json!([row["standing"], row["seen_by"]["device_number"]]), json!(["without_leader", true]));
    assert_eq!(row["activity"]["queues_measured"], 2, "a thread that lives has its memory: {row}");
    workload.finish()?;
    Ok(())
}

#[test]
fn a_forked_child_is_shown_and_not_served_and_keeps_what_its_parent_had() -> Result<()> {
    let mut workload = ready(&["hold", "--fork"])?;
    let pid = workload.pid();
    let forked = workload.operations("fork").pop().context("no child")?;
    let child = u32::try_from(forked["child"].as_u64().context("a PID")?)?;
    let row = check(child, WELL, &["inherited"])?;
    assert_eq!(
        json!([row["kfd"], row["seen_by"]["lsof"], row["seen_by"]["sysfs"]]),
        json!([false, true, false])
    );
    check(pid, WELL, &["seen"])?;

    workload.signal(Signal::SIGKILL)?;
    until("its end", SOON, || Ok(is_zombie(pid)?.then_some(())))?;
    let left = check(pid, WRONG, &["kept_by_descriptor"])?;
    assert_eq!(json!([left["standing"], left["rocm_smi"]]), json!(["ended", "named"]), "ps has its name");
    workload.wait_exit(SOON)?;
    let left = check(pid, WRONG, &["kept_by_descriptor"])?;
    let text = left["findings"][0]["text"].as_str().context("a sentence")?;
    assert!(text.contains(&format!("process {child} has /dev/kfd open")), "{text}");
    assert_eq!(json!([left["standing"], left["rocm_smi"], left["comm"]]), json!(["gone", "unknown", null]));
    workload.close_stdin();
    until("what it had to be freed", SOON, || {
        Ok((!sysfs::processes(Path::new("/sys"))?.contains(&pid)).then_some(()))
    })?;
    assert_eq!(doctor(&[], WELL)?["processes"], json!([]));
    Ok(())
}

#[test]
fn exec_with_the_descriptor_keeps_what_the_program_before_had() -> Result<()> {
    let mut workload = ready(&["hold", "--exec"])?;
    let row = check(workload.pid(), WRONG, &["execed"])?;
    assert_eq!(json!([row["descriptors"][0]["cloexec"], row["seen_by"]["kernel"]]), json!([false, false]));
    workload.finish()?;
    Ok(())
}

#[test]
fn a_teardown_that_hangs_is_reported() -> Result<()> {
    let mut workload = having(&["create aql"])?;
    let pid = workload.pid();
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let hang = Hang::begin()?;
    workload.signal(Signal::SIGKILL)?;
    let words = pid.to_string();
    let reported = until("its teardown", SOON, || {
        let output = run(&["doctor", "--json", "--pid", &words])?;
        Ok((output.status.code() == Some(WRONG)).then(|| report(&output, WRONG)))
    })?;
    let kernel = VmKernel::from_env()?;
    let looked = reported.and_then(|reported| {
        let row = row(&reported, pid)?.clone();
        // lsof reads /proc/locks, which waits for an RCU grace period (locks_start, rcu_sync_enter). The
        // guests' parameter rcu_expedited leaves these to workers, and on 6.1 none works on the CPU where the
        // driver's worker loops until the GPU responds: lsof would hang with it.
        if kernel.is_from("6.12") {
            Eyes::Root.tool_sees_what_is_reported("lsof", pid, &row)?;
        }
        Eyes::Root.tool_sees_what_is_reported("fuser", pid, &row)?;
        Eyes::Root.rocm_smi_sees_what_is_reported(pid, &row).map(|()| row)
    });
    drop(hang);
    let row = looked?;
    assert_eq!(kinds(&row), ["teardown"], "{row}");
    // 7.2 waits before the descriptors are closed, the others after that.
    assert_eq!(row["seen_by"]["lsof"], kernel.frees_in_exiting_task(), "{row}");
    let text = row["findings"][0]["text"].as_str().context("a sentence")?;
    assert_eq!(row["seen_by"]["lsof"], !text.contains("lsof and fuser find nothing"), "{row}");
    assert!(["ended", "gone"].iter().any(|standing| row["standing"] == *standing), "{row}");
    workload.wait_exit(SOON)?;
    drop(timeout);
    until("its end", SOON, || Ok((!sysfs::processes(Path::new("/sys"))?.contains(&pid)).then_some(())))?;
    let output = run(&["doctor", "--pid", &words])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains(&format!("--pid {pid}: no such process")), "{stderr}");
    Ok(())
}

#[test]
fn further_contexts_of_a_pid_are_reported() -> Result<()> {
    if !VmKernel::from_env()?.driver_is_from("7.2") {
        return Ok(());
    }
    let workload = having(&["create aql", "context", "create sdma gpu=1"])?;
    let row = check(workload.pid(), WELL, &["seen", "contexts"])?;
    assert_eq!(json!([row["contexts"].as_array().map(Vec::len), row["queues"]]), json!([1, 2]), "{row}");
    Ok(())
}

#[test]
fn who_may_not_look_says_so_and_claims_nothing() -> Result<()> {
    let workload = ready(&["hold"])?;
    let reported = report(&run_as(NOBODY, &["doctor", "--json"])?, HIDDEN)?;
    let seen = row(&reported, workload.pid())?;
    assert_eq!(kinds(seen), ["not_permitted"], "{reported}");
    Eyes::User(NOBODY).see_what_is_reported(workload.pid(), seen)?;
    assert_eq!((&reported["complete"], &reported["outcome"]), (&json!(false), &json!("hidden")));
    assert!(reported["not_permitted"].as_u64().is_some_and(|count| count > 0), "{reported}");
    drop(workload);
    let idle = until("KFD without processes", SOON, || {
        let output = run_as(NOBODY, &["doctor"])?;
        Ok((output.status.code() == Some(WELL)).then_some(output))
    })?;
    let text = String::from_utf8(idle.stdout)?;
    assert!(text.contains("\ncannot look into ") && !text.contains("all is well"), "{text}");
    Ok(())
}

#[test]
fn root_looks_into_another_users_process() -> Result<()> {
    nobody_left()?;
    // As udev makes it for all users where no group exists for it; only root has access here.
    let device = Path::new("/dev/kfd");
    let before = std::fs::metadata(device)?.permissions();
    std::fs::set_permissions(device, Permissions::from_mode(0o666))?;
    let workload = Workload::spawn_as(NOBODY, &["hold"])?;
    let ready = workload.wait_line("its queues", SOON, |line| line["ready"] == true);
    std::fs::set_permissions(device, before)?;
    ready?;
    let row = check(workload.pid(), WELL, &["seen"])?;
    assert_eq!(row["uid"], NOBODY, "{row}");
    // They show this user's own process to the user.
    for tool in ["lsof", "fuser"] {
        let found = Eyes::User(NOBODY).found_by(tool)?;
        assert!(found.contains(&workload.pid().to_string()), "{tool}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_process_that_procfs_hides_is_not_taken_for_dead() -> Result<()> {
    let workload = ready(&["hold"])?;
    let hides = HidePid::begin()?;
    let reported = report(&run_as(NOBODY, &["doctor", "--json", "--path.procfs=/proc"])?, HIDDEN)?;
    let hidden = row(&reported, workload.pid())?;
    assert_eq!(json!([kinds(hidden), hidden["standing"]]), json!([["hidepid"], "unknown"]), "{reported}");
    Eyes::User(NOBODY).see_what_is_reported(workload.pid(), hidden)?;
    // With its capabilities root sees it.
    check(workload.pid(), WELL, &["seen"])?;
    drop(hides);
    Ok(())
}

#[test]
fn a_thread_stands_for_its_process() -> Result<()> {
    let mut workload = ready(&["hold", "--dead-leader"])?;
    let pid = workload.pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let tids: Vec<u32> = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect();
    let tid = tids.into_iter().find(|tid| *tid != pid).context("a thread")?;
    let output = run(&["doctor", "--json", "--pid", &tid.to_string()])?;
    let reported = report(&output, HIDDEN)?;
    assert_eq!((&reported["pid"], kinds(row(&reported, pid)?)), (&json!(pid), vec!["zombie_leader"]));
    let stderr = String::from_utf8(output.stderr)?;
    assert!(stderr.contains(&format!("{tid} is a thread of process {pid}")), "{stderr}");
    workload.finish()?;
    Ok(())
}
