# Works on a new machine that has Python 3.11.4 or later and make.
#   make demo     train a small translator and look inside it
#   make test     run the whole test suite

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' 2>/dev/null && echo $$p && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
NATIVE := $(wildcard src/clearhead/engines/native/*.[ch]) tools/build_native.py hatch_build.py
C_FILES := $(wildcard src/clearhead/engines/native/*.[ch] tests/engines/native/*.c)
BUILT  := $(VENV)/.built
ONLY   ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow coverage lint format bench wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Reinstalled when the requirements change.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Clearhead needs Python 3.11.4 or later: run make PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The editable install compiles the native library; pip brings a compiler where there is none.
$(BUILT): $(READY) $(NATIVE)
	@if [ -n "$$(find $(NATIVE) -newer $(READY) 2>/dev/null)" ]; then \
	  $(BIN)/python -m pip install --quiet --no-deps --editable .; fi
	@touch $@

demo: $(BUILT) ## train a small translator in two minutes and use it
	$(BIN)/clearhead demo

test: $(BUILT) lint ## lint, check types and run all tests in parallel
	$(BIN)/python -m pytest -n auto $(ONLY)

test-slow: $(BUILT) ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow $(ONLY)

coverage: $(BUILT) ## run all tests and list the lines that none of them runs
	$(BIN)/python -m pytest -n auto --cov --cov-report=term-missing:skip-covered $(ONLY)

lint: $(READY) ## run ruff, clang-format and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/mypy

format: $(READY) ## format the code with ruff and clang-format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

bench: $(BUILT) ## measure on this machine, which should be idle
	$(BIN)/clearhead bench core

wheel: $(READY) ## build dist/*.whl
	$(BIN)/python -m build --wheel

clean: ## remove everything that can be rebuilt
	rm -rf $(VENV) dist build src/clearhead/engines/native/libclearhead.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
