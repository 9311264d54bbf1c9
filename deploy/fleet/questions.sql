-- Twelve questions to the tables of clickhouse.sql. Each begins with `-- name: what it answers`; {parameters} are given as
-- `clickhouse-client --param_node=gpu-17 ...`, times in UTC. {from} to {to} is a half-open range. docs/fleet-events.md has a table of them.

-- who_held: processes that held GPU {gpu} (its index, 0 to 7) of node {node} at {at}
SELECT pid, comm, uid, namespace, pod, container, slurm_job, born, standing, ended, end, queues
FROM kfd.kfd_holds
WHERE node = {node:String} AND gpu = {gpu:Int16} AND born <= {at:DateTime64(9, 'UTC')} AND ended > {at:DateTime64(9, 'UTC')}
ORDER BY born, pid;

-- hours_by_user: GPU-hours by uid (-1: not known); a GPU counts once for a user, however many of the user's processes hold it
SELECT uid, round(sum(held) / 3.6e12, 6) AS gpu_hours, count() AS gpus
FROM
(
    SELECT uid, host, gpu_id,
        intervalLengthSum(toUnixTimestamp64Nano(greatest(born, {from:DateTime64(9, 'UTC')})),
                          toUnixTimestamp64Nano(least(ended, {to:DateTime64(9, 'UTC')}, now64(9, 'UTC')))) AS held
    FROM kfd.kfd_queue_lives
    WHERE born < {to:DateTime64(9, 'UTC')} AND ended > {from:DateTime64(9, 'UTC')} AND ends_by > {from:DateTime64(9, 'UTC')}
    GROUP BY uid, host, gpu_id
)
GROUP BY uid
ORDER BY gpu_hours DESC, uid;

-- hours_by_namespace: GPU-hours by Kubernetes namespace ('': in no pod, or in one whose name is not known)
SELECT namespace, round(sum(held) / 3.6e12, 6) AS gpu_hours, count() AS gpus
FROM
(
    SELECT namespace, host, gpu_id,
        intervalLengthSum(toUnixTimestamp64Nano(greatest(born, {from:DateTime64(9, 'UTC')})),
                          toUnixTimestamp64Nano(least(ended, {to:DateTime64(9, 'UTC')}, now64(9, 'UTC')))) AS held
    FROM kfd.kfd_queue_lives
    WHERE born < {to:DateTime64(9, 'UTC')} AND ended > {from:DateTime64(9, 'UTC')} AND ends_by > {from:DateTime64(9, 'UTC')}
    GROUP BY namespace, host, gpu_id
)
GROUP BY namespace
ORDER BY gpu_hours DESC, namespace;

-- hours_by_account: GPU-hours of Slurm jobs by account, as the records have it, else slurm_jobs ('': neither has), and how many jobs
SELECT account, round(sum(held) / 3.6e12, 6) AS gpu_hours, length(groupUniqArrayArray(jobs)) AS jobs
FROM
(
    SELECT if(slurm_account != '', slurm_account, j.account) AS account, host, gpu_id, groupUniqArray(slurm_job) AS jobs,
        intervalLengthSum(toUnixTimestamp64Nano(greatest(born, {from:DateTime64(9, 'UTC')})),
                          toUnixTimestamp64Nano(least(ended, {to:DateTime64(9, 'UTC')}, now64(9, 'UTC')))) AS held
    FROM kfd.kfd_queue_lives
    LEFT JOIN (SELECT job_id, slurm_jobs.account AS account FROM kfd.slurm_jobs FINAL) AS j ON j.job_id = slurm_job
    WHERE slurm_job > 0 AND born < {to:DateTime64(9, 'UTC')} AND ended > {from:DateTime64(9, 'UTC')} AND ends_by > {from:DateTime64(9, 'UTC')}
    GROUP BY account, host, gpu_id
)
GROUP BY account
ORDER BY gpu_hours DESC, account;

-- free_gpus: GPUs that no process holds at {at}, the longest free first, and who held each last (none in {days} days: NULL)
-- That a GPU is held does not mean that it works: fleet:kfd_gpus_idle:count (docs/fleet.md) shows held ones that idle.
-- A GPU is known here once a record named it: kfd.gpu does at the begin of each trace.
SELECT node, gpu_id, g.gpu AS gpu, nullIf(h.last_ended, toDateTime64(0, 9, 'UTC')) AS free_since, h.who.1 AS last_pid, h.who.2 AS last_comm, h.who.3 AS last_uid
FROM (SELECT node, host, gpu_id, gpu FROM kfd.kfd_gpus FINAL WHERE first <= {at:DateTime64(9, 'UTC')}) AS g
LEFT JOIN
(
    SELECT host, gpu_id, max(ended) AS last_ended, argMax((pid, comm, uid), (ended, pid)) AS who
    FROM kfd.kfd_queue_lives
    WHERE born <= {at:DateTime64(9, 'UTC')} AND ends_by > {at:DateTime64(9, 'UTC')} - INTERVAL {days:UInt16} DAY
        AND ended > {at:DateTime64(9, 'UTC')} - INTERVAL {days:UInt16} DAY
    GROUP BY host, gpu_id
) AS h USING (host, gpu_id)
WHERE h.last_ended <= {at:DateTime64(9, 'UTC')}
ORDER BY free_since NULLS FIRST, node, gpu_id;

-- evictions: evictions by who was evicted and by trigger, and seconds evicted (of those that ended); who caused one is in no record
SELECT p.namespace AS namespace, p.comm AS comm, p.uid AS uid, sum(e.n) AS evictions, sum(e.svm) AS svm, sum(e.userptr) AS userptr,
    sum(e.ttm) AS ttm, sum(e.suspend) AS suspend, sum(e.n - e.svm - e.userptr - e.ttm - e.suspend) AS other,
    round(sum(e.evicted) / 1e9, 6) AS seconds, uniqExact(run, process) AS processes
FROM
(
    SELECT node, run, process, countIf(event = 'evict') AS n, countIf(event = 'evict' AND trigger = 'svm') AS svm,
        countIf(event = 'evict' AND trigger = 'userptr') AS userptr, countIf(event = 'evict' AND trigger = 'ttm') AS ttm,
        countIf(event = 'evict' AND trigger = 'suspend') AS suspend, sumIf(evicted_ns, event = 'restore') AS evicted
    FROM kfd.kfd_events FINAL
    WHERE event IN ('evict', 'restore') AND ts >= {from:DateTime64(9, 'UTC')} AND ts < {to:DateTime64(9, 'UTC')}
    GROUP BY node, run, process
) AS e
LEFT JOIN (SELECT * FROM kfd.kfd_processes FINAL) AS p USING (node, run, process)
GROUP BY namespace, comm, uid
ORDER BY seconds DESC, evictions DESC, namespace, comm, uid
LIMIT 100;

-- died_with_queues: processes that ended without destroying their queues: killed, crashed, or exited without clean-up
SELECT node, pid, any(comm) AS comm, any(uid) AS uid, any(namespace) AS namespace, any(slurm_job) AS slurm_job, max(ends_by) AS at,
    count() AS queues, uniqExact(gpu_id) AS gpus
FROM kfd.kfd_queue_lives
WHERE cause IN ('process_death', 'left_at_release') AND ends_by >= {from:DateTime64(9, 'UTC')} AND ends_by < {to:DateTime64(9, 'UTC')}
GROUP BY node, host, run, process, pid
ORDER BY at DESC, node, pid
LIMIT 1000;

-- faults: VM faults by image (where `containers` has it), else by container, else by command
SELECT multiIf(c.image != '', c.image, p.container != '', p.container, p.comm) AS what, sum(e.n) AS faults,
    uniqExact(run, process) AS processes, uniqExact(e.host) AS nodes, max(e.last) AS last
FROM
(
    SELECT node, host, run, process, count() AS n, max(ts) AS last
    FROM kfd.kfd_events FINAL
    WHERE event = 'vm_fault' AND ts >= {from:DateTime64(9, 'UTC')} AND ts < {to:DateTime64(9, 'UTC')}
    GROUP BY node, host, run, process
) AS e
LEFT JOIN (SELECT * FROM kfd.kfd_processes FINAL) AS p USING (node, run, process)
LEFT JOIN (SELECT * FROM kfd.containers FINAL) AS c ON c.container_id = p.container_id AND p.container_id != ''
GROUP BY what
ORDER BY faults DESC, what;

-- lossy: runs in which the tracer itself lost records: other answers about this node and time may be wrong
SELECT node, run, max(e.lost) AS lost, min(ts) AS since, max(ts) AS until
FROM kfd.kfd_events AS e FINAL
WHERE e.lost > 0 AND ts >= {from:DateTime64(9, 'UTC')} AND ts < {to:DateTime64(9, 'UTC')}
GROUP BY node, run
ORDER BY lost DESC, node, toString(run);

-- gaps: records that were lost on the way, or sent again, by run, and the day of the first one after a loss
-- What was lost after the last record that arrived shows with the next one.
SELECT node, run, sum(d.records) AS records, sum(d.missing) AS missing, any(a.arrived) - records AS repeats, minIf(day, d.missing > 0) AS first_after
FROM
(
    SELECT node, run, day, records,
        high - low + 1 - records + if(row_number() OVER w = 1, if(low = r.first_seq, low - 1, 0), low - lagInFrame(high) OVER w - 1) AS missing
    FROM
    (
        SELECT node, run, toDate(ts) AS day, toInt64(count()) AS records, toInt64(min(seq)) AS low, toInt64(max(seq)) AS high
        FROM kfd.kfd_events FINAL
        GROUP BY node, run, day
    ) AS c
    JOIN (SELECT node, run, first_seq FROM kfd.kfd_runs FINAL WHERE last >= {from:DateTime64(9, 'UTC')} AND first < {to:DateTime64(9, 'UTC')}) AS r
        USING (node, run)
    WINDOW w AS (PARTITION BY node, run ORDER BY day ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
) AS d
JOIN (SELECT node, run, toInt64(sum(kfd_arrivals.records)) AS arrived FROM kfd.kfd_arrivals GROUP BY node, run) AS a USING (node, run)
GROUP BY node, run
HAVING missing > 0 OR repeats > 0
ORDER BY missing DESC, repeats DESC, node, toString(run);

-- at_hang: who held the GPU when it hung or was reset (a reset without a GPU: all GPUs of the node)
SELECT node, i.event AS event, i.ts AS at, h.gpu_id AS gpu_id, pid, comm, uid, namespace, slurm_job, h.born AS born, has(i.hit_pids, pid) AS hit
FROM kfd.kfd_holds AS h
JOIN
(
    SELECT node, host, event, ts, kfd_events.gpu_id AS on_gpu, hit_pids
    FROM kfd.kfd_events FINAL
    WHERE event IN ('hws_hang', 'gpu_reset_begin') AND ts >= {from:DateTime64(9, 'UTC')} AND ts < {to:DateTime64(9, 'UTC')}
) AS i USING (node, host)
WHERE h.born <= i.ts AND h.ended > i.ts AND (i.on_gpu = h.gpu_id OR i.on_gpu = 0)
ORDER BY at, node, gpu_id, pid;

-- new_processes: new KFD processes per hour and owner, and how many of them ended within a minute
SELECT toStartOfHour(seen) AS hour, multiIf(namespace != '', concat('namespace ', namespace), uid >= 0, concat('uid ', toString(uid)), 'not known') AS owner,
    count() AS processes, countIf(released >= seen AND released < addSeconds(seen, 60)) AS short
FROM kfd.kfd_processes FINAL
WHERE NOT standing AND seen >= {from:DateTime64(9, 'UTC')} AND seen < {to:DateTime64(9, 'UTC')}
GROUP BY hour, owner
ORDER BY hour, processes DESC, owner;
