# The commands that the README names; .ci/run runs the same ones.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NATIVE := $(wildcard optaned/residency/*.[ch] plugins/optaned_llamacpp/*.[ch])
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-slow check bench clean

demo: $(VENV)/.demo            ## a real model answers on the daemon's socket
	$(BIN)/optaned demo --config etc/examples/demo.toml

test: $(VENV)/.test            ## everything that takes seconds
	$(BIN)/pytest -m "not slow" --durations=10

test-slow: $(VENV)/.test       ## what takes minutes
	$(BIN)/pytest -m slow --durations=10

check: $(VENV)/.test           ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test           ## every figure that the README quotes; each prints one JSON object as its last line
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/parallel.py
	$(BIN)/python bench/latency.py
	$(BIN)/python bench/residency.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The library has no wheel on the index: pip compiles it, about 5 minutes on 2 cores.
$(VENV)/.demo: pyproject.toml setup.py $(NATIVE) | $(BIN)/python
	$(PIP) install --quiet --editable ".[demo]"
	touch $@

# The second SDK lies beside the venv: two majors of one package cannot share it.
$(VENV)/.test: pyproject.toml $(VENV)/.demo
	$(PIP) install --quiet --editable ".[demo,test]"
	$(PIP) install --quiet --upgrade --no-warn-conflicts --target build/openai2 "openai>=2,<3"
	touch $@
