//! Every metric: name, kind, labels, help. Only metrics in this table can be exported.

/// MetricKind of a metric, as in the exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

/// One metric, for the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDoc {
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Every metric, in the order of the table.
#[must_use]
pub fn describe() -> Vec<MetricDoc> {
    ALL.iter()
        .map(|metric| MetricDoc {
            name: metric.name,
            kind: metric.kind.name(),
            labels: metric.labels,
            help: metric.help,
        })
        .collect()
}

/// The metric of this name.
pub(super) fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name).copied()
}

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(super) static $id: Metric =
            Metric { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)*

        static ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    PROCESSES = Gauge "kfd_processes" []
        "KFD processes that exist now, also those whose descriptor of /dev/kfd is closed.";
    PROCESSES_CREATED = Counter "kfd_processes_created_total" []
        "KFD processes whose creation was seen.";
    PROCESSES_ENDED = Counter "kfd_processes_ended_total" []
        "KFD processes whose end was seen.";
    QUEUES = Gauge "kfd_queues" ["gpu_id", "queue_type"]
        "Queues that exist now.";
    QUEUES_CREATED = Counter "kfd_queues_created_total" ["gpu_id", "queue_type"]
        "Queues whose creation was seen.";
    QUEUES_DESTROYED = Counter "kfd_queues_destroyed_total" ["gpu_id", "queue_type", "cause"]
        "Queues that ended, by cause: ioctl, process_death, or other; left_at_release, replaced, not_seen and driver_unloaded are inferred. A destroy that the driver then fails is counted, too: see kfd_queue_destroys_failed_total.";
    DESTROYS_FAILED = Counter "kfd_queue_destroys_failed_total" ["gpu_id", "queue_type"]
        "Destroys that failed after the driver had begun: the queue still exists.";
    OPENS = Counter "kfd_opens_total" []
        "Calls of open on /dev/kfd, failed ones included.";
    OPEN_ERRORS = Counter "kfd_open_errors_total" ["errno"]
        "Calls of open on /dev/kfd that failed.";
    CLOSES = Counter "kfd_closes_total" []
        "Open files of /dev/kfd whose last reference was released.";

    GPU_INFO = Gauge "kfd_gpu_info" ["gpu_id", "gpu", "node", "pci", "render", "gfx", "name", "product_name", "serial_number", "unique_id", "gpu_partition_id"]
        "A GPU, or a partition of one, that KFD knows; always 1. gpu_id is KFD's, gpu the position among the GPUs.";
    GPU_SLOTS = Gauge "kfd_gpu_queue_slots" ["gpu_id", "kind"]
        "Queues that the hardware holds at once: cp (compute), sdma, or sdma_xgmi.";
    GPU_SLOTS_USED = Gauge "kfd_gpu_queue_slots_used" ["gpu_id", "kind"]
        "Queues that take a slot: of cp those that are active, of the others all that exist. More of cp than slots are run in turns. No series where the type of a queue is not known.";
    QUEUE_UPDATES = Counter "kfd_queue_updates_total" ["gpu_id", "queue_type"]
        "Updates of a queue: ring, percent, priority, CU mask or GWS; failed ones included, and those whose return was missed, as soon as their ioctl's return or the thread's next ioctl is seen.";
    QUEUE_UPDATE_ERRORS = Counter "kfd_queue_update_errors_total" ["gpu_id", "queue_type", "errno"]
        "Updates of a queue that were seen to fail.";
    QUEUE_UPDATES_NO_RETURN = Counter "kfd_queue_updates_no_return_seen_total" ["gpu_id", "queue_type"]
        "Of kfd_queue_updates_total those of which neither the return nor that of their ioctl was seen: whether they failed is not known.";
    MQD_WRITES = Counter "kfd_mqd_writes_total" ["gpu_id", "function"]
        "Outermost calls of the driver's functions that write a memory queue descriptor of a process: init, update, or restore (by CRIU).";
    EVICTIONS = Counter "kfd_evictions_total" ["gpu_id", "trigger"]
        "Evictions of the queues of a process from a GPU; nested ones are one.";
    RESTORES = Counter "kfd_restores_total" ["gpu_id"]
        "Restores of the queues of a process on a GPU.";
    EVICTED_SECONDS = Counter "kfd_evicted_seconds_total" ["gpu_id"]
        "Time that processes were evicted, running evictions included.";
    EVICTED_PROCESSES = Gauge "kfd_evicted_processes" ["gpu_id"]
        "Processes that are evicted from a GPU now.";
    VM_FAULTS = Counter "kfd_vm_faults_total" ["gpu_id"]
        "VM faults of processes.";
    GPU_RESETS = Counter "kfd_gpu_resets_total" ["gpu_id"]
        "Resets that began.";
    GPU_RESET_SECONDS = Counter "kfd_gpu_reset_seconds_total" ["gpu_id"]
        "Time in resets whose begin and end were seen.";
    GPU_RESETS_UNFINISHED = Counter "kfd_gpu_resets_unfinished_total" ["gpu_id"]
        "Resets whose end was not reported before the next one began or the driver was unloaded.";
    HWS_HANGS = Counter "kfd_hws_hangs_total" ["gpu_id"]
        "Hangs of the hardware scheduler, each counted once until the reset that follows.";

    PREEMPTION_DURATION = Histogram "kfd_gpu_preemption_duration_seconds" ["gpu_id", "reason"]
        "Time from the request to take all queues off a GPU until they were off, by what it was for; a series begins with the first one. Only with --runlists, as the next ones.";
    PREEMPTIONS_FAILED = Counter "kfd_gpu_preemptions_failed_total" ["gpu_id", "errno"]
        "Preemptions that were not confirmed in time, by the errno of the wait. One that the driver gives up otherwise is not among them.";
    RUNLISTS = Counter "kfd_gpu_runlists_total" ["gpu_id", "reason"]
        "Lists of queues that were submitted to a GPU, by what for.";
    RUNLISTS_FAILED = Counter "kfd_gpu_runlists_failed_total" ["gpu_id", "reason", "errno"]
        "Lists that could not be made or submitted.";
    RUNLIST_QUEUES = Gauge "kfd_gpu_runlist_queues" ["gpu_id"]
        "Queues on the list that a GPU runs, 0 after a preemption; no series before the first list is seen, as in the next two.";
    RUNLIST_PROCESSES = Gauge "kfd_gpu_runlist_processes" ["gpu_id"]
        "Processes with queues on a GPU, inactive ones included, when its last list was made.";
    RUNLIST_OVERSUBSCRIBED = Gauge "kfd_gpu_runlist_oversubscribed" ["gpu_id"]
        "1 if the list has more processes or queues than the GPU runs at once, so that they take turns.";

    MES_DURATION = Histogram "kfd_gpu_mes_request_duration_seconds" ["gpu_id", "operation"]
        "Duration of a request to the firmware scheduler MES to add a queue to a GPU or to remove one, of those that succeeded. Only with --runlists, as the next one.";
    MES_FAILED = Counter "kfd_gpu_mes_requests_failed_total" ["gpu_id", "operation", "errno"]
        "Requests to the firmware scheduler MES that failed: ETIMEDOUT, it reported a failure, or did not respond.";

    IOCTLS = Counter "kfd_ioctls_total" ["ioctl"]
        "Calls of an ioctl on /dev/kfd, counted at their entry.";
    IOCTL_ERRORS = Counter "kfd_ioctl_errors_total" ["ioctl", "errno"]
        "Calls that were seen to fail, by what kfd_ioctl returned (ERESTARTSYS: a signal came, and the kernel calls again or the caller gets EINTR). Needs the return: whether those in kfd_ioctls_no_return_seen_total and kfd_trace_ioctl_returns_missed failed is not known. Where only the returns of handlers are probed, errnos that the driver returns before a handler is entered are derived from its rules.";
    IOCTL_DURATION = Histogram "kfd_ioctl_duration_seconds" ["ioctl"]
        "Time from the entry into the driver to its return, or to the return of the handler where only that is probed: then refused calls have none. Nor have calls whose return was missed. WAIT_EVENTS has kfd_event_wait_duration_seconds.";
    IOCTLS_IN_FLIGHT = Gauge "kfd_ioctls_in_flight" ["ioctl"]
        "Calls that entered and were not seen to return, except those of WAIT_EVENTS (kfd_event_waits_in_flight). Where only the returns of handlers are probed, a thread's last call counts as one if it failed outside of its handler.";
    IOCTL_OLDEST = Gauge "kfd_ioctl_in_flight_oldest_seconds" ["ioctl"]
        "Age of the oldest call in flight; no series when there is none.";
    IOCTLS_NO_RETURN = Counter "kfd_ioctls_no_return_seen_total" ["ioctl"]
        "Calls whose thread made another call without a return having been seen: result not measured.";
    IOCTLS_NOT_MEASURED = Counter "kfd_ioctls_not_measured_total" ["ioctl"]
        "Calls that were counted at their entry only: those of WAIT_EVENTS while only the returns of handlers are probed, since its sleepers would use up the instances of such a probe.";
    EVENT_WAITS = Gauge "kfd_event_waits_in_flight" []
        "Threads that sleep in WAIT_EVENTS. They wait, for as long as their process wants, and are not stuck: kfd_ioctls_in_flight does not count them. No series where only the returns of handlers are probed, as of the next two.";
    EVENT_WAIT_OLDEST = Gauge "kfd_event_wait_in_flight_oldest_seconds" []
        "How long the longest of kfd_event_waits_in_flight has slept; no series when there is none. Hours are normal: a runtime has threads that sleep until there is an event.";
    EVENT_WAIT_DURATION = Histogram "kfd_event_wait_duration_seconds" []
        "Time from the entry of WAIT_EVENTS to its return, of the calls that have returned.";

    PROCESS_INFO = Gauge "kfd_process_info" ["pid", "kfd_process", "comm", "ns_pid", "uid", "cgroup", "container_id", "runtime", "pod_uid", "namespace", "pod", "container", "slurm_job", "slurm_step", "unit"]
        "A KFD process; always 1. kfd_process distinguishes reused PIDs and several contexts of one PID.";
    PROCESS_QUEUES = Gauge "kfd_process_queues" ["pid", "kfd_process", "comm", "gpu_id", "queue_type"]
        "Queues of a process.";
    PROCESS_VRAM = Gauge "kfd_process_vram_bytes" ["pid", "kfd_process", "comm", "gpu_id"]
        "VRAM of a process as the driver counts it, on the GPUs where it has any, or a queue; read every ten seconds. Imported memory is its exporter's.";
    PROCESS_MEMORY = Gauge "kfd_process_memory_bytes" ["pid", "kfd_process", "comm", "gpu_id", "domain"]
        "Memory that a process allocated by ioctls of KFD and has not freed, by domain: vram, gtt (of the machine), userptr (its own), doorbell, mmio. Of a process that existed before the tracer only what came later.";
    PROCESS_ALLOCATIONS = Gauge "kfd_process_memory_allocations" ["pid", "kfd_process", "comm", "gpu_id", "domain"]
        "Allocations of kfd_process_memory_bytes, and imported dma-bufs (imported).";
    PROCESS_EVICTIONS = Counter "kfd_process_evictions_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Evictions of a process from a GPU.";
    PROCESS_EVICTED_SECONDS = Counter "kfd_process_evicted_seconds_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Time that a process was evicted from a GPU, a running eviction included.";
    PROCESS_EVICTION = Gauge "kfd_process_eviction_seconds" ["pid", "kfd_process", "comm", "gpu_id", "trigger"]
        "How long the running eviction of a process from a GPU on which it has queues has lasted, at least: one found at the start counts from there, with the trigger unknown. No series otherwise.";
    PROCESS_SUSPENDED = Gauge "kfd_process_queues_suspended" ["pid", "kfd_process", "comm", "gpu_id"]
        "Queues of a process that a debugger has suspended; no series on a GPU where none was, or where this is not known of a queue.";
    PROCESS_PREEMPTIONS = Counter "kfd_process_preemptions_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Preemptions of a GPU on behalf of a process: for its queues, its evictions and restores, and its end. Only with --runlists, as the next three.";
    PROCESS_PREEMPTION_SECONDS = Counter "kfd_process_preemption_seconds_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Time that all queues of a GPU were taken off, or off, on behalf of a process.";
    PROCESS_PREEMPTED = Counter "kfd_process_preempted_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Preemptions of a GPU on behalf of others, while a process had active queues there.";
    PROCESS_PREEMPTED_SECONDS = Counter "kfd_process_preempted_seconds_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Time that its queues were taken off a GPU, or off, on behalf of others. At least: when the GPU runs them again is not seen.";
    PROCESS_VM_FAULTS = Counter "kfd_process_vm_faults_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "VM faults of a process.";
    PROCESS_PACKETS_SUBMITTED = Counter "kfd_process_packets_submitted_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "AQL packets that a process put into its queues, as sampled from its memory: kernels, barriers and others alike.";
    PROCESS_PACKETS_RETIRED = Counter "kfd_process_packets_retired_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "AQL packets of a process that the GPU has completed.";
    PROCESS_PACKETS_BACKLOG = Gauge "kfd_process_packets_backlog" ["pid", "kfd_process", "comm", "gpu_id"]
        "AQL packets in the queues of a process that are not retired, those that run included, at the last sample.";
    PROCESS_SDMA_SUBMITTED = Counter "kfd_process_sdma_ring_bytes_submitted_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Bytes of commands that a process put into the rings of its SDMA queues: not the bytes that they copy.";
    PROCESS_SDMA_RETIRED = Counter "kfd_process_sdma_ring_bytes_retired_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Bytes of commands in the rings of its SDMA queues that the engine has completed.";
    PROCESS_SDMA_BACKLOG = Gauge "kfd_process_sdma_ring_bytes_backlog" ["pid", "kfd_process", "comm", "gpu_id"]
        "Bytes of commands in its SDMA queues that are not retired: more than 0 means that the engine has work.";
    PROCESS_STALLED = Gauge "kfd_process_queues_stalled" ["pid", "kfd_process", "comm", "gpu_id"]
        "Queues of a process that have a backlog and retired nothing for 10 s: a long kernel, an eviction, or a hang.";
    PROCESS_IDLE = Gauge "kfd_process_idle_seconds" ["pid", "kfd_process", "comm", "gpu_id"]
        "Time since a sample last saw one of its queues there with a backlog or with new work; no series where a queue is not measured.";
    PROCESS_NOT_MEASURED = Gauge "kfd_process_queues_not_measured" ["pid", "kfd_process", "comm", "gpu_id"]
        "Queues of a process whose pointers cannot be sampled now: what passes through them is in no counter.";
    PROCESS_INCOMPLETE = Counter "kfd_process_queues_incomplete_total" ["pid", "kfd_process", "comm", "gpu_id"]
        "Queues of a process that ended without a last reading of their pointers: what they did after their last sample is in no counter.";
    PROCESS_TEARDOWN = Gauge "kfd_process_teardown_seconds" ["pid", "kfd_process", "comm"]
        "Time since the end of the address space of a process that the driver has not released yet; no series for others.";
    PROCESS_IOCTLS = Counter "kfd_process_ioctls_total" ["pid", "kfd_process", "comm", "ioctl"]
        "Calls of an ioctl by a process.";

    QUEUE_INFO = Gauge "kfd_queue_info" ["pid", "kfd_process", "comm", "gpu_id", "queue_id", "queue_type", "sdma_engine_id", "of_runtime"]
        "A queue that exists now; always 1; of_runtime: whether it is ROCr's own, empty if not known. With --metrics.per-queue, as all kfd_queue_ that follow.";
    QUEUE_CREATED = Gauge "kfd_queue_created_timestamp_seconds" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Unix time at which a queue was created; no series where that was not seen.";
    QUEUE_PRIORITY = Gauge "kfd_queue_priority" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Requested priority, 0 to 15.";
    QUEUE_SHARE = Gauge "kfd_queue_share_ratio" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Requested share of the hardware (queue_percentage of the ioctl), 0 to 1; with 0 the queue does not run.";
    QUEUE_ACTIVE = Gauge "kfd_queue_active" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "1 for a queue that is to run: it has a ring and a share, and is neither evicted nor suspended; else 0.";
    QUEUE_EVICTED = Gauge "kfd_queue_evicted" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "1 for a queue that is evicted now, else 0.";

    QUEUE_PACKETS_SUBMITTED = Counter "kfd_queue_packets_submitted_total" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "AQL packets put into a queue since its creation.";
    QUEUE_PACKETS_RETIRED = Counter "kfd_queue_packets_retired_total" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "AQL packets of a queue that the GPU has completed.";
    QUEUE_PACKETS_BACKLOG = Gauge "kfd_queue_packets_backlog" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "AQL packets in a queue that are not retired, those that run included, at the last sample.";
    QUEUE_SDMA_SUBMITTED = Counter "kfd_queue_sdma_ring_bytes_submitted_total" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Bytes of commands put into the ring of an SDMA queue: not the bytes that they copy.";
    QUEUE_SDMA_RETIRED = Counter "kfd_queue_sdma_ring_bytes_retired_total" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Bytes of commands in the ring of an SDMA queue that the engine has completed.";
    QUEUE_SDMA_BACKLOG = Gauge "kfd_queue_sdma_ring_bytes_backlog" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Bytes of commands in an SDMA queue that are not retired.";
    QUEUE_STALLED = Gauge "kfd_queue_stalled" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "1 for a queue that has a backlog and retired nothing for 10 s, else 0; no series where it is not measured.";
    QUEUE_IDLE = Gauge "kfd_queue_idle_seconds" ["pid", "kfd_process", "comm", "gpu_id", "queue_id"]
        "Time since a sample last saw a queue with a backlog or with new work; no series where it is not measured.";

    BUILD_INFO = Gauge "kfd_trace_build_info" ["version", "revision", "target"]
        "The tracer's version, the commit that it was built from (unknown where it was not built by cargo xtask), and the machine it was built for; always 1.";
    START_TIME = Gauge "kfd_trace_start_time_seconds" []
        "Unix time at which the tracer started.";
    DRIVER_LOADED = Gauge "kfd_trace_driver_loaded" []
        "1 where amdgpu with its compute part is loaded, traced or not; 0 where there is nothing to trace.";
    DRIVER_LOADS = Counter "kfd_trace_driver_loads_total" []
        "Times that the tracer attached its probes to the driver: more than 1 where the driver was unloaded and loaded again meanwhile.";
    DRIVER_TYPES = Gauge "kfd_trace_driver_types_info" ["source", "checked"]
        "Where the layouts of the driver's structures come from: kernel, file, table, or none; always 1. Those not of the kernel are compared with the driver: checked is pending until it agrees, else agrees or not_needed.";
    TYPES_REFUTED = Counter "kfd_trace_driver_types_refuted_total" ["source"]
        "Sources of layouts that the driver contradicted: they are not used.";
    PROBE_HITS = Counter "kfd_trace_probe_hits_total" ["probe"]
        "Runs of a probe's program.";
    PROBE_MISSED = Counter "kfd_trace_probe_missed_total" ["probe", "cause"]
        "Calls of probed functions for which the probe's program did not run: program_skipped, the CPU was inside another BPF program or a bpf(2) call on a map; probe_missed, the CPU was inside another kprobe, or all instances of the kretprobe were taken. No series where the kernel does not count it (before 6.7).";
    PROBE_RECORDS_LOST = Counter "kfd_trace_probe_records_lost_total" ["probe", "cause"]
        "Records of a probe's program that did not get through: ring_full, the ring buffer was full; not_decoded, they could not be decoded (probe unknown where a record does not show its probe).";
    PROBE_TROUBLE = Counter "kfd_trace_probe_trouble_total" ["probe", "reason"]
        "kfd_trace_trouble_total by the probe whose program could not do it, or whose run was missed (a missed return is found by a later call). No series before the first one: for alerts there is kfd_trace_trouble_total.";
    PROBE_ATTACHED = Gauge "kfd_trace_probe_attached" ["probe", "kind"]
        "1 for a probe that is attached to all of its functions, else 0; none for one that was not requested, or that no GPU \
         here needs.";
    PROBE_INFO = Gauge "kfd_trace_probe_info" ["probe", "kind", "verdict"]
        "The verdict on a probe on this kernel; always 1.";
    RECORDS = Counter "kfd_trace_records_total" ["kind"]
        "Records that reached the ring buffer.";
    RECORDS_LOST = Counter "kfd_trace_records_lost_total" ["kind"]
        "Records that found the ring buffer full.";
    TROUBLE = Counter "kfd_trace_trouble_total" ["reason"]
        "What the BPF programs could not do.";
    DECODE_ERRORS = Counter "kfd_trace_decode_errors_total" ["reason"]
        "Records that could not be decoded.";
    ANOMALIES = Counter "kfd_trace_state_anomalies_total" ["reason"]
        "Records that contradict earlier ones: something was missed.";
    COMPARISONS = Counter "kfd_trace_comparisons_total" ["source"]
        "Comparisons of the state with a list of the driver that was read whole: sysfs, the kernel's own table.";
    DIFFERENCES = Counter "kfd_trace_differences_total" ["kind"]
        "What the probes and the driver's own lists did not agree on.";
    RETURNS_MISSED = Gauge "kfd_trace_ioctl_returns_missed" ["ioctl"]
        "Calls that entered and neither returned, were refused, nor are in flight. Not read at one instant: a few are normal under load.";
    QUEUES_ADOPTED = Counter "kfd_trace_queues_adopted_total" []
        "Queues that existed before the tracer saw them.";
    MAP_ENTRIES = Gauge "kfd_trace_map_entries" ["map"]
        "Entries of a BPF map.";
    MAP_CAPACITY = Gauge "kfd_trace_map_capacity" ["map"]
        "Entries that a BPF map can hold.";
    SAMPLES = Counter "kfd_trace_samples_total" []
        "Successful readings of a queue's pointers in the memory of its process.";
    SAMPLE_ERRORS = Counter "kfd_trace_sample_errors_total" ["reason"]
        "Failed readings of a queue's pointers: denied, gone (the address space ended), unreadable, foreign (the memory is no queue's, or not this one's any more), went_back, descriptors, failed, or late (it blocks its reader, and is set aside; or its tenant took more than its part of the sample).";
    SAMPLE_INTERVAL = Gauge "kfd_trace_sample_interval_seconds" []
        "Time from one sample of all queues to the next: --sample.interval, or longer, so that sampling takes no more than 1 % of a CPU; 0 where it is off.";
    SAMPLE_CPU = Counter "kfd_trace_sample_cpu_seconds_total" []
        "CPU time of the thread that samples.";
    SAMPLE_AGE = Gauge "kfd_trace_sample_age_seconds" []
        "Time since all queues were last sampled; no series before, or where sampling is off.";
    SAMPLE_READERS_WAITING = Gauge "kfd_trace_sample_readers_waiting" []
        "Threads that wait for the memory of one process each, which blocks whoever reads it: these processes are set aside, and the others are sampled. At most 64; then sampling stops. It goes on while no driver is loaded, as the threads do.";
    PROCESSES_REMEMBERED = Gauge "kfd_trace_processes_remembered" []
        "Processes that ended and are remembered; those that ended within --metrics.linger have series. No series while nothing is traced.";
    PROCESSES_DROPPED = Gauge "kfd_trace_metrics_processes_dropped" []
        "Processes without series of their own, because there are more than --metrics.max-processes, or more new ones within an hour than --metrics.max-new-processes.";
    PROCESSES_OVER_BUDGET = Counter "kfd_trace_metrics_processes_over_budget_total" []
        "Processes that had no series at a scrape, because more than --metrics.max-new-processes were new within an hour.";
    QUEUES_DROPPED = Gauge "kfd_trace_metrics_queues_dropped" []
        "Queues without series of their own, because there are more than --metrics.max-queues, or their process has none; only with --metrics.per-queue.";
    COLLECTOR_SUCCESS = Gauge "kfd_trace_collector_success" ["collector"]
        "1 for a source that this scrape has read whole, else 0: bpf_maps, or sysfs, which is read where queues cannot be probed. No series for one that it did not have to read.";
    COLLECTOR_DURATION = Gauge "kfd_trace_collector_duration_seconds" ["collector"]
        "Time to read a source for this scrape: bpf_maps, sysfs, or state, the tracer's own memory.";
    RECORDING_UP = Gauge "kfd_trace_recording_up" []
        "With --record: 1 while a file is being written, 0 while that is not possible: what happens then is lost.";
    RECORDING_LOST = Counter "kfd_trace_recording_lost_changes_total" []
        "With --record: changes of the tracer's state (events, and what it read) that are in no file, because the disk was full or too slow or could not be written.";
    RECORDING_BYTES = Gauge "kfd_trace_recording_bytes" []
        "With --record: bytes of all recordings in its folder.";
    RECORDING_FILES = Gauge "kfd_trace_recording_files" []
        "With --record: recordings in its folder.";
    OTLP_UP = Gauge "kfd_trace_otlp_up" []
        "With --otlp.endpoint: 1 if the collector took the last batch of records, 0 if it refused it or is not reached, and before the first one.";
    OTLP_RECORDS = Counter "kfd_trace_otlp_records_total" ["result"]
        "With --otlp.endpoint: records accepted by the collector, refused by it for good, or dropped because too many waited (--otlp.queue).";
    OTLP_WAITING = Gauge "kfd_trace_otlp_waiting_records" []
        "With --otlp.endpoint: records that wait for the collector.";
    SCRAPE_DURATION = Gauge "kfd_trace_scrape_duration_seconds" []
        "Time to read the maps and the state for this scrape.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions() {
        let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len(), "a name occurs twice");
        for metric in ALL {
            let name = metric.name;
            assert!(name.starts_with("kfd_"), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            assert!(!name.contains("percent"), "{name}: a ratio, 0 to 1");
            assert!(metric.kind != MetricKind::Histogram || name.ends_with("_duration_seconds"), "{name}");
            assert!(!metric.labels.contains(&"type") && metric.help.ends_with('.'), "{name}");
            assert!(!metric.help.contains(['"', '\\', '\n']), "{name}: both formats have it as it is");
        }
    }
}
