#!/usr/bin/env python3
"""Starts a server again and again, sends SIGTERM at a random moment under load, and checks that no accepted request is lost.

A request is accepted if its connection was answered before and the whole request was sent before the signal. Each accepted request
must get a complete answer, and the process must end with code 0 within the grace time. Prints a line of JSON; exits 1 otherwise.

usage: sigterm.py [--port 8080] [--times 20] [--connections 16] [--grace 10] [--path /predict] [--body JSON] -- COMMAND...
"""
import argparse
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

TEXTS = json.dumps({"texts": ["What a film! " * size for size in (1, 10, 100)]})


def get(port, path, timeout=1):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None


def load(args, end, requests):
    """Sends requests until `end` is set; for each one, when it was sent, and the status of its complete answer or the error."""
    connection, answered = http.client.HTTPConnection("127.0.0.1", args.port, timeout=args.grace + 5), False
    while not end.is_set():
        sent = None
        what = ("POST", args.path, args.body) if answered else ("GET", "/health/ready")
        try:
            connection.request(*what, headers={"Content-Type": "application/json"})
            sent = time.monotonic()
            response = connection.getresponse()
            response.read()
            result, answered_now = response.status, not response.will_close
        except (OSError, http.client.HTTPException) as error:
            result, answered_now = type(error).__name__, False
        if sent and answered:
            requests.append((sent, result))
        answered = answered_now
        if not answered:
            connection.close()
            time.sleep(0.01)  # the server may have closed its port


def once(args):
    server = subprocess.Popen(args.command, stdout=sys.stderr)
    end, requests = threading.Event(), []
    threads = [threading.Thread(target=load, args=(args, end, requests)) for _ in range(args.connections)]
    try:
        deadline = time.monotonic() + 60
        while get(args.port, "/health/ready") != 200:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit("the server did not become ready")
            time.sleep(0.05)
        for thread in threads:
            thread.start()
        time.sleep(random.uniform(0.2, 2))
        signalled = time.monotonic()
        server.send_signal(signal.SIGTERM)
        try:
            code = server.wait(args.grace)
        except subprocess.TimeoutExpired:
            code = "still running"
        seconds = time.monotonic() - signalled
    finally:
        end.set()
        server.kill()
        server.wait()
        for thread in threads:
            if thread.is_alive():
                thread.join()
    accepted = Counter(str(result) for sent, result in requests if sent < signalled)
    return code, seconds, accepted


def main():
    parser = argparse.ArgumentParser(description="SIGTERM under load: no accepted request is lost")
    for flag, usual in [("--port", 8080), ("--times", 20), ("--connections", 16), ("--grace", 10), ("--seed", 1)]:
        parser.add_argument(flag, type=int, default=usual)
    parser.add_argument("--path", default="/predict")
    parser.add_argument("--body", default=TEXTS)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    random.seed(args.seed)
    codes, accepted, slowest = Counter(), Counter(), 0
    for _ in range(args.times):
        code, seconds, statuses = once(args)
        codes[str(code)] += 1
        accepted += statuses
        slowest = max(slowest, seconds)
    lost = sum(count for status, count in accepted.items() if not status.isdigit())
    print(json.dumps({"times": args.times, "accepted": accepted, "lost": lost, "exit_codes": codes,
                      "slowest_end_s": round(slowest, 3)}))  # fmt: skip
    sys.exit(lost > 0 or set(codes) != {"0"})


if __name__ == "__main__":
    main()
