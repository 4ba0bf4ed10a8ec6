#!/usr/bin/env python3
"""The workload `ctc` in PyTorch: log_softmax and ctc_loss on the CPU, with the gradient of the logits.

32 sequences of 200 frames, 40 classes of which 0 is the blank, 20 to 40 labels, f32, the same numbers as ours: the loss that is printed
is the same. The logits lie step by step, as PyTorch wants them. One line of JSON.

usage: ctc.py [--threads 2] [--steps 20]
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torch.nn.functional import ctc_loss, log_softmax

CLASSES, BATCH, FRAMES = 40, 32, 200


def numbers(rows, width, salt, scale):
    """Numbers between -scale and scale, mixed from their places: 32 bits of whole numbers, as in ours."""
    low = 0xFFFFFFFF
    mixed = (torch.arange(rows * width) * 2654435761 + salt * 40503) & low
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & low
    mixed = mixed ^ (mixed >> 13)
    return ((mixed.double() / 2.0**31 - 1.0).float() * scale).view(rows, width)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description="connectionist temporal classification in PyTorch, one line of JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logits = numbers(BATCH * FRAMES, CLASSES, 3, 2.0).view(BATCH, FRAMES, CLASSES)
    logits = logits.transpose(0, 1).contiguous().requires_grad_()
    lengths = [20 + 20 * (i * 11 % BATCH) // (BATCH - 1) for i in range(BATCH)]
    labels = [1 + (17 * i + 7 * j + j * j) % (CLASSES - 1) for i, n in enumerate(lengths) for j in range(n)]
    labels, lengths = torch.tensor(labels), torch.tensor(lengths)
    frames = torch.full((BATCH,), FRAMES)
    before, times = peak(), []
    for step in range(args.steps + 3):
        logits.grad = None
        start = time.perf_counter()
        loss = ctc_loss(log_softmax(logits, 2), labels, frames, lengths, blank=0, reduction="sum")
        loss.backward()
        if step >= 3:
            times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "workload": "ctc", "mode": "log_softmax, ctc_loss",
        "threads": args.threads, "rows": BATCH * FRAMES,
        "step_ms_median": round(statistics.median(times), 2), "step_ms_min": round(min(times), 2),
        "peak_rss_mb": round(peak()), "grown_mb": round(peak() - before), "loss": round(loss.item(), 3),
        "steps": args.steps,
    }))


if __name__ == "__main__":
    main()
