#!/usr/bin/env python3
"""The workload `crf` in PyTorch: the cost of tags under a linear chain, with the gradients of emissions and transitions.

64 sequences of 5 to 100 rows, 45 tags, f32, the same numbers as ours: the loss that is printed is the same. The batch is padded; a loop
over its steps takes logsumexp over [batch, tags, tags] and leaves alone those that have ended. `--product` takes a product of matrices
with exponentials around it in its place, which is quicker and loses small terms. One line of JSON.

usage: crf.py [--threads 2] [--steps 20] [--product]
"""
import argparse
import json
import resource
import statistics
import time

import torch

TAGS, BATCH = 45, 64


def numbers(rows, width, salt, scale):
    """Numbers between -scale and scale, mixed from their places: 32 bits of whole numbers, as in ours."""
    low = 0xFFFFFFFF
    mixed = (torch.arange(rows * width) * 2654435761 + salt * 40503) & low
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & low
    mixed = mixed ^ (mixed >> 13)
    return ((mixed.double() / 2.0**31 - 1.0).float() * scale).view(rows, width)


def cost(emissions, transitions, tags, lengths, there, product):
    """The sum over the batch of ln Σ e^score - score; `emissions` is [steps, batch, tags], `tags` and `there` [steps, batch]."""
    between, first, last = transitions[:TAGS], transitions[TAGS], transitions[TAGS + 1]
    rows, running = emissions.unbind(), there.unsqueeze(2).unbind()  # the gradient of unbind is one copy, of indices one a step
    alpha = first + rows[0]
    exponentials = between.exp() if product else None
    for row, runs in zip(rows[1:], running[1:]):
        if product:
            most = alpha.detach().amax(1, keepdim=True)
            found = torch.log((alpha - most).exp() @ exponentials) + most
        else:
            found = torch.logsumexp(alpha.unsqueeze(2) + between, dim=1)
        alpha = torch.where(runs, found + row, alpha)
    total = torch.logsumexp(alpha + last, dim=1)
    own = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
    own = (own * there).sum(0) + (between[tags[:-1], tags[1:]] * there[1:]).sum(0)
    ends = tags[lengths - 1, torch.arange(BATCH)]
    return (total - own - first[tags[0]] - last[ends]).sum()


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description="a linear-chain CRF in PyTorch, one line of JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--product", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lengths = torch.tensor([5 + 95 * (i * 29 % BATCH) // (BATCH - 1) for i in range(BATCH)])
    rows = int(lengths.sum())
    row = torch.arange(rows)
    pad = lambda values: torch.nn.utils.rnn.pad_sequence(values.split(lengths.tolist()))
    emissions = pad(numbers(rows, TAGS, 1, 2.0)).requires_grad_()
    tags = pad((row * row + row // 3) % TAGS)
    transitions = numbers(TAGS + 2, TAGS, 2, 1.0).requires_grad_()
    there = torch.arange(int(lengths.max()))[:, None] < lengths[None, :]
    before, times = peak(), []
    for step in range(args.steps + 3):
        emissions.grad = transitions.grad = None
        start = time.perf_counter()
        loss = cost(emissions, transitions, tags, lengths, there, args.product)
        loss.backward()
        if step >= 3:
            times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "workload": "crf",
        "mode": "product" if args.product else "logsumexp", "threads": args.threads, "rows": rows,
        "step_ms_median": round(statistics.median(times), 2), "step_ms_min": round(min(times), 2),
        "peak_rss_mb": round(peak()), "grown_mb": round(peak() - before), "loss": round(loss.item(), 3),
        "steps": args.steps,
    }))


if __name__ == "__main__":
    main()
