# Everything a fresh machine needs is Python 3.11 or newer and make; uv is used where it is present.
#
#   make demo        install, ingest the sample runs, open the app (PORT=8501, HEADLESS=1 for no browser, LAKE=lake_demo)
#   make test        lint, types, layers, all quick tests (browser tests where Chromium is there)
#   make test-long   the tests that take minutes
#   make bench       speed and memory
#   make docs        regenerate what is generated: samples, pages, sessions, pictures (these need Chromium); twice changes nothing

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(if $(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo yes),$(name))))
UV     ?= $(shell command -v uv 2>/dev/null)
VENV   ?= .venv
PORT   ?= 8501
LAKE   ?= lake_demo
JOBS   ?= 2
AXE    ?= 4.14.1
RUNS   := $(sort $(patsubst %/,%,$(dir $(wildcard sample_data/*/*.log))))

BIN    := $(VENV)/bin
# A stamp is named after what was installed and where: any change, a copied folder included, installs again, and so does a broken Python.
KEY    := $(shell { pwd; cat pyproject.toml constraints.txt Makefile hatch_build.py ingest/native/*.[ch]; } | cksum | cut -d' ' -f1)
RUN    := $(VENV)/.installed-$(KEY)
DEV    := $(VENV)/.installed-dev-$(KEY)

ifneq ($(shell $(BIN)/python -c 'print("works")' 2>/dev/null),works)
.PHONY: $(RUN) $(DEV)
endif

.PHONY: demo test test-long bench docs lint install install-dev clean
.DEFAULT_GOAL := test

install: $(RUN)
install-dev: $(DEV)

$(RUN):
	@$(call venv)
	@$(call install,.)
	@touch $@

$(DEV):
	@$(call venv)
	@$(call install,.[dev])
	@$(axe)
	@touch $(RUN) $@

define venv
if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
  if [ -n "$(UV)" ]; then "$(UV)" venv --quiet --clear $(if $(PYTHON),--python $(PYTHON),--python 3.11) $(VENV); \
  elif [ -n "$(PYTHON)" ]; then $(PYTHON) -m venv --clear $(VENV) || { echo "make: no virtual environment: install python3-venv or uv" >&2; exit 2; }; \
  else echo "make: Python 3.11 or newer is needed; name one with PYTHON=/path/to/python" >&2; exit 2; fi; \
fi
endef

define install
echo "installing $(1) into $(VENV)"; \
if [ -n "$(UV)" ]; then "$(UV)" pip install --quiet --python $(BIN)/python -c constraints.txt -e "$(1)"; \
else $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade >/dev/null; \
  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e "$(1)"; fi
endef

define axe
if command -v npm >/dev/null 2>&1; then echo "installing axe-core $(AXE) into $(VENV)"; \
  npm install --silent --no-save --no-audit --no-fund --ignore-scripts --fetch-retries=1 --fetch-timeout=30000 --prefix $(VENV)/axe axe-core@$(AXE) \
    >/dev/null 2>&1 || echo "axe-core could not be installed: the accessibility tests will say that they were skipped"; \
else echo "no npm here: the accessibility tests will say that they were skipped"; fi
endef

demo: $(RUN)
	$(BIN)/hbmledger ingest $(RUNS) --lake $(LAKE)
	$(if $(HEADLESS),STREAMLIT_SERVER_HEADLESS=true )$(BIN)/hbmledger app --lake $(LAKE) --port $(PORT)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not long"

test-long: $(DEV)
	$(BIN)/python -m pytest -n $(JOBS) -m long

bench: $(DEV)
	@for script in $(wildcard benchmarks/*.py); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(DEV)
	$(BIN)/python -m sample_data.make
	HBMLEDGER_REGENERATE=1 $(BIN)/python -m pytest -q -n 0 tests/analysis/test_report.py
	$(BIN)/python docs/make_schema.py
	$(BIN)/python -m docs.make_sql
	$(BIN)/python docs/make_findings.py
	$(BIN)/python docs/make_glossary.py
	$(BIN)/python docs/make_snapshot_rules.py
	$(BIN)/python -m docs.make_parallelism
	$(BIN)/python -m docs.make_questions
	$(BIN)/python -m pytest -q -n 0 tests/test_readme.py --regenerate
	$(BIN)/python -m docs.make_pictures

clean:
	rm -rf $(VENV) $(LAKE)
