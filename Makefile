# Thin: each target makes sure of its tools and calls `cargo xtask`.
.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean tools

# Debian packages the lanes need: a linker for Rust, git for the list of tracked files, QEMU, file systems, a registry and
# tools to fill it, and what a kernel is built with. A file that tells, a colon, the package that holds it.
# A package is asked for only when its file is missing, so nothing is installed on a machine that has them. Two passes: a
# package may replace another one of a newer distribution, whose files are then missing.
BASE := cc:gcc git:git
LANES := qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mke2fs:e2fsprogs ssh:openssh-client psql:postgresql-client \
	ip:iproute2 nft:nftables curl:curl docker-registry:docker-registry skopeo:skopeo debootstrap:debootstrap buildah:buildah crun:crun cpio:cpio xz:xz-utils \
	modinfo:kmod make:make flex:flex bison:bison bc:bc /usr/include/libelf.h:libelf-dev /usr/include/openssl/opensslv.h:libssl-dev \
	/usr/src/linux-source-6.1.tar.xz:linux-source-6.1
# What the demonstration needs: QEMU, the database's packages, network tools.
DEMO := qemu-system-x86_64:qemu-system-x86 mkfs.ext4:e2fsprogs ip:iproute2 nft:nftables ssh:openssh-client debootstrap:debootstrap
FILES := $(BASE)
demo: FILES := $(BASE) $(DEMO)
test bench: FILES := $(BASE) $(LANES)

help:
	@echo 'make demo    a VM with a database, from nothing, that follows its load and moves under it; KEEP=1 leaves it running'
	@echo 'make test    every lane; ends with: N passed, N failed, N skipped'
	@echo 'make check   what can be told without running: arrows, orphans, sizes, links, generated files'
	@echo 'make bench   measure the promises of SPEC.md'
	@echo 'make clean   remove what was built'

tools:
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust, see https://rustup.rs' >&2; exit 1; }
	@for pass in first second; do \
	  missing=''; for pair in $(FILES); do \
	    file="$${pair%%:*}"; \
	    [ -e "$$file" ] || PATH="$$PATH:/usr/sbin:/sbin" command -v "$$file" >/dev/null || missing="$$missing $${pair##*:}"; \
	  done; \
	  [ -n "$$missing" ] || exit 0; \
	  command -v apt-get >/dev/null || { echo "install these first:$$missing" >&2; exit 1; }; \
	  sudo=''; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -q && $$sudo apt-get install -qy --no-install-recommends $$missing || exit 1; \
	done

check bench: tools
	@cargo xtask $@

# Broken off, they take along what they started.
test demo: tools
	@trap 'cargo xtask $@ --clean-up; exit 130' INT TERM; cargo xtask $@

clean:
	cargo clean
