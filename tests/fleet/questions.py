#!/usr/bin/env python3
"""Runs deploy/fleet/questions.sql in chDB (pip install chdb), on records whose answers are known.

questions.py                    a synthetic fleet: compares each answer with one made without SQL; exits 1 on a difference
questions.py --seed 7           another one
questions.py --break            breaks each question once and sees that the comparison fails
questions.py --rows FILE        rows of otel_logs (JSONEachRow) that a daemon made: prints the answers
questions.py --scale 1000x30    nodes and days, made in ClickHouse: prints time, rows and bytes of each question
"""

import argparse
import json
import random
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from chdb import session

import breaks
import scale
from expect import Expected, text
from ledger import BASE, DAYS, HOUR, S, Fleet, row

DEPLOY = Path(__file__).resolve().parents[2] / "deploy/fleet"
SETTINGS = "SETTINGS output_format_json_quote_64bit_integers = 0"


def statements(sql):
    return [part for part in sql.split(";\n") if re.sub(r"--.*", "", part).strip()]


def questions():
    """Name -> SQL."""
    found = {}
    for statement in statements((DEPLOY / "questions.sql").read_text()):
        name = re.findall(r"^-- ([a-z_]+): ", statement, re.M)[-1]
        found[name] = re.sub(r"^--.*\n", "", statement, flags=re.M).strip()
    return found


class Store:
    def __init__(self, path=None, schema=None):
        self.session = session.Session(path)
        self.session.query("DROP DATABASE IF EXISTS kfd")
        self.session.query("SET session_timezone = 'UTC'")
        self.session.query("SET date_time_input_format = 'best_effort'")
        for statement in statements(schema or (DEPLOY / "clickhouse.sql").read_text()):
            self.session.query(statement)
            table = re.search(r"CREATE TABLE IF NOT EXISTS (\S+)", statement)
            if table and "\nTTL " in statement:  # the ledger is older
                self.session.query(f"ALTER TABLE {table[1]} REMOVE TTL")

    def insert(self, table, rows):
        lines = "\n".join(json.dumps(row) for row in rows)
        self.session.query(f"INSERT INTO kfd.{table} FORMAT JSONEachRow\n{lines}")

    def ask(self, sql, parameters):
        used = {name: value for name, value in parameters.items() if f"{{{name}:" in sql}
        result = self.session.query(f"{sql}\n{SETTINGS}", "JSONCompactEachRow", params=used)
        return [json.loads(line) for line in str(result).splitlines()]


def parameter_sets(name, expected):
    """Pairs of what the SQL gets and what the reader gets."""
    rng, end = random.Random(name), BASE + DAYS * 24 * HOUR
    if name == "who_held":
        for _ in range(60):
            life = rng.choice([life for life in expected.lives if life.end != "lives"])
            node, at = life.run.node, rng.choice([life.born, life.ended]) + rng.choice([-1, 0, 1])
            yield {"node": node.name, "gpu": life.gpu[1], "at": text(at)}, (node.name, life.gpu[1], at)
    elif name == "free_gpus":
        for _ in range(20):
            at, days = BASE + rng.randrange(DAYS * 24 * HOUR), rng.choice([0, 1, 7])
            yield {"at": text(at), "days": days}, (at, days)
    else:
        for since, until in [(BASE, end + 12 * HOUR), (BASE + 25 * HOUR, BASE + 26 * HOUR), (BASE + 7 * HOUR + 5, BASE + 41 * HOUR)]:
            yield {"from": text(since), "to": text(until)}, (since, until)


def same(want, have):
    """Sums that were rounded may differ in the last digit."""
    if isinstance(want, list):
        return isinstance(have, list) and len(want) == len(have) and all(map(same, want, have))
    return abs(want - have) < 2e-6 if isinstance(want, float) else want == have


def compare(store, expected, asked, quiet=False):
    """Names of the questions with a wrong answer."""
    wrong = []
    for name, sql in asked.items():
        rows, difference = 0, None
        for parameters, arguments in parameter_sets(name, expected):
            want, have = getattr(expected, name)(*arguments), store.ask(sql, parameters)
            rows += len(want)
            if not same(want, have) and difference is None:
                difference = parameters, [r for r in want if r not in have], [r for r in have if r not in want]
        if difference or rows == 0:
            wrong.append(name)
        if not quiet:
            print(f"{'wrong' if name in wrong else 'ok'} {rows:5} rows  {name}")
            if difference:
                parameters, missing, extra = difference
                print(f"  {parameters}\n  expected, not found: {missing[:3]}\n  found, not expected: {extra[:3]}")
    return wrong


def check_truth(seed):
    """Without losses, what a reader follows is what really happened, as far as a daemon was there."""
    fleet = Fleet(seed, loss=0)
    followed = sorted((life.run.id, life.gpu[0], life.queue_id, life.born, life.ended) for life in Expected(fleet).lives if life.end == "destroyed")
    true = []
    for run in fleet.runs:
        wall = run.node.wall
        for queue in fleet.queues:
            if any(queue.gpu is gpu for gpu in run.node.gpus) and queue.cause != "nothing" and run.begin < queue.end < run.end:
                born = wall(queue.begin) if queue.begin >= run.begin else wall(run.begin + 2000)
                true.append((run.id, queue.gpu[0], queue.queue_id, born, wall(queue.end)))
    if followed != sorted(true):
        sys.exit(f"the ledger does not agree with itself: {len(set(followed) - set(true))} and {len(set(true) - set(followed))} lives")


def filled(fleet, schema=None):
    store = Store(schema=schema)
    for third in range(3):  # parts that are not merged yet
        store.insert("otel_logs", [row(record) for record in fleet.arrived[third::3]])
    store.insert("slurm_jobs", [{"job_id": job, "user": user, "account": account} for job, (user, account) in fleet.jobs.items()])
    store.insert("containers", [{"container_id": name, "image": image} for name, image in fleet.containers.items()])
    return store


def synthetic(seed):
    check_truth(seed)
    fleet = Fleet(seed)
    expected = Expected(fleet)
    ends = sorted({life.end for life in expected.lives})
    print(f"{len(fleet.nodes)} nodes, {len(fleet.runs)} runs, {len(expected.records)} records, {len(fleet.arrived)} with repeats, "
          f"{len(expected.lives)} lives of queues; ends: {', '.join(ends)}")
    if len(ends) < 7:
        sys.exit("the ledger has not every way to end")
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="broken", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--scale")
    parser.add_argument("--path", help="folder of the store; default: in memory")
    options = parser.parse_args()
    asked = questions()
    if options.scale:
        scale.run(Store(options.path), asked, *map(int, options.scale.split("x")))
    elif options.rows:
        return given(Store(), asked, options.rows)
    else:
        expected = synthetic(options.seed)
        if options.broken:
            return breaks.run(asked, (DEPLOY / "clickhouse.sql").read_text(), expected, filled, compare)
        return 1 if compare(filled(expected.fleet), expected, asked) else 0
    return 0


def given(store, asked, path):
    """Asks about rows whose answers are not known."""
    store.session.query(f"INSERT INTO kfd.otel_logs FROM INFILE '{path}' FORMAT JSONEachRow")
    first, last = store.ask("SELECT min(first), max(last) + INTERVAL 1 SECOND FROM kfd.kfd_runs", {})[0]
    held = store.ask("SELECT node, gpu, born FROM kfd.kfd_holds ORDER BY born DESC LIMIT 1", {})
    node, gpu, at = held[0] if held else ("", 0, first)
    print(store.ask("SELECT event, count() FROM kfd.kfd_events FINAL GROUP BY event ORDER BY event", {}))
    for name, sql in asked.items():
        parameters = {"node": node, "gpu": gpu, "at": at, "days": 7, "from": first, "to": last}
        result = store.session.query(sql, "PrettyCompactMonoBlock", params={k: v for k, v in parameters.items() if f"{{{k}:" in sql})
        print(f"{name}\n{result}")
    # An end that does not find its creation is one that was lost, or a known_ns that is not since queue_create.
    unpaired = store.ask("SELECT count() FROM kfd.kfd_queues FINAL WHERE toUnixTimestamp64Nano(created) = 0", {})[0][0]
    print(f"ends of queues without their creation: {unpaired}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
