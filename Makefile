# make demo   watch a real training job hang, and be told who did it
# make test   lint, types, import contracts and all tests
# Both make a virtual environment in .venv and need nothing but Python 3.10 or newer, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest
BESIDE := tests/unit tests/packaging $(addprefix tests/integration/,collect exporters store)
RANKS := progress supervise/test_run.py test_flight_recorder_gloo.py test_triage_real.py
PAIRS := $(addprefix tests/integration/,$(RANKS))
## PAIRS start ranks, but no agent that would watch the ranks of another test: two at a time. Then all
## others one after the other, and BESIDE them, with less right to the CPUs, what starts no ranks.

.PHONY: demo test unit integration lint types contracts faults deps wheel clean help

help:
	@sed -n 's/^# //p' Makefile

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

deps: $(VENV)/.made
	@$(PYTHON) tests/support/parts.py fetch

demo: $(VENV)/.demo
	@$(BIN)/ray-sentinel demo $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

contracts: $(VENV)/.dev
	@$(BIN)/lint-imports

unit: $(VENV)/.dev
	@$(PYTEST) tests/unit tests/packaging $(ARGS)

integration: $(VENV)/.dev deps
	@$(PYTEST) tests/integration $(ARGS)

## Status 5 is "nothing to run": ARGS may choose tests of one part only.
TOOK_PART := $(if $(ARGS),[ $$? -eq 5 ],false)
test: lint types contracts deps
	@$(PYTEST) -n 2 $(PAIRS) $(ARGS) || $(TOOK_PART)
	@log=$$(mktemp); trap 'rm -f $$log' EXIT; \
	  { nice -n 5 $(PYTEST) $(BESIDE) $(ARGS) || $(TOOK_PART); } >$$log 2>&1 & \
	  { $(PYTEST) $(addprefix --ignore=,$(BESIDE) $(PAIRS)) tests $(ARGS) || $(TOOK_PART); }; \
	  rest=$$?; wait $$!; beside=$$?; cat $$log; [ $$rest -eq 0 ] && [ $$beside -eq 0 ]

faults: $(VENV)/.dev deps
	@FAULTS=all $(PYTEST) tests/faults $(ARGS)

wheel: $(VENV)/.dev
	@$(BIN)/python -m build --no-isolation --outdir dist .

clean:
	rm -rf $(VENV) .deps dist build .pytest_cache .mypy_cache .ruff_cache
