#!/usr/bin/env python3
"""The bench program's `conv` in PyTorch: the figure that ours is compared with.

A Conv1d of width 5, 256 channels in and out, zeros at the borders, over batches of 32 sequences of 10 to 500 rows, f32: forward
and backward, with the gradients of the weight, the bias and the input. A batch is padded to its longest sequence, as Conv1d
wants it; what it gives for padding is left out of the loss. Prints one line of JSON.

How to run it (needs torch and nothing else; the data is drawn here):

    python3 benches/peers/conv.py [--width 5] [--channels 256] [--batch 32] [--groups 1] [--dilation 1] [--threads 2] [--steps 30] [--one-dnn off]
"""
import argparse
import json
import random
import statistics
import time

import torch
from torch import nn

BATCHES = 8


def arguments():
    parser = argparse.ArgumentParser(description="a 1-D convolution over padded sequences in PyTorch, one line of JSON")
    for name, usual in [("--width", 5), ("--channels", 256), ("--batch", 32), ("--groups", 1), ("--dilation", 1),
                        ("--threads", 2), ("--steps", 30)]:
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--one-dnn", choices=["on", "off"], default="on")
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(7)
    torch.backends.mkldnn.enabled = args.one_dnn == "on"
    draw = random.Random(7)
    conv = nn.Conv1d(args.channels, args.channels, args.width, padding="same", groups=args.groups,
                     dilation=args.dilation)
    batches = []
    for _ in range(BATCHES):
        lengths = [draw.randint(10, 500) for _ in range(args.batch)]
        x = torch.zeros(args.batch, args.channels, max(lengths))
        d = torch.zeros(args.batch, args.channels, max(lengths))
        for i, n in enumerate(lengths):
            x[i, :, :n] = torch.rand(args.channels, n) - 0.5
            d[i, :, :n] = torch.rand(args.channels, n) - 0.5
        batches.append((x.requires_grad_(), d, sum(lengths)))
    times, rates = [], []
    for step in range(args.steps + BATCHES):
        x, d, rows = batches[step % BATCHES]
        conv.zero_grad(set_to_none=True)
        x.grad = None
        start = time.perf_counter()
        conv(x).backward(d)
        seconds = time.perf_counter() - start
        if step >= BATCHES:
            times.append(seconds)
            rates.append(rows / seconds)
    padded = sum(x.shape[0] * x.shape[2] for x, _, _ in batches) / sum(rows for _, _, rows in batches)
    print(json.dumps({"peer": f"torch {torch.__version__}", "workload": "conv", "mode": f"padded, oneDNN {args.one_dnn}",
                      "threads": args.threads, "tokens_per_s": round(statistics.median(rates)),
                      "step_ms_median": round(statistics.median(times) * 1e3, 2),
                      "step_ms_min": round(min(times) * 1e3, 2), "padding_ratio": round(padded, 2),
                      "steps": args.steps}))


main()
