"""What the reader of a page of the book has before the first line: files, servers, data."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import haltwise


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Model(BaseHTTPRequestHandler):
    """Stands in for a language model on an OpenAI-compatible server: it adds up, the harder the
    question the more often wrongly, and finds "NAME is VALUE" in what it has read."""

    protocol_version = "HTTP/1.1"
    # Head and body in one packet: else each answer waits for an acknowledgement.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        known = {
            "/v1/models": {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]},
            "/version": {"version": "0.12.0"},
        }
        self.answer(known.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        if body.get("max_tokens") == 1:
            choices, made = [self.letters(prompt)], 1
        else:
            votes = range(body.get("n") or 1)
            choices = [self.vote(prompt, body.get("seed") or 0, i) for i in votes]
            made = 10 * len(choices)
        used = {"prompt_tokens": len(prompt) // 4, "completion_tokens": made}
        used["total_tokens"] = sum(used.values())
        self.answer({"object": "text_completion", "model": "m", "choices": choices, "usage": used})

    def vote(self, prompt: str, seed: int, i: int) -> dict[str, Any]:
        found = re.search(r"What is (\d+) (plus|times) (\d+)\?(?: \(difficulty (\d+)\))?", prompt)
        assert found, prompt
        a, b, difficulty = int(found[1]), int(found[3]), int(found[4] or 1)
        value = a + b if found[2] == "plus" else a * b
        draw = ((seed + 7919 * i) * 0x9E3779B97F4A7C15 % 2**64 >> 40) % 12
        text = f"It is \\boxed{{{value if draw >= difficulty else value + draw}}}."
        message = {"role": "assistant", "content": text}
        return {"index": i, "text": text, "message": message, "finish_reason": "stop"}

    def letters(self, prompt: str) -> dict[str, Any]:
        known = re.search(r"The (tenant|landlord) pays for repairs\.", prompt)
        options = re.findall(r"^([A-Z])\. (.*)$", prompt, re.M)
        shares = {
            letter: 0.5 if known is None else 0.95 if known[1] in text else 0.05
            for letter, text in options
        }
        table = {letter: log(share) for letter, share in shares.items()}
        logprobs = {"tokens": ["A"], "token_logprobs": [-0.1], "top_logprobs": [table]}
        return {"index": 0, "text": "A", "finish_reason": "length", "logprobs": logprobs}

    def answer(self, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def model() -> Iterator[str]:
    """The address of a server that stands in for a model."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def lines(path: Path, rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sums(path: Path, n: int, *, first: int = 0) -> None:
    """Questions that the stand-in can answer."""
    lines(
        path,
        [
            {
                "id": f"q{first + i}",
                "question": f"What is {i} plus 3? (difficulty {i % 5})",
                "label": str(i + 3),
            }
            for i in range(n)
        ],
    )


def five_steps(path: Path, n: int, seed: int) -> None:
    """Traces of five steps that can be halted from the second on."""
    rng = np.random.default_rng(seed)
    scores = rng.choice([0.3, 0.6], size=(n, 5))
    scores[:, 0] = rng.choice([0.3, 0.9], size=n)
    risk = np.where(scores == 0.3, 0.7, 0.03)
    risk[:, 0] = np.where(scores[:, 0] == 0.3, 0.7, 0.3)
    right = rng.random((n, 5)) >= risk
    right[:, -1] = True
    ids = [f"{path.stem}-{i}" for i in range(n)]
    traces = haltwise.Traces(scores, right.astype(int), np.ones(n, int), ids=ids)
    haltwise.write_traces(str(path), traces)


def streams(folder: Path, name: str, n: int, bad: int, labels: str) -> None:
    """Live streams that halt at step 2, of which one in `bad` was wrong there; their labels."""
    steps = []
    for i in range(n):
        early = int(i % bad != 0)
        for t, prediction in enumerate([early, early, early, 1, 1], start=1):
            score = 0.1 if t == 1 else 1.0
            steps.append({"id": f"{name}-{i}", "t": t, "prediction": prediction, "score": score})
    lines(folder / f"{name}.jsonl", steps)
    lines(folder / labels, [{"id": f"{name}-{i}", "label": 1} for i in range(n)])


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def served(folder: Path, _: str) -> dict[str, str]:
    needs("curl")
    address = f"127.0.0.1:{free_port()}"
    listening = f"haltwise serve --listen {address}"
    return {"127.0.0.1:7070": address, "haltwise serve": listening}


def production(folder: Path, command: str) -> dict[str, str]:
    five_steps(folder / "traces.parquet", 4000, 1)
    streams(folder, "live", 2000, 50, "labels.jsonl")
    streams(folder, "drifted", 1000, 2, "drifted-labels.jsonl")
    streams(folder, "since", 4000, 1000, "since-labels.jsonl")
    return served(folder, command)


def files_to_scale(folder: Path, _: str) -> dict[str, str]:
    for name in ("traces", "test"):
        (folder / name).mkdir()
    parts = ["traces/part-1", "traces/part-2", "day-1", "day-2", "test/new"]
    for seed, name in enumerate(parts):
        five_steps(folder / f"{name}.parquet", 2000, seed)
    five_steps(folder / "may.parquet", 1200, 8)
    five_steps(folder / "june.parquet", 900, 9)
    return {}


def with_rule(folder: Path, _: str) -> dict[str, str]:
    said = np.random.default_rng(0).dirichlet(np.ones(10), size=(600, 5))
    labels = said[:, -1].argmax(axis=1)
    rule = haltwise.calibrate(probs=said, labels=labels, method="conditional", alpha=0.5)
    rule.save(str(folder / "rule.json"))
    return {}


def with_model(folder: Path, _: str) -> dict[str, str]:
    needs("curl")
    sums(folder / "questions.jsonl", 400)
    sums(folder / "new.jsonl", 5, first=1000)
    return {"127.0.0.1:8088": f"127.0.0.1:{free_port()}"}


def leases(folder: Path, _: str) -> dict[str, str]:
    """Leases that say, in one part or another, who pays for repairs."""
    (folder / "leases").mkdir()
    questions = []
    for i in range(320):
        sentences = [f"Clause {k} of lease {i} is about nothing." for k in range(1, 21)]
        payer = ("tenant", "landlord")[i % 2]
        sentences[(7 * i) % 12] = f"The {payer} pays for repairs."
        name = f"lease-{i}.txt"
        (folder / "leases" / name).write_text(" ".join(sentences))
        questions.append(
            {
                "document": name,
                "question": "Who pays for repairs?",
                "options": ["The tenant", "The landlord"],
                "label": i % 2,
            }
        )
    shutil.copy(folder / "leases/lease-99.txt", folder / "lease-99.txt")
    lines(folder / "questions.jsonl", questions[:300])
    lines(folder / "new-questions.jsonl", questions[300:])
    return {}


#: By page: makes what its reader has, and says what is used instead of what stands there.
READERS: dict[str, Callable[[Path, str], dict[str, str]]] = {
    "production.md": production,
    "start/operator.md": served,
    "start/service.md": served,
    "start/language-models.md": with_model,
    "votes.md": with_model,
    "reading.md": leases,
    "scale.md": files_to_scale,
    "anywhere.md": with_rule,
}
