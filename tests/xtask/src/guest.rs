//! `xtask guest`: the guest program, static and small, beside the other programs.

use std::path::Path;

use anyhow::Context as _;

use crate::package::{cargo, target};
use crate::shipped::DIST;

/// What the guest of this computer's VMs is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the guest and copies it to where `neonctl` of each profile looks for it.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let target = target(root)?;
    if !build(root, &target, TARGET)? {
        return Ok(false);
    }
    let built = target.join(TARGET).join("guest/neonvm-guest");
    for profile in ["debug", "release", "quick", DIST] {
        let directory = target.join(profile);
        std::fs::create_dir_all(&directory)?;
        // A copy that replaces: the old file may be running. The name differs from cargo's own output.
        let fresh = directory.join(".neonvm-guest-amd64");
        std::fs::copy(&built, &fresh).context("cannot copy the guest")?;
        std::fs::rename(&fresh, directory.join("neonvm-guest-amd64"))?;
    }
    println!("guest: {} KiB", built.metadata()?.len() >> 10);
    Ok(true)
}

/// Builds the guest for a target, which is named so that `RUSTFLAGS` do not concern build scripts: a static C library would break
/// them.
pub(crate) fn build(root: &Path, target: &Path, triple: &str) -> anyhow::Result<bool> {
    let status = cargo()
        .args(["build", "--locked", "--quiet", "--profile", "guest", "-p", "neonvm-guest"])
        .args(["--target", triple])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_TARGET_DIR", target)
        .current_dir(root)
        .status()
        .context("cannot run cargo build")?;
    Ok(status.success())
}
