#!/usr/bin/env python3
"""Overload of a server on this machine: `wrk` keeps twice as many requests in flight as the server takes at once, and repeats a refused
request at once, which is far more than ten times what the model answers. A probe beside it sends one request every 20 ms.

usage: benches/serve/overload.py PID TEXTS [--url http://127.0.0.1:8080] [--seconds 60] [--connections 1000]
       (PID: of the server; TEXTS: a file of one text per line)
"""
import argparse
import http.client
import json
import os
import re
import subprocess
import threading
import time
from urllib.parse import urlparse

parser = argparse.ArgumentParser()
parser.add_argument("pid", type=int)
parser.add_argument("texts")
parser.add_argument("--url", default="http://127.0.0.1:8080")
parser.add_argument("--seconds", type=int, default=60)
parser.add_argument("--connections", type=int, default=1000)
args = parser.parse_args()
address = urlparse(args.url).netloc
body = json.dumps({"texts": ["What a film!"]})


def ask(connection):
    """Returns the status of an answer and its time in milliseconds."""
    started = time.perf_counter()
    connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status, (time.perf_counter() - started) * 1e3


def resident():
    with open(f"/proc/{args.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1e3


def quantile(times, share):
    times = sorted(times)
    return round(times[min(len(times) - 1, int(len(times) * share))], 2) if times else None


def alone():
    """Returns the median time of 50 requests without a load."""
    connection = http.client.HTTPConnection(address)
    return quantile([ask(connection)[1] for _ in range(50)], 0.5)


before, memory, found = alone(), [], []
script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "predict.lua")
load = ["wrk", "-t1", f"-c{args.connections}", f"-d{args.seconds}s", "--timeout", "30s", "-s", script, args.url]
wrk = subprocess.Popen([*load, "--", args.texts, "16"], stdout=subprocess.PIPE, text=True)


def watch():
    while wrk.poll() is None:
        memory.append(resident())
        time.sleep(1)


watching = threading.Thread(target=watch)
watching.start()
connection = http.client.HTTPConnection(address)
while wrk.poll() is None:
    found.append(ask(connection))
    time.sleep(0.02)
watching.join()
started = time.perf_counter()
first = ask(http.client.HTTPConnection(address))
of_status = {status: [took for got, took in found if got == status] for status in sorted({got for got, _ in found})}
print(json.dumps({
    "load": json.loads(wrk.stdout.read().strip().splitlines()[-1]),
    "probes": {status: {"count": len(took), "p50_ms": quantile(took, 0.5), "p99_ms": quantile(took, 0.99)}
               for status, took in of_status.items()},
    "resident_mb": {"after 10 s": memory[10:11], "at most": max(memory), "at the end": memory[-1]},
    "median_before_ms": before, "first_after": first, "median_after_ms": alone(),
}))
