# Two commands do all the set-up: `make lab` (the course) and `make test` (what CI runs).
PYTHON ?= python3
BIN := .venv/bin
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
PLAYWRIGHT := playwright==1.65.2  # drives the system's browser; downloads none
NBVAL := --nbval --nbval-cell-timeout=120 --nbval-sanitize-with tests/nbval_sanitize.cfg

.PHONY: lab test lint unit nbval notebooks browser site bench gpu grade clean

lab: .venv/ready  ## open the course in JupyterLab
	$(BIN)/jupyter lab $(AS_ROOT) notebooks/00_ranks_and_the_ledger.ipynb

test: lint unit nbval  ## everything that CI runs

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: .venv/ready
	$(BIN)/python -m pytest tests

nbval: .venv/ready
	$(BIN)/python -m pytest $(NBVAL) notebooks

notebooks: .venv/ready  ## run every notebook and keep its outputs
	COURSE_LIVE=0 $(BIN)/jupyter execute --inplace $(NOTEBOOKS)

browser: .venv/ready  ## the course in a real JupyterLab; needs Chromium, or Chrome, of the system
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PLAYWRIGHT)
	$(BIN)/python -m pytest tests/browser tests/plot/test_player_browser.py

site: .venv/ready  ## the executed course as pages to read, in site/; every link is checked
	$(BIN)/python -m course_lib.site

gpu: .venv/ready  ## what needs GPUs; says what it skipped, and why
	$(BIN)/python -m pytest tests/gpu -rs

bench: .venv/ready  ## measure, side by side with the peers, into benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks --write

grade: .venv/ready  ## grade every exercise
	$(BIN)/course grade --all

.venv/ready: requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "This course needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Say 'make PYTHON=python3.12 ...'."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean:  ## remove what was built; your exercises and your progress stay
	rm -rf .venv .ruff_cache .mypy_cache *.egg-info site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
