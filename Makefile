# Each verb is the command that CI runs too. `make VERB VENV=DIR` works in another environment.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints-cpu.txt
EXTRAS ?= model,gateway,fast,bench
ARGS ?=
BIN = $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)

.PHONY: setup protos docs check test exactness conformance soak demo up bench clean

setup: $(VENV)/.outrider-ready

$(VENV)/.outrider-ready: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[$(EXTRAS)]' --group dev && touch $@

protos: setup
	python scripts/protos.py

docs: setup
	python scripts/metrics_page.py

check: setup
	ruff check . && ruff format --check .
	mypy && lint-imports
	buf lint && python scripts/protos.py --check && python scripts/metrics_page.py --check

test: setup
	python -m pytest $(ARGS)

exactness: setup
	python -m pytest -m exactness --timeout 7200 $(ARGS)

# The tests that carry the number of an entry of docs/conformance.md, with every draft under every setting.
conformance: setup
	python -m pytest -m 'not exactness and not soak' --timeout 3600 \
		-k 'test_c0 or test_c1 or test_c2 or test_c3 or test_c4 or test_c5 or test_c6 or test_c7 or test_c8' $(ARGS)

# SOAK_S=60 for a minute of it; LOAD_SEED=N for other traffic.
soak: setup
	python -m pytest -m soak -s tests/system/test_load.py $(ARGS)

demo: setup
	bash scripts/demo.sh

up: setup
	outrider up $(ARGS)

# About ten minutes; `outrider bench` is the full one, and takes the same flags.
bench: setup
	outrider bench --short $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
