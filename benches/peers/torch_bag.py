#!/usr/bin/env python3
"""The bench program `bags` in PyTorch: the figures that ours are compared with.

EmbeddingBag(1000000, width, sparse=True) over bags of 5 to 500 ids, evenly and by Zipf's law, f32: medians in milliseconds of
forward and backward, and of a whole step of SGD. One line of JSON for each of the two, in the same form.

usage: torch_bag.py [--width 64] [--batch 256] [--threads 1] [--steps 20] [--pool sum|mean|max|weighted]
"""
import argparse
import json
import statistics
import time

import numpy as np
import torch
from torch import nn

VOCABULARY, BATCHES = 1_000_000, 8


def arguments():
    parser = argparse.ArgumentParser(description="embedding bags in PyTorch, one line of JSON each")
    for name, usual in [("--width", 64), ("--batch", 256), ("--threads", 1), ("--steps", 20)]:
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--pool", choices=["sum", "mean", "max", "weighted"], default="sum")
    return parser.parse_args()


def draw(random, kind, bags):
    """Ids, where each bag begins, and a weight for each id."""
    lengths = random.integers(5, 501, bags)
    even = random.random(lengths.sum())
    rank = even * VOCABULARY if kind == "uniform" else VOCABULARY ** even - 1
    ids = rank.astype(np.int64) * 7_919_317 % VOCABULARY
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    weights = random.random(len(ids), dtype=np.float32)
    return torch.from_numpy(ids), torch.from_numpy(starts), torch.from_numpy(weights)


def measure(args, kind):
    random = np.random.default_rng(7)
    weighted = args.pool == "weighted"
    sparse = args.pool != "max"  # it has no sparse gradient of a maximum
    bag = nn.EmbeddingBag(VOCABULARY, args.width, mode="sum" if weighted else args.pool, sparse=sparse)
    nn.init.uniform_(bag.weight, -0.1, 0.1)
    descent = torch.optim.SGD(bag.parameters(), lr=0.01)
    gradient = torch.rand(args.batch, args.width) - 0.5
    batches = [draw(random, kind, args.batch) for _ in range(BATCHES)]
    both, whole = [], []
    for step in range(args.steps + BATCHES):
        ids, starts, weights = batches[step % BATCHES]
        if weighted:
            weights.requires_grad_(False)
        descent.zero_grad(set_to_none=True)
        start = time.perf_counter()
        out = bag(ids, starts, per_sample_weights=weights if weighted else None)
        out.backward(gradient)
        middle = time.perf_counter()
        descent.step()
        end = time.perf_counter()
        if step >= BATCHES:
            both.append((middle - start) * 1e3)
            whole.append((end - start) * 1e3)
    print(json.dumps({
        "peer": "torch", "pool": args.pool, "ids": kind, "width": args.width, "batch": args.batch,
        "threads": args.threads, "ids_a_batch": sum(len(b[0]) for b in batches) // BATCHES,
        "forward_backward_ms": round(statistics.median(both), 2), "step_ms": round(statistics.median(whole), 2),
    }))


def main():
    args = arguments()
    torch.manual_seed(7)
    torch.set_num_threads(args.threads)
    for kind in ["uniform", "zipf"]:
        measure(args, kind)


if __name__ == "__main__":
    main()
