# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The interpreter that builds the environment: `make setup PYTHON=python3.13`; unset: see tools/python.sh.
PYTHON ?=
# How Kafka, Postgres and S3 are found: auto, env, docker or local (see CONTRIBUTING.md).
STACK ?= auto
# How long `make chaos` lasts.
MINUTES ?= 5
# Extra arguments for pytest and the benchmark: `make test ARGS="-k fence"`.
ARGS ?=
# Two workers: one for the tests that need servers, one for the others. One after the other: `make test WORKERS=`.
WORKERS ?= --numprocesses=2

VENV := .venv
BIN := $(VENV)/bin
DISTRIBUTIONS := schemas libs/runfold services/step_executor services/snapshot_compactor services/reconciler
PYPROJECTS := $(addsuffix /pyproject.toml,$(DISTRIBUTIONS))
STAMP := $(VENV)/READY
RUN := PYTHONPATH=tools $(BIN)/python
PYTHON_TREES := libs services schemas tests tools $(wildcard demo bench examples)

.PHONY: help setup lint format test simulate demo bench bench-report bench-soak bench-takeover chaos stack-up stack-down stack-status lock clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Build .venv with the library, the services and the tools

$(STAMP): requirements.lock $(PYPROJECTS)
	@rm -f $(STAMP)
	@if [ ! -x $(BIN)/python ]; then \
	  python='$(PYTHON)'; [ -n "$$python" ] || python=$$(tools/python.sh); \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Runfold needs Python 3.11 or newer; '$$python' is $$($$python --version 2>&1). Say: make setup PYTHON=python3.12"; exit 1; }; \
	  echo "setup: building $(VENV) with $$python, $$($$python --version)"; \
	  $$python -m venv $(VENV); \
	fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  $(addprefix -e ./,$(DISTRIBUTIONS))
	@touch $(STAMP)
	@echo "setup: done"

lint: setup ## Ruff, mypy, import contracts, schema checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PYTHON_TREES)
	$(BIN)/lint-imports
	@if [ -f tools/check_schemas.py ]; then echo "$(BIN)/python tools/check_schemas.py"; $(RUN) tools/check_schemas.py; fi

format: setup ## Format and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup ## All tests, integration included; without the servers they fail
	REQUIRE_SERVICES=1 $(BIN)/python -m pytest $(WORKERS) $(ARGS)

# How many seeds, and the first one: `make simulate SEEDS=100000`.
SEEDS ?= 1000
FROM ?= 1000000
simulate: setup ## Random runs of the real runtime under faults on virtual time (SEEDS=, FROM=)
	@$(BIN)/python -m tests.simulation $(FROM) $$(( $(FROM) + $(SEEDS) ))

demo: setup ## The acceptance trace with real processes and a real SIGKILL (STACK=auto|env|docker|local)
	@STACK=$(STACK) $(RUN) -m demo

bench: setup ## Throughput and latency, a JSON object a line (ARGS="--runs 1 100 --flush default")
	@$(RUN) -m bench $(ARGS)

bench-report: setup ## Everything that is measured, at 1x, 4x and 16x: figures and SVG curves in bench-report/
	@$(RUN) -m bench.report $(ARGS)

bench-soak: setup ## Constant load for ten minutes; fails if a service's memory grows (ARGS="--minutes 60 --rate 20")
	@$(RUN) -m bench.soak $(ARGS)

chaos: setup ## Kill, pause and cut off real processes for MINUTES (5), then wake zombies (ARGS="--seed N --faults kill,broker")
	@$(RUN) -m tests.chaos $(MINUTES) $(ARGS)
	@ZOMBIE_PAUSE_S=60 REQUIRE_SERVICES=1 $(BIN)/python -m pytest -q tests/chaos/test_zombies.py

bench-takeover: setup ## How long runs stand still: SIGKILL, SIGTERM, scale-out (ARGS="--protocol consumer")
	@$(RUN) -m bench.takeover $(ARGS)

stack-up: setup ## Start Kafka, Postgres and S3 for development; writes .stack/env
	@$(RUN) -m devstack up --mode $(STACK)

stack-down: setup ## Stop what stack-up started, and remove its data
	@$(RUN) -m devstack down

stack-status: setup ## Say which servers of stack-up are running
	@$(RUN) -m devstack status

LOCK_FLAGS := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
  --no-emit-package runfold --no-emit-package runfold-schemas
# The images install subsets of the one lock: the same versions, the same hashes.
SUBSET_FLAGS := $(LOCK_FLAGS) --constraints requirements.lock

lock: setup ## Compile the hashed locks again (newer versions: make lock ARGS=--upgrade)
	$(BIN)/uv pip compile $(LOCK_FLAGS) $(ARGS) --all-extras $(PYPROJECTS) requirements/build.in requirements/dev.in \
	  --output-file requirements.lock
	@mkdir -p deploy/locks
	$(BIN)/uv pip compile $(SUBSET_FLAGS) requirements/build.in --output-file deploy/locks/build.lock
	@for service in step_executor snapshot_compactor reconciler; do \
	  echo "deploy/locks/$$service.lock"; \
	  $(BIN)/uv pip compile $(SUBSET_FLAGS) services/$$service/pyproject.toml --output-file deploy/locks/$$service.lock; \
	done

clean: ## Remove the environment, caches and the stack's data (stops the stack first)
	@if [ -f $(STAMP) ]; then $(RUN) -m devstack down || true; fi
	rm -rf $(VENV) .stack .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
