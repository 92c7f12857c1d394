//! Packing with small scripts in the place of programs.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use neonvm_test_support::{need, needs};

use super::*;

/// Scripts that answer as the programs do.
fn stand_ins(directory: &Path) -> Source {
    let neonctl = format!(
        "#!/bin/sh\ncase $1 in\n--version) echo neonctl {VERSION};;\n\
         man) mkdir -p $3; echo .TH neonctl 1 > $3/neonctl.1; echo .TH neonctl-vm 1 > $3/neonctl-vm.1;;\n\
         completion) echo \"# $2\";;\nesac\n"
    );
    let service = format!("#!/bin/sh\necho service {VERSION}\n");
    for (name, text) in [
        ("neonctl", &neonctl),
        ("neond", &service),
        ("neonvm-runner", &service),
        ("neonvm-guest-amd64", &service),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    Source {
        programs: directory.to_owned(),
        version: VERSION.to_owned(),
        licence: b"licence\n".to_vec(),
        changelog: format!("# Changelog\n\n## [{VERSION}] - 2026-01-02\n").into_bytes(),
        sbom: b"{}\n".to_vec(),
    }
}

#[test]
fn two_runs_give_the_same_bytes() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = pack(&stand_ins(first.path()), 1_700_000_000).unwrap();
    let other = pack(&stand_ins(second.path()), 1_700_000_000).unwrap();
    assert_eq!(one, other);
    let names: Vec<&str> = one.keys().map(String::as_str).collect();
    let wanted = [
        "SHA256SUMS".to_owned(),
        format!("neonctl-{VERSION}-linux-amd64.tar.gz"),
        format!("neonctl_{VERSION}_amd64.deb"),
        format!("neond-{VERSION}-linux-amd64.tar.gz"),
        format!("neond_{VERSION}_amd64.deb"),
        format!("neonvm-guest-{VERSION}-linux-amd64.tar.gz"),
        format!("neonvm-runner-{VERSION}-linux-amd64.tar.gz"),
        SBOM.to_owned(),
    ];
    assert_eq!(names, wanted);
}

#[test]
fn the_package_has_pages_scripts_and_plugin() {
    let dpkg = need!(needs::program("dpkg-deb"));
    let directory = tempfile::tempdir().unwrap();
    let packed = pack(&stand_ins(directory.path()), 1_700_000_000).unwrap();
    let file = directory.path().join("x.deb");
    std::fs::write(&file, &packed[&format!("neonctl_{VERSION}_amd64.deb")]).unwrap();
    let output = Command::new(&dpkg).arg("--contents").arg(&file).output().unwrap();
    let contents = String::from_utf8_lossy(&output.stdout).into_owned();
    for path in [
        "./usr/bin/neonctl",
        "./usr/bin/kubectl-neonvm -> neonctl",
        "./usr/bin/kubectl_complete-neonvm -> neonctl",
        "./usr/share/man/man1/neonctl.1.gz",
        "./usr/share/man/man1/neonctl-vm.1.gz",
        "./usr/share/bash-completion/completions/neonctl",
        "./usr/share/zsh/vendor-completions/_neonctl",
        "./usr/share/fish/vendor_completions.d/neonctl.fish",
        "./usr/share/doc/neonctl/copyright",
        "./usr/share/doc/neonctl/changelog.gz",
    ] {
        assert!(contents.lines().any(|line| line.ends_with(&format!(" {path}"))), "{path}:\n{contents}");
    }
    // dpkg compares the sums when it verifies an installed package.
    let to = directory.path().join("root");
    let status = Command::new(&dpkg).arg("--raw-extract").arg(&file).arg(&to).status().unwrap();
    assert!(status.success());
    let md5sum = Command::new("md5sum").args(["-c", "--quiet", "DEBIAN/md5sums"]).current_dir(&to).status();
    assert!(md5sum.unwrap().success());
}

#[test]
fn sums_are_read_by_sha256sum() {
    let directory = tempfile::tempdir().unwrap();
    let packed = pack(&stand_ins(directory.path()), 1_700_000_000).unwrap();
    let out = directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    for (name, bytes) in &packed {
        std::fs::write(out.join(name), bytes).unwrap();
    }
    let check = || {
        let mut command = Command::new("sha256sum");
        command.args(["-c", "--quiet", "SHA256SUMS"]).current_dir(&out).output().unwrap().status.success()
    };
    assert!(check());
    std::fs::write(out.join(SBOM), "changed").unwrap();
    assert!(!check());
}

#[test]
fn programs_of_another_version_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = stand_ins(directory.path());
    content::check_versions(&source).unwrap();
    source.version = "9.9.9".into();
    let error = content::check_versions(&source).unwrap_err().to_string();
    assert!(error.contains("the workspace 9.9.9: build it again"), "{error}");
}

#[test]
fn a_version_without_a_section_in_the_changelog_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = stand_ins(directory.path());
    content::check_changelog(&source).unwrap();
    source.version = "9.9.9".into();
    let error = content::check_changelog(&source).unwrap_err().to_string();
    assert!(error.contains("add \"## [9.9.9] - DATE\""), "{error}");
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
