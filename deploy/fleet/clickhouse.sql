-- Tables for the events of kfd-trace (docs/fleet-events.md):
--   otel_logs -> kfd_events -> kfd_queues, kfd_processes, kfd_runs, kfd_gpus, kfd_arrivals
-- Each arrow is a materialized view, so an insert into otel_logs fills all. Views on top: kfd_queue_lives, kfd_holds.
-- Records may arrive twice and in any order: all but kfd_arrivals, which counts repeats, give the same answer then.
-- Read the tables with FINAL (no column that FINAL merges is a tuple: a subcolumn of one is not merged). Statements are separated by semicolons; none is in a comment or a string.

CREATE DATABASE IF NOT EXISTS kfd;

-- As the OpenTelemetry Collector's clickhouse exporter and rotel insert it (both name the columns).
-- Without indexes of the body and of attributes: questions use kfd_events.
CREATE TABLE IF NOT EXISTS kfd.otel_logs
(
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TimestampTime DateTime DEFAULT toDateTime(Timestamp) CODEC(Delta(4), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    TraceFlags UInt8,
    SeverityText LowCardinality(String) CODEC(ZSTD(1)),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    Body String CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName String CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(TimestampTime)
ORDER BY (ServiceName, TimestampTime, Timestamp)
TTL TimestampTime + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1;

-- One row per record. A repeat has the same sorting key, in the same partition, and is dropped by FINAL and by merges.
-- Not known: '' and 0, except gpu and uid (-1). gpu_id 0: the record is about no GPU.
CREATE TABLE IF NOT EXISTS kfd.kfd_events
(
    node LowCardinality(String) CODEC(ZSTD(1)),             -- host.name
    host LowCardinality(String) CODEC(ZSTD(1)),             -- host.id, or host.name: nodes of two clusters may share a name
    gpu_id UInt32 CODEC(ZSTD(1)),
    ts DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    run UUID CODEC(ZSTD(1)),                                -- service.instance.id: one start of the daemon
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    mono_ns UInt64 CODEC(Delta(8), ZSTD(1)),
    event LowCardinality(String) CODEC(ZSTD(1)),            -- without `kfd.`
    severity UInt8 CODEC(ZSTD(1)),
    gpu Int16 CODEC(ZSTD(1)),
    pci LowCardinality(String) CODEC(ZSTD(1)),
    process UInt64 CODEC(ZSTD(1)),
    pid UInt32 CODEC(ZSTD(1)),
    comm LowCardinality(String) CODEC(ZSTD(1)),
    uid Int64 CODEC(ZSTD(1)),
    namespace LowCardinality(String) CODEC(ZSTD(1)),
    pod String CODEC(ZSTD(1)),
    container LowCardinality(String) CODEC(ZSTD(1)),
    container_id String CODEC(ZSTD(1)),
    slurm_job UInt64 CODEC(ZSTD(1)),
    slurm_step LowCardinality(String) CODEC(ZSTD(1)),
    slurm_account LowCardinality(String) CODEC(ZSTD(1)),
    unit LowCardinality(String) CODEC(ZSTD(1)),
    queue_id UInt32 CODEC(ZSTD(1)),
    queue_type LowCardinality(String) CODEC(ZSTD(1)),
    origin LowCardinality(String) CODEC(ZSTD(1)),
    cause LowCardinality(String) CODEC(ZSTD(1)),
    known_ns UInt64 CODEC(ZSTD(1)),
    has_known Bool,
    trigger LowCardinality(String) CODEC(ZSTD(1)),
    evicted_ns UInt64 CODEC(ZSTD(1)),
    address UInt64 CODEC(ZSTD(1)),
    standing Bool,
    lost UInt64 CODEC(ZSTD(1)),
    hit_pids Array(UInt32) CODEC(ZSTD(1)),
    boot LowCardinality(String) CODEC(ZSTD(1)),
    cluster LowCardinality(String) CODEC(ZSTD(1)),
    version LowCardinality(String) CODEC(ZSTD(1)),
    body String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(ts)
ORDER BY (node, host, gpu_id, ts, run, seq)
TTL toDateTime(ts) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1;

-- No cast here throws: an insert into otel_logs must not fail for one odd record.
CREATE MATERIALIZED VIEW IF NOT EXISTS kfd.kfd_events_mv TO kfd.kfd_events AS
WITH LogAttributes AS a, ResourceAttributes AS r
SELECT
    r['host.name'] AS node,
    if(r['host.id'] = '', node, r['host.id']) AS host,
    toUInt32OrZero(a['kfd.gpu_id']) AS gpu_id,
    Timestamp AS ts,
    toUUIDOrZero(r['service.instance.id']) AS run,
    toUInt64OrZero(a['kfd.seq']) AS seq,
    toUInt64OrZero(a['kfd.mono_ns']) AS mono_ns,
    substring(a['otel.event.name'], 5) AS event,            -- not EventName, which rotel does not insert
    SeverityNumber AS severity,
    toInt16OrDefault(a['kfd.gpu'], toInt16(-1)) AS gpu,
    a['hw.id'] AS pci,
    toUInt64OrZero(a['kfd.process']) AS process,
    toUInt32OrZero(a['process.pid']) AS pid,
    a['process.executable.name'] AS comm,
    toInt64OrDefault(a['process.user.id'], toInt64(-1)) AS uid,
    a['k8s.namespace.name'] AS namespace,
    a['k8s.pod.name'] AS pod,
    if(a['k8s.container.name'] = '', a['container.name'], a['k8s.container.name']) AS container,
    a['container.id'] AS container_id,
    toUInt64OrZero(a['slurm.job.id']) AS slurm_job,
    a['slurm.step.id'] AS slurm_step,
    a['slurm.account'] AS slurm_account,
    a['kfd.unit'] AS unit,
    toUInt32OrZero(a['kfd.queue_id']) AS queue_id,
    a['kfd.queue_type'] AS queue_type,
    a['kfd.origin'] AS origin,
    a['kfd.cause'] AS cause,
    toUInt64OrZero(a['kfd.known_ns']) AS known_ns,
    a['kfd.known_ns'] != '' AS has_known,
    a['kfd.trigger'] AS trigger,
    toUInt64OrZero(a['kfd.evicted_ns']) AS evicted_ns,
    if(startsWith(a['kfd.address'], '0x'), reinterpretAsUInt64(reverse(unhex(substring(a['kfd.address'], 3)))),
       toUInt64OrZero(a['kfd.address'])) AS address,
    a['kfd.standing'] = 'true' AS standing,
    toUInt64OrZero(a['kfd.lost']) AS lost,
    JSONExtract(a['kfd.hit_pids'], 'Array(UInt32)') AS hit_pids,
    r['kfd.boot_id'] AS boot,
    r['k8s.cluster.name'] AS cluster,
    r['service.version'] AS version,
    Body AS body
FROM kfd.otel_logs
WHERE startsWith(a['otel.event.name'], 'kfd.');

-- One row per life of a queue. Its creation and its end find each other by begun_ns, CLOCK_MONOTONIC of queue_create:
-- an end has it as kfd.mono_ns - kfd.known_ns. So ids may be reused, and an end is enough if the creation was lost.
CREATE TABLE IF NOT EXISTS kfd.kfd_queues
(
    node LowCardinality(String) CODEC(ZSTD(1)),
    host LowCardinality(String) CODEC(ZSTD(1)),
    run UUID CODEC(ZSTD(1)),
    process UInt64 CODEC(Delta(8), ZSTD(1)),
    queue_id UInt32 CODEC(ZSTD(1)),
    begun_ns UInt64 CODEC(Delta(8), ZSTD(1)),
    gpu_id SimpleAggregateFunction(max, UInt32) CODEC(ZSTD(1)),
    gpu SimpleAggregateFunction(max, Int16) CODEC(ZSTD(1)),
    queue_type SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1)),
    origin SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1)),
    created SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),   -- 0: its record was lost
    reckoned SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),  -- the same by its end
    destroyed SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    destroyed_ns SimpleAggregateFunction(max, UInt64) CODEC(Delta(8), ZSTD(1)),
    revived_ns SimpleAggregateFunction(max, UInt64) CODEC(ZSTD(1)),                        -- queue_destroy_failed: it lives on
    cause SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1))              -- '': ioctl, the only one that can fail
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(reckoned)   -- a row's parts may be in two partitions: FINAL merges them, too
ORDER BY (node, host, run, process, queue_id, begun_ns)
TTL toDateTime(greatest(reckoned, destroyed)) + INTERVAL 13 MONTH;

CREATE MATERIALIZED VIEW IF NOT EXISTS kfd.kfd_queues_mv TO kfd.kfd_queues AS
SELECT
    node, host, run, process, queue_id,
    mono_ns - known_ns AS begun_ns,
    gpu_id, gpu, queue_type, origin,
    if(event = 'queue_create', ts, toDateTime64(0, 9, 'UTC')) AS created,
    subtractNanoseconds(ts, known_ns) AS reckoned,
    if(event = 'queue_destroy', ts, toDateTime64(0, 9, 'UTC')) AS destroyed,
    if(event = 'queue_destroy', mono_ns, 0) AS destroyed_ns,
    if(event = 'queue_destroy_failed', mono_ns, 0) AS revived_ns,
    if(e.cause = 'ioctl', '', e.cause) AS cause
FROM kfd.kfd_events AS e
WHERE event = 'queue_create' OR event IN ('queue_destroy', 'queue_destroy_failed') AND has_known;

-- One row per KFD process and run, with all that any of its records said about it.
CREATE TABLE IF NOT EXISTS kfd.kfd_processes
(
    node LowCardinality(String) CODEC(ZSTD(1)),
    host LowCardinality(String) CODEC(ZSTD(1)),
    run UUID CODEC(ZSTD(1)),
    process UInt64 CODEC(Delta(8), ZSTD(1)),
    first SimpleAggregateFunction(min, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    last SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    seen SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    standing SimpleAggregateFunction(max, Bool),
    released SimpleAggregateFunction(max, DateTime64(9, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    pid SimpleAggregateFunction(max, UInt32) CODEC(ZSTD(1)),
    comm SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1)),              -- if it changed, one of them
    uid SimpleAggregateFunction(max, Int64) CODEC(ZSTD(1)),
    namespace SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1)),
    pod SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
    container SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1)),
    container_id SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
    slurm_job SimpleAggregateFunction(max, UInt64) CODEC(ZSTD(1)),
    slurm_account SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1)),
    unit SimpleAggregateFunction(max, LowCardinality(String)) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(first)
ORDER BY (node, host, run, process)
TTL toDateTime(last) + INTERVAL 13 MONTH;

CREATE MATERIALIZED VIEW IF NOT EXISTS kfd.kfd_processes_mv TO kfd.kfd_processes AS
SELECT
    node, host, run, process, ts AS first, ts AS last,
    if(event = 'process_seen', ts, toDateTime64(0, 9, 'UTC')) AS seen,
    standing,
    if(event = 'process_release', ts, toDateTime64(0, 9, 'UTC')) AS released,
    pid, comm, uid, namespace, pod, container, container_id, slurm_job, slurm_account, unit
FROM kfd.kfd_events
WHERE process > 0;

-- One row per start of the daemon.
CREATE TABLE IF NOT EXISTS kfd.kfd_runs
(
    node LowCardinality(String),
    host LowCardinality(String),
    run UUID,
    boot SimpleAggregateFunction(max, LowCardinality(String)),
    cluster SimpleAggregateFunction(max, LowCardinality(String)),
    version SimpleAggregateFunction(max, LowCardinality(String)),
    first SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    last SimpleAggregateFunction(max, DateTime64(9, 'UTC')),
    first_seq SimpleAggregateFunction(min, UInt64),
    last_seq SimpleAggregateFunction(max, UInt64),
    lost SimpleAggregateFunction(max, UInt64),
    stops SimpleAggregateFunction(groupUniqArrayArray, Array(Tuple(ns UInt64, ts DateTime64(9, 'UTC'), event String)))
)
ENGINE = AggregatingMergeTree
ORDER BY (node, host, run)
TTL toDateTime(last) + INTERVAL 13 MONTH;

CREATE MATERIALIZED VIEW IF NOT EXISTS kfd.kfd_runs_mv TO kfd.kfd_runs AS
SELECT
    node, host, run, max(boot) AS boot, max(cluster) AS cluster, max(version) AS version,
    min(ts) AS first, max(ts) AS last, min(seq) AS first_seq, max(seq) AS last_seq, max(lost) AS lost,
    groupUniqArrayIf((mono_ns, ts, toString(event)), event IN ('trace_end', 'driver_unloaded')) AS stops
FROM (SELECT node, host, run, boot, cluster, version, ts, seq, kfd_events.lost AS lost, mono_ns, event FROM kfd.kfd_events)
GROUP BY node, host, run;

-- GPUs that any record named.
CREATE TABLE IF NOT EXISTS kfd.kfd_gpus
(
    node LowCardinality(String),
    host LowCardinality(String),
    gpu_id UInt32,
    gpu SimpleAggregateFunction(max, Int16),
    pci SimpleAggregateFunction(max, LowCardinality(String)),
    first SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    last SimpleAggregateFunction(max, DateTime64(9, 'UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY (node, host, gpu_id)
TTL toDateTime(last) + INTERVAL 13 MONTH;

CREATE MATERIALIZED VIEW IF NOT EXISTS kfd.kfd_gpus_mv TO kfd.kfd_gpus AS
SELECT node, host, gpu_id, max(e.gpu) AS gpu, max(e.pci) AS pci, min(ts) AS first, max(ts) AS last
FROM kfd.kfd_events AS e WHERE gpu_id > 0 GROUP BY node, host, gpu_id;

-- Records that arrived, repeats included; kept as long as kfd_events.
CREATE TABLE IF NOT EXISTS kfd.kfd_arrivals
(
    day Date,
    node LowCardinality(String),
    run UUID,
    records UInt64
)
ENGINE = SummingMergeTree
PARTITION BY day
ORDER BY (day, node, run)
TTL day + INTERVAL 91 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS kfd.kfd_arrivals_mv TO kfd.kfd_arrivals AS
SELECT toDate(ts) AS day, node, run, count() AS records FROM kfd.kfd_events GROUP BY day, node, run;

-- The site's own tables. Jobs of one Slurm cluster, for nodes without the prolog of deploy/slurm, loaded again as they change:
--   sacct -anPXS now-2days -o JobIDRaw,User,Account,Partition,JobName
CREATE TABLE IF NOT EXISTS kfd.slurm_jobs
(
    job_id UInt64,
    user LowCardinality(String),
    account LowCardinality(String),
    partition LowCardinality(String),
    name String,
    loaded DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree(loaded)
ORDER BY job_id;

-- Images of containers, from kube_pod_container_info of kube-state-metrics or `crictl ps -o json`.
CREATE TABLE IF NOT EXISTS kfd.containers
(
    container_id String,                                    -- 64 hexadecimal digits, without `containerd://`
    image LowCardinality(String),
    loaded DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree(loaded)
ORDER BY container_id;

-- Runs, and `gone`: when a run ended that did not say so (0: it has not, as far as known). The host's next run shows it:
-- of the same boot, queues may have lived until it began; of another boot, only until the last record is known.
CREATE VIEW IF NOT EXISTS kfd.kfd_run_ends AS
SELECT
    node, host, run, boot, cluster, version, first, last, lost, stops,
    arrayFirst(start -> start.1 > last, starts) AS next,
    if(toUnixTimestamp64Nano(next.1) = 0, next.1, if(next.2 = boot, next.1, last)) AS gone
FROM
(
    SELECT *, arraySort(groupArray((first, toString(boot))) OVER (PARTITION BY node, host)) AS starts
    FROM kfd.kfd_runs FINAL
);

-- Each life of a queue with its owner. `end` is how its end is known:
--   destroyed         queue_destroy; `cause` has more
--   process_release, id_reused, driver_unloaded, trace_end, run_gone: queue_destroy has not arrived, or never came
--   lives             no end is known (ended: the year 2200)
-- `ends_by`: not before `ended`, and known without the joins. A filter on it, beside that on `ended`, makes a question quick.
CREATE VIEW IF NOT EXISTS kfd.kfd_queue_lives AS
WITH toDateTime64('2200-01-01 00:00:00', 9, 'UTC') AS never
SELECT
    node, q.host AS host, r.cluster AS cluster, run, process, queue_id, q.gpu_id AS gpu_id, q.gpu AS gpu, q.queue_type AS queue_type, q.origin AS origin,
    q.born AS born,
    if(q.is_destroyed, greatest(q.destroyed, born), never) AS ends_by,
    arrayMin(arrayFilter(known -> toUnixTimestamp64Nano(known.1) > 0,
    [
        (p.released, 'process_release'),
        (q.next_born, 'id_reused'),
        arrayMin(arrayMap(stop -> (stop.ts, stop.event), arrayFilter(stop -> stop.ns >= q.begun_ns, r.stops))),
        (r.gone, 'run_gone'),
        (never, 'lives')
    ])) AS other,
    if(q.is_destroyed, ends_by, greatest(other.1, born)) AS ended,
    if(q.is_destroyed, 'destroyed', other.2) AS end,
    multiIf(NOT q.is_destroyed, '', q.cause = '', 'ioctl', q.cause) AS cause,
    p.pid AS pid, p.comm AS comm, p.uid AS uid, p.namespace AS namespace, p.pod AS pod, p.container AS container,
    p.container_id AS container_id, p.slurm_job AS slurm_job, p.slurm_account AS slurm_account, p.unit AS unit
FROM
(
    SELECT
        *,
        if(toUnixTimestamp64Nano(created) = 0, reckoned, created) AS born,
        destroyed_ns > revived_ns AS is_destroyed,
        leadInFrame(born) OVER (PARTITION BY node, host, run, process, queue_id ORDER BY begun_ns
                                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next_born
    FROM kfd.kfd_queues FINAL
) AS q
LEFT JOIN (SELECT * FROM kfd.kfd_processes FINAL) AS p USING (node, run, process)
LEFT JOIN kfd.kfd_run_ends AS r USING (node, run);

-- A process holds a GPU while it has a queue there. One row per such time; several processes hold a GPU at once.
CREATE VIEW IF NOT EXISTS kfd.kfd_holds AS
SELECT
    node, host, run, process, gpu_id, max(l.gpu) AS gpu, min(l.born) AS born, max(l.ended) AS ended, argMax(l.end, (l.ended, l.end)) AS end,
    argMin(l.origin, l.born) = 'standing' AS standing, count() AS queues, any(l.pid) AS pid, any(l.comm) AS comm, any(l.uid) AS uid,
    any(l.namespace) AS namespace, any(l.pod) AS pod, any(l.container) AS container, any(l.container_id) AS container_id,
    any(l.slurm_job) AS slurm_job, any(l.unit) AS unit, any(l.cluster) AS cluster
FROM
(
    SELECT *, sum(fresh) OVER (PARTITION BY node, host, run, process, gpu_id ORDER BY born, queue_id ROWS UNBOUNDED PRECEDING) AS hold
    FROM
    (
        SELECT *, born > max(ended) OVER (PARTITION BY node, host, run, process, gpu_id ORDER BY born, queue_id
                                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS fresh
        FROM kfd.kfd_queue_lives
    )
) AS l
GROUP BY node, host, run, process, gpu_id, hold;
