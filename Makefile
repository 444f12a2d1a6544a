# Every target sets up what it needs first; a second call finds it done.
#
#   make demo    two nodes, two links, cuts in mid-transfer, figures at the end (DEMO="--bytes 100M" for options)
#   make test    format, lints, docs, tests, simulator, planted faults, loom, namespaces, another kernel
#   make test-guest   of the tests only those of the kernel's TIPC and SCTP, in another kernel by QEMU
#   make plan-guest   a plan in that kernel, with TIPC and SCTP (PLAN="s1-transactions --repeat 6"); the document: target/guest
#   make build   the program, target/release/polyrail
#   make static  the program as one file without libraries, to be copied to other machines
#   make peers   drivers of other systems, for `polyrail bench peers`: those whose libraries are installed
#   make sim     the simulator over many seeds (SEEDS=20000)
#   make help    this text

SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/sbin:/sbin

SEEDS ?= 20000
DEMO ?=
PLAN ?= s1-transactions

.PHONY: help setup build static demo test test-guest plan-guest sim peers

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

setup:
	@scripts/setup.sh

build: setup
	cargo build --release --package polyrail-cli

static: setup
	@scripts/static.sh

demo: setup
	@cargo build --release --package polyrail-cli
	@"$${CARGO_TARGET_DIR:-target}"/release/polyrail demo $(DEMO)

test:
	@scripts/setup.sh test
	@scripts/test.sh

test-guest:
	@scripts/setup.sh test
	@program=$$(scripts/static.sh) && PROGRAM=$$program GUEST_OPTIONS="--warmup 0.5" scripts/test.sh guest

plan-guest:
	@scripts/setup.sh test
	@DOCUMENT="$${CARGO_TARGET_DIR:-target}/guest/$(firstword $(PLAN)).json" \
		scripts/guest.sh "$$(scripts/kernel.sh)" scripts/guest/plan.sh $(PLAN)

sim: setup
	cargo run --release --package polyrail-sim -- --seeds $(SEEDS)

peers: setup
	@$(MAKE) --no-print-directory -C peers
