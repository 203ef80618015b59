# Everything is made in .venv; nothing is needed but Python 3.10 or newer, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest
## Tests run in so many streams at a time, by itself one more than cores, and one more runs what starts
## no cluster in what these leave (tests/support/streams.py).
STREAMS ?= auto
## Tests start thousands of processes: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test rewritten unit integration lint types contracts faults deps generated pictures wheel clean help

help: ## this list
	@sed -n 's/^# //p' Makefile
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  $(PYTHON) -m venv --without-pip --clear $(VENV) && \
	  wheel=$$($(PYTHON) tests/support/parts.py pip-wheel) && \
	  $(BIN)/python "$$wheel/pip" install --quiet "$$wheel"; } || \
	  { echo "no pip for $(PYTHON): apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing ray_sentinel and PyTorch into $(VENV) (the first time takes minutes)"
	@$(PIP) torch
	@$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@$(PIP) -e '.[demo,dev]'
	@touch $@

deps: $(VENV)/.made ## fetch what the tests run beside the package: Prometheus, Redis, gdb, cuda-gdb, Chromium ...
	@$(PYTHON) tests/support/parts.py fetch

demo: $(VENV)/.demo ## watch a real training job hang, and be told who did it
	@$(BIN)/ray-sentinel demo $(ARGS)

lint: $(VENV)/.dev ## ruff: style and format; the page's JavaScript as far as parsing tells
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python tests/support/page_modules.py

types: $(VENV)/.dev ## mypy, strict
	@$(BIN)/mypy

contracts: $(VENV)/.dev ## which package may import which
	@$(BIN)/lint-imports

unit: $(VENV)/.dev ## tests that start no cluster
	@$(PYTEST) tests/unit tests/packaging $(ARGS)

integration: $(VENV)/.dev deps ## tests of the real programs and of real clusters
	@$(PYTEST) tests/integration $(ARGS)

## What measures time against a limit comes last, with nothing beside it; ARGS may select none of it.
## All at a time: the types take one core a minute, the parts come over the network.
test: $(VENV)/.dev ## lint, types, contracts and all tests, as CI runs them
	@$(MAKE) --no-print-directory -j -O lint types contracts deps rewritten
	@$(PYTEST) -n $(STREAMS) --durations=30 --durations-min=5 -m "not alone" $(ARGS)
	@$(PYTEST) -m alone tests/integration/web $(ARGS) || [ $$? = 5 -a -n "$(ARGS)" ]

## pytest keeps what it makes of the tests' files; else each stream would, all at the same time.
## What is wrong with one is said when it is run.
rewritten: $(VENV)/.dev
	@$(PYTEST) --collect-only -qq >/dev/null || true

faults: $(VENV)/.dev deps ## every fault on a real training, attached and not (about an hour)
	@FAULTS=all $(PYTEST) tests/faults $(ARGS)

generated: $(VENV)/.dev ## make the shipped alert rules and dashboards (docs/dashboards/)
	@$(BIN)/python docs/dashboards/generate.py

pictures: $(VENV)/.dev deps ## take the pictures of the README and the docs anew (docs/pictures/)
	@$(BIN)/python docs/pictures/take.py $(NAMES)

wheel: $(VENV)/.dev generated ## build the wheel into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## remove the virtual environment and everything that was built or fetched
	rm -rf $(VENV) .deps dist build .pytest_cache .mypy_cache .ruff_cache
