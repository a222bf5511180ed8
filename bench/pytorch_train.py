"""The measurements of `bench_train` by PyTorch on the CPU, eager, with its best
thread count. Prints one JSON object per shape.

    python bench/pytorch_train.py [--shape N]
"""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 64
GAMMA = 0.2
SHAPES = [(8, 2, 10, 32, 1), (23, 10, 9, 32, 1), (46, 1, 24, 32, 1), (206, 3, 6, 256, 2)]


class TwoHeads(nn.Module):
    def __init__(self, features, classes, hidden, layers):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)
        self.fc_scores = nn.Linear(hidden, classes)
        self.fc_is_correct = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.fc_scores(h), self.fc_is_correct(h).squeeze(-1)


def shortest(budget, f):
    f()
    start, best, runs = time.perf_counter(), float("inf"), 0
    while runs < 2 or time.perf_counter() - start < budget:
        run = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - run)
        runs += 1
    return best


def measure(shape, threads):
    steps, features, classes, hidden, layers = shape
    torch.set_num_threads(threads)
    large = hidden > 100
    # Few steps per measurement: it takes about as long as one of bench_train's.
    batches, budget, n = (1, 4.0, 256) if large else (4, 1.5, 4096)
    net = TwoHeads(features, classes, hidden, layers)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    x = torch.rand(BATCH, steps, features) - 0.5
    labels = torch.randint(0, classes, (BATCH,))[:, None].expand(-1, steps)

    def epoch():
        for _ in range(batches):
            adam.zero_grad()
            logits, confidence = net(x)
            loss = F.cross_entropy(logits.reshape(-1, classes), labels.reshape(-1))
            right = (logits.argmax(-1) == labels).float()
            loss = loss + GAMMA * F.binary_cross_entropy_with_logits(confidence, right)
            loss.backward()
            adam.step()

    many = torch.rand(n, steps, features) - 0.5

    def score(size):
        with torch.inference_mode():
            for part in many.split(size):
                logits, confidence = net(part)
                logits.softmax(-1), logits.argmax(-1), confidence.sigmoid()

    step = shortest(budget, epoch) / batches
    sizes = [64, 256] if large else [256, 1024]
    scored = max(n / shortest(budget / 2, lambda s=s: score(s)) for s in sizes)
    return step * 1e3, scored


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", type=int)
    only = parser.parse_args().shape
    for index, shape in enumerate(SHAPES):
        if only is not None and index != only:
            continue
        threads = sorted({1, os.cpu_count() or 1})
        results = [measure(shape, t) for t in threads]
        print(
            json.dumps(
                {
                    "shape": index,
                    "ms_per_step": min(r[0] for r in results),
                    "scored_per_s": max(r[1] for r in results),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
