# Everything runs in environments that `tools/bootstrap.py` makes beside the sources.
PYTHON := .venv/bin/python
TEST_ARGS ?=

.PHONY: help check lint test fuzz demo bench setup upgrade clean

help:
	@echo "make check    lint, types and unit tests, in seconds"
	@echo "make test     everything, on real AstrBots of three versions"
	@echo "make fuzz     the laws of the unit tests on a thousand new cases each"
	@echo "make demo     a conversation grows, is compacted, and the bot still knows (KEEP=1: stays up)"
	@echo "make bench    what the plugin costs on large histories"
	@echo "make upgrade  make the environments anew, with the newest AstrBot"
	@echo "make clean    remove environments and caches"

check: .venv/made-from lint
	$(PYTHON) -m pytest tests/unit -q -n 2 --hypothesis-profile check $(TEST_ARGS)

lint: .venv/made-from
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy --strict summary

test: setup lint
	$(PYTHON) -m pytest -n 3 --dist worksteal $(TEST_ARGS)

fuzz: .venv/made-from
	$(PYTHON) -m pytest tests/unit -q -n 2 --hypothesis-profile fuzz $(TEST_ARGS)

demo: .venv/made-from
	$(PYTHON) tools/demo.py

bench: .venv/made-from
	$(PYTHON) tools/bench.py

setup:
	python3 tools/bootstrap.py

.venv/made-from: requirements-dev.txt
	python3 tools/bootstrap.py newest

upgrade:
	rm -rf .venv .venv-*
	python3 tools/bootstrap.py

clean:
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
