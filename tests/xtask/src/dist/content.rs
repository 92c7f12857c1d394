//! What is in each package, made of programs that were built: the manual pages and the completion are what `neonctl` itself writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::changelog;
use super::deb::Package;
use super::tree::{Tree, gzip};

/// Programs of a local cluster: what [`CLI`] starts, and what is put on disks. They look for each other in their own directory.
pub(crate) const CLUSTER: [&str; 3] = ["neond", "neonvm-runner", "neonvm-guest-amd64"];
/// The command line.
pub(crate) const CLI: &str = "neonctl";
/// Names of links to the command line: kubectl finds its plugins, and what completes their arguments, by name.
const PLUGIN: [&str; 2] = ["kubectl-neonvm", "kubectl_complete-neonvm"];
/// Shells, and where their scripts are below the root of a system.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/neonctl"),
    ("zsh", "usr/share/zsh/vendor-completions/_neonctl"),
    ("fish", "usr/share/fish/vendor_completions.d/neonctl.fish"),
];

/// Where everything comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Directory of the programs.
    pub(crate) programs: PathBuf,
    /// Version of all of them.
    pub(crate) version: String,
    pub(crate) licence: Vec<u8>,
    pub(crate) changelog: Vec<u8>,
    /// What the programs are made of.
    pub(crate) sbom: Vec<u8>,
}

/// What `neonctl` writes about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// Manual pages by their names, sorted.
    pages: Vec<(String, Vec<u8>)>,
    /// Script of each of [`SHELLS`].
    scripts: Vec<(&'static str, Vec<u8>)>,
}

/// Has `neonctl` write its manual pages and scripts.
pub(crate) fn written(source: &Source) -> anyhow::Result<Written> {
    let directory = tempfile::tempdir().context("cannot make a directory for manual pages")?;
    let out = directory.path().join("man");
    ask(source, directory.path(), &["man", "--out", &out.display().to_string()])?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(&out).context("cannot read the manual pages")? {
        let entry = entry?;
        pages.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    pages.sort();
    let mut scripts = Vec::new();
    for (shell, _) in SHELLS {
        scripts.push((shell, ask(source, directory.path(), &["completion", shell])?));
    }
    Ok(Written { pages, scripts })
}

/// What `neonctl` prints, without the settings of the user who calls.
fn ask(source: &Source, home: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let program = source.programs.join(CLI);
    let output = Command::new(&program).args(arguments).env_clear().env("HOME", home).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let failed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{CLI} {} failed: {}", arguments.join(" "), failed.trim());
    Ok(output.stdout)
}

/// Refuses programs of another version: their names would be wrong.
pub(crate) fn check_versions(source: &Source) -> anyhow::Result<()> {
    for program in [CLI, "neond", "neonvm-runner"] {
        let path = source.programs.join(program);
        let output = Command::new(&path).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.split_whitespace().last().unwrap_or_default();
        ensure!(
            found == source.version,
            "{} has version {found:?}, the workspace {}: build it again, or leave out --programs",
            path.display(),
            source.version
        );
    }
    Ok(())
}

/// Refuses a version that is not described.
pub(crate) fn check_changelog(source: &Source) -> anyhow::Result<()> {
    let heading = format!("## [{}] - ", source.version);
    let described = String::from_utf8_lossy(&source.changelog).lines().any(|line| line.starts_with(&heading));
    ensure!(
        described,
        "CHANGELOG.md has no section for this version: add \"{heading}DATE\" below Unreleased"
    );
    Ok(())
}

/// The package of the command line.
pub(crate) fn cli_package(source: &Source, written: &Written) -> anyhow::Result<Package> {
    let mut files = Tree::default();
    files.program("usr/bin/neonctl", read(source, CLI)?);
    for name in PLUGIN {
        files.link(&format!("usr/bin/{name}"), CLI);
    }
    for (name, text) in &written.pages {
        files.file(&format!("usr/share/man/man1/{name}.gz"), gzip(text)?);
    }
    for name in PLUGIN {
        files.link(&format!("usr/share/man/man1/{name}.1.gz"), "neonctl.1.gz");
    }
    for (shell, path) in SHELLS {
        files.file(path, script(written, shell)?);
    }
    documents(&mut files, source, CLI)?;
    Ok(Package {
        name: CLI,
        version: source.version.clone(),
        recommends: &[
            "ca-certificates",
            "qemu-system-x86",
            "e2fsprogs",
            "iproute2",
            "nftables",
            "openssh-client",
        ],
        suggests: &["neond"],
        summary: "vertical autoscaling of virtual machines on Kubernetes: command line",
        description: &[
            "neonvm runs virtual machines on Kubernetes whose CPU and memory follow",
            "their load while they run, and migrates them live from full nodes.",
            "",
            "neonctl installs it on a cluster, creates and inspects virtual machines,",
            "and builds their disks. It is also the kubectl plugin \"kubectl neonvm\".",
        ],
        files,
    })
}

/// The package of what a local cluster needs beside the command line.
pub(crate) fn cluster_package(source: &Source) -> anyhow::Result<Package> {
    let mut files = Tree::default();
    for program in CLUSTER {
        files.program(&format!("usr/bin/{program}"), read(source, program)?);
    }
    documents(&mut files, source, "neond")?;
    Ok(Package {
        name: "neond",
        version: source.version.clone(),
        recommends: &["neonctl", "qemu-system-x86", "e2fsprogs", "iproute2", "nftables"],
        suggests: &[],
        summary: "vertical autoscaling of virtual machines on Kubernetes: services",
        description: &[
            "neond is every service of neonvm, and a complete cluster on one host for",
            "trying it: neonctl local up. With the runner of virtual machines and the",
            "program inside of them.",
        ],
        files,
    })
}

/// The archive of the command line for any Linux, below one directory.
pub(crate) fn cli_archive(source: &Source, written: &Written) -> anyhow::Result<(String, Tree)> {
    let (name, mut tree) = archive(source, CLI)?;
    for link in PLUGIN {
        tree.link(&format!("{name}/{link}"), CLI);
    }
    for (page, text) in &written.pages {
        tree.file(&format!("{name}/man/man1/{page}"), text.clone());
    }
    for (shell, path) in SHELLS {
        let file = path.rsplit('/').next().unwrap_or(path);
        tree.file(&format!("{name}/completion/{shell}/{file}"), script(written, shell)?);
    }
    Ok((name, tree))
}

/// The archive of a program: its name without ending, and its files.
pub(crate) fn archive(source: &Source, program: &str) -> anyhow::Result<(String, Tree)> {
    // The guest program has the architecture in its own name.
    let short = program.trim_end_matches("-amd64");
    let name = format!("{short}-{}-linux-amd64", source.version);
    let mut tree = Tree::default();
    tree.program(&format!("{name}/{program}"), read(source, program)?);
    tree.file(&format!("{name}/LICENSE"), source.licence.clone());
    tree.file(&format!("{name}/CHANGELOG.md"), source.changelog.clone());
    Ok((name, tree))
}

/// What each Debian package has in its directory of documents.
fn documents(files: &mut Tree, source: &Source, package: &str) -> anyhow::Result<()> {
    let directory = format!("usr/share/doc/{package}");
    let changelog = changelog::debian(package, &String::from_utf8_lossy(&source.changelog))?;
    files.file(&format!("{directory}/copyright"), COPYRIGHT);
    files.file(&format!("{directory}/changelog.gz"), gzip(changelog.as_bytes())?);
    files.file(&format!("{directory}/neonvm.spdx.json.gz"), gzip(&source.sbom)?);
    Ok(())
}

const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: neonvm
Comment: The programs contain packages of other authors under permissive
 licences. neonvm.spdx.json.gz in this directory lists each of them with its
 version, its licence and where its source is.

Files: *
Copyright: 2026 the authors of neonvm
License: Apache-2.0
 On Debian systems, the text of the licence is in
 /usr/share/common-licenses/Apache-2.0.
";

fn read(source: &Source, program: &str) -> anyhow::Result<Vec<u8>> {
    let path = source.programs.join(program);
    std::fs::read(&path).with_context(|| format!("cannot read the program {}", path.display()))
}

fn script(written: &Written, shell: &str) -> anyhow::Result<Vec<u8>> {
    let found = written.scripts.iter().find(|(name, _)| *name == shell);
    Ok(found.with_context(|| format!("no script for {shell} was written"))?.1.clone())
}
