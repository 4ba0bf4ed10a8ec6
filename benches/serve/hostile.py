#!/usr/bin/env python3
"""Broken requests of many kinds against a server on this machine, with good requests between them.

Prints a line of JSON: the outcomes of each kind, the slowest good request, and the violations. A violation is a good request that
fails or takes more than a second, a broken request that is accepted, a 500, or a complete request without an answer for 10
seconds. The exit code is 1 if there is a violation. The seed fixes the requests, so a run can be repeated.

usage: hostile.py [--port 8080] [--requests 5000] [--good 0.3] [--at-once 32] [--seed 1] [--hold 3] [--token TOKEN]
"""
import argparse
import asyncio
import json
import random
import socket
import struct
import sys
import time
from collections import Counter, defaultdict

GOOD = json.dumps({"texts": ["What a film!", "Dull."]}).encode()
PATIENCE, BIG = 10, 16 << 20
FRAGMENTS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"-", b"1e9", b"\\u", b"\\ud800", b"\x00", b"\xff", b" " * 99]
WRONG = [1, None, [], "a", {}, {"texts": None}, {"texts": 1}, {"texts": "a"}, {"texts": {"a": 1}}, {"texts": [["a"]]},
         {"texts": [1]}, {"texts": [None]}, {"text": ["a"]}]  # fmt: skip


class Kinds:
    """Each method but `head` and `post` is a kind. It returns the outcomes that are allowed, and what is sent, in parts.

    A number among the parts is a pause in seconds; None closes the sending side. Outcomes: `ok` (all answers are 200), `refused`
    (4xx, 501, 503, 505, or closed without an answer), `silent` (the server waits for more).
    """

    def __init__(self, hold, token):
        self.hold = hold
        self.token = f"Authorization: Bearer {token}\r\n".encode() if token else b""

    def head(self, *lines, request=b"POST /predict HTTP/1.1"):
        rest = b"".join(line + b"\r\n" for line in lines)
        return request + b"\r\nHost: localhost\r\nContent-Type: application/json\r\n" + self.token + rest + b"\r\n"

    def post(self, body, *lines, length=None):
        length = len(body) if length is None else length
        return self.head(b"Content-Length: %d" % length, *lines) + body

    def pipelined(self, r):
        return "ok", [self.post(GOOD) * 9, self.post(GOOD, b"Connection: close")]

    def expect_continue(self, r):
        lines = b"Content-Length: %d" % len(GOOD), b"Expect: 100-continue"
        return "ok", [self.head(*lines, b"Connection: close"), 0.2, GOOD]

    def in_pieces(self, r):
        whole = self.post(GOOD)
        cut = r.randrange(1, len(whole))
        return "ok", [whole[:cut], 0.05, whole[cut:]]

    def fuzzed_json(self, r):
        body = bytearray(GOOD)
        for _ in range(r.randint(1, 4)):
            at = r.randrange(len(body) + 1)
            body[at : at + r.randint(0, 3)] = r.choice(FRAGMENTS)
        return "ok refused", [self.post(bytes(body))]

    def random_bytes(self, r):
        return "refused", [self.post(r.randbytes(r.randint(1, 2000)))]

    def invalid_utf8(self, r):
        return "refused", [self.post(b'{"texts": ["' + r.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x82"]) + b'"]}')]

    def wrong_types(self, r):
        return "refused", [self.post(json.dumps(r.choice(WRONG)).encode())]

    def deep(self, r):
        return "refused", [self.post(r.choice([b"[", b'{"texts":', b'{"texts": [[']) * 100_000)]

    def huge_numbers(self, r):
        number = r.choice([b"1e999999", b"9" * 10_000, b"-1e-999999", b"0." + b"0" * 10_000])
        return "refused", [self.post(b'{"texts": [%s]}' % number)]

    def control_bytes(self, r):
        return "ok refused", [self.post(GOOD, b"X-A: a" + bytes([r.choice([0, 1, 8, 11, 27, 127, 255])]) + b"b")]

    def huge_header(self, r):
        lines = r.choice([[b"X-A: " + b"a" * (1 << 20)], [b"X-%d: a" % at for at in range(100_000)]])
        return "ok refused", [self.post(GOOD, *lines)]

    def half_open(self, r):
        return "refused silent", [self.post(GOOD)[: r.randint(0, 120)], self.hold]

    def slow_body(self, r):
        parts = [[self.post(b"", length=len(GOOD))]] + [[1, bytes([byte])] for byte in GOOD[: int(self.hold)]]
        return "refused silent", sum(parts, [])

    def gigabyte(self, r):
        sent = r.choice([[b"[", self.hold], [b" " * 65536] * (BIG >> 16)])
        return "refused silent", [self.post(b"", length=1 << 30), *sent]

    def length_too_small(self, r):
        return "refused", [self.post(GOOD, length=r.randrange(len(GOOD)))]

    def length_too_large(self, r):
        return "refused silent", [self.post(GOOD, length=len(GOOD) + 5), *r.choice([[None], [self.hold]])]

    def wrong_length(self, r):
        value = r.choice([b"-1", b"x", b"9" * 30, b"0x20", b"1,2", b"+50"])
        return "refused", [self.head(b"Content-Length: " + value) + GOOD]

    def two_lengths(self, r):
        return "refused", [self.post(GOOD, b"Content-Length: %d" % r.choice([0, 3, 1 << 30]))]

    def length_and_chunks(self, r):
        return "ok refused", [self.post(b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD), b"Transfer-Encoding: chunked", length=5)]

    def broken_chunks(self, r):
        chunks = r.choice([b"zz\r\n", b"-5\r\nhello", b"f" * 20 + b"\r\n", b"2\r\n{}XX\r\n", b"1\r\n{\r\n;\r\n", b"\r\n\r\n"])
        return "refused", [self.head(b"Transfer-Encoding: chunked") + chunks]

    def http_1_0(self, r):
        length = b"Content-Length: %d" % len(GOOD)
        return "ok refused", [self.head(length, request=b"POST /predict HTTP/1.0") + GOOD]

    def http_0_9(self, r):
        return "refused silent", [b"GET /health/live\r\n", None]

    def unknown(self, r):
        line = r.choice([b"GET /predict", b"BREW /predict", b"POST /nothing", b"DELETE /", b"GET /%00/../..", b"GET *", b"CONNECT a:1"])
        return "refused", [self.head(request=line + b" HTTP/1.1")]

    def no_request(self, r):
        return "refused silent", [r.choice([b"", b"\r\n\r\n", b"\n", b"\x16\x03\x01\x02\x00\x01" + b"a" * 200]), None]

    def closed_in_body(self, r):
        return "refused silent", [self.post(GOOD)[: -r.randint(1, 20)], "reset"]

    def closed_in_answer(self, r):
        return "ok refused silent", [self.post(GOOD), r.choice([0, 0.001, 0.01]), "reset"]


async def answers(reader, count, good):
    """The statuses of `count` complete answers. The answers to good requests have a label for each of the two texts."""
    statuses = []
    while len(statuses) < count:
        head = await reader.readuntil(b"\r\n\r\n")
        version, status = head.split(b" ", 2)[:2]
        if not version.startswith(b"HTTP/1.") or not status.isdigit():
            raise ValueError("no answer of HTTP/1")
        if status == b"100":
            continue
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        body = await (reader.readexactly(int(fields[b"content-length"])) if b"content-length" in fields else reader.read())
        if good and status == b"200" and not all(json.loads(body)["answers"][text]["label"] for text in (0, 1)):
            raise ValueError("no label")
        statuses.append(status.decode())
    return statuses


async def ask(port, parts, count, good):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(answers(reader, count, good))
    try:
        for part in parts:
            if reading.done():
                break
            if isinstance(part, bytes):
                writer.write(part)
                await asyncio.wait_for(writer.drain(), PATIENCE)
            elif part is None:
                writer.write_eof()
            elif part == "reset":  # closed at once, without a normal end of the connection
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return ["silent"]
            else:
                await asyncio.wait([reading], timeout=part)
        patience = 0.01 if parts and isinstance(parts[-1], (int, float)) else PATIENCE
        return await asyncio.wait_for(reading, patience)
    except asyncio.TimeoutError:
        return ["silent"]
    except (ConnectionError, asyncio.IncompleteReadError):
        return ["closed"]
    except (ValueError, LookupError, TypeError, asyncio.LimitOverrunError) as error:
        return [f"malformed: {error}"]
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.transport.abort()


def outcome(statuses):
    refused = [s == "closed" or s[0] == "4" or s in ("501", "503", "505") for s in statuses]
    kinds = {"ok" if s == "200" else "refused" if no else s for s, no in zip(statuses, refused)}
    return kinds.pop() if len(kinds) == 1 else "mixed"


async def work(args, kinds, names, left, seen, violations, slowest):
    while left:
        number = left.pop()
        r = random.Random(args.seed * 1_000_003 + number)
        good = r.random() < args.good
        name = "good" if good else r.choice(names)
        allowed, parts = ("ok", [kinds.post(GOOD)]) if good else getattr(kinds, name)(r)
        count = 10 if name == "pipelined" else 1
        start = time.perf_counter()
        try:
            statuses = await ask(args.port, parts, count, allowed == "ok")
        except OSError as error:  # no connection: the server is gone, or accepts no more
            statuses = [f"no connection: {error}"]
        seconds = time.perf_counter() - start
        seen[name].update(statuses)
        if outcome(statuses) not in allowed.split():
            violations.append(f"request {number}, {name}: {statuses[-1]}, expected {allowed}")
        if good:
            slowest[0] = max(slowest[0], seconds)
            if seconds > args.limit:
                violations.append(f"request {number}, {name}: {seconds:.2f} s")


async def main():
    parser = argparse.ArgumentParser(description="broken requests against a server on this machine")
    for flag, usual in [("--port", 8080), ("--requests", 5000), ("--at-once", 32), ("--seed", 1)]:
        parser.add_argument(flag, type=int, default=usual)
    for flag, usual in [("--good", 0.3), ("--hold", 3.0), ("--limit", 1.0)]:
        parser.add_argument(flag, type=float, default=usual)
    parser.add_argument("--token")
    parser.add_argument("--kind", help="only this kind, between the good requests")
    args = parser.parse_args()
    kinds = Kinds(args.hold, args.token)
    names = [name for name in vars(Kinds) if name[0] != "_" and name not in ("head", "post")]
    left, seen, violations, slowest = list(range(args.requests)), defaultdict(Counter), [], [0.0]
    workers = [work(args, kinds, [args.kind] if args.kind else names, left, seen, violations, slowest) for _ in range(args.at_once)]
    await asyncio.gather(*workers)
    print(json.dumps({"requests": args.requests, "slowest_good_s": round(slowest[0], 3), "kinds": seen,
                      "violations": len(violations), "first_violations": violations[:20]}))  # fmt: skip
    sys.exit(bool(violations))


if __name__ == "__main__":
    asyncio.run(main())
