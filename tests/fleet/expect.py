"""Answers to the questions, from the records that arrived: record by record, in the order of their numbers, as a
reader would follow them. No SQL, and none of its ways: an end is matched by what is open, not by keys.
"""

import datetime
import time
from collections import defaultdict
from dataclasses import dataclass

from ledger import S

NEVER = 7258118400 * S  # the year 2200
TRIGGERS = ["svm", "userptr", "ttm", "suspend"]


@dataclass(eq=False)
class Life:
    run: object
    process: int
    queue_id: int
    begun: int
    born: int
    gpu: tuple  # (gpu_id, index)
    origin: str = ""
    ended: int = NEVER
    end: str = "lives"
    cause: str = ""


def text(ns):
    """A time as ClickHouse writes it."""
    if ns is None:
        return None
    return datetime.datetime.fromtimestamp(ns // S, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S") + f".{ns % S:09d}"


def union(spans, since, until):
    """Nanoseconds of [since, until) that the spans cover."""
    total, reached = 0, since
    for begin, end in sorted(spans):
        begin, end = max(begin, reached), min(end, until)
        if end > begin:
            total, reached = total + end - begin, end
    return total


class Expected:
    def __init__(self, fleet):
        self.fleet = fleet
        self.runs = defaultdict(dict)  # run -> number -> record
        self.copies = defaultdict(int)
        for record in fleet.arrived:
            self.runs[record.run.id][record.seq] = record
            self.copies[record.run.id] += 1
        self.runs = {run: [records[seq] for seq in sorted(records)] for run, records in self.runs.items()}
        self.records = [record for records in self.runs.values() for record in records]
        self.owners()
        self.lives = [life for records in self.runs.values() for life in self.follow(records)]
        self.holds = self.join()

    def owners(self):
        self.who = defaultdict(dict)
        for record in self.records:
            a = record.attributes
            if "kfd.process" in a:
                self.who[record.run.id, int(a["kfd.process"])].update(a)

    def owner(self, run, process):
        a = self.who[run.id, process]
        return {"pid": int(a["process.pid"]), "comm": a.get("process.executable.name", ""), "uid": int(a.get("process.user.id", -1)),
                "namespace": a.get("k8s.namespace.name", ""), "pod": a.get("k8s.pod.name", ""),
                "container": a.get("k8s.container.name", a.get("container.name", "")), "slurm_job": int(a.get("slurm.job.id", 0)), "slurm_account": a.get("slurm.account", ""),
                "container_id": a.get("container.id", "")}

    def follow(self, records):
        """The queues of one run."""
        lives, latest, run = [], {}, records[0].run

        def close(life, at, how, cause=""):
            if life.end == "lives" or how == "destroyed":
                life.ended, life.end, life.cause = at, how, cause

        def begin(key, begun, born, record):
            if key in latest:
                close(latest[key], born, "id_reused")
            a = record.attributes
            latest[key] = Life(run, *key, begun, born, (int(a["kfd.gpu_id"]), int(a["kfd.gpu"])), a.get("kfd.origin", ""))
            lives.append(latest[key])

        for record in records:
            a = record.attributes
            key = (int(a.get("kfd.process", 0)), int(a.get("kfd.queue_id", 0)))
            known = int(a.get("kfd.known_ns", 0))
            if record.event == "queue_create":
                begin(key, record.mono, record.ts, record)
            elif record.event in ("queue_destroy", "queue_destroy_failed"):
                if key not in latest or latest[key].begun != record.mono - known:
                    begin(key, record.mono - known, record.ts - known, record)
                elif not latest[key].origin:  # its creation was lost, and the clocks drift: the latest time that an end gives
                    latest[key].born = max(latest[key].born, record.ts - known)
                if record.event == "queue_destroy":
                    close(latest[key], record.ts, "destroyed", a["kfd.cause"])
                else:
                    latest[key].ended, latest[key].end, latest[key].cause = NEVER, "lives", ""
            elif record.event == "process_release":
                for life in latest.values():
                    if life.process == key[0]:
                        close(life, record.ts, "process_release")
            elif record.event in ("driver_unloaded", "trace_end"):
                for life in latest.values():
                    close(life, record.ts, record.event)
        gone = self.gone(records)
        if gone:
            for life in latest.values():
                close(life, gone, "run_gone")
        return lives

    def gone(self, records):
        """When a run ended that did not say so: the next one of the host shows it."""
        node, last = records[-1].run.node, records[-1].ts
        later = [other[0] for other in self.runs.values() if other[0].run.node is node and other[0].ts > last]
        if not later:
            return None
        following = min(later, key=lambda record: record.ts)
        same = node.boot(following.run.begin) == node.boot(records[0].run.begin)
        return following.ts if same else last

    def join(self):
        holds = defaultdict(list)
        for life in sorted(self.lives, key=lambda life: (life.born, life.queue_id)):
            spans = holds[life.run.id, life.process, life.gpu]
            if spans and life.born <= spans[-1]["ended"]:
                hold = spans[-1]
                hold["ended"], hold["end"] = max((hold["ended"], hold["end"]), (life.ended, life.end))
                hold["queues"] += 1
            else:
                spans.append({"run": life.run, "process": life.process, "gpu": life.gpu, "born": life.born, "ended": life.ended,
                              "end": life.end, "standing": life.origin == "standing", "queues": 1})
        return [hold | self.owner(hold["run"], hold["process"]) for spans in holds.values() for hold in spans]

    def between(self, since, until, *events):
        return [record for record in self.records if since <= record.ts < until and (not events or record.event in events)]

    def who_held(self, node, gpu, at):
        found = [h for h in self.holds if h["run"].node.name == node and h["gpu"][1] == gpu and h["born"] <= at < h["ended"]]
        found.sort(key=lambda h: (h["born"], h["pid"]))
        return [[h["pid"], h["comm"], h["uid"], h["namespace"], h["pod"], h["container"], h["slurm_job"], text(h["born"]), h["standing"],
                 text(h["ended"]), h["end"], h["queues"]] for h in found]

    def hours(self, key, since, until, keep=lambda owner: True):
        until_now = min(until, time.time_ns())
        spans = defaultdict(list)
        for life in self.lives:
            owner = self.owner(life.run, life.process)
            if keep(owner) and life.born < until and life.ended > since:
                spans[key(owner), life.run.node.host, life.gpu[0]].append((life.born, life.ended))
        sums = defaultdict(lambda: [0, 0])
        for (label, _, _), list_of in spans.items():
            sums[label][0] += union(list_of, since, until_now)
            sums[label][1] += 1
        return sorted(([label, round(held / 3.6e12, 6), gpus] for label, (held, gpus) in sums.items()), key=lambda row: (-row[1], row[0]))

    def hours_by_user(self, since, until):
        return self.hours(lambda owner: owner["uid"], since, until)

    def hours_by_namespace(self, since, until):
        return self.hours(lambda owner: owner["namespace"], since, until)

    def hours_by_account(self, since, until):
        account = lambda owner: owner["slurm_account"] or self.fleet.jobs.get(owner["slurm_job"], ("", ""))[1]
        rows = self.hours(account, since, until, lambda owner: owner["slurm_job"] > 0)
        jobs = defaultdict(set)
        for life in self.lives:
            owner = self.owner(life.run, life.process)
            if life.born < until and life.ended > since:
                jobs[account(owner)].add(owner["slurm_job"])
        return [[label, held, len(jobs[label] - {0})] for label, held, _ in rows]

    def free_gpus(self, at, days):
        rows, since = [], at - days * 24 * 3600 * S
        for node in self.fleet.nodes:
            for gpu_id, index, _ in node.gpus:
                if not any(r.run.node is node and r.ts <= at and r.attributes.get("kfd.gpu_id") == str(gpu_id) for r in self.records):
                    continue
                lives = [life for life in self.lives if life.run.node is node and life.gpu[0] == gpu_id and life.born <= at and life.ended > since]
                if any(life.ended > at for life in lives):
                    continue
                last = max(lives, key=lambda l: (l.ended, self.owner(l.run, l.process)["pid"]), default=None)
                owner = self.owner(last.run, last.process) if last else {"pid": 0, "comm": "", "uid": 0}
                rows.append([node.name, gpu_id, index, text(last and last.ended), owner["pid"], owner["comm"], owner["uid"]])
        return sorted(rows, key=lambda row: (row[3] or "", row[0], row[1]))

    def evictions(self, since, until):
        sums = defaultdict(lambda: [0] * 8)
        processes = defaultdict(set)
        for record in self.between(since, until, "evict", "restore"):
            process = (record.run, int(record.attributes["kfd.process"]))
            owner = self.owner(*process)
            key = (owner["namespace"], owner["comm"], owner["uid"])
            processes[key].add(process[0].id + str(process[1]))
            if record.event == "evict":
                trigger = record.attributes["kfd.trigger"]
                sums[key][0] += 1
                sums[key][1 + TRIGGERS.index(trigger) if trigger in TRIGGERS else 5] += 1
            else:
                sums[key][6] += int(record.attributes["kfd.evicted_ns"])
        rows = [[*key, *sums[key][:6], round(sums[key][6] / 1e9, 6), len(processes[key])] for key in sums]
        return sorted(rows, key=lambda row: (-row[9], -row[3], row[:3]))[:100]

    def died_with_queues(self, since, until):
        dead = defaultdict(list)
        for life in self.lives:
            if life.end == "destroyed" and life.cause in ("process_death", "left_at_release") and since <= life.ended < until:
                dead[life.run, life.process].append(life)
        rows = []
        for (run, process), lives in dead.items():
            owner = self.owner(run, process)
            rows.append([run.node.name, owner["pid"], owner["comm"], owner["uid"], owner["namespace"], owner["slurm_job"],
                         text(max(life.ended for life in lives)), len(lives), len({life.gpu for life in lives})])
        rows.sort(key=lambda row: (row[0], row[1]))
        return sorted(rows, key=lambda row: row[6], reverse=True)[:1000]

    def faults(self, since, until):
        groups = defaultdict(list)
        for record in self.between(since, until, "vm_fault"):
            owner = self.owner(record.run, int(record.attributes["kfd.process"]))
            image = self.fleet.containers.get(owner["container_id"], "")
            groups[image or owner["container"] or owner["comm"]].append(record)
        rows = [[what, len(found), len({(r.run.id, r.attributes["kfd.process"]) for r in found}),
                 len({r.run.node.host for r in found}), text(max(r.ts for r in found))] for what, found in groups.items()]
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def lossy(self, since, until):
        groups = defaultdict(list)
        for record in self.between(since, until, "lost"):
            groups[record.run].append(record)
        rows = [[run.node.name, run.id, max(int(r.attributes["kfd.lost"]) for r in found), text(min(r.ts for r in found)),
                 text(max(r.ts for r in found))] for run, found in groups.items()]
        return sorted(rows, key=lambda row: (-row[2], row[:2]))

    def gaps(self, since, until):
        rows = []
        for run, records in self.runs.items():
            if records[-1].ts < since or records[0].ts >= until:
                continue
            numbers = [record.seq for record in records]
            missing = [number for number in range(1, numbers[-1] + 1) if number not in set(numbers)]
            after = text(next((record.ts for record in records if missing and record.seq > missing[0]), 0))[:10]
            if missing or self.copies[run] > len(records):
                rows.append([records[0].run.node.name, run, len(records), len(missing), self.copies[run] - len(records), after])
        return sorted(rows, key=lambda row: (-row[3], -row[4], row[:2]))

    def at_hang(self, since, until):
        rows = []
        for record in self.between(since, until, "hws_hang", "gpu_reset_begin"):
            gpu_id = int(record.attributes.get("kfd.gpu_id", 0))
            hit = [int(pid) for pid in record.attributes["kfd.hit_pids"].strip("[]").split(",") if pid]
            for hold in self.holds:
                if hold["run"].node is record.run.node and gpu_id in (0, hold["gpu"][0]) and hold["born"] <= record.ts < hold["ended"]:
                    rows.append([record.run.node.name, record.event, text(record.ts), hold["gpu"][0], hold["pid"], hold["comm"], hold["uid"],
                                 hold["namespace"], hold["slurm_job"], text(hold["born"]), int(hold["pid"] in hit)])
        return sorted(rows, key=lambda row: (row[2], row[0], row[3], row[4]))

    def new_processes(self, since, until):
        counts = defaultdict(lambda: [0, 0])
        released = {(r.run.id, r.attributes["kfd.process"]): r.ts for r in self.records if r.event == "process_release"}
        for record in self.between(since, until, "process_seen"):
            if record.attributes["kfd.standing"] == "true":
                continue
            owner = self.owner(record.run, int(record.attributes["kfd.process"]))
            uid = f"uid {owner['uid']}" if owner["uid"] >= 0 else "not known"
            key = (text(record.ts // (3600 * S) * 3600 * S)[:19], f"namespace {owner['namespace']}" if owner["namespace"] else uid)
            end = released.get((record.run.id, record.attributes["kfd.process"]))
            counts[key][0] += 1
            counts[key][1] += end is not None and end < record.ts + 60 * S
        return sorted(([*key, *count] for key, count in counts.items()), key=lambda row: (row[0], -row[2], row[1]))
