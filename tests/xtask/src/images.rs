//! `xtask images`: the images of services and runner. Builds our programs, static, and has `neonvm-images` pack them by the recipes
//! of `deploy/images`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::package::target;
use crate::process::run_cargo;
use crate::shipped::{self, DIST, Strip, strip};
use crate::{guest, sbom};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct ImageBuild {
    architecture: String,
    profile: String,
    /// Directory with programs that were built elsewhere.
    programs: Option<PathBuf>,
    /// Handed on.
    more: Vec<String>,
}

impl Default for ImageBuild {
    fn default() -> Self {
        Self { architecture: "amd64".into(), profile: DIST.into(), programs: None, more: Vec::new() }
    }
}

fn parse(arguments: &[String]) -> anyhow::Result<ImageBuild> {
    let mut wanted = ImageBuild::default();
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = |choices: &[&str]| {
            let value = words.next().with_context(|| format!("{flag} needs a value"))?;
            let good = choices.is_empty() || choices.contains(&value.as_str());
            ensure!(good, "{value:?} is not valid for {flag}; use {}", choices.join(" or "));
            Ok(value.clone())
        };
        match flag.as_str() {
            "--arch" => wanted.architecture = value(&["amd64", "arm64"])?,
            "--profile" => wanted.profile = value(&[DIST, "quick"])?,
            "--programs" => wanted.programs = Some(value(&[])?.into()),
            "--kernel" => wanted.more.extend([flag.clone(), value(&[])?]),
            "--offline" => wanted.more.push(flag.clone()),
            other => bail!(
                "unknown flag {other:?}; there are --arch, --profile, --programs, --kernel and --offline"
            ),
        }
    }
    Ok(wanted)
}

/// Makes both images in `<target>/images/<architecture>`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let wanted = parse(arguments)?;
    let target = target(root)?;
    let work = target.join("tmp/images");
    let programs = match &wanted.programs {
        Some(given) => given.clone(),
        None => {
            let programs = work.join("programs").join(&wanted.architecture);
            if !programs_for(root, &target, &wanted, &programs)? {
                return Ok(false);
            }
            programs
        }
    };
    // The whole workspace: a part of it would be built with other features, and much of it again.
    if !run_cargo(root, &["build", "--locked", "--workspace", "--bins", "--quiet"])? {
        return Ok(false);
    }
    let (commit, time) = sbom::commit(root)?;
    let dirty = if has_changes(root)? { "-dirty" } else { "" };
    let status = Command::new(target.join("debug/neonvm-images"))
        .args(["--arch", &wanted.architecture, "--created", &time])
        .args(["--revision", &format!("{commit}{dirty}"), "--source", &source(root)])
        .arg("--programs")
        .arg(programs)
        .arg("--out")
        .arg(target.join("images").join(&wanted.architecture))
        .arg("--work")
        .arg(work)
        .args(&wanted.more)
        .current_dir(root)
        .status();
    Ok(status.context("cannot run neonvm-images")?.success())
}

/// Builds our programs and lists what they are made of.
fn programs_for(root: &Path, target: &Path, wanted: &ImageBuild, to: &Path) -> anyhow::Result<bool> {
    let triple = match wanted.architecture.as_str() {
        "arm64" => "aarch64-unknown-linux-gnu",
        _ => "x86_64-unknown-linux-gnu",
    };
    if !guest::build(root, target, triple)? || !shipped::build(root, target, triple, &wanted.profile)? {
        return Ok(false);
    }
    std::fs::create_dir_all(to)?;
    for (profile, program, package) in [
        (wanted.profile.as_str(), "neond", "neonvm-neond"),
        (&wanted.profile, "neonvm-runner", "neonvm-neond"),
        ("guest", "neonvm-guest", "neonvm-guest"),
    ] {
        let from = target.join(triple).join(profile).join(program);
        strip(&from, to, Strip::Debug)?;
        let list = sbom::of_packages(root, &[package])?;
        std::fs::write(to.join(format!("{program}.spdx.json")), serde_json::to_vec(&list)?)?;
    }
    Ok(true)
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("cannot run git")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether tracked files differ from the commit.
pub(crate) fn has_changes(root: &Path) -> anyhow::Result<bool> {
    Ok(!git(root, &["status", "--porcelain", "--untracked-files=no"])?.is_empty())
}

/// Where the source comes from; empty if that is a directory of this computer.
fn source(root: &Path) -> String {
    let url = git(root, &["config", "--get", "remote.origin.url"]).unwrap_or_default();
    if url.starts_with("https://") && !url.contains('@') { url } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read() {
        let read = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words).map_err(|error| error.to_string())
        };
        assert_eq!(read(""), Ok(ImageBuild::default()));
        let wanted = read("--arch arm64 --profile quick --programs p --kernel k --offline").unwrap();
        assert_eq!((wanted.architecture.as_str(), wanted.profile.as_str()), ("arm64", "quick"));
        assert_eq!(
            (wanted.programs, wanted.more.join(" ")),
            (Some("p".into()), "--kernel k --offline".into())
        );
        assert_eq!(
            read("--arch sparc").unwrap_err(),
            "\"sparc\" is not valid for --arch; use amd64 or arm64"
        );
        assert_eq!(read("--kernel").unwrap_err(), "--kernel needs a value");
        assert!(read("--fast").unwrap_err().starts_with("unknown flag \"--fast\""));
    }
}
