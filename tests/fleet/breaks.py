"""Wrong changes of the questions and of the tables: each must make the comparison fail."""

# Question -> (what is there, what replaces it)
QUESTIONS = {
    "who_held": ("ended > {at:", "ended >= {at:"),
    "hours_by_user": ("GROUP BY uid, host, gpu_id", "GROUP BY uid, host, gpu_id, process"),
    "hours_by_namespace": ("least(ended, {to:DateTime64(9, 'UTC')}, now64(9, 'UTC'))", "{to:DateTime64(9, 'UTC')}"),
    "hours_by_account": ("slurm_job > 0 AND ", ""),
    "free_gpus": ("max(ended) AS last_ended", "min(ended) AS last_ended"),
    "evictions": ("kfd.kfd_events FINAL", "kfd.kfd_events"),
    "died_with_queues": ("'process_death', 'left_at_release'", "'process_death'"),
    "faults": ("c.image != '', c.image, ", ""),
    "lossy": ("max(e.lost)", "sum(e.lost)"),
    "gaps": ("if(low = r.first_seq, low - 1, 0)", "0"),
    "at_hang": ("OR i.on_gpu = 0", ""),
    "new_processes": ("NOT standing AND ", ""),
}

# What is wrong -> (what is there, what replaces it) in clickhouse.sql
TABLES = {
    "a failed destroy is an end": ("destroyed_ns > revived_ns", "destroyed_ns > 0"),
    "ids are not reused": ("(q.next_born, 'id_reused'),", ""),
    "a released process keeps its queues": ("(p.released, 'process_release'),", ""),
    "a run that was killed never ends": ("(r.gone, 'run_gone'),", ""),
    "all killed runs end with the next one": ("if(next.2 = boot, next.1, last)", "next.1"),
    "trace_end ends nothing": ("event IN ('trace_end', 'driver_unloaded')) AS stops", "event = 'driver_unloaded') AS stops"),
    "an unloaded driver keeps its queues": ("event IN ('trace_end', 'driver_unloaded')) AS stops", "event = 'trace_end') AS stops"),
    "a stop also ends what begins later": ("stop.ns >= q.begun_ns", "1"),
    "an end without its creation is no queue": ("OR event IN ('queue_destroy', 'queue_destroy_failed') AND has_known", ""),
    "accounts are those of the site's table": ("a['slurm.account'] AS slurm_account", "'' AS slurm_account"),
    "hosts are their names": ("if(r['host.id'] = '', node, r['host.id']) AS host", "node AS host"),
    "tables without FINAL": ("FROM kfd.kfd_queues FINAL", "FROM kfd.kfd_queues"),
    "GPUs are not held by several processes": ("PARTITION BY node, host, run, process, gpu_id", "PARTITION BY node, host, run, gpu_id"),
}


def changed(text, old, new):
    if old not in text:
        raise SystemExit(f"not there: {old}")
    return text.replace(old, new)


def run(asked, schema, expected, filled, compare):
    unseen, store = [], filled(expected.fleet)
    for name, (old, new) in QUESTIONS.items():
        wrong = compare(store, expected, {name: changed(asked[name], old, new)}, quiet=True)
        print(f"{'seen' if wrong else 'NOT SEEN':8}  {name}: {old} -> {new or '(nothing)'}")
        unseen += [] if wrong else [name]
    for name, (old, new) in TABLES.items():
        store = filled(expected.fleet, changed(schema, old, new))
        wrong = compare(store, expected, asked, quiet=True)
        print(f"{'seen' if wrong else 'NOT SEEN':8}  {name}: {', '.join(wrong)}")
        unseen += [] if wrong else [name]
    return 1 if unseen else 0
