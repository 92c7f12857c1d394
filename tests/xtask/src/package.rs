//! The workspace as `cargo metadata` sees it, and its tracked files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

#[derive(Debug, Default, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Directory, relative to the root of the repository.
    pub(crate) directory: PathBuf,
    /// Names of packages it depends on, for its product and its build.
    pub(crate) dependencies: BTreeSet<String>,
    pub(crate) roots: Vec<PathBuf>,
    /// Root source files of its integration tests, by the name of the test.
    pub(crate) tests: BTreeMap<String, PathBuf>,
}

/// The root of the repository: the directory above the manifest of this crate that holds the workspace.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let start = std::env::current_dir().context("cannot read the current directory")?;
    start
        .ancestors()
        .find(|directory| {
            directory.join("Cargo.lock").exists() && directory.join("tests/xtask/Cargo.toml").exists()
        })
        .map(Path::to_path_buf)
        .context("not inside the repository")
}

pub(crate) fn workspace(root: &Path) -> anyhow::Result<Vec<Package>> {
    Ok(items(&metadata(root)?, "packages").iter().map(|package| parse(root, package)).collect())
}

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(text(&metadata(root)?, "target_directory")))
}

fn metadata(root: &Path) -> anyhow::Result<Value> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The cargo that runs us, as if it was called by hand.
pub(crate) fn cargo() -> Command {
    by_hand(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Variables that cargo sets for the programs that it runs.
const PACKAGE_VARIABLES: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"];

/// A program without the variables that cargo sets for this package: build scripts that read them (that of `ring` does) would
/// do their work again, and most of the workspace after them.
pub(crate) fn by_hand(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| PACKAGE_VARIABLES.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn parse(root: &Path, package: &Value) -> Package {
    let inside = |path: &str| Path::new(path).strip_prefix(root).unwrap_or(Path::new(path)).to_path_buf();
    let manifest = inside(text(package, "manifest_path"));
    Package {
        name: text(package, "name").to_owned(),
        directory: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
        dependencies: items(package, "dependencies")
            .iter()
            .filter(|dependency| text(dependency, "kind") != "dev")
            .map(|dependency| text(dependency, "name").to_owned())
            .collect(),
        tests: items(package, "targets")
            .iter()
            .filter(|target| items(target, "kind").iter().any(|kind| kind == "test"))
            .map(|target| (text(target, "name").to_owned(), inside(text(target, "src_path"))))
            .collect(),
        roots: items(package, "targets").iter().map(|target| inside(text(target, "src_path"))).collect(),
    }
}

/// Every file that git tracks and that exists, relative to the root.
pub(crate) fn tracked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let output = output.context("cannot run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let names = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}
