# Everything a person types, on a machine that has python3, make and git. `make help` lists it.
#
# uv is brought along when it is missing; .venv/ holds exactly what requirements.lock pins.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:

PYTHON ?= python3
UV_VERSION := 0.13.8
BIN := .venv/bin
PROJECTS := broker broker/client platform deploy/services pipelines
INSTALLED := .venv/.installed
OLD_LIBRDKAFKA := tests/broker/clients/librdkafka

# The machine's own certificate authorities, for uv as for everything else.
export UV_SYSTEM_CERTS ?= 1
export UV_PYTHON_PREFERENCE ?= system
# A certificate bundle that is named for OpenSSL counts for pip too.
ifdef SSL_CERT_FILE
export PIP_CERT ?= $(SSL_CERT_FILE)
endif

.PHONY: help install lock demo test test-slow check format bench mutants kill-loop hostile fuzz up down clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED) ## fill .venv/ from requirements.lock, every version with its hash

$(INSTALLED): requirements.lock $(PROJECTS:%=%/pyproject.toml) $(wildcard $(OLD_LIBRDKAFKA)/*.txt)
	@$(call bring_uv) && \
	{ [ -x $(BIN)/python ] || "$$uv" venv --quiet --python "$(PYTHON)" .venv || "$$uv" venv .venv; } && \
	echo "filling .venv/ from requirements.lock" && \
	"$$uv" pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock && \
	"$$uv" pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
		$(PROJECTS:%=-e ./%) && \
	$(call old_librdkafka)
	@touch $(INSTALLED)

lock: ## renew requirements.lock from the five pyproject.toml
	@$(call bring_uv) && "$$uv" lock && "$$uv" export --quiet --frozen --all-packages --all-groups \
		--no-emit-workspace --no-header --output-file requirements.lock

demo: install ## real records from producers to a proven table, and a loss that is found
	@$(BIN)/penstock-demo

test: install check ## lint, types, architecture, all tests but the slow ones, and one run of the demo
	$(BIN)/pytest -n auto --dist loadgroup -m "not end_to_end and not slow"
	$(BIN)/pytest -m end_to_end

test-slow: install ## the tests that take minutes each: the services' life, damaged tables, kills of Spark
	$(BIN)/pytest -n auto --dist loadgroup -m slow

check: install ## lint, formatting, strict types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## repair formatting and imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## the figures: broker, audited producer, landing
	$(BIN)/python benchmarks/broker/bench.py
	$(BIN)/python benchmarks/broker/start_stop.py
	$(BIN)/python benchmarks/broker/bench_metrics.py
	@echo "== benchmarks/client/bench_audited_producer.py"
	@set -e; data=$$(mktemp -d); \
	$(BIN)/penstock-broker serve --data-dir "$$data/log" --port 0 >"$$data/out" 2>"$$data/err" & \
	broker=$$!; trap 'kill $$broker; wait $$broker; rm -rf "$$data"' EXIT; \
	until address=$$(sed -n 's/.*ready.* \([0-9.]*:[0-9]*\).*/\1/p' "$$data/out") && [ "$$address" ]; do \
		kill -0 $$broker || { cat "$$data/err"; exit 1; }; sleep 0.2; done; \
	$(BIN)/python benchmarks/client/bench_audited_producer.py --bootstrap-servers "$$address"
	$(BIN)/python benchmarks/landing/bench_landing.py

mutants: install ## small changes to the code that decides: which would no test notice? MODULES="books.py …"
	$(BIN)/python tests/mutants/run.py $(MODULES)

kill-loop: install ## 200 times kill -9 under load: nothing acknowledged may be lost or twice
	$(BIN)/python benchmarks/broker/kill_loop.py

hostile: install ## a normal client among 1,000 hostile frames a second: what it keeps of its throughput
	$(BIN)/python benchmarks/broker/hostile.py

FUZZ_SECONDS ?= 600
fuzz: install ## frames that are a little wrong, guided by coverage, for FUZZ_SECONDS
	PYTHONPATH=tests:tests/broker $(BIN)/python tests/broker/limits/fuzzing.py $(FUZZ_SECONDS)

up: install ## start the services of this directory and wait until they serve
	@$(BIN)/penstock up

down: install ## stop them
	@$(BIN)/penstock down

clean: ## remove what install and the tools made (not .penstock/, which holds data)
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# Old librdkafkas for the tests, out of wheels for other Pythons: only the shared library counts.
define old_librdkafka
if [ "$$(uname -sm)" = "Linux x86_64" ]; then for pinned in $(OLD_LIBRDKAFKA)/*.txt; do \
	version=$${pinned##*/}; version=$${version%.txt}; \
	"$$uv" pip install --quiet --python $(BIN)/python --target ".venv/librdkafka-$$version" --no-deps \
		--only-binary :all: --python-platform x86_64-manylinux2014 \
		--python-version "$$(sed -n 's/^# Python //p' "$$pinned")" --require-hashes -r "$$pinned" || exit 1; \
done; fi
endef

# Sets $$uv: the one on PATH, else one under .tools/, made with whatever this Python has.
define bring_uv
uv=$$(command -v uv || true); \
if [ -z "$$uv" ]; then for uv in .tools/bin/uv .tools/uv/bin/uv ""; do [ ! -x "$$uv" ] || break; done; fi; \
if [ -z "$$uv" ]; then \
	echo "bringing uv $(UV_VERSION) into .tools/"; \
	command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11, 3.12 or 3.13" >&2; exit 1; }; \
	$(call has_pip_or_venv) || { \
		$(call debian_with_root) || { \
			echo "This python3 has neither venv nor pip. Run: sudo apt-get install -y python3-venv" >&2; \
			echo "(or install uv by any other way), then make again." >&2; exit 1; }; \
		echo "this python3 has neither venv nor pip: installing python3-venv"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends python3-venv; } >.tools-apt.log 2>&1 </dev/null || { \
			tail -5 .tools-apt.log >&2; \
			echo "apt-get could not install python3-venv (above, and .tools-apt.log)" >&2; exit 1; }; \
		rm -f .tools-apt.log; }; \
	if $(PYTHON) -c "import venv, ensurepip" 2>/dev/null; then \
		$(PYTHON) -m venv .tools && .tools/bin/python -m pip install --quiet --disable-pip-version-check \
			"uv==$(UV_VERSION)" && uv=.tools/bin/uv; \
	else \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .tools/uv \
			"uv==$(UV_VERSION)" && uv=.tools/uv/bin/uv; \
	fi || { echo "uv could not be installed with pip (above): is the package registry reachable?" >&2; exit 1; }; \
fi
endef
has_pip_or_venv = { $(PYTHON) -c "import venv, ensurepip" 2>/dev/null || $(PYTHON) -m pip --version >/dev/null 2>&1; }
debian_with_root = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
