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
.PHONY: setup demo test check bench environments backends test-backends locks docs clean

JOBS = 2
ARGS =

# Environments beside .venv, requirements/NAME.in and NAME.txt: the oldest supported releases, and others' instrumentors.
ENVIRONMENTS = beside-others oldest-amfs oldest-anthropic oldest-langchain oldest-mcp oldest-openai oldest-otel \
	oldest-servers

PY = .venv/bin/python
PIP = $(PY) -m pip --disable-pip-version-check --quiet
OURSELVES = --no-deps --no-build-isolation --editable .

setup: .venv/dev.stamp

demo: .venv/demo.stamp
	.venv/bin/amfs-otel demo

test: .venv/dev.stamp environments
	$(PY) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

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
	--no-annotate --no-header --no-emit-index-url $(UPGRADE) pyproject.toml

# UPGRADE=--upgrade moves every pin to the newest release; without it only what the inputs demand moves.
locks: .venv/dev.stamp
	$(LOCK) --extra demo --group build --output-file requirements/demo.txt
	$(LOCK) --extra demo --group dev --constraints requirements/demo.txt --output-file requirements/dev.txt
	for name in $(ENVIRONMENTS); do \
		$(LOCK) --group build "requirements/$$name.in" --output-file "requirements/$$name.txt" || exit 1; \
	done

docs: .venv/dev.stamp
	$(PY) -m tests.docs.generated

clean:
	rm -rf .venv .cache .demo build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find amfs_otel instrumentation tests examples -name __pycache__ -prune -exec rm -rf {} +

# A virtual environment of our own, from hashed locks only. A stamp is as new as the lock that was installed.
.venv/demo.stamp: .venv/pyvenv.cfg requirements/demo.txt pyproject.toml
	$(PIP) install --no-compile --require-hashes --requirement requirements/demo.txt
	$(PIP) install $(OURSELVES)
	@touch .venv/demo.stamp

.venv/dev.stamp: .venv/pyvenv.cfg requirements/dev.txt pyproject.toml
	$(PIP) install --no-compile --require-hashes --requirement requirements/dev.txt
	$(PIP) install $(OURSELVES)
	@touch .venv/demo.stamp .venv/dev.stamp

environments: .venv/dev.stamp
	@for name in $(ENVIRONMENTS); do \
		environment=".cache/environments/$$name"; \
		cat "requirements/$$name.txt" pyproject.toml | cmp -s - "$$environment/installed.txt" && continue; \
		echo "setting up $$environment"; \
		$(PY) -m venv --clear --without-pip "$$environment" && \
		$(PIP) --python "$$environment/bin/python" install --no-compile --require-hashes \
			--requirement "requirements/$$name.txt" && \
		$(PIP) --python "$$environment/bin/python" install $(OURSELVES) && \
		cat "requirements/$$name.txt" pyproject.toml > "$$environment/installed.txt" || exit 1; \
	done

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
