//! The owner of a process: derived from its cgroup, and from the kubelet's log folders in the guest.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Stream, Workload};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const UID: &str = "6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";
const UID_IN_SLICE: &str = "6d1f4a3c_0b7e_4d8a_9c11_5e2f7a90b3c4";

/// Field names that the outputs have in common.
const FIELDS: [&str; 9] = [
    "container_id",
    "runtime",
    "pod_uid",
    "namespace",
    "pod",
    "container",
    "slurm_job",
    "slurm_step",
    "unit",
];

fn reported(line: &Value) -> Vec<Value> {
    FIELDS.iter().map(|field| line[*field].clone()).collect()
}

/// What each output shows for a process in a cgroup with this path.
fn check(cgroup: &str, owner: &str, expected: &Value) -> Result<()> {
    let (stream, daemon) = (Stream::shared()?, Daemon::shared()?);
    let mut workload = Workload::ready(&["hold", &format!("--cgroup={cgroup}")])?;
    let pid = workload.pid();
    let expected = reported(expected);
    let seen = stream.wait_line("it", SOON, |line| line["event"] == "process_seen" && line["pid"] == pid)?;
    assert_eq!((reported(&seen), &seen["cgroup"]), (expected.clone(), &json!(format!("/{cgroup}"))));
    assert_eq!(seen["cmdline"], Value::Null, "it may hold secrets");

    let ps = run_json(&["ps", "--json", "--cmdline"])?.pop().context("one object")?;
    let rows = ps["queues"].as_array().context("queues")?;
    let row = rows.iter().find(|row| row["pid"] == pid).context("its row")?;
    assert_eq!(reported(row), expected);
    let cmdline = row["cmdline"].as_str().context("its arguments")?;
    assert!(cmdline.ends_with(&format!("hold --cgroup={cgroup}")), "{cmdline}");
    let table = String::from_utf8(run(&["ps"])?.stdout)?;
    assert!(table.lines().any(|line| line.contains(&pid.to_string()) && line.contains(owner)), "{table}");

    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let (pid, values): (String, Vec<String>) = (pid.to_string(), expected.iter().map(text).collect());
    let mut labels: Vec<(&str, &str)> =
        FIELDS.iter().copied().zip(values.iter().map(String::as_str)).collect();
    labels.push(("pid", &pid));
    daemon.scrape_until("who it is", |metrics| metrics.sum("kfd_process_info", &labels))?;
    workload.finish()?;
    stream.end()?;
    daemon.end()
}

#[test]
fn to_a_pod_with_the_names_that_the_kubelet_gave_its_logs() -> Result<()> {
    let id = "5d".repeat(32);
    let logs = Path::new("/var/log");
    fs::create_dir_all(logs.join(format!("pods/ml_train-0_{UID}/trainer")))?;
    fs::create_dir_all(logs.join("containers"))?;
    let link = logs.join(format!("containers/train-0_ml_trainer-{id}.log"));
    symlink(logs.join(format!("pods/ml_train-0_{UID}/trainer/0.log")), &link)?;
    let slices =
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_IN_SLICE}.slice");
    let expected = json!({
        "container_id": id, "runtime": "containerd", "pod_uid": UID, "namespace": "ml", "pod": "train-0",
        "container": "trainer",
    });
    check(&format!("{slices}/cri-containerd-{id}.scope"), "ml/train-0/trainer", &expected)?;
    fs::remove_file(link)?;
    fs::remove_dir_all(logs.join("pods"))?;
    // The names of the first one are kept: a UID is never given again.
    let (uid, id) = (UID.replace("b3c4", "b3c5"), "5e".repeat(32));
    let slices = slices.replace("b3c4", "b3c5");
    let expected = json!({ "container_id": id, "runtime": "cri-o", "pod_uid": uid });
    check(&format!("{slices}/crio-{id}.scope/container"), &format!("pod {uid}"), &expected)
}

#[test]
fn to_a_job_of_slurm() -> Result<()> {
    let expected = json!({ "slurm_job": 4242, "slurm_step": "batch" });
    let path = "system.slice/slurmstepd.scope/job_4242/step_batch/user/task_0";
    check(path, "slurm 4242.batch", &expected)
}

#[test]
fn to_a_container_or_to_a_unit() -> Result<()> {
    let id = "0a".repeat(32);
    let expected = json!({ "container_id": id, "runtime": "docker" });
    check(&format!("docker/{id}"), "docker 0a0a0a0a0a0a", &expected)?;
    check("system.slice/train.service", "train.service", &json!({ "unit": "train.service" }))
}

#[test]
fn to_a_container_with_the_name_that_its_engine_keeps() -> Result<()> {
    let id = "0d".repeat(32);
    let docker = Path::new("/var/lib/docker/containers").join(&id);
    fs::create_dir_all(&docker)?;
    fs::write(docker.join("config.v2.json"), json!({"ID": id, "Name": "/train"}).to_string())?;
    let expected = json!({ "container_id": id, "runtime": "docker", "container": "train" });
    check(&format!("docker/{id}"), "docker train", &expected)?;
    let id = "0e".repeat(32);
    let podman = Path::new("/var/lib/containers/storage/overlay-containers");
    fs::create_dir_all(podman)?;
    fs::write(podman.join("containers.json"), json!([{"id": id, "names": ["serve"]}]).to_string())?;
    let expected = json!({ "container_id": id, "runtime": "podman", "container": "serve" });
    check(&format!("machine.slice/libpod-{id}.scope/container"), "podman serve", &expected)
}

/// PIDs of the events of a stream.
fn pids(stream: &Stream) -> BTreeSet<u64> {
    stream.lines().iter().filter_map(|line| line["pid"].as_u64()).collect()
}

#[test]
fn a_stream_of_a_container_waits_for_its_processes_and_shows_no_others() -> Result<()> {
    let id = "0b".repeat(32);
    let mut stream = Stream::tracing(&["--container", "0b0b0b0b"])?;
    assert!(
        stream.stderr().contains("no process of --container 0b0b0b0b uses KFD now"),
        "{}",
        stream.stderr()
    );
    let mut other = Workload::ready(&["hold", "--cgroup=docker/0c"])?;
    let mut own = Workload::ready(&["hold", &format!("--cgroup=docker/{id}")])?;
    let pid = own.pid();
    stream.wait_line("its queue", SOON, |line| line["event"] == "queue_create" && line["pid"] == pid)?;
    other.finish()?;
    own.finish()?;
    let released = |line: &Value| line["event"] == "process_release" && line["pid"] == pid;
    stream.wait_line("its end", SOON, released)?;
    assert_eq!(pids(&stream), BTreeSet::from([u64::from(pid)]));
    let summary = stream.finish()?;
    assert_eq!(summary["processes"].as_array().map(Vec::len), Some(2), "of all: {summary}");
    assert!(stream.stderr().contains("the summary is of all processes"), "{}", stream.stderr());
    Ok(())
}

#[test]
fn a_stream_of_a_pid_inside_shows_that_process() -> Result<()> {
    let mut stream = Stream::tracing(&["--ns-pid", "1"])?;
    let mut other = Workload::ready(&["hold"])?;
    let mut hidden = Workload::ready(&["hold", "--hidden"])?;
    let pid = hidden.host_pid();
    stream.wait_line("its queue", SOON, |line| line["event"] == "queue_create" && line["pid"] == pid)?;
    other.finish()?;
    hidden.finish()?;
    stream.wait_line("its end", SOON, |line| line["event"] == "process_release" && line["pid"] == pid)?;
    assert_eq!(pids(&stream), BTreeSet::from([u64::from(pid)]));
    stream.finish().map(drop)
}
