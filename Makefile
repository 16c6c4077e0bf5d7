# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Every target is a script in scripts/, which says what it does. What is built and downloaded goes to
# $KLOGGER_CACHE (default: ~/.cache/klogger), never into the checkout.

PREFIX ?= /usr/local

.PHONY: help setup build demo cluster-demo check test test-all guest-test nightly lint bench docs site wheel tarball deb image install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing for everything below
	@scripts/setup build guest test bench

build: ## install what is missing, and build klogger
	@scripts/build

demo: ## record a workload and show the answers (demo/)
	@scripts/demo

cluster-demo: ## a report and a query on a Spark cluster on this machine (2 minutes)
	@scripts/cluster-demo

check: ## run what needs no root: format, lints, Rust, Python (6 minutes)
	@scripts/test lint rust python

test: ## run the gate: that each feature works (12 minutes; this is what CI runs)
	@scripts/test

test-all: ## run all tests but those for the night (an hour)
	@scripts/test --all

guest-test: ## run only the tests that boot kernels
	@scripts/test --all guest

nightly: ## run all tests, with what takes hours, and the fuzzers (HOURS=8)
	@scripts/nightly $(HOURS)

lint: ## check format, and all that a linter knows
	@scripts/lint

bench: ## measure what recording costs (docs/benchmarks.md)
	@scripts/bench

docs: ## write man pages and completions ($KLOGGER_CACHE/docs)
	@scripts/docs

site: ## write a site of the documentation ($KLOGGER_CACHE/site/html)
	@scripts/site

wheel: ## build a wheel for Python environments ($KLOGGER_CACHE/wheel)
	@scripts/wheel

tarball: ## pack what needs no Python into one file ($KLOGGER_CACHE/tarball)
	@scripts/tarball

deb: ## build Debian packages, for Debian 12 and 13 ($KLOGGER_CACHE/deb)
	@scripts/deb

image: ## build a container image, as one file ($KLOGGER_CACHE/image)
	@scripts/image

install: ## install to PREFIX (/usr/local); DESTDIR for packagers; PYTHON to choose one
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) PYTHON=$(PYTHON) scripts/install

uninstall: ## remove what install has put there
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) scripts/uninstall

clean: ## remove what was built and downloaded
	@scripts/clean
