# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Every target is a script in scripts/, which says what it does. What is built and downloaded goes to
# $KLOGGER_CACHE (default: ~/.cache/klogger), never into the checkout.

PREFIX ?= /usr/local

.PHONY: help setup build demo test guest-test nightly lint bench docs install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing for everything below
	@scripts/setup build guest test bench

build: ## install what is missing, and build klogger
	@scripts/build

demo: ## record a workload and show the answers (demo/)
	@scripts/demo

test: ## run all tests
	@scripts/test

guest-test: ## run only the tests that boot kernels, with those that build some (many minutes the first time)
	@KLOGGER_SLOW=1 scripts/test guest

nightly: ## run all tests, those with kernels too, and the fuzzers (HOURS=8)
	@scripts/nightly $(HOURS)

lint: ## check format, and all that a linter knows
	@scripts/lint

bench: ## measure what recording costs (docs/benchmarks.md)
	@scripts/bench

docs: ## write man pages and completions ($KLOGGER_CACHE/docs)
	@scripts/docs

install: ## install to PREFIX (/usr/local); DESTDIR for packagers
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) scripts/install

uninstall: ## remove what install has put there
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) scripts/uninstall

clean: ## remove what was built and downloaded
	@scripts/clean
