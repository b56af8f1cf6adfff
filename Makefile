# The verbs of this repository. Everything is made inside the checkout: .venv/ and .cache/ are all that setup leaves.
#
#   make demo            the quickstart: three agents, their sealed traces, a verified log
#   make test            all tests that need neither Go nor Docker nor a database of yours
#   make check           style, types, import layers, locks
#   make bench           what capturing costs, measured beside the same program without us
#   make backends        build a real Jaeger and a real Collector (needs Go >= 1.26), once
#   make test-backends   the demo's spans and receipts, read back from those two
#   make locks           compile requirements/ anew from pyproject.toml (needs the package index)
#   make docs            write the generated parts of docs/ anew
#   make clean           remove what make made
#
# PYTHON names the interpreter for a new .venv (make PYTHON=/opt/python/bin/python3 setup); without it the newest of
# 3.13, 3.12 and 3.11 is taken. JOBS is the number of test processes, ARGS is handed to pytest.

.POSIX:
.PHONY: setup demo test check bench environments environment old-postgres backends test-backends locks docs clean

JOBS = 2
ARGS =

# Byte code is kept even where the machine says otherwise: each of many short programs would compile all its imports anew.
KEEP = PYTHONDONTWRITEBYTECODE=
PY = $(KEEP) .venv/bin/python
PIP = $(PY) -m pip --disable-pip-version-check --quiet
LOCKED = --no-compile --require-hashes --requirement
OURSELVES = --no-deps --no-build-isolation --editable .

setup: .venv/dev.stamp

demo: .venv/demo.stamp
	$(KEEP) .venv/bin/amfs-otel demo

test: environments
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: .venv/dev.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports --no-cache
	$(PY) -m basedpyright
	$(PY) -m pytest -q tests/packaging/test_locks.py

bench: .venv/dev.stamp
	$(PY) -m tests.bench $(ARGS)

backends: .venv/dev.stamp
	$(PY) -m tests.backends

test-backends: backends
	$(PY) -m pytest --backends -m backends $(ARGS)

LOCK = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url $(UPGRADE)

# UPGRADE=--upgrade moves every pin to the newest release; without it only what the inputs demand moves.
locks: .venv/dev.stamp
	$(LOCK) --group installer --output-file requirements/pip.txt
	$(LOCK) pyproject.toml --extra demo --group build --output-file requirements/demo.txt
	$(LOCK) pyproject.toml --extra demo --group dev --constraints requirements/demo.txt --output-file requirements/dev.txt
	for input in requirements/*.in; do \
		$(LOCK) pyproject.toml --group build "$$input" --output-file "$${input%.in}.txt" || exit 1; \
	done

docs: .venv/dev.stamp
	$(PY) -m tests.docs.generated

clean:
	rm -rf .venv .cache .demo build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find amfs_otel instrumentation tests examples -name __pycache__ -prune -exec rm -rf {} +

# A virtual environment of our own, from hashed locks only. A stamp is as new as the lock that was installed.
# The pip that comes with Python 3.11 takes more than twice as long to choose from an index.
.venv/pip.stamp: .venv/pyvenv.cfg requirements/pip.txt
	@$(PIP) install $(LOCKED) requirements/pip.txt
	@touch .venv/pip.stamp

.venv/demo.stamp: .venv/pip.stamp requirements/demo.txt pyproject.toml
	@echo "setting up .venv from requirements/demo.txt"
	@$(PIP) install $(LOCKED) requirements/demo.txt
	@$(PIP) install $(OURSELVES)
	@touch .venv/demo.stamp

.venv/dev.stamp: .venv/pip.stamp requirements/dev.txt pyproject.toml
	@echo "setting up .venv from requirements/dev.txt"
	@$(PIP) install $(LOCKED) requirements/dev.txt
	@$(PIP) install $(OURSELVES)
	@touch .venv/demo.stamp .venv/dev.stamp

# .venv, and one for each requirements/NAME.in: the oldest supported releases, and others' instrumentors. No installation
# needs another, and each waits for the index half of its time: four at once keep two processors busy.
environments: .venv/pip.stamp
	@{ echo .venv/dev.stamp; echo old-postgres; \
		for input in requirements/*.in; do echo environment NAME="$$(basename "$$input" .in)"; done; } \
		| xargs -L 1 -P 4 $(MAKE) -s

# A server older than those that we work with, to see it refused; without it, its tests are listed as not run.
old-postgres: .venv/pip.stamp
	@$(PY) -m tests.support.old_postgres

environment: .venv/pip.stamp
	@environment=".cache/environments/$(NAME)"; \
	cat "requirements/$(NAME).txt" pyproject.toml | cmp -s - "$$environment/installed.txt" && exit 0; \
	echo "setting up $$environment"; \
	$(PY) -m venv --clear --without-pip "$$environment" && \
	$(PIP) --python "$$environment/bin/python" install $(LOCKED) "requirements/$(NAME).txt" && \
	$(PIP) --python "$$environment/bin/python" install $(OURSELVES) && \
	cat "requirements/$(NAME).txt" pyproject.toml > "$$environment/installed.txt" && exit 0; \
	echo "make: $$environment could not be set up; \`make environment NAME=$(NAME)\` tries again" >&2; \
	exit 1

.venv/pyvenv.cfg:
	@for python in "$(PYTHON)" python3.13 python3.12 python3.11 python3; do \
		test -n "$$python" || continue; \
		if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "setting up .venv with $$python"; \
			"$$python" -m venv --clear .venv && exit 0; \
			rm -rf .venv; \
			exit 1; \
		fi; \
		test "$$python" != "$(PYTHON)" || break; \
	done; \
	echo "make: needs Python >= 3.11 with venv and ensurepip (Debian: python3-venv); name one: make PYTHON=..." >&2; \
	exit 1
