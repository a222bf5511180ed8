"""The measurements of `bench_gpu` by PyTorch on the GPU (cuDNN): medians by the GPU's own clock.
Prints one JSON object per shape.

    python bench/pytorch_gpu.py
"""

import json
import statistics

import torch
from pytorch_train import BATCH, GAMMA, SHAPES, TwoHeads
from torch.nn import functional as F


def timed(work):
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    work()
    after.record()
    torch.cuda.synchronize()
    return before.elapsed_time(after)


def measure(shape):
    steps, features, classes, hidden, layers = shape
    net = TwoHeads(features, classes, hidden, layers).cuda()
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    x = torch.rand(BATCH, steps, features, device="cuda") - 0.5
    labels = torch.randint(0, classes, (BATCH,), device="cuda")[:, None].expand(-1, steps)

    def step():
        adam.zero_grad()
        logits, confidence = net(x)
        loss = F.cross_entropy(logits.reshape(-1, classes), labels.reshape(-1))
        right = (logits.argmax(-1) == labels).float()
        loss = loss + GAMMA * F.binary_cross_entropy_with_logits(confidence, right)
        loss.backward()
        adam.step()

    for _ in range(5):
        step()
    times = [timed(step) for _ in range(30)]

    def row():
        for _ in range(30):
            step()

    in_a_row = timed(row) / 30
    scored = {}
    for n in [64, 256, 512, 1024, 4096, 9504]:
        many = torch.rand(n, steps, features, device="cuda") - 0.5

        def score(many=many):
            with torch.inference_mode():
                logits, confidence = net(many)
                probabilities, predictions = logits.softmax(-1), logits.argmax(-1)
                confidence = confidence.sigmoid()
                # As in ours, the results end up in the host's memory.
                return probabilities.cpu(), predictions.cpu(), confidence.cpu()

        score()
        scored[n] = round(1e3 * n / statistics.median(timed(score) for _ in range(10)))
    return {
        "shape": shape,
        "ms_per_step": round(statistics.median(times), 3),
        "ms_in_a_row": round(in_a_row, 3),
        "scored_per_s": scored,
    }


def main():
    print(torch.__version__, torch.backends.cudnn.version(), torch.cuda.get_device_name(), flush=True)
    for tf32 in [True, False]:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        for shape in SHAPES if tf32 else SHAPES[-1:]:
            print(json.dumps({"tf32": tf32, **measure(shape)}), flush=True)


if __name__ == "__main__":
    main()
