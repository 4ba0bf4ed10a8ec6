#!/usr/bin/env python3
"""The bench program's W2wide in PyTorch: the figure that ours is compared with.

embedding 10000x256 -> LSTM(1024) twice -> linear 10000 -> cross-entropy of the next word, SGD with rate 1.0 and the norm
of all gradients clipped at 5, batches of 16 sentences, f32. A batch is padded to its longest sentence, as PyTorch's LSTM
wants it; the states of padding are left out before the last layer, which is by far the quickest way there is.

usage: torch_w2wide.py [--bucketed] [--flush] [--steps N] [--threads N] [--data FOLDER]
"""
import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

WORDS, EMBEDDED, HIDDEN, BATCH = 10_000, 256, 1024, 16
SENTENCES = 2_000


def arguments():
    parser = argparse.ArgumentParser(description="W2wide in PyTorch, one line of JSON")
    parser.add_argument("--bucketed", action="store_true",
                        help="batches of sentences of about one length, in random order; else the order of the data")
    parser.add_argument("--flush", action="store_true", help="subnormal numbers become zero")
    parser.add_argument("--steps", type=int, help="steps that are timed, behind three to warm up (all batches once)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, help="the folder of w2.txt: ids, a sentence a line (drawn at random)")
    return parser.parse_args()


def read(folder):
    with open(folder / "w2.txt", encoding="ascii") as lines:
        return [torch.tensor([int(word) for word in line.split()]) for line in lines]


def draw():
    """Lengths are lognormal, 3 to 80 and 21 on average; the word of rank r is drawn as often as r ** -1.1."""
    random = np.random.default_rng(102)
    lengths = np.clip(np.rint(random.lognormal(np.log(18.05), 0.55, SENTENCES)), 3, 80).astype(int)
    often = np.arange(1, WORDS + 1) ** -1.1
    return [torch.from_numpy(random.choice(WORDS, size=n, p=often / often.sum())) for n in lengths]


def batches(sentences, bucketed):
    """The words before, padded; which of them are words; and of these the next ones. All is made before the clock runs."""
    if bucketed:
        sentences = sorted(sentences, key=len)
    made = []
    for first in range(0, len(sentences), BATCH):
        part = sentences[first:first + BATCH]
        before = nn.utils.rnn.pad_sequence([s[:-1] for s in part], batch_first=True)
        lengths = torch.tensor([len(s) - 1 for s in part])
        words = torch.arange(before.shape[1]) < lengths[:, None]
        made.append((before, words, torch.cat([s[1:] for s in part])))
    if bucketed:
        made = [made[i] for i in np.random.default_rng(7).permutation(len(made))]
    return made


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, EMBEDDED)
        self.layers = nn.LSTM(EMBEDDED, HIDDEN, num_layers=2, batch_first=True)
        self.logits = nn.Linear(HIDDEN, WORDS)
        # The table's default, numbers of size 1, would drive the gates to their ends.
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.05, 0.05)

    def forward(self, before, words, following):
        states, _ = self.layers(self.table(before))
        return nn.functional.cross_entropy(self.logits(states[words]), following)


def main():
    chosen = arguments()
    torch.set_num_threads(chosen.threads)
    # Before the first parallel work: the threads that it starts have the setting from this one.
    if chosen.flush and not torch.set_flush_denormal(True):
        raise SystemExit("this CPU cannot flush subnormal numbers")
    torch.manual_seed(1)
    data = batches(read(chosen.data) if chosen.data else draw(), chosen.bucketed)
    model = Model()
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)

    def step(batch):
        start = time.perf_counter()
        loss = model(*batch)
        sgd.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        sgd.step()
        return time.perf_counter() - start, len(batch[2]), batch[0].numel(), loss.item()

    # The largest first, so that no buffer grows later.
    for batch in [max(data, key=lambda b: b[0].numel()), data[0], data[1]]:
        step(batch)
    steps = chosen.steps or max(len(data), 20)
    timed = [step(data[i % len(data)]) for i in range(steps)]
    seconds, tokens, computed, losses = zip(*timed)
    print(json.dumps({
        "peer": "pytorch",
        "version": torch.__version__,
        "workload": "W2wide",
        "mode": ("bucketed" if chosen.bucketed else "file order") + (", flushed" if chosen.flush else ""),
        "threads": chosen.threads,
        "tokens_per_s": round(statistics.median(n / s for n, s in zip(tokens, seconds))),
        "tokens_per_s_total": round(sum(tokens) / sum(seconds)),
        "step_ms_median": round(statistics.median(seconds) * 1e3, 2),
        "step_ms_min": round(min(seconds) * 1e3, 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
        "padding_ratio": round(sum(computed) / sum(tokens), 3),
        "final_loss": round(losses[-1], 4),
        "steps": steps,
    }))


if __name__ == "__main__":
    main()
