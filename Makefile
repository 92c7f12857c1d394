# Thin: each target makes sure of its tools and calls `cargo xtask`.
.DEFAULT_GOAL := help
.PHONY: help demo test test-cluster soak check bench dist clean tools

# Debian packages the lanes need: a linker for Rust, git for the list of tracked files, QEMU, file systems, a database, a registry
# and tools to fill it. `soak` also builds a kernel from source. Each pair is a file that shows, after a colon, that a package is
# installed; a package is asked for only when its file is missing. Two passes: a package may replace another one of a newer
# distribution, whose files are then missing.
BASE := cc:gcc /usr/include/stdio.h:libc6-dev git:git
LANES := qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mke2fs:e2fsprogs ssh:openssh-client psql:postgresql-client \
	/usr/lib/postgresql/*/bin/initdb:postgresql ip:iproute2 nft:nftables iptables-nft:iptables curl:curl docker-registry:docker-registry skopeo:skopeo umoci:umoci \
	debootstrap:debootstrap buildah:buildah /usr/lib/podman/netavark:netavark crun:crun prometheus:prometheus cpio:cpio xz:xz-utils modinfo:kmod make:make python3:python3-minimal pip3:python3-pip \
	ps:procps ping:iputils-ping file:file bash:bash zsh:zsh fish:fish dpkg-deb:dpkg
SOURCE := flex:flex bison:bison bc:bc /usr/include/libelf.h:libelf-dev /usr/include/openssl/opensslv.h:libssl-dev \
	/usr/src/linux-source-6.1.tar.xz:linux-source-6.1
# What the demonstration needs: QEMU, the database's packages, network tools.
DEMO := qemu-system-x86_64:qemu-system-x86 mkfs.ext4:e2fsprogs ip:iproute2 nft:nftables ssh:openssh-client debootstrap:debootstrap
FILES := $(BASE)
demo: FILES := $(BASE) $(DEMO)
test bench: FILES := $(BASE) $(LANES)
soak: FILES := $(BASE) $(LANES) $(SOURCE)

help:
	@echo 'make demo    a VM with a database, from nothing, that follows its load and is migrated under it; KEEP=1 leaves it running'
	@echo 'make check   what can be checked without running: format, arrows, sizes, links, wording, generated files'
	@echo 'make test    the gate: checks, unit tests, services, real guests; ends with: N passed, N failed, N skipped'
	@echo 'make test-cluster KUBECONFIG=FILE [ARGS=…]   a VM through its whole life on that cluster: neonctl test cluster ARGS'
	@echo 'make soak    the long, the random and the chaotic: fresh seeds, chaos, endurance, the kernel from source, a bare system'
	@echo 'make bench   measure the service level objectives of SPEC.md'
	@echo 'make dist    the release as packages in target/dist: .deb, .tar.gz, SBOM, SHA256SUMS'
	@echo 'make clean   remove what was built'

# PostgreSQL and Prometheus are needed as programs only. The package of the first starts a server unless it is configured not to make a
# database, that of the second unless its service is masked.
tools:
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust, see https://rustup.rs' >&2; exit 1; }
	@sudo=''; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	for pass in first second; do \
	  missing=''; for pair in $(FILES); do \
	    file="$${pair%%:*}"; found=''; \
	    for match in $$file; do [ -e "$$match" ] && found=1; done; \
	    [ -n "$$found" ] || PATH="$$PATH:/usr/sbin:/sbin" command -v "$$file" >/dev/null || missing="$$missing $${pair##*:}"; \
	  done; \
	  [ -n "$$missing" ] || break; \
	  command -v apt-get >/dev/null || { echo "install these first:$$missing" >&2; exit 1; }; \
	  case "$$missing" in *' postgresql'*) [ -e /etc/postgresql-common/createcluster.conf ] || { \
	    $$sudo mkdir -p /etc/postgresql-common && \
	    echo 'create_main_cluster = false' | $$sudo tee /etc/postgresql-common/createcluster.conf >/dev/null; } ;; esac; \
  case "$$missing" in *' prometheus'*) [ ! -d /run/systemd/system ] || $$sudo systemctl mask --quiet prometheus.service ;; esac; \
	  $$sudo apt-get update -q && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends -o Dpkg::Options::=--force-confold $$missing || exit 1; \
	done; \
	[ -z "$$(command -v apt-get)" ] || [ -n "$$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' 2>/dev/null | head -n 1)" ] || $$sudo apt-get update -q

check bench dist: tools
	@cargo xtask $@

# Interrupted, they end what they started.
test soak demo: tools
	@trap 'cargo xtask $@ --clean-up; exit 130' INT TERM; cargo xtask $@

# Tests the cluster that KUBECONFIG leads to; ARGS are those of `neonctl test cluster`, such as --image.
test-cluster: tools
	@[ -n '$(KUBECONFIG)' ] || { echo 'which cluster? make test-cluster KUBECONFIG=FILE [ARGS="--image REF"]' >&2; exit 2; }
	@cargo run --quiet --locked --bin neonctl -- test cluster --kubeconfig '$(KUBECONFIG)' $(ARGS)

clean:
	cargo clean
