//! `xtask dist`: the packages of a release in `<target>/dist`: Debian packages by cargo-deb (<https://github.com/kornelski/cargo-deb>;
//! what is in them stands in the manifests of `cli` and `controllers/neond`), archives for any Linux by tar, what the programs are made
//! of, and `SHA256SUMS`. The same programs and the same time give the same bytes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::package::{by_hand, target};
use crate::tool::Tool;
use crate::{commit, guest, sbom, shipped};

/// Version of the packages: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The programs that are packed. They look for each other in their own directory.
const PROGRAMS: [&str; 4] = ["neonctl", "neond", "neonvm-runner", "neonvm-guest-amd64"];
/// Names by which kubectl finds its plugin, and what completes the plugin's arguments.
const PLUGIN: [&str; 2] = ["kubectl-neonvm", "kubectl_complete-neonvm"];
/// Shells, and the names under which they look for a script.
const SHELLS: [(&str, &str); 3] = [("bash", "neonctl"), ("zsh", "_neonctl"), ("fish", "neonctl.fish")];
const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0" };

/// Builds the release and packs it; with `--programs DIR`, packs what is in that directory.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let given = parse(arguments)?;
    let target = target(root)?;
    let to = target.join(shipped::DIST);
    if given.is_none() && !(shipped::release(root)? && guest::run(root)?) {
        return Ok(false);
    }
    let programs = given.unwrap_or_else(|| to.clone());
    check_versions(&programs)?;
    check_changelog(&std::fs::read_to_string(root.join("CHANGELOG.md"))?)?;
    if commit::has_changes(root)? {
        println!("note: files differ from the commit, so its other builds will not have these bytes");
    }
    let time = commit::time(root)?;
    std::fs::create_dir_all(&to)?;
    if !sbom::run(root, &to, &time)? {
        return Ok(false);
    }
    // cargo-deb looks for what a manifest names in target/release below its target directory.
    let target_of_deb = target.join("tmp/packages");
    let staged = target_of_deb.join("release");
    stage(&programs, &to, &staged)?;
    let mut files = sbom::names();
    files.extend(debian(root, &target_of_deb, &to, &time)?);
    for program in PROGRAMS {
        files.push(archive(root, &staged, &to, program, &time)?);
    }
    sums(&to, &files)?;
    println!("{}: {} and SHA256SUMS", to.display(), files.join(", "));
    Ok(true)
}

fn parse(arguments: &[String]) -> anyhow::Result<Option<PathBuf>> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        ["--programs", directory] => Ok(Some(directory.into())),
        ["--programs"] => bail!("--programs needs a value: the directory of the programs"),
        [other, ..] => bail!("unknown flag {other:?}; there is --programs DIR"),
    }
}

/// Refuses programs of another version: their names would be wrong.
fn check_versions(programs: &Path) -> anyhow::Result<()> {
    for program in ["neonctl", "neond", "neonvm-runner"] {
        let path = programs.join(program);
        let text = output(Command::new(&path).arg("--version"))?;
        let text = String::from_utf8_lossy(&text);
        let found = text.split_whitespace().last().unwrap_or_default();
        ensure!(
            found == VERSION,
            "{} has version {found:?}, the workspace {VERSION}: build it again, or leave out --programs",
            path.display(),
        );
    }
    Ok(())
}

/// Refuses a version that is not described.
fn check_changelog(text: &str) -> anyhow::Result<()> {
    let heading = format!("## [{VERSION}] - ");
    ensure!(
        text.lines().any(|line| line.starts_with(&heading)),
        "CHANGELOG.md has no section for this version: add \"{heading}DATE\" below Unreleased"
    );
    Ok(())
}

/// Puts programs, lists of contents, and the manual pages and scripts that `neonctl` writes about itself into a directory.
fn stage(programs: &Path, lists: &Path, staged: &Path) -> anyhow::Result<()> {
    let _ = std::fs::remove_dir_all(staged);
    let completion = staged.join("completion");
    std::fs::create_dir_all(&completion)?;
    for program in PROGRAMS {
        let from = programs.join(program);
        std::fs::copy(&from, staged.join(program))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    for list in sbom::names() {
        std::fs::copy(lists.join(&list), staged.join(&list))?;
    }
    // Without the settings of the user who packs.
    let neonctl = |arguments: &[&str]| {
        output(Command::new(staged.join("neonctl")).args(arguments).env_clear().env("HOME", staged))
    };
    let pages = staged.join("man/man1");
    std::fs::create_dir_all(&pages)?;
    neonctl(&["man", "--out", &pages.display().to_string()])?;
    for name in PLUGIN {
        std::os::unix::fs::symlink("neonctl", staged.join(name))?;
        std::fs::write(pages.join(format!("{name}.1")), ".so man1/neonctl.1\n")?;
    }
    for (shell, name) in SHELLS {
        std::fs::write(completion.join(name), neonctl(&["completion", shell])?)?;
    }
    Ok(())
}

/// Makes the Debian packages and returns the names of their files.
fn debian(root: &Path, target_of_deb: &Path, to: &Path, time: &str) -> anyhow::Result<Vec<String>> {
    let Some(cargo_deb) = CARGO_DEB.installed(root)? else {
        bail!("cargo-deb {} cannot be installed: no registry answers", CARGO_DEB.version);
    };
    let mut names = Vec::new();
    for package in ["neonvm-cli", "neonvm-neond"] {
        let mut command = by_hand(&cargo_deb);
        command.args(["--package", package, "--no-build", "--no-strip", "--locked", "--output"]).arg(to);
        command.env("CARGO_TARGET_DIR", target_of_deb).env("SOURCE_DATE_EPOCH", time);
        // It prints the path of the package.
        let printed = output(command.current_dir(root).stderr(Stdio::inherit()))?;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let name = Path::new(printed.trim()).file_name().context("cargo-deb printed no path of a package")?;
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Makes the archive of a program for any Linux, below one directory, and returns its name.
fn archive(root: &Path, staged: &Path, to: &Path, program: &str, time: &str) -> anyhow::Result<String> {
    // The guest program has the architecture in its own name.
    let name = format!("{}-{VERSION}-linux-amd64", program.trim_end_matches("-amd64"));
    let file = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=root:0", "--group=root:0", "--mode=u=rwX,go=rX"]);
    tar.args([format!("--mtime=@{time}"), format!("--transform=s,^,{name}/,Sh")]);
    tar.args(["--use-compress-program=gzip -9n", "--file"]).arg(to.join(&file)).arg("-C").arg(staged);
    tar.arg(program);
    if program == "neonctl" {
        tar.args(PLUGIN).args(["man", "completion"]);
    }
    output(tar.arg("-C").arg(root).args(["LICENSE", "CHANGELOG.md"]))?;
    Ok(file)
}

/// Writes `SHA256SUMS`, which `sha256sum -c` reads.
fn sums(to: &Path, files: &[String]) -> anyhow::Result<()> {
    let mut files = files.to_vec();
    files.sort();
    let text = output(Command::new("sha256sum").args(files).current_dir(to))?;
    Ok(std::fs::write(to.join("SHA256SUMS"), text)?)
}

/// What a program prints; its error if it fails.
fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", error.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Scripts that answer as the programs do.
    fn stand_ins(directory: &Path) {
        let neonctl = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo neonctl {VERSION};;\n\
             man) mkdir -p $3; echo .TH neonctl 1 > $3/neonctl.1;;\ncompletion) echo \"# $2\";;\nesac\n"
        );
        let service = format!("#!/bin/sh\necho service {VERSION}\n");
        for name in PROGRAMS {
            let path = directory.join(name);
            std::fs::write(&path, if name == "neonctl" { &neonctl } else { &service }).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in sbom::names() {
            std::fs::write(directory.join(name), "{}\n").unwrap();
        }
    }

    #[test]
    fn two_runs_give_the_same_archive_and_sums() {
        let root = crate::package::root().unwrap();
        let packed = || {
            let directory = tempfile::tempdir().unwrap();
            let (programs, staged) = (directory.path(), directory.path().join("release"));
            stand_ins(programs);
            check_versions(programs).unwrap();
            stage(programs, programs, &staged).unwrap();
            let name = archive(&root, &staged, programs, "neonctl", "1700000000").unwrap();
            sums(programs, std::slice::from_ref(&name)).unwrap();
            let list = output(Command::new("tar").arg("-tf").arg(programs.join(&name))).unwrap();
            (String::from_utf8(list).unwrap(), std::fs::read(programs.join("SHA256SUMS")).unwrap())
        };
        let (list, sums) = packed();
        assert_eq!((list.clone(), sums), packed());
        for path in ["neonctl", "kubectl-neonvm", "man/man1/neonctl.1", "completion/_neonctl", "LICENSE"] {
            let path = format!("neonctl-{VERSION}-linux-amd64/{path}");
            assert!(list.lines().any(|line| line == path), "{path}: {list}");
        }
    }

    #[test]
    fn programs_of_another_version_and_undescribed_versions_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        stand_ins(directory.path());
        std::fs::write(directory.path().join("neond"), "#!/bin/sh\necho neond 9.9.9\n").unwrap();
        let error = check_versions(directory.path()).unwrap_err().to_string();
        assert!(error.contains("\"9.9.9\", the workspace"), "{error}");
        assert!(check_changelog(&format!("## [{VERSION}] - 2026-01-02\n")).is_ok());
        let error = check_changelog("## [Unreleased]\n").unwrap_err().to_string();
        assert!(error.contains("no section for this version"), "{error}");
    }

    #[test]
    fn flags_are_read() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words).map_err(|error| error.to_string())
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["--programs", "x"]), Ok(Some("x".into())));
        assert!(read(&["--programs"]).unwrap_err().contains("needs a value"));
        assert!(read(&["--fast"]).unwrap_err().starts_with("unknown flag \"--fast\""));
    }
}
