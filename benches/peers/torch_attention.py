#!/usr/bin/env python3
"""The workload `attention` in PyTorch: scaled_dot_product_attention, forward and backward, on the padded batch.

32 sequences of 10 to 500 rows, the same lengths as ours, 8 heads, width 512, f32. Padding is masked away, as it has to be; `--unmasked`
leaves that out. One line of JSON, in the same form.

usage: torch_attention.py [--threads 2] [--steps 20] [--causal] [--unmasked]
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

BATCH, WIDTH, HEADS = 32, 512, 8


def lengths():
    return [10 + 490 * (i * 11 % BATCH) // (BATCH - 1) for i in range(BATCH)]


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description="attention in PyTorch, one line of JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--unmasked", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    longest = max(lengths())
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(BATCH, HEADS, longest, WIDTH // HEADS, requires_grad=True) for _ in range(3)
    )
    there = torch.arange(longest)[None, :] < torch.tensor(lengths())[:, None]
    mask = there[:, None, None, :]
    if args.causal:
        mask = mask & torch.ones(longest, longest, dtype=torch.bool).tril()
    weight = there[:, None, :, None].to(torch.float32).expand(-1, HEADS, -1, WIDTH // HEADS).contiguous()
    before, times = peak(), []
    for step in range(args.steps + 3):
        for x in (q, k, v):
            x.grad = None
        start = time.perf_counter()
        if args.unmasked:
            out = scaled_dot_product_attention(q, k, v, is_causal=args.causal)
        else:
            out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out.backward(weight)
        if step >= 3:
            times.append((time.perf_counter() - start) * 1e3)
    mode = ("causal" if args.causal else "full") + (", unmasked" if args.unmasked else "")
    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "workload": "attention", "mode": mode,
        "threads": args.threads, "rows": sum(lengths()),
        "step_ms_median": round(statistics.median(times), 2), "step_ms_min": round(min(times), 2),
        "peak_rss_mb": round(peak()), "grown_mb": round(peak() - before),
    }))


if __name__ == "__main__":
    main()
