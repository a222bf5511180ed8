"""Writes gradients.json: losses, gradients and Adam steps of tiny networks in
float64 PyTorch. Run with any CPU build of torch: python make_gradients.py"""

import json
import pathlib

import torch
from torch import nn
from torch.nn import functional as F

GAMMA = 0.2
STEPS = 5


class Net(nn.Module):
    def __init__(self, features, hidden, layers, classes, gap_head):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)
        self.fc_scores = nn.Linear(hidden, classes)
        self.fc_is_correct = nn.Linear(hidden, 1)
        if gap_head:
            self.fc_gap = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.lstm(x)[0]


def loss_of(net, x, lengths, labels):
    h = net(x)
    logits = net.fc_scores(h)
    steps = x.shape[1]
    mask = torch.arange(steps)[None, :] < lengths[:, None]
    target = labels[:, None].expand(-1, steps)
    right = (logits.argmax(-1) == target).double()
    loss = F.cross_entropy(logits[mask], target[mask])
    bce = F.binary_cross_entropy_with_logits
    loss = loss + GAMMA * bce(net.fc_is_correct(h).squeeze(-1)[mask], right[mask])
    if hasattr(net, "fc_gap"):
        full = right.gather(1, (lengths - 1)[:, None])
        gap = full * (1 - right)
        loss = loss + GAMMA * bce(net.fc_gap(h).squeeze(-1)[mask], gap[mask])
    return loss


def flat(net, pick, merge):
    """In the order of the crate: per layer w_ih, w_hh, one bias; then the heads."""
    named = dict(net.named_parameters())
    out = []
    for name, p in named.items():
        if "bias_hh" in name:
            continue
        value = pick(p)
        if "bias_ih" in name and merge:
            value = value + pick(named[name.replace("bias_ih", "bias_hh")])
        out += value.flatten().tolist()
    return out


def case(seed, features, hidden, layers, classes, gap_head, lengths, steps):
    torch.manual_seed(seed)
    net = Net(features, hidden, layers, classes, gap_head).double()
    for p in net.parameters():
        p.data = p.data.float().double() * 2
    n = len(lengths)
    x = torch.randn(n, steps, features).double()
    labels = torch.randint(0, classes, (n,))
    lengths = torch.tensor(lengths)
    result = {
        "shape": {
            "features": features,
            "hidden": hidden,
            "layers": layers,
            "classes": classes,
            "gap_head": gap_head,
        },
        "steps": steps,
        "gamma": GAMMA,
        "lengths": lengths.tolist(),
        "labels": labels.tolist(),
        "values": x.flatten().tolist(),
        "parameters": flat(net, lambda p: p.data, merge=True),
    }
    loss = loss_of(net, x, lengths, labels)
    loss.backward()
    result["loss"] = loss.item()
    result["gradients"] = flat(net, lambda p: p.grad, merge=False)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-8)
    for _ in range(STEPS):
        adam.zero_grad()
        loss_of(net, x, lengths, labels).backward()
        adam.step()
    result["adam_steps"] = STEPS
    result["after_adam"] = flat(net, lambda p: p.data, merge=True)
    return result


cases = [
    case(1, 2, 4, 1, 3, False, [6, 6, 6], 6),
    case(2, 1, 5, 1, 2, True, [4, 1, 5, 3], 5),
    case(3, 3, 3, 2, 4, True, [4, 2, 3, 4, 4], 4),
    case(4, 2, 3, 3, 3, False, [3, 3], 3),
]
out = pathlib.Path(__file__).with_name("gradients.json")
out.write_text(json.dumps(cases) + "\n")
