# Every target makes the virtual environment it needs. `make sweep` and `make test` are the two to know.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
comma := ,
# libtpu exists for Linux alone; elsewhere the compile task says so.
EXTRAS := dev,release$(if $(filter Linux,$(shell uname -s)),$(comma)tpu)
LENGTHS := 128,256,512,1024,2048

.PHONY: help sweep test test-all lint format audit audit-quick mutants retune release verify device-check test-supported compile-newest clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | column -t -s "$$(printf '\t')"

$(VENV)/.ready: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: give one from 3.11 to 3.13, as in  make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

sweep: $(VENV)/.ready ## the main job: the slowdown curve of the Pallas softmax against XLA
	$(BIN)/python lab/run.py -m kernel=pallas,xla seq=$(LENGTHS)

test: $(VENV)/.ready ## the fast test suite
	$(BIN)/python -m pytest -n auto

test-all: $(VENV)/.ready ## the slow tests too
	$(BIN)/python -m pytest -n auto -m 'slow or not slow'

lint: $(VENV)/.ready ## ruff (rules, format) and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready ## let ruff format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

audit: $(VENV)/.ready ## how often the grader is wrong: every candidate, tables and figures (20 minutes)
	$(BIN)/python lab/run.py task=audit audit.size=full deadline_s=7200

audit-quick: $(VENV)/.ready ## the same on some candidates (two minutes)
	$(BIN)/python lab/run.py task=audit

mutants: $(VENV)/.ready ## plant known defects in a copy of the grader: its tests must fail
	$(BIN)/python scripts/mutants.py

retune: $(VENV)/.ready ## search the fused kernel's sizes for TARGET (v5e) and enter the winners in its table
	$(BIN)/python lab/run.py task=tune tune=flash target=$(or $(TARGET),v5e)

release: $(VENV)/.ready ## rebuild dataset/ and its evidence pages from the raw records in it
	$(BIN)/python lab/run.py task=release release=local-cpu release.evidence=evidence

verify: $(VENV)/.ready ## recompute everything that dataset/ says
	$(BIN)/python lab/run.py task=verify verify.path=dataset

device-check: $(VENV)/.ready ## the measurement that fits the attached device, packed into one file
	$(BIN)/python lab/run.py task=campaign campaign=$$($(BIN)/python -m lab.doctor.campaigns)

test-supported: ## the suite and the quick audit with the oldest and the newest jax, on each Python here
	scripts/supported.sh

compile-newest: ## compile the published cases with the newest jax and libtpu; PYTHON=python3.12
	scripts/compile_newest.sh $(if $(filter file,$(origin PYTHON)),python3.12,$(PYTHON))

clean: ## remove the environment and caches, not the runs
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
