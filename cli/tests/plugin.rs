//! The program as a plugin of kubectl: started by the names under which kubectl looks for it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use neonvm_test_support::{need, needs};

/// A directory with the links that packages install.
struct Links(tempfile::TempDir);

impl Links {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["neonctl", "kubectl-neonvm", "kubectl_complete-neonvm"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_neonctl"), directory.path().join(name)).unwrap();
        }
        Self(directory)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", path).env("HOME", self.0.path());
        command.current_dir(self.0.path()).output().unwrap()
    }

    /// Standard output of a program of ours.
    fn text(&self, name: &str, arguments: &[&str]) -> String {
        String::from_utf8(self.run(&self.program(name), arguments).stdout).unwrap()
    }
}

#[test]
fn help_and_errors_show_what_people_type() {
    let links = Links::new();
    let help = links.text("kubectl-neonvm", &["vm", "get", "--help"]);
    assert!(help.contains("Usage: kubectl neonvm vm get [OPTIONS]"), "{help}");
    assert!(help.contains("  kubectl neonvm vm get pg\n") && !help.contains("neonctl vm"), "{help}");
    let refused = links.run(&links.program("kubectl-neonvm"), &["vm", "bogus"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && error.contains("Usage: kubectl neonvm vm"), "{error}");
    let missing = links.run(&links.program("kubectl-neonvm"), &["local", "status", "--name", "q"]);
    let error = String::from_utf8_lossy(&missing.stderr);
    assert!(missing.status.code() == Some(3), "{error}");
    assert!(error.contains("hint: start one: kubectl neonvm local up"), "{error}");
}

#[test]
fn commands_and_flags_are_the_same() {
    let links = Links::new();
    for arguments in [
        ["config", "view", "-o", "json"].as_slice(),
        &["--quiet", "version", "--client"],
        &["--color=never", "--context", "x", "version", "--client"],
        &["completion", "bash"],
        &["--version"],
    ] {
        let plugin = links.run(&links.program("kubectl-neonvm"), arguments);
        let direct = links.run(&links.program("neonctl"), arguments);
        assert_eq!(plugin.status.code(), direct.status.code(), "{arguments:?}");
        assert_eq!(plugin.stdout, direct.stdout, "{arguments:?}");
    }
}

#[test]
fn completions_are_in_the_form_of_kubectl() {
    let links = Links::new();
    let answer = links.text("kubectl_complete-neonvm", &["completion", ""]);
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines.first(), Some(&"bash\tGNU Bash"));
    assert_eq!(lines.last(), Some(&":4"));
    assert_eq!(links.text("kubectl_complete-neonvm", &["vm", "ssh-c"]).lines().count(), 2);
    assert_eq!(links.text("kubectl_complete-neonvm", &["no", "such"]), ":4\n");
}

#[test]
fn kubectl_finds_the_plugin_and_its_completion() {
    let kubectl = need!(needs::kubectl(28));
    let links = Links::new();
    let help = links.run(&kubectl, &["neonvm", "vm", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("Usage: kubectl neonvm vm"), "{help}");
    let complete = |words: &[&str]| {
        let output = links.run(&kubectl, &[&["__complete", "neonvm"], words].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(complete(&["-n", "x", "vm", "ssh-c"]).lines().last(), Some(":4"));
    let answer = complete(&["config", "set", "data"]);
    assert!(answer.starts_with("data-dir"), "{answer}");
}
