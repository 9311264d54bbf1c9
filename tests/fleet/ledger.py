"""A synthetic fleet: what happened on its nodes, the records that daemons made of it, and what arrived of these.

In: a seed. Out: `Fleet` with the records that arrived (repeats included), and the queues as they really were.
Times are integers, nanoseconds after BASE; a node's wall clock drifts against its CLOCK_MONOTONIC.
"""

import random
import uuid
from dataclasses import dataclass, field

S = 10**9
HOUR = 3600 * S
BASE = 1772409600 * S  # 2026-03-02T00:00:00Z
DAYS = 3
END = DAYS * 24 * HOUR
TRIGGERS = ["svm", "userptr", "ttm", "suspend", "fault"]
WARN = {"evict", "evict_failed", "driver_unloaded", "lost"}
ERROR = {"vm_fault", "gpu_reset_begin", "gpu_reset_end", "hws_hang"}


@dataclass(eq=False)
class Node:
    name: str
    host: str
    cluster: str
    gpus: list  # (gpu_id, index, PCI address)
    drift: float
    events: list = field(default_factory=list)  # (at, order, event, Process or None, attributes)
    boots: list = field(default_factory=lambda: [(0, "boot-0")])

    def wall(self, at):
        return BASE + at + int(at * self.drift)

    def mono(self, at):
        return at - self.boot(at)[0] + 5 * S

    def boot(self, at):
        return max(b for b in self.boots if b[0] <= at)


@dataclass(eq=False)
class Process:
    pid: int
    begin: int
    owner: dict
    named_at: int = 0  # from then on names of pod and namespace are known
    queues: list = field(default_factory=list)
    end: int = 0


@dataclass(eq=False)
class Queue:
    process: Process
    queue_id: int
    gpu: tuple
    begin: int
    end: int = 0
    type: str = "compute"
    cause: str = "ioctl"


@dataclass(eq=False)
class Run:
    node: Node
    begin: int
    end: int
    how: str  # trace_end, killed, reboot, runs
    id: str
    records: list = field(default_factory=list)


@dataclass(eq=False)
class Record:
    run: Run
    seq: int
    at: int
    event: str
    attributes: dict

    @property
    def ts(self):
        return self.run.node.wall(self.at)

    @property
    def mono(self):
        return self.run.node.mono(self.at)


class Fleet:
    def __init__(self, seed, nodes=6, loss=0.015):
        self.random = random.Random(seed)
        self.nodes, self.runs, self.arrived, self.queues = [], [], [], []
        self.containers, self.jobs, self.order = {}, {}, 0
        for index in range(nodes):
            self.nodes.append(self.node(index))
        for index, node in enumerate(self.nodes):
            self.life(node, index)
            node.events.sort(key=lambda event: event[:2])
            self.trace(node, index)
        self.deliver(loss)

    def hex(self, digits):
        return "%0*x" % (digits, self.random.getrandbits(4 * digits))

    def node(self, index):
        # The last node has the name of the first one, in another cluster.
        last = index == 5
        gpus = [(51000 + 97 * i + 1000 * index, i, f"0000:{0x41 + i:02x}:00.0") for i in range(2 + index % 3)]
        return Node("gpu-0" if last else f"gpu-{index}", self.hex(32), "b" if last else "a", gpus, index * 3e-6)

    def owner(self):
        r = self.random
        comm = r.choice(["python3", "vllm", "rocblas-bench", "train"])
        kind = r.random()
        if kind < 0.45:
            container = self.hex(64)
            if r.random() < 0.7:
                self.containers[container] = r.choice(["registry/train:2", "registry/serve:7"])
            return {"process.executable.name": comm, "process.user.id": r.choice([0, 1000]), "container.id": container,
                    "container.runtime.name": "containerd", "k8s.pod.uid": str(uuid.UUID(int=r.getrandbits(128))),
                    "k8s.namespace.name": r.choice(["ml", "research", "serve"]), "k8s.pod.name": f"{comm}-{r.randrange(40)}",
                    "k8s.container.name": r.choice(["main", "worker"])}
        if kind < 0.75:
            job, user = r.randrange(100, 130), r.randrange(2000, 2004)
            if r.random() < 0.8:
                self.jobs.setdefault(job, (f"u{user}", r.choice(["phys", "chem"])))
            owner = {"process.executable.name": comm, "process.user.id": user, "slurm.job.id": job, "slurm.step.id": r.choice(["0", "batch"])}
            # Where the prolog of deploy/slurm runs the records have it, also of jobs that the site's table lacks or has otherwise.
            return owner | {"slurm.account": "bio", "slurm.partition": "gpu"} if job % 3 == 0 else owner
        if kind < 0.9:
            return {"process.executable.name": comm, "process.user.id": r.choice([1001, 1002]), "kfd.unit": "session-4.scope"}
        owner = {"container.id": self.hex(64), "container.name": "bench", "container.runtime.name": "docker"}
        if r.random() < 0.5:  # nothing else known: not even the user
            return owner
        return owner | {"process.executable.name": comm, "process.user.id": 0}

    def happen(self, node, at, event, process=None, **attributes):
        self.order += 1
        node.events.append((at, self.order, event, process, {key.replace("__", "."): value for key, value in attributes.items()}))

    def life(self, node, index):
        """What happens on a node in DAYS days, whoever looks."""
        r = self.random
        if index == 1:
            node.boots.append((40 * HOUR, "boot-1"))
        cuts = {1: [40 * HOUR], 2: [30 * HOUR]}.get(index, [])  # reboot; driver unloaded: nothing lives over them
        for number in range(40):
            begin = r.randrange(END)
            end = begin + int(r.choice([20 * S, 600 * S, 5 * HOUR, 40 * HOUR]) * (0.5 + r.random()))
            for cut in cuts:
                if begin < cut <= end:
                    end = cut
            owner = self.owner()
            gpus = r.sample(node.gpus, r.randint(1, len(node.gpus)))
            for _ in range(r.randint(1, 2)):
                self.process(node, begin + r.randrange(S), end, owner, gpus, cuts, r.randrange(300, 5000))
        if index == 2:
            for pid in (71, 72, 73, 74):
                self.process(node, 29 * HOUR, 30 * HOUR, self.owner(), node.gpus, cuts, pid)
            self.happen(node, 30 * HOUR, "driver_unloaded")
            self.happen(node, 30 * HOUR + 60 * S, "driver_loaded")
        for _ in range(3):  # a hang is followed by a reset, sometimes of no GPU that the record names
            at, gpu = r.randrange(END), r.choice(node.gpus)
            hit = sorted({queue.process.pid for queue in self.queues if queue.gpu is gpu and queue.begin <= at < queue.end})
            text = "[" + ",".join(map(str, hit)) + "]"
            self.happen(node, at, "hws_hang", gpu=gpu, kfd__hit_pids=text)
            self.happen(node, at + 5, "gpu_reset_begin", gpu=gpu if r.random() < 0.7 else None, kfd__hit_pids=text)
            self.happen(node, at + S, "gpu_reset_end", gpu=gpu, kfd__reset_ns=S - 5)

    def process(self, node, begin, end, owner, gpus, cuts, pid):
        r = self.random
        process = Process(pid, begin, owner, begin + 2 * S)
        end = max(end, begin + 10 * S)
        process.end = end
        self.happen(node, begin, "process_seen", process)
        death = r.choice(["clean", "clean", "process_death", "left_at_release"])
        if end in cuts:
            death = "driver_unloaded" if node is self.nodes[2] else "nothing"
        for _ in range(r.randint(1, 6)):
            at = begin + 10**6 + r.randrange(end - begin - 4 * S)
            taken = {other.queue_id for other in process.queues if other.begin <= at + 1 and at < other.end + 9}
            queue_id = next(number for number in range(1, 99) if number not in taken)
            queue = Queue(process, queue_id, r.choice(gpus), at, type=r.choice(["compute_aql", "sdma"]))
            free = min([q.begin for q in process.queues if q.queue_id == queue_id and q.begin > at], default=end)
            queue.end = at + r.randrange(1, free - at) if r.random() < 0.6 or free < end else end - 10**9
            if death != "clean" and queue.end == end - 10**9:
                queue.end, queue.cause = end - 20, death
            process.queues.append(queue)
            self.queues.append(queue)
            self.happen(node, at, "queue_create", process, queue=queue, gpu=queue.gpu, kfd__origin="ioctl")
            if r.random() < 0.1 and queue.end - at > 10**6:  # a destroy that the driver then fails
                tried = at + (queue.end - at) // 2
                self.happen(node, tried, "queue_destroy", process, queue=queue, gpu=queue.gpu, kfd__cause="ioctl", known=queue)
                self.happen(node, tried + 50_000, "queue_destroy_failed", process, queue=queue, gpu=queue.gpu, known=queue)
            if queue.cause != "nothing":
                self.happen(node, queue.end, "queue_destroy", process, queue=queue, gpu=queue.gpu, kfd__cause=queue.cause, known=queue)
            for _ in range(r.choice([0, 0, 0, 1, 3])):
                lasted = r.randrange(10**6, 20 * S)
                evicted = at + r.randrange(max(1, queue.end - at))
                self.happen(node, evicted, "evict", process, gpu=queue.gpu, kfd__trigger=r.choice(TRIGGERS), kfd__latency_ns=9000)
                if evicted + lasted < queue.end:
                    self.happen(node, evicted + lasted, "restore", process, gpu=queue.gpu, kfd__evicted_ns=lasted, kfd__latency_ns=7000)
            if r.random() < 0.08:
                self.happen(node, at + (queue.end - at) // 3, "vm_fault", process, gpu=queue.gpu, kfd__address="0x7f00deadb000", kfd__read_only="true")
        if death != "nothing":
            self.happen(node, end - 10, "process_release", process)

    def trace(self, node, index):
        """The daemons that looked, one after the other."""
        spans = {0: [(0, 20 * HOUR, "killed"), (20 * HOUR + 5 * S, 50 * HOUR, "trace_end"), (50 * HOUR + 90 * S, END, "runs")],
                 1: [(S, 40 * HOUR, "reboot"), (40 * HOUR + 300 * S, END, "trace_end")],
                 2: [(0, END, "trace_end")],
                 3: [(7 * HOUR, 33 * HOUR, "killed"), (33 * HOUR + 7, 60 * HOUR, "killed")]}.get(index, [(0, END, "runs")])
        for begin, end, how in spans:
            run = Run(node, begin, end, how, str(uuid.UUID(int=self.random.getrandbits(128))))
            self.runs.append(run)
            Tracer(run, self.random).trace()

    def deliver(self, loss):
        """What is lost on the way, and what arrives twice."""
        r = self.random
        dropped = set() if loss == 0 else self.scripted()
        for run in self.runs:
            for record in run.records:
                if id(record) not in dropped and r.random() >= loss:
                    self.arrived.append(record)
                    if loss and r.random() < 0.03:
                        self.arrived.append(record)
        r.shuffle(self.arrived)

    def scripted(self):
        """Losses that random ones may not have: the begin of a run, and for each way of ending the end of a queue, alone or with
        the end of its process."""
        dropped = {id(record) for record in self.runs[0].records[:2]}
        wanted = {"process_release": 3, "id_reused": 3, "driver_unloaded": 2, "trace_end": 2}
        for run in self.runs:
            ends = {}  # (process, queue id) -> its last end
            release = {record.attributes["kfd.process"]: record for record in run.records if record.event == "process_release"}
            unload = next((record.seq for record in run.records if record.event == "driver_unloaded"), 0)
            for record in run.records:
                key = (record.attributes.get("kfd.process"), record.attributes.get("kfd.queue_id"))
                if record.event == "queue_create" and key in ends and wanted["id_reused"]:
                    dropped.add(id(ends[key]))
                    wanted["id_reused"] -= 1
                elif record.event == "queue_destroy":
                    ends[key] = record
            for (process, _), record in ends.items():
                unloaded = record.attributes["kfd.cause"] == "driver_unloaded" and record.seq < unload
                kind = "driver_unloaded" if unloaded else "process_release" if wanted["process_release"] else "trace_end"
                if process in release and wanted[kind] and (kind != "trace_end" or run.how == "trace_end"):
                    wanted[kind] -= 1
                    dropped.add(id(record))
                    dropped |= {id(release[process])} if kind != "process_release" else set()
        return dropped


class Tracer:
    """Makes the records of one run."""

    def __init__(self, run, rng):
        self.run, self.random, self.numbers, self.since, self.lost = run, rng, {}, {}, 0

    def record(self, at, event, process=None, gpu=None, queue=None, known=None, **attributes):
        run = self.run
        attributes = {key: str(value) for key, value in attributes.items()}
        if process:
            number = self.numbers.setdefault(process, len(self.numbers) + 1)
            attributes |= {"kfd.process": str(number), "process.pid": str(process.pid), "thread.id": str(process.pid)}
            attributes |= {key: str(value) for key, value in process.owner.items()
                           if at >= process.named_at or key not in ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name")}
        if gpu:
            attributes |= {"kfd.gpu_id": str(gpu[0]), "kfd.gpu": str(gpu[1]), "hw.id": gpu[2]}
        if queue:
            attributes |= {"kfd.queue_id": str(queue.queue_id), "kfd.queue_type": queue.type}
        if known:
            attributes["kfd.known_ns"] = str(run.node.mono(at) - run.node.mono(self.since[known]))
        seq = len(run.records) + 1
        attributes |= {"otel.event.name": f"kfd.{event}", "kfd.seq": str(seq), "kfd.mono_ns": str(run.node.mono(at))}
        run.records.append(Record(run, seq, at, event, attributes))

    def trace(self):
        run = self.run
        self.record(run.begin, "trace_begin")
        events = run.node.events
        alive = {}
        for at, _, event, process, attributes in events:
            if at >= run.begin or process is None:
                continue
            alive.setdefault(process, {})
            if event == "queue_create":
                alive[process][attributes["queue"]] = True
            elif event == "process_release":
                del alive[process]
        boot = run.node.boot(run.begin)[0]
        for process in [process for process in alive if process.begin >= boot and process.end > run.begin]:
            self.record(run.begin + 1000, "process_seen", process, **{"kfd.standing": "true"})
            for queue in (queue for queue in alive[process] if queue.end > run.begin):
                self.since[queue] = run.begin + 2000
                self.record(run.begin + 2000, "queue_create", process, queue.gpu, queue, **{"kfd.origin": "standing"})
        for at, _, event, process, attributes in events:
            if not run.begin + 3000 <= at < run.end:
                continue
            if event == "queue_create":
                self.since[attributes["queue"]] = at
            attributes = dict(attributes, **({"kfd.standing": "false"} if event == "process_seen" else {}))
            self.record(at, event, process, **attributes)
            if run.node.name == "gpu-3" and len(run.records) % 40 == 39:
                self.lost += self.random.randint(1, 50)
                self.record(at + 1, "lost", **{"kfd.lost": self.lost})
        if run.how == "trace_end":
            self.record(run.end, "trace_end")


def row(record):
    """The record as a row of otel_logs; attributes as text."""
    node, severity = record.run.node, 13 if record.event in WARN else 17 if record.event in ERROR else 9
    return {"Timestamp": f"{record.ts // S}.{record.ts % S:09d}", "SeverityText": {9: "INFO", 13: "WARN", 17: "ERROR"}[severity],
            "SeverityNumber": severity, "ServiceName": "kfd-trace", "Body": record.event, "ScopeName": "kfd-trace",
            "ScopeVersion": "0.1.0", "LogAttributes": record.attributes,
            "ResourceAttributes": {"service.name": "kfd-trace", "service.version": "0.1.0", "service.instance.id": record.run.id,
                                   "host.name": node.name, "host.id": node.host, "kfd.boot_id": node.boot(record.run.begin)[1],
                                   "k8s.cluster.name": node.cluster}}
