#!/usr/bin/env python3
"""The server that `unpadded serve` is compared with: FastAPI, uvicorn and a classifier of texts in PyTorch, in one process.

Embedding 15,000×128 → LSTM(128) → max pool → linear 2, with random weights. With --join N, requests that wait together are
computed as one batch, until it has N texts; without it, each request is a batch. --direct computes inside the event loop.

setup: python3 -m venv torch && torch/bin/pip install numpy torch fastapi 'uvicorn[standard]'
usage: torch/bin/python benches/serve/peer.py TEXTS [--port 8080] [--threads 2] [--join 0] [--direct]
       (TEXTS: a file of one text per line, whose 15,000 most frequent words are the vocabulary)
"""
import argparse
import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import islice

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS, WIDTH, LABELS = 15_000, 128, ["negative", "positive"]


class Classifier(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.ids = {word: at + 1 for at, word in enumerate(words)}  # 0: unknown word, and padding
        self.embedding = nn.Embedding(WORDS + 1, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.linear = nn.Linear(WIDTH, len(LABELS))

    @torch.inference_mode()
    def answers(self, texts):
        ids = [torch.tensor([self.ids.get(word, 0) for word in text.lower().split()] or [0]) for text in texts]
        lengths = torch.tensor([len(text) for text in ids])
        rows = self.embedding(pad_sequence(ids, batch_first=True))
        states, _ = self.lstm(pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False))
        pooled = pad_packed_sequence(states, batch_first=True, padding_value=float("-inf"))[0].amax(1)
        return [answer(row) for row in self.linear(pooled).softmax(1).tolist()]


def answer(row):
    best = row.index(max(row))
    return {"label": LABELS[best], "probability": row[best], "probabilities": dict(zip(LABELS, row))}


class Request(BaseModel):
    texts: list[str]


async def join(queue, run, limit):
    """Answers the requests of a queue. Requests that wait are joined until a batch has `limit` texts."""
    while True:
        batch = [await queue.get()]
        while not queue.empty() and sum(len(texts) for texts, _ in batch) < limit:
            batch.append(queue.get_nowait())
        try:
            answers = iter(await run([text for texts, _ in batch for text in texts]))
        except Exception as error:  # one bad batch must not end the worker
            for _, done in batch:
                done.cancelled() or done.set_exception(error)
            continue
        for texts, done in batch:
            mine = list(islice(answers, len(texts)))
            done.cancelled() or done.set_result(mine)


def application(model, args):
    pool, queue = ThreadPoolExecutor(1), asyncio.Queue()

    async def run(texts):
        if args.direct:
            return model.answers(texts)
        return await asyncio.get_running_loop().run_in_executor(pool, model.answers, texts)

    @asynccontextmanager
    async def lifespan(_):
        worker = asyncio.create_task(join(queue, run, args.join))
        yield
        worker.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def predict(request: Request):
        if not request.texts or not args.join:
            return {"model": "peer", "answers": await run(request.texts) if request.texts else []}
        done = asyncio.get_running_loop().create_future()
        queue.put_nowait((request.texts, done))
        return {"model": "peer", "answers": await done}

    @app.get("/health/ready")
    async def ready():
        return {}

    return app


def main():
    parser = argparse.ArgumentParser(description="a classifier of texts in PyTorch, behind FastAPI")
    parser.add_argument("texts")
    for name, usual in [("--port", 8080), ("--threads", 2), ("--join", 0), ("--seed", 1)]:
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--direct", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    with open(args.texts, encoding="utf-8") as file:
        counts = Counter(word for line in file for word in line.lower().split())
    model = Classifier([word for word, _ in counts.most_common(WORDS)]).eval()
    uvicorn.run(application(model, args), port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
