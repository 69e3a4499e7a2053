# Two commands do all the set-up: `make lab` (the course) and `make test` (what CI runs).
PYTHON ?= python3
BIN := .venv/bin
# The library is started a thousand times here; who wants no bytecode would pay for each.
unexport PYTHONDONTWRITEBYTECODE
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)
# Else JupyterLab shows no more than the notebook's folder, and links to exercises lead nowhere.
FROM_HERE := --ServerApp.root_dir="$(CURDIR)"
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
PLAYWRIGHT := playwright==1.65.2  # drives the system's browser; downloads none
PYTEST := $(BIN)/python -m pytest
JOBS ?= 3  # tests side by side: more than cores, since much of a test is waiting
BESIDE = -n $(JOBS) --dist loadfile
NBVAL := --nbval --nbval-cell-timeout=300

.PHONY: lab test test-all lint unit nbval cpu-default cpu-avx2 cpu-avx512 portable newest-torch \
	notebooks browser site bench gpu grade clean

lab: .venv/ready  ## open the course in JupyterLab
	$(BIN)/jupyter lab $(AS_ROOT) $(FROM_HERE) notebooks/00_ranks_and_the_ledger.ipynb

test: lint unit nbval  ## what a newcomer and CI run

test-all: lint nbval  ## every night: wrong answers, right ones under ten seeds, kills, fuzz
	COURSE_FUZZ=300 $(PYTEST) $(BESIDE) -m "not alone" tests
	COURSE_KILLS=60 $(PYTEST) -m alone tests

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy grading/suites  # and the references that they import
	$(BIN)/mypy solutions  # by itself: its modules have the suites' names
	$(BIN)/mypy -p benchmarks -p docs.site

unit: .venv/ready
	$(PYTEST) $(BESIDE) tests

nbval: .venv/ready
	$(PYTEST) $(NBVAL) $(BESIDE) $(NOTEBOOKS)

# The last bits of a product depend on the processor. These make torch, oneDNN and MKL compute as on
# one with no more than the named instructions; a processor that has fewer computes with what it has.
# Lesson 09 calls torch._scaled_mm, which asks the processor for AMX, not oneDNN: where there is AMX,
# that one cell fails under each of them, as it does on no real processor.
CPU_default := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
CPU_avx2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2
CPU_avx512 := ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE MKL_CBWR=AVX512

cpu-default cpu-avx2 cpu-avx512: cpu-%: .venv/ready  ## verdicts and outputs on another processor
	$(CPU_$*) $(PYTEST) $(BESIDE) -m '' tests/grade/author/test_zoo.py -k solution
	$(CPU_$*) $(PYTEST) $(NBVAL) $(BESIDE) notebooks

# What reads /proc or starts ranks, and what a deadlock is taken for.
PORTABLE := $(addprefix tests/ranks/,system/test_processes.py system/test_guard.py \
	rank_process/test_where.py pool/test_no_false_alarm.py start/test_forkserver.py) \
	tests/grade/test_hostile.py

portable: .venv/ready  ## what macOS does, on Linux: ranks that are spawned, and no /proc
	COURSE_NO_PROC=1 $(PYTEST) $(BESIDE) $(PORTABLE)
	COURSE_START=spawn $(PYTEST) $(BESIDE) $(PORTABLE) tests/ranks/start/test_spares.py tests/ranks/pool/test_pool.py

newest-torch: .venv/ready  ## the library and the verdicts with the newest torch that PyPI has
	$(BIN)/python install.py --venv .venv-newest
	.venv-newest/bin/python -m pip install --upgrade torch
	.venv-newest/bin/python -m pytest $(BESIDE) tests

notebooks: .venv/ready  ## run every notebook and keep its outputs
	COURSE_LIVE=0 $(BIN)/jupyter execute --inplace $(NOTEBOOKS)

browser: .venv/ready  ## the course in a real JupyterLab; needs Chromium, or Chrome, of the system
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PLAYWRIGHT)
	$(BIN)/python -m pytest tests/browser tests/plot/player/test_player_browser.py

site: .venv/ready  ## the executed course as pages to read, in site/, by Sphinx; links are checked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r docs/site/requirements.txt \
		$(PLAYWRIGHT)
	$(BIN)/python -m docs.site.build
	COURSE_SITE=site $(PYTEST) -m '' tests/site

gpu: .venv/ready  ## what needs GPUs; says what it skipped, and why
	$(BIN)/python -m pytest tests/gpu -rs

bench: .venv/ready  ## measure, side by side with the peers, into benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks --write

grade: .venv/ready  ## grade every exercise
	$(BIN)/course grade --all

# Which torch: cpu, cuda, or keep, which is the one that .venv has; auto looks for a GPU.
TORCH ?= auto
ifeq ($(filter $(TORCH),auto $(shell cat .venv/ready 2>/dev/null)),)
.venv/ready: FORCE
endif
.PHONY: FORCE

.venv/ready: requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) install.py --torch $(TORCH)

clean:  ## remove what was built; your exercises and your progress stay
	rm -rf .venv .venv-newest .kernel .ruff_cache .mypy_cache *.egg-info build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
