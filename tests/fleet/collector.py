#!/usr/bin/env python3
"""A real collector between a daemon and ClickHouse: rotel (pip install rotel), whose exporter inserts into chDB (pip install chdb), with the
tables of deploy/fleet. `cargo xtask questions --collector` runs it, with what a daemon in the VM sent (tests/tests/sim/otlp.rs, `requests`).

collector.py FILE     FILE: a line a request: `REQUEST`, its run, what the receiver in the VM did with it, and its bytes in hex

What was kept there is sent here, in its order and as often. Each record of the first run has to be in the table, with its attributes. Of
the second run some were forgotten in the VM; then ClickHouse is away while the collector takes more, and it is killed: the numbers have to
name what is missing, all of it and nothing else. Exits 1 if not.
"""

import gzip
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True

import rotel
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from questions import Store, questions

AGENT = Path(rotel.__file__).parent / "rotel-agent"

# It inserts a batch 0.2 s after its first record.
QUIET = 3
LONGEST = 60

KEPT = {"Takes", "Dies"}


def requests_of(path):
    """Run -> its requests, in their order: what the receiver did, and the bytes."""
    runs = {}
    for line in Path(path).read_text().splitlines():
        if line.startswith("REQUEST "):
            _, run, mood, data = line.split()
            runs.setdefault(run, []).append((mood, bytes.fromhex(data)))
    return runs


def value(any_value):
    """As a collector writes it into a map of texts."""
    kind = any_value.WhichOneof("value")
    given = getattr(any_value, kind)
    return str(given).lower() if kind == "bool_value" else given if kind == "string_value" else str(given)


def records(data):
    """Number -> attributes without arrays and maps, which collectors write in ways of their own."""
    found = {}
    for resource in ExportLogsServiceRequest.FromString(data).resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                plain = {p.key: value(p.value) for p in record.attributes if p.value.WhichOneof("value") not in ("array_value", "kvlist_value")}
                plain["time"] = str(record.time_unix_nano)
                found[int(plain["kfd.seq"])] = plain
    return found


class ClickHouse(http.server.ThreadingHTTPServer):
    """Takes the inserts of an exporter by HTTP, as chDB has no port."""

    def __init__(self, store):
        super().__init__(("127.0.0.1", 0), Inserts)
        self.store, self.away, self.refused, self.lock = store, False, 0, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Inserts(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.body()
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("query", [""])[0]
        insert = re.match(r"INSERT INTO [`\w.]*otel_logs`? \((.*)\) FORMAT RowBinary", query, re.S)
        with self.server.lock:
            if self.server.away or not insert:
                self.server.refused += 1
                status = 503 if self.server.away else 400
            else:
                with tempfile.NamedTemporaryFile(suffix=".bin") as file:
                    file.write(body)
                    file.flush()
                    self.server.store.session.query(f"INSERT INTO kfd.otel_logs ({insert[1]}) FROM INFILE '{file.name}' FORMAT RowBinary")
                status = 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Collector:
    def __init__(self, store_port):
        self.port = free_port()
        self.process = subprocess.Popen(
            [AGENT, "start", "--exporter", "clickhouse", "--clickhouse-exporter-endpoint", f"http://127.0.0.1:{store_port}",
             "--clickhouse-exporter-database", "kfd", "--clickhouse-exporter-compression", "none",
             "--otlp-http-endpoint", f"127.0.0.1:{self.port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def send(self, data, zipped):
        headers = {"Content-Type": "application/x-protobuf"} | ({"Content-Encoding": "gzip"} if zipped else {})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/logs", gzip.compress(data) if zipped else data, headers)
        begin = time.monotonic()
        while True:
            try:
                return urllib.request.urlopen(request, timeout=30).read()
            except urllib.error.HTTPError as error:
                sys.exit(f"the collector answers {error.code}")
            except OSError:  # it is not there yet
                if self.process.poll() is not None or time.monotonic() - begin > LONGEST:
                    sys.exit("the collector does not start")
                time.sleep(0.1)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(LONGEST)


def arrived(store, run):
    """Number -> attributes, and how many rows there are of this run."""
    rows = store.ask("SELECT toUnixTimestamp64Nano(Timestamp), CAST(LogAttributes, 'Map(String, String)') FROM kfd.otel_logs "
                     "WHERE ResourceAttributes['service.instance.id'] = {run:String}", {"run": run})
    return {int(attributes["kfd.seq"]): attributes | {"time": str(time_ns)} for time_ns, attributes in rows}, len(rows)


def settled(store, run):
    """The same, once nothing more comes."""
    begin, before = time.monotonic(), -1
    while time.monotonic() - begin < LONGEST:
        time.sleep(QUIET)
        found, rows = arrived(store, run)
        if rows == before:
            return found, rows
        before = rows
    sys.exit("the collector does not come to an end")


def instance(data):
    resource = ExportLogsServiceRequest.FromString(data).resource_logs[0].resource
    return next(p.value.string_value for p in resource.attributes if p.key == "service.instance.id")


def differences(want, have):
    """Of attributes that are in both, and numbers that are in one."""
    wrong = [(seq, name, text, have[seq].get(name)) for seq in want.keys() & have.keys() for name, text in want[seq].items() if have[seq].get(name) != text]
    return sorted(want.keys() ^ have.keys()), wrong


def whole(store, collector, sent):
    want = {}
    for number, data in enumerate(sent):
        collector.send(data, zipped=number % 2 == 0)
        want |= records(data)
    have, rows = settled(store, instance(sent[0]))
    numbers, wrong = differences(want, have)
    total = sum(len(records(data)) for data in sent)
    print(f"all kept: {len(want)} records in {len(sent)} requests, {total - len(want)} of them twice; {rows} rows, numbers 1 to {max(have)}, "
          f"{len(numbers)} missing, {len(wrong)} attributes differ")
    if numbers or wrong or rows != total or sorted(have) != list(range(1, max(want) + 1)):
        sys.exit(f"not what was sent: {numbers[:5]} {wrong[:5]}")


def lossy(store, house, collector, sent):
    """The last third goes to a second collector: the first one is killed with what it has taken."""
    run, third = instance(sent[0]), len(sent) // 3
    want, lost = {}, {}
    for data in sent[:third]:
        collector.send(data, zipped=True)
        want |= records(data)
    settled(store, run)
    house.away = True
    for data in sent[third:2 * third]:
        collector.send(data, zipped=True)
        lost |= records(data)
    begin = time.monotonic()
    while house.refused == 0 and time.monotonic() - begin < LONGEST:
        time.sleep(0.1)
    collector.end(signal.SIGKILL)
    house.away = False
    second = Collector(house.server_port)
    for data in sent[2 * third:]:
        second.send(data, zipped=True)
        want |= records(data)
    have, _ = settled(store, run)
    second.end(signal.SIGTERM)
    numbers, wrong = differences(want, have)
    never = set(range(1, max(want) + 1)) - want.keys()
    first, last = store.ask("SELECT min(first) - INTERVAL 1 SECOND, max(last) + INTERVAL 1 SECOND FROM kfd.kfd_runs FINAL", {})[0]
    gaps = store.ask(questions()["gaps"], {"from": first, "to": last})
    missing = {row[1]: row[3] for row in gaps}.get(run, 0)
    print(f"a killed collector: it had taken {len(lost)} records of {len(sent[third:2 * third])} requests; {len(have)} of {max(have)} numbers are in the "
          f"table, `gaps` says {missing} are missing: {len(lost.keys() - want.keys())} behind the collector, {len(never - lost.keys())} before it")
    if numbers or wrong or not lost or missing != len(never) or not lost.keys() - want.keys() <= never:
        sys.exit(f"not what was sent: {numbers[:5]} {wrong[:5]}")


def main():
    runs = requests_of(sys.argv[1])
    if runs.keys() != {"whole", "lossy"}:
        sys.exit(f"{sys.argv[1]}: runs {sorted(runs)}")
    store = Store()
    house = ClickHouse(store)
    collector = Collector(house.server_port)
    kept = {run: [data for mood, data in requests if mood in KEPT] for run, requests in runs.items()}
    whole(store, collector, kept["whole"])
    lossy(store, house, collector, kept["lossy"])
    print(store.ask("SELECT event, count() FROM kfd.kfd_events FINAL GROUP BY event ORDER BY event", {}))
    house.shutdown()
    sys.stdout.flush()
    # chDB does not come to an end by itself where several threads have used it.
    os._exit(0)


if __name__ == "__main__":
    main()
