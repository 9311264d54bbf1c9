"""A large synthetic fleet, made inside ClickHouse, to measure the questions: time, CPU time of all threads, rows and bytes read.

Each node has 8 GPUs and one run of its daemon; each GPU has 16 processes a day of 80 minutes, one after the other with two queues
each, so 1,024 records a node and day: process_seen, 2 queue_create, evict, restore, 2 queue_destroy, process_release. One process in
1,000 faults instead of a restore, one evict in 100,000 is a hang, one process in 5,000 has lost its queue_destroy, those
of the last hours live.
"""

import resource
import time

GPUS, SLOTS, BEGIN = 8, 16, 1772409600  # 2026-03-02T00:00:00Z
EVENTS = "['process_seen', 'queue_create', 'queue_create', 'evict', 'restore', 'queue_destroy', 'queue_destroy', 'process_release']"
OFFSETS = "[0, 1, 2, 600, 610, 4798, 4799, 4800]"  # seconds after the begin

DAY = """
INSERT INTO kfd.kfd_events
    (node, host, gpu_id, ts, run, seq, mono_ns, event, severity, gpu, pci, process, pid, comm, uid, namespace, pod, container, container_id,
     slurm_job, queue_id, queue_type, origin, cause, known_ns, has_known, trigger, evicted_ns, boot, cluster, version)
WITH
    intDiv(number, 8 * 16) AS n, intDiv(number, 8) % 16 AS slot, number % 8 AS g, {day} * 128 + slot * 8 + g + 1 AS process_number,
    cityHash64(n, process_number) AS h, {day} * 86400 + 600 + slot * 5400 + g * 37 + n % 60 AS begin,
    e IN (1, 2, 5, 6) AS of_queue, h % 2 = 0 AS in_pod, e IN (5, 6) AS is_end
SELECT
    'gpu-' || toString(n), lower(hex(cityHash64(n))), 51000 + g,
    toDateTime64({begin} + begin + {offsets}[e + 1], 9, 'UTC') + toIntervalNanosecond(h % 1000000000),
    reinterpretAsUUID(concat(reinterpretAsString(cityHash64(n, 1)), reinterpretAsString(cityHash64(n, 2)))), (process_number - 1) * 8 + e + 1,
    (begin + {offsets}[e + 1]) * 1000000000 + h % 1000000000,
    multiIf(e = 4 AND h % 1000 = 7, 'vm_fault', e = 3 AND h % 100000 = 3, 'hws_hang', {events}[e + 1]), 9, g, '0000:41:00.0',
    process_number, 1000 + h % 4000000, ['python3', 'vllm', 'train', 'lmp'][h % 4 + 1], 1000 + h % 200,
    if(in_pod, 'team-' || toString(h % 50), ''), if(in_pod, 'job-' || toString(h % 100000), ''), if(in_pod, 'main', ''),
    if(in_pod, lower(hex(h)) || lower(hex(cityHash64(h))) || lower(hex(h + 1)) || lower(hex(h + 2)), ''),
    if(in_pod, 0, n * 10000 + intDiv(process_number, 8)),
    if(of_queue, if(e IN (1, 5), 1, 2), 0), if(of_queue, if(e IN (1, 5), 'compute_aql', 'sdma'), ''),
    if(e IN (1, 2), 'ioctl', ''), if(is_end, if(h % 20 = 0, 'process_death', 'ioctl'), ''),
    if(is_end, toUInt64(4797) * 1000000000, 0), is_end, if(e = 3, ['svm', 'userptr', 'ttm'][h % 3 + 1], ''), if(e = 4, 10000000000, 0),
    'boot', 'a', '0.1.0'
FROM numbers({nodes} * 128)
ARRAY JOIN [0, 1, 2, 3, 4, 5, 6, 7] AS e
WHERE NOT (is_end AND h % 5000 = 11) AND begin + {offsets}[e + 1] < {days} * 86400
"""

JOBS = """
INSERT INTO kfd.slurm_jobs (job_id, user, account)
SELECT slurm_job, any(toString(uid)), 'account-' || toString(slurm_job % 30) FROM kfd.kfd_processes WHERE slurm_job > 0 GROUP BY slurm_job
"""

LOGS = """
INSERT INTO kfd.otel_logs (Timestamp, SeverityText, SeverityNumber, ServiceName, Body, ResourceAttributes, ScopeName, ScopeVersion, LogAttributes)
SELECT ts, 'INFO', 9, 'kfd-trace', event,
    map('service.name', 'kfd-trace', 'service.version', version, 'service.instance.id', toString(run), 'host.name', node, 'host.id', host,
        'host.arch', 'amd64', 'os.type', 'linux', 'os.version', '6.8.0', 'kfd.boot_id', boot, 'k8s.cluster.name', cluster),
    'kfd-trace', version,
    mapFilter((k, v) -> v != '', map('otel.event.name', 'kfd.' || event, 'kfd.seq', toString(seq), 'kfd.mono_ns', toString(mono_ns),
        'thread.id', toString(pid), 'process.pid', toString(pid), 'process.executable.name', comm, 'process.user.id', toString(uid),
        'kfd.process', toString(process), 'container.id', container_id, 'k8s.namespace.name', namespace, 'k8s.pod.name', pod,
        'k8s.container.name', container, 'slurm.job.id', if(slurm_job = 0, '', toString(slurm_job)), 'kfd.gpu_id', toString(gpu_id),
        'kfd.gpu', toString(gpu), 'hw.id', pci, 'kfd.queue_id', if(queue_id = 0, '', toString(queue_id)), 'kfd.queue_type', queue_type,
        'kfd.origin', origin, 'kfd.cause', cause, 'kfd.known_ns', if(has_known, toString(known_ns), ''), 'kfd.trigger', trigger))
FROM kfd.kfd_events WHERE ts < (SELECT min(ts) FROM kfd.kfd_events) + INTERVAL 1 DAY
"""


def run(store, asked, nodes, days):
    ask = lambda sql: store.ask(sql, {})
    began = time.time()
    for day in range(days):
        text = DAY.format(day=day, days=days, nodes=nodes, begin=BEGIN, offsets=OFFSETS, events=EVENTS)
        store.session.query(text)
    made = time.time() - began
    store.session.query(JOBS)
    for table in ("kfd_events", "kfd_queues", "kfd_processes", "kfd_runs", "kfd_gpus", "kfd_arrivals", "slurm_jobs"):
        store.session.query(f"OPTIMIZE TABLE kfd.{table} FINAL")
    records = ask("SELECT count() FROM kfd.kfd_events")[0][0]
    print(f"{nodes} nodes, {days} days: {records:,} records in {made:.0f} s ({records / made:,.0f}/s through all views), "
          f"merged after {time.time() - began:.0f} s")
    for table, rows, size in ask("SELECT table, sum(rows), sum(bytes_on_disk) FROM system.parts WHERE database = 'kfd' AND active "
                                 "GROUP BY table ORDER BY table"):
        print(f"  {table:14} {rows:12,} rows {size / 1e6:9.1f} MB {size / rows:6.1f} bytes a row")
    ends = ask("SELECT end, count() FROM kfd.kfd_queue_lives GROUP BY end ORDER BY end")
    print(f"  ends of queues: {', '.join(f'{name} {count:,}' for name, count in ends)}")
    measure(store, asked, nodes, days)
    began = time.time()
    store.session.query(LOGS)
    took = time.time() - began
    store.session.query("OPTIMIZE TABLE kfd.otel_logs FINAL")
    rows, size = ask("SELECT sum(rows), sum(bytes_on_disk) FROM system.parts WHERE table = 'otel_logs' AND active")[0]
    print(f"  otel_logs: {rows:,} rows in {took:.1f} s ({rows / took:,.0f}/s through all views), {size / rows:.1f} bytes a row")
    print(f"  largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


def measure(store, asked, nodes, days):
    ask = lambda sql: store.ask(sql, {})
    end = BEGIN + days * 86400
    at = f"toString(toDateTime({BEGIN + days // 2 * 86400 + 40000}, 'UTC'))"
    times = [ask(f"SELECT {part}")[0][0] for part in (at, f"toString(toDateTime({BEGIN}, 'UTC'))", f"toString(toDateTime({end}, 'UTC'))",
                                                       f"toString(toDateTime({end - 86400}, 'UTC'))")]
    for name, sql in asked.items():
        for span, since in (("all", times[1]), ("day", times[3])):
            if span == "day" and "{from:" not in sql:
                continue
            parameters = {"node": f"gpu-{nodes // 2}", "gpu": 3, "at": times[0], "days": 7, "from": since, "to": times[2]}
            used = {key: value for key, value in parameters.items() if f"{{{key}:" in sql}
            began, busy = time.time(), time.process_time()
            result = store.session.query(sql, "JSONCompactEachRow", params=used)
            took, busy = time.time() - began, time.process_time() - busy
            answers = len(str(result).splitlines())
            print(f"  {name:20} {span if '{from:' in sql else '':4} {took:8.3f} s, CPU {busy:8.3f} s {result.storage_rows_read():12,} rows "
                  f"{result.storage_bytes_read() / 1e6:9.1f} MB read, {answers} rows", flush=True)
