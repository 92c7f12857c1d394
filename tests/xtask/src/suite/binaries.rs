//! The test programs that cargo built, and the tests in them.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::failures;
use crate::package::cargo;

/// What a test program is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tests inside a library or a program.
    Unit,
    /// A file or folder of `tests/`.
    Integration,
}

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) package: String,
    /// Name of its target, such as `qemu`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) executable: PathBuf,
    /// Directory of its package, in which tests run.
    pub(crate) directory: PathBuf,
}

/// The test programs in the order of their names, or the errors of the build.
pub(crate) type Built = Result<Vec<Binary>, Vec<String>>;

/// Builds every program and test of the workspace.
///
/// Which features a shared crate is built with depends on what is built with it. So everything is selected, and each crate is
/// compiled once.
pub(crate) fn build(root: &Path, environment: &[(&str, &str)]) -> anyhow::Result<Built> {
    let command =
        ["build", "--locked", "--workspace", "--all-targets", "--message-format=json-render-diagnostics"];
    let mut child = cargo()
        .args(command)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo build")?;
    let messages = child.stderr.take().map(|stream| std::thread::spawn(|| shown(stream)));
    let output = child.wait_with_output().context("cannot run cargo build")?;
    let lines = messages.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if !output.status.success() {
        return Ok(Err(failures::errors(&lines)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut binaries: Vec<Binary> = text.lines().filter_map(parse).collect();
    binaries.sort_by_key(Binary::id);
    Ok(Ok(binaries))
}

/// Shows the lines of a stream as they come, and keeps them.
fn shown(stream: impl Read) -> Vec<String> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.inspect(|line| println!("{line}")).collect()
}

/// The test program of a line of cargo's messages, if it is about one.
fn parse(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let is_test = message.pointer("/profile/test").and_then(Value::as_bool) == Some(true);
    if text("/reason") != Some("compiler-artifact") || !is_test {
        return None;
    }
    let directory = Path::new(text("/manifest_path")?).parent()?.to_path_buf();
    Some(Binary {
        package: package(text("/package_id")?)?,
        name: text("/target/name")?.to_owned(),
        kind: if text("/target/kind/0") == Some("test") { Kind::Integration } else { Kind::Unit },
        executable: text("/executable")?.into(),
        directory,
    })
}

/// The name in a package's identifier: `path+file:///a/b#name@1.0.0`, or `…/name#1.0.0` if the directory has that name.
fn package(id: &str) -> Option<String> {
    let (path, version) = id.rsplit_once('#')?;
    let name = version.split_once('@').map(|(name, _)| name);
    name.or_else(|| path.rsplit('/').next()).map(str::to_owned)
}

impl Binary {
    /// How it is called in reports, such as `neonvm-runner::qemu`.
    pub(crate) fn id(&self) -> String {
        match self.kind {
            Kind::Unit if self.name.replace('_', "-") == self.package => self.package.clone(),
            // A package may have several programs, with a module in common.
            Kind::Unit | Kind::Integration => format!("{}::{}", self.package, self.name),
        }
    }

    /// Whether it is this file or folder of `tests/`.
    pub(crate) fn is_integration(&self, name: &str) -> bool {
        self.kind == Kind::Integration && self.name == name
    }

    /// Its tests.
    pub(crate) fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let output = Command::new(&self.executable)
            .args(["--list", "--format", "terse"])
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", self.executable.display()))?;
        if !output.status.success() {
            bail!("{} does not list its tests: {}", self.id(), String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(|name| Case { binary: self.clone(), name: name.to_owned() }).collect())
    }
}

/// One test of a program.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) binary: Binary,
    pub(crate) name: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binary.id(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_the_messages_of_cargo() {
        let message = |test: bool, kind: &str, name: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": "path+file:///a/b/controllers/kit#neonvm-kit@0.1.0",
                "manifest_path": "/a/b/controllers/kit/Cargo.toml", "executable": "/t/debug/deps/it-1",
                "target": {"name": name, "kind": [kind]}, "profile": {"test": test},
            })
            .to_string()
        };
        let found = parse(&message(true, "test", "it")).unwrap();
        assert_eq!(
            (found.id().as_str(), found.directory.as_path()),
            ("neonvm-kit::it", Path::new("/a/b/controllers/kit"))
        );
        assert!(found.is_integration("it") && !found.is_integration("qemu"));
        assert_eq!(parse(&message(true, "lib", "neonvm_kit")).unwrap().id(), "neonvm-kit");
        // Tests of a module that two programs have in common do not share the file of their output.
        assert_eq!(parse(&message(true, "bin", "tool")).unwrap().id(), "neonvm-kit::tool");
        assert_eq!(parse(&message(false, "test", "it")), None);
        assert_eq!(parse("no JSON"), None);
        assert_eq!(package("path+file:///a/cli#0.1.0").as_deref(), Some("cli"));
    }
}
