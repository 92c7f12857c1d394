#!/bin/sh
# Builds what is shipped into target/dist: neonctl, neond and neonvm-runner without symbols, each with its NAME.debug
# beside it, and the packages that they are made of (SPDX). A backtrace has files and lines wherever the two files lie in
# one directory.
#
# Not by Cargo alone: with `split-debuginfo = "packed"` the line tables stay in the program, and stripping removes them.
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none \
    cargo build --release --locked -p neonvm-cli -p neonvm-neond
mkdir -p "$target/dist"
for program in neonctl neond neonvm-runner; do
    made="$target/dist/$program"
    objcopy --only-keep-debug "$target/release/$program" "$made.debug"
    objcopy --strip-all --add-gnu-debuglink="$made.debug" "$target/release/$program" "$made"
    ls -lh "$made"
done
cargo xtask sbom
