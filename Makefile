# `make demo` and `make test` are all the set-up there is: each builds .venv from requirements.txt,
# which pins every package by version and hash. PYTHON chooses the interpreter, 3.11 or newer.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# a process keeps to a file while it can, so that what the tests of a file share is made once
PARALLEL = --numprocesses=auto --dist=worksteal
LOCK = uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	--no-emit-index-url

.PHONY: demo test test-slow docs bench lint lock clean

demo: $(VENV)/ready
	$(BIN)/limpet reproduce

test: lint
	$(BIN)/python -m pytest $(PARALLEL)

test-slow: $(VENV)/ready
	$(BIN)/python -m pytest -m slow $(PARALLEL) -rP  # shows the figures

docs: $(VENV)/ready
	$(BIN)/python -m sphinx -W --keep-going --builder html docs docs/_build

bench: $(VENV)-bench/ready
	$(VENV)-bench/bin/python -m bench --output docs/speed

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pyright --pythonpath $(BIN)/python -p pyright-strict.json

$(VENV)/ready: requirements.txt pyproject.toml
$(VENV)-bench/ready: bench/requirements.txt pyproject.toml
%/ready:
	$(PYTHON) -m venv --clear $*
	$*/bin/python -m pip install --quiet --require-hashes --requirement $<
	$*/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Choose the newest versions that pyproject.toml allows, for every Python it allows.
lock:
	$(LOCK) --group test --group build --group docs pyproject.toml --output-file requirements.txt
	$(LOCK) --group build --group bench pyproject.toml --output-file bench/requirements.txt

clean:
	rm -rf $(VENV) $(VENV)-bench
