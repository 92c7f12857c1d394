# Thin: each target makes sure of its tools and calls `cargo xtask`.
.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean tools

# Debian packages the lanes need today: a linker for Rust, git for the list of tracked files.
# A package is asked for only when its program is missing, so nothing is installed on a machine that has them.
PROGRAMS := cc:gcc git:git

help:
	@echo 'make demo    a local cluster from start to end'
	@echo 'make test    every lane; ends with: N passed, N failed, N skipped'
	@echo 'make check   what can be told without running: arrows, orphans, sizes, links, generated files'
	@echo 'make bench   measure the promises of SPEC.md'
	@echo 'make clean   remove what was built'

tools:
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust, see https://rustup.rs' >&2; exit 1; }
	@missing=''; for pair in $(PROGRAMS); do \
	  command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null || { echo "install these first:$$missing" >&2; exit 1; }; \
	  sudo=''; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -q && $$sudo apt-get install -qy --no-install-recommends $$missing; \
	fi

demo test check bench: tools
	@cargo xtask $@

clean:
	cargo clean
