//! Packages of a release, by apt with a root of its own: lists, cache, sources and keys are not those of this computer.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::recipe::{Architecture, Debian};

/// Apt for one release and architecture.
#[derive(Debug)]
pub struct Apt {
    directory: PathBuf,
    config: PathBuf,
}

impl Apt {
    /// Makes it ready in a directory, which keeps lists and packages between builds. Its lists are fetched, unless `offline` and
    /// there are some.
    ///
    /// # Errors
    /// If the directory cannot be written, or apt cannot fetch the lists.
    pub fn open(
        debian: &Debian,
        architecture: Architecture,
        directory: &Path,
        offline: bool,
    ) -> Result<Self, Error> {
        for name in ["lists/partial", "archives/partial", "none"] {
            let path = directory.join(name);
            std::fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        }
        let directory = directory.canonicalize().map_err(Error::file("find", directory))?;
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(Error::file("write", &path))
        };
        let line = |source: &String| format!("deb [signed-by={}] {source}\n", debian.keyring.display());
        write("status", String::new())?;
        write("sources.list", debian.sources.iter().map(line).collect())?;
        write("apt.conf", settings(&directory, architecture))?;
        let apt = Self { config: directory.join("apt.conf"), directory };
        let has_lists = std::fs::read_dir(apt.directory.join("lists"))
            .is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_file()));
        if !(offline && has_lists) {
            apt.run("apt-get", &["update", "--quiet", "--error-on=any"])?;
        }
        Ok(apt)
    }

    /// Downloads packages and all that they depend on; returns their files, sorted.
    ///
    /// # Errors
    /// If one is unknown or cannot be fetched.
    pub fn closure(&self, packages: &[String]) -> Result<Vec<PathBuf>, Error> {
        let names: Vec<&str> = packages.iter().map(String::as_str).collect();
        let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
        self.run("apt-get", &[&install[..], &["--download-only"], &names].concat())?;
        let plan = self.run("apt-get", &[&install[..], &["--simulate"], &names].concat())?;
        let mut files: Vec<PathBuf> =
            plan.lines().filter_map(archive).map(|name| self.directory.join("archives").join(name)).collect();
        files.sort();
        match files.iter().find(|path| !path.is_file()) {
            Some(path) => Err(Error::Program {
                program: "apt-get".into(),
                output: format!("it did not fetch {}", path.display()),
            }),
            None => Ok(files),
        }
    }

    /// Downloads one package, without what it depends on: that on which `meta` depends whose name starts with `prefix`.
    ///
    /// # Errors
    /// If there is none, or it cannot be fetched.
    pub fn dependency(&self, meta: &str, prefix: &str) -> Result<PathBuf, Error> {
        let plan = self.run("apt-get", &["install", "--simulate", "--no-install-recommends", meta])?;
        let missing = || Error::Program {
            program: "apt-get".into(),
            output: format!("{meta} depends on no package named {prefix}…"),
        };
        let fits = |file: &String| file.starts_with(prefix) && !file.starts_with(&format!("{meta}_"));
        let file = plan.lines().filter_map(archive).find(fits).ok_or_else(missing)?;
        let path = self.directory.join("archives").join(&file);
        if !path.is_file() {
            let name = file.split('_').next().unwrap_or_default();
            self.run("apt-get", &["download", "--quiet", name])?;
        }
        if path.is_file() { Ok(path) } else { Err(missing()) }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(program);
        command.args(arguments).env("APT_CONFIG", &self.config).env("LC_ALL", "C");
        command.env("DEBIAN_FRONTEND", "noninteractive").current_dir(self.directory.join("archives"));
        run(&mut command)
    }
}

/// Runs a program to its end; returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| Error::Program {
        program: program.clone(),
        output: format!("{error}; install it: apt-get install apt dpkg"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("E:")).collect();
    let output = if lines.is_empty() { text.trim().to_owned() } else { lines.join("; ") };
    Err(Error::Program { program, output })
}

/// The file of a package in a line of a simulated installation: `Inst NAME (VERSION SOURCE… [ARCHITECTURE]) …`.
fn archive(line: &str) -> Option<String> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
    let inside = rest.split(')').next()?;
    let version = inside.split(' ').next()?;
    let architecture = inside.rsplit_once('[')?.1.strip_suffix(']')?;
    // A package of another architecture than apt's has it in its name.
    let name = name.split([':', ' ']).next()?;
    Some(format!("{name}_{}_{architecture}.deb", version.replace(':', "%3a")))
}

fn settings(directory: &Path, architecture: Architecture) -> String {
    let (own, name) = (directory.display(), architecture.name());
    // Read before the settings of this computer, which are then not read: their directory is another one.
    format!(
        "Dir::Etc::main \"{own}/none/apt.conf\";\nDir::Etc::parts \"{own}/none\";\n\
         Dir::Etc::sourcelist \"{own}/sources.list\";\nDir::Etc::sourceparts \"{own}/none\";\n\
         Dir::Etc::preferences \"{own}/none/preferences\";\nDir::Etc::preferencesparts \"{own}/none\";\n\
         Dir::Etc::trusted \"{own}/none/trusted\";\nDir::Etc::trustedparts \"{own}/none\";\n\
         Dir::State \"{own}\";\nDir::State::status \"{own}/status\";\nDir::State::lists \"{own}/lists\";\n\
         Dir::Cache \"{own}\";\nDir::Cache::archives \"{own}/archives\";\n\
         Dir::Log \"{own}/none\";\n\
         APT::Architecture \"{name}\";\nAPT::Architectures {{ \"{name}\"; }};\n\
         APT::Install-Recommends \"false\";\nAPT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_packages_are_found_in_what_apt_plans() {
        for (line, file) in [
            (
                "Inst libc6 (2.36-9+deb12u13 Debian:12.12/oldstable [amd64]) []",
                Some("libc6_2.36-9+deb12u13_amd64.deb"),
            ),
            ("Inst acl:arm64 (1:2.3.1-3 Debian:12.12/oldstable [arm64])", Some("acl_1%3a2.3.1-3_arm64.deb")),
            (
                "Inst seabios (1.16.2-1 Debian:12.12/oldstable, Debian-Security:12 [all])",
                Some("seabios_1.16.2-1_all.deb"),
            ),
            ("Conf libc6 (2.36-9+deb12u13 Debian:12.12/oldstable [amd64])", None),
            ("Inst broken", None),
            ("", None),
        ] {
            assert_eq!(archive(line).as_deref(), file, "{line}");
        }
    }
}
