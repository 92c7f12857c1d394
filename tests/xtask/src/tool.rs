//! Programs of others that checks use, installed from the registry into `<target>/tools` when they are missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::package::{cargo, target};

/// A program by the name of its crate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// The program if it is installed in the wanted version.
    pub(crate) fn found(self, root: &Path) -> anyhow::Result<Option<PathBuf>> {
        let program = target(root)?.join("tools/bin").join(self.name);
        let is_wanted = |arguments: &[&str]| {
            let known = Command::new(&program).args(arguments).output();
            known.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(self.version))
        };
        // Some answer only as a subcommand of cargo.
        let subcommand = self.name.trim_start_matches("cargo-");
        Ok((is_wanted(&["--version"]) || is_wanted(&[subcommand, "--version"])).then_some(program))
    }

    /// The program, installed if need be; none if no registry has it.
    pub(crate) fn installed(self, root: &Path) -> anyhow::Result<Option<PathBuf>> {
        if let Some(program) = self.found(root)? {
            return Ok(Some(program));
        }
        let mut install = cargo();
        install.args(["install", self.name, "--version", self.version, "--locked", "--quiet", "--root"]);
        install.arg(target(root)?.join("tools"));
        let good = install.status().context("cannot run cargo install")?.success();
        if good { self.found(root) } else { Ok(None) }
    }
}
