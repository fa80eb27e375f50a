# Each verb is the command that CI runs too. `make VERB VENV=DIR` works in another environment.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints-cpu.txt
EXTRAS ?= model,gateway,fast
ARGS ?=
BIN = $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)

.PHONY: setup protos check test exactness demo up clean

setup: $(VENV)/.outrider-ready

$(VENV)/.outrider-ready: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[$(EXTRAS)]' --group dev && touch $@

protos: setup
	python scripts/protos.py

check: setup
	ruff check . && ruff format --check .
	mypy && lint-imports
	buf lint && python scripts/protos.py --check

test: setup
	python -m pytest $(ARGS)

exactness: setup
	python -m pytest -m exactness --timeout 7200 $(ARGS)

demo: setup
	bash scripts/demo.sh

up: setup
	outrider up $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
