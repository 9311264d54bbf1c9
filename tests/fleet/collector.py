#!/usr/bin/env python3
"""A real collector between a daemon and ClickHouse: rotel (pip install rotel), whose ClickHouse exporter writes to chDB
(pip install chdb) in the tables of deploy/fleet. `cargo xtask questions --collector` runs it.

collector.py FILE    FILE: what the daemon in the VM sent and a receiver stored or forgot there (tests/tests/sim/otlp.rs, `sends`), a line a
                     request: its run, what the receiver did, and the request in base64. All that was stored is sent to the collector, a batch
                     that came twice twice. Exits 1 unless the table has each record, and the numbers of a run name what is missing.
"""

import base64
import http.server
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True

from questions import Store

# Of rotel: records leave it in batches, some time after they were taken.
QUIET = 5
LONGEST = 120
