# Every target sets up what it needs: a machine with python3 >= 3.11, git and make is enough.
PY := .venv/bin/python
PYTEST_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=
ATTACK_ARGS ?=

.PHONY: help setup codex demo test test-quick test-lowest bench soak soak-follow soak-gateway attacks lint format docs protos lock test-extras clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv complete; costs nothing when it already is
	@PYTHON="$(PYTHON)" sh scripts/setup

codex: ## install the codex that tests drive, where npm is there
	@sh scripts/codex

demo: setup ## run the main job once, with live output
	@$(PY) scripts/demo.py

test: setup codex ## lint, format, types, import contracts, tests (PYTEST_ARGS=... selects tests)
	@$(PY) scripts/check.py all $(PYTEST_ARGS)

test-quick: setup ## before each commit: lint, and the tests that are quick (PYTEST_ARGS=... selects tests)
	@$(PY) scripts/check.py all -m "not slow" $(PYTEST_ARGS)

test-lowest: setup ## tests with the lowest versions that pyproject.toml states (PYTEST_ARGS=... selects tests)
	@$(PY) scripts/test_lowest.py $(PYTEST_ARGS)

lint: setup ## everything of `make test` but the tests
	@$(PY) scripts/check.py lint

bench: setup ## print the benchmark figures as JSON and a table
	@$(PY) -m benchmarks $(BENCH_ARGS)

soak: setup ## kill servers and keepers at random for a long time, then prove that nothing was lost
	@$(PY) scripts/soak.py $(SOAK_ARGS)

soak-follow: setup ## cut followers off and kill servers at random, then compare every byte, by each transport
	@$(PY) scripts/soak_follow.py $(SOAK_ARGS)

soak-gateway: setup ## kill the gateway's worker 500 times under 32 streams, then prove that each request had one end
	@$(PY) scripts/soak_gateway.py $(SOAK_ARGS)

attacks: setup ## attack a running server as another user and by its own commands, then say what got through
	@$(PY) scripts/attacks.py $(ATTACK_ARGS)

format: setup ## format the code and fix what the linter can
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

docs: setup ## write the pages and examples of settings anew from their declarations
	@$(PY) scripts/settings_page.py

protos: setup ## write the generated messages anew from proto/
	@$(PY) scripts/protos.py

lock: setup ## resolve pyproject.toml into requirements/dev.txt (LOCK_ARGS=--upgrade for newer versions)
	@$(PY) scripts/lock.py $(LOCK_ARGS)

test-extras: ## install what optional tests use (root and apt-get), or say why not
	@sh scripts/test-extras

clean: ## end what runs in this checkout and remove everything that the targets made
	@sh scripts/clean
