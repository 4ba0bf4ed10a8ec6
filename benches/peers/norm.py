#!/usr/bin/env python3
"""The bench program's workload `norm` in PyTorch: the figures that ours are compared with.

Layer norm and root mean square norm of 100 MB in rows of 512 and of 64 numbers, f32, with a gain and, for layer norm, a bias:
medians in milliseconds of forward, of backward, and of copies of the bytes that each touches. One line of JSON for each.

usage: norm.py [--threads 2] [--rounds 9]
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

BYTES = 100 << 20


def arguments():
    parser = argparse.ArgumentParser(description="norms in PyTorch, one line of JSON each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def timed(call):
    start = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - start) * 1e3


def measure(kind, width, args):
    rows = BYTES // 4 // width
    x = torch.randn(rows, width, requires_grad=True)
    upstream = torch.randn(rows, width)
    gain = torch.ones(width, requires_grad=True)
    bias = torch.zeros(width, requires_grad=True)
    if kind == "rms_norm":
        leaves, norm = [x, gain], lambda: F.rms_norm(x, (width,), gain, 1e-5)
    else:
        leaves, norm = [x, gain, bias], lambda: F.layer_norm(x, (width,), gain, bias, 1e-5)
    source, target = torch.ones(rows * width * 3 // 2), torch.full((rows * width * 3 // 2,), 0.5)
    part = rows * width
    times = [[], [], [], []]
    for turn in range(args.rounds + 1):
        out, forward = timed(norm)
        _, copied = timed(lambda: target[:part].copy_(source[:part]))
        _, backward = timed(lambda: torch.autograd.grad(out, leaves, upstream))
        _, copied_more = timed(lambda: target.copy_(source))
        if turn > 0:
            for kept, one in zip(times, [forward, copied, backward, copied_more]):
                kept.append(one)
    forward, copied, backward, copied_more = map(statistics.median, times)
    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "workload": "norm", "mode": kind, "threads": args.threads,
        "rows": rows, "width": width, "forward_ms": round(forward, 2), "copy_ms": round(copied, 2),
        "ratio_forward": round(forward / copied, 3), "backward_ms": round(backward, 2),
        "copy_of_backward_ms": round(copied_more, 2), "ratio_backward": round(backward / copied_more, 3),
        "rounds": args.rounds}))


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    for width in (512, 64):
        for kind in ("layer_norm", "rms_norm"):
            measure(kind, width, args)


main()
