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
PATIENCE = 10  # seconds
FRAGMENTS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"-", b"1e9", b"\\u", b"\\ud800", b"\x00", b"\xff", b" " * 99]
WRONG = [1, None, [], "a", {}, {"texts": None}, {"texts": 1}, {"texts": {"a": 1}}, {"texts": [[["a"]]]},
         {"texts": [1]}, {"texts": [None]}, {"texts": [[1]]}, {"texts": ["a", 1]}]  # fmt: skip
NO_UTF8 = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x82"]
NUMBERS = [b"1e999999", b"9" * 10_000, b"-1e-999999", b"0." + b"0" * 10_000]
LENGTHS = [b"-1", b"x", b"9" * 30, b"0x20", b"1,2", b"+50"]
CHUNKS = [b"zz\r\n", b"-5\r\nhello", b"f" * 20 + b"\r\n", b"2\r\n{}XX\r\n", b"1\r\n{\r\n;\r\n", b"\r\n\r\n"]
UNKNOWN = [b"GET /predict", b"BREW /predict", b"POST /nothing", b"DELETE /", b"GET /%00/../..", b"GET *", b"CONNECT a:1"]


def all_kinds(hold, token):
    """For each kind, the allowed outcomes and a function that draws what is sent, in parts.

    A number among the parts is a pause in seconds; None closes the sending side. Outcomes: `ok` (all answers are 200), `refused`
    (4xx, 501, 503, 505, or closed without an answer), `silent` (the server waits for more).
    """
    bearer = f"Authorization: Bearer {token}\r\n".encode() if token else b""

    def head(*lines, request=b"POST /predict HTTP/1.1"):
        rest = b"".join(line + b"\r\n" for line in lines)
        return request + b"\r\nHost: localhost\r\nContent-Type: application/json\r\n" + bearer + rest + b"\r\n"

    def post(body, *lines, length=None):
        return head(b"Content-Length: %d" % (len(body) if length is None else length), *lines) + body

    def fuzzed(r):
        body = bytearray(GOOD)
        for _ in range(r.randint(1, 4)):
            at = r.randrange(len(body) + 1)
            body[at : at + r.randint(0, 3)] = r.choice(FRAGMENTS)
        return [post(bytes(body))]

    def in_pieces(r):
        whole = post(GOOD)
        cut = r.randrange(1, len(whole))
        return [whole[:cut], 0.05, whole[cut:]]

    good_length, close, chunked = b"Content-Length: %d" % len(GOOD), b"Connection: close", b"Transfer-Encoding: chunked"
    return {
        "good": ("ok", lambda r: [post(GOOD)]),
        "pipelined": ("ok", lambda r: [post(GOOD) * 9 + post(GOOD, close)]),
        "expect_continue": ("ok", lambda r: [head(good_length, b"Expect: 100-continue", close), 0.2, GOOD]),
        "in_pieces": ("ok", in_pieces),
        "fuzzed_json": ("ok refused", fuzzed),
        "random_bytes": ("refused", lambda r: [post(r.randbytes(r.randint(1, 2000)))]),
        "invalid_utf8": ("refused", lambda r: [post(b'{"texts": ["%s"]}' % r.choice(NO_UTF8))]),
        "wrong_types": ("refused", lambda r: [post(json.dumps(r.choice(WRONG)).encode())]),
        "deep": ("refused", lambda r: [post(r.choice([b"[", b'{"texts":', b'{"texts": [[']) * 100_000)]),
        "huge_numbers": ("refused", lambda r: [post(b'{"texts": [%s]}' % r.choice(NUMBERS))]),
        "control_bytes": ("ok refused", lambda r: [post(GOOD, b"X-A: a%cb" % r.choice([0, 1, 8, 11, 13, 27, 127, 255]))]),
        "huge_header": ("ok refused", lambda r: [post(GOOD, *r.choice([[b"X-A: " + b"a" * (1 << 20)], [b"X: a"] * 100_000]))]),
        "half_open": ("refused silent", lambda r: [post(GOOD)[: r.randint(0, 120)], hold]),
        "slow_body": ("refused silent", lambda r: [head(good_length), *[1, b"{"] * int(hold)]),
        "gigabyte": ("refused silent", lambda r: [post(b"", length=1 << 30), *r.choice([[b"[", hold], [b" " * 65536] * 256])]),
        "length_too_small": ("refused", lambda r: [post(GOOD, length=r.randrange(len(GOOD)))]),
        "length_too_large": ("refused silent", lambda r: [post(GOOD, length=len(GOOD) + 5), r.choice([None, hold])]),
        "wrong_length": ("refused", lambda r: [head(b"Content-Length: " + r.choice(LENGTHS)) + GOOD]),
        "two_lengths": ("refused", lambda r: [post(GOOD, b"Content-Length: %d" % r.choice([0, 3, 1 << 30]))]),
        "length_and_chunks": ("ok refused", lambda r: [post(b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD), chunked, length=5)]),
        "broken_chunks": ("refused", lambda r: [head(chunked) + r.choice(CHUNKS)]),
        "http_1_0": ("ok refused", lambda r: [head(good_length, request=b"POST /predict HTTP/1.0") + GOOD]),
        "http_0_9": ("refused silent", lambda r: [b"GET /health/live\r\n", None]),
        "unknown": ("refused", lambda r: [head(request=r.choice(UNKNOWN) + b" HTTP/1.1")]),
        "no_request": ("refused silent", lambda r: [r.choice([b"", b"\r\n\r\n", b"\n", b"\x16\x03\x01\x02\x00\x01" * 99]), None]),
        "closed_in_body": ("refused silent", lambda r: [post(GOOD)[: -r.randint(1, 20)], "reset"]),
        "closed_in_answer": ("ok refused silent", lambda r: [post(GOOD), r.choice([0, 0.001, 0.01]), "reset"]),
    }


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
        held = isinstance(parts[-1], float) or parts[-1] == b"{"  # the server has waited already
        return await asyncio.wait_for(reading, 0.01 if held else PATIENCE)
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
        name = "good" if r.random() < args.good else r.choice(names)
        allowed, parts = kinds[name][0], kinds[name][1](r)
        start = time.perf_counter()
        try:
            statuses = await ask(args.port, parts, 10 if name == "pipelined" else 1, allowed == "ok")
        except OSError as error:  # the server is gone, or accepts no more connections
            statuses = [f"no connection: {error}"]
        seconds = time.perf_counter() - start
        seen[name].update(statuses)
        if outcome(statuses) not in allowed.split():
            violations.append(f"request {number}, {name}: {statuses[-1]}, expected {allowed}")
        if name == "good":
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
    args = parser.parse_args()
    kinds = all_kinds(args.hold, args.token)
    names = [name for name in kinds if name != "good"]
    left, seen, violations, slowest = list(range(args.requests)), defaultdict(Counter), [], [0.0]
    await asyncio.gather(*(work(args, kinds, names, left, seen, violations, slowest) for _ in range(args.at_once)))
    print(json.dumps({"requests": args.requests, "slowest_good_s": round(slowest[0], 3), "kinds": seen,
                      "violations": len(violations), "first_violations": violations[:20]}))  # fmt: skip
    sys.exit(bool(violations))


if __name__ == "__main__":
    asyncio.run(main())
