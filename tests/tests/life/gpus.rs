//! GPU names, their slots, and the queues that the API and `ps` show, checked against the topology and the
//! workload.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Daemon, Node, Workload, nodes, until};
use serde_json::{Value, json};
use std::path::Path;

/// The label as the topology names the GPU, computed here independently.
fn label(index: usize, node: &Node) -> Result<String> {
    let location = node.property("location_id")?;
    let (bus, device, function) = (location >> 8, location >> 3 & 0x1f, location & 7);
    let pci = format!("{:04x}:{bus:02x}:{device:02x}.{function}", node.property("domain")?);
    // 5.10 does not show it
    let Ok(generation) = node.property("gfx_target_version") else {
        return Ok(format!("gpu {index} ({pci})"));
    };
    assert_eq!(generation, 90_000);
    Ok(format!("gpu {index} ({pci}, gfx900)"))
}

fn api(daemon: &Daemon, list: &str) -> Result<Vec<Value>> {
    let response = daemon.get(&format!("/api/v1/{list}"))?;
    assert_eq!(response.status, 200, "{}", response.body);
    let value: Value = serde_json::from_str(&response.body)?;
    assert_eq!(value["schema"], 1);
    value[list].as_array().cloned().context("a list")
}

#[test]
fn the_api_shows_each_queue_and_gpu() -> Result<()> {
    let daemon = Daemon::shared()?;
    let script = ["create aql gpu=1", "create sdma gpu=0", "update 0 50", "cu-mask 0", "wait"];
    let workload = Workload::ready(&[&["script"][..], &script].concat())?;
    let nodes = nodes(Path::new("/sys"))?;
    let queues = until("both queues and the mask", SOON, || {
        let queues = api(&daemon, "queues")?;
        Ok((queues.len() == 2 && !queues[0]["cu_mask"].is_null()).then_some(queues))
    })?;
    for (reported, made) in queues.iter().zip(workload.queues()) {
        let at = usize::from(reported["queue_type"] == "compute_aql");
        assert_eq!(reported["gpu"], json!(label(at, &nodes[at])?), "{reported}");
        assert_eq!(reported["node"], json!(nodes[at].number));
        assert_eq!(reported["pid"], json!(workload.pid()));
        for (field, own) in [
            ("queue_id", "queue_id"),
            ("gpu_id", "gpu_id"),
            ("ring_address", "ring"),
            ("ring_size", "ring_size"),
            ("write_pointer_address", "wptr"),
            ("read_pointer_address", "rptr"),
        ] {
            assert_eq!(reported[field], made[own], "{field} of {reported}");
        }
    }
    let aql = &queues[0];
    assert_eq!(json!([aql["percent"], aql["updates"], aql["active"]]), json!([50, 2, true]));
    assert_eq!(aql["mqd_writes"], json!({"init": 1, "update": 2, "restore": 0}));
    assert!(aql["age_ns"].as_u64() > Some(0), "{aql}");
    assert_eq!(queues[1]["mqd_writes"], json!({"init": 1, "update": 0, "restore": 0}));

    let gpus = api(&daemon, "gpus")?;
    assert_eq!(gpus.len(), nodes.len());
    for (index, (gpu, node)) in gpus.iter().zip(&nodes).enumerate() {
        assert_eq!(gpu["gpu"], json!(label(index, node)?));
        assert_eq!(json!([gpu["index"], gpu["gpu_id"]]), json!([index, node.gpu_id]));
        let sdma = node.property("num_sdma_engines")? * node.property("num_sdma_queues_per_engine")?;
        let slots = json!({"cp": node.property("num_cp_queues")?, "sdma": sdma, "sdma_xgmi": 0});
        assert_eq!(gpu["slots"], slots);
        assert_eq!(gpu["queues"], json!({"cp": index, "sdma": 1 - index, "sdma_xgmi": 0}));
        assert_eq!(gpu["render"], json!(format!("/dev/dri/renderD{}", node.property("drm_render_minor")?)));
    }
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_queue_updates_total", &[]), Some(2.0));
    assert_eq!(metrics.sum("kfd_mqd_writes_total", &[("function", "update")]), Some(2.0));
    assert_eq!(metrics.sum("kfd_gpu_queue_slots_used", &[("kind", "sdma")]), Some(1.0));

    let processes = api(&daemon, "processes")?;
    let own = processes.iter().find(|row| row["pid"] == json!(workload.pid())).context("the workload")?;
    assert_eq!(json!([own["alive"], own["queues"], own["opens"]]), json!([true, 2, 1]));
    assert!(own.get("cmdline").is_none(), "arguments may hold secrets");
    daemon.end()
}

#[test]
fn an_evicted_queue_is_shown_so_and_takes_no_slot() -> Result<()> {
    let daemon = Daemon::shared()?;
    let workload = Workload::ready(&["hold", "--sdma=0"])?;
    let state = |wanted: bool| {
        until("the state of the queue", SOON, || {
            let queue = api(&daemon, "queues")?.pop();
            Ok(queue.filter(|queue| queue["evicted"] == json!(wanted)))
        })
    };
    state(false)?;
    kfdsim("quiesce", workload.pid())?;
    let evicted = state(true)?;
    assert_eq!(json!([evicted["active"], evicted["evictions"]]), json!([false, 1]), "{evicted}");
    assert_eq!(api(&daemon, "gpus")?[0]["queues"]["cp"], 0);
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    assert_eq!(json!([ps["queues"][0]["evicted"], ps["queues"][0]["active"]]), json!([true, false]));
    let table = String::from_utf8(run(&["ps"])?.stdout)?;
    let row = table.lines().find(|line| line.contains("compute_aql")).context("the queue's row")?;
    assert!(row.contains("  evicted  "), "{table}");

    kfdsim("resume", workload.pid())?;
    let restored = state(false)?;
    assert_eq!(json!([restored["active"], restored["evictions"]]), json!([true, 1]), "{restored}");
    assert!(restored["evicted_ns"].as_u64() > Some(0), "{restored}");
    assert_eq!(api(&daemon, "gpus")?[0]["queues"]["cp"], 1);
    daemon.end()
}

#[test]
fn more_active_queues_than_slots_is_oversubscribed() -> Result<()> {
    let nodes = nodes(Path::new("/sys"))?;
    let slots = nodes[0].property("num_cp_queues")?;
    let workload = Workload::ready(&["hold", &format!("--aql={}", slots + 1), "--sdma=1"])?;
    assert_eq!(workload.queues().len() as u64, slots + 2);
    let table = String::from_utf8(run(&["ps", "--wide"])?.stdout)?;
    let name = label(0, &nodes[0])?;
    let line = format!("{name}: {} of {slots} compute slots (oversubscribed), 1 of ", slots + 1);
    assert!(table.lines().any(|reported| reported.starts_with(&line)), "{table}");
    let other = format!("{}: 0 of {slots} compute slots, 0 of ", label(1, &nodes[1])?);
    assert!(table.lines().any(|reported| reported.starts_with(&other)), "{table}");
    assert_eq!(
        table.lines().filter(|reported| reported.contains(&format!("  {name}  "))).count() as u64,
        slots + 2
    );
    Ok(())
}
