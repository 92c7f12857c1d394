//! `xtask sbom`: the packages that the shipped programs are made of, as CycloneDX in `<target>/dist/PROGRAM.cdx.json`, by cargo-cyclonedx
//! (<https://github.com/CycloneDX/cyclonedx-rust-cargo>), which is installed into `<target>/tools` when it is missing. The same commit
//! gives the same documents.

use std::path::Path;

use anyhow::Context as _;

use crate::package::{by_hand, workspace};
use crate::tool::Tool;

/// Crates whose programs are shipped, and the programs by which their documents are named. That of `neond` is also the runner's.
const SHIPPED: [(&str, &str); 3] =
    [("neonvm-cli", "neonctl"), ("neonvm-neond", "neond"), ("neonvm-guest", "neonvm-guest")];
/// What they are built for; others have the same packages but for a few of the system's.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
const CARGO_CYCLONEDX: Tool = Tool { name: "cargo-cyclonedx", version: "0.5.9" };
/// Name of the documents before they are moved; cargo-cyclonedx writes one beside each manifest of the workspace.
const WRITTEN: &str = "bom-of-xtask";

pub(crate) fn names() -> Vec<String> {
    SHIPPED.iter().map(|(_, program)| format!("{program}.cdx.json")).collect()
}

/// Writes the documents into a directory, with this time.
pub(crate) fn run(root: &Path, to: &Path, time: &str) -> anyhow::Result<bool> {
    let Some(program) = CARGO_CYCLONEDX.installed(root)? else {
        anyhow::bail!("cargo-cyclonedx {} cannot be installed: no registry answers", CARGO_CYCLONEDX.version);
    };
    let mut command = by_hand(program);
    command.args(["cyclonedx", "-qq", "--format", "json", "--all", "--no-build-deps", "--target", PLATFORM]);
    command.args(["--override-filename", WRITTEN]).env("SOURCE_DATE_EPOCH", time).current_dir(root);
    let good = command.status().context("cannot run cargo-cyclonedx")?.success();
    std::fs::create_dir_all(to)?;
    for package in workspace(root)? {
        let written = root.join(&package.directory).join(format!("{WRITTEN}.json"));
        if !written.exists() {
            continue;
        }
        if let Some((_, program)) = SHIPPED.iter().find(|(name, _)| *name == package.name) {
            // The document names our crates by their directories.
            let text = std::fs::read_to_string(&written)?.replace(&root.display().to_string(), "/neonvm");
            std::fs::write(to.join(format!("{program}.cdx.json")), text)?;
        }
        std::fs::remove_file(&written)?;
    }
    Ok(good)
}
