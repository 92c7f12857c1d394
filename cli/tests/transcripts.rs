//! Replays `tests/transcripts/*.txt`: what is typed, what comes out.
//!
//! `$ command` is run by a shell in an empty home directory. Lines after it are its standard output, lines with `! ` its
//! standard error, `? N` its exit code if that is not 0. `[..]` stands for anything on a line, `[HOME]` for that
//! directory, `[VERSION]` for ours.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

struct Step {
    line: usize,
    command: String,
    stdout: Vec<String>,
    stderr: Vec<String>,
    exit: i32,
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            steps.push(Step { line: index + 1, command, stdout: Vec::new(), stderr: Vec::new(), exit: 0 });
        } else if line.starts_with("# ") || line.is_empty() {
        } else if let Some(step) = steps.last_mut() {
            match line.split_once(' ').map_or((line, ""), |pair| pair) {
                ("!", text) => step.stderr.push(text.to_owned()),
                ("?", code) => step.exit = code.parse().unwrap(),
                _ => step.stdout.push(line.to_owned()),
            }
        }
    }
    steps
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    match last {
        None => rest.is_empty(),
        Some(part) => rest.is_empty() || text.ends_with(part),
    }
}

fn differs(wanted: &[String], got: &str) -> bool {
    let got: Vec<&str> = got.lines().filter(|line| !line.is_empty()).collect();
    wanted.len() != got.len() || wanted.iter().zip(&got).any(|(wanted, got)| !matches(wanted, got.trim_end()))
}

fn replay(file: &Path) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_neonctl"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut problems = Vec::new();
    for step in parse(&std::fs::read_to_string(file).unwrap()) {
        let output = Command::new("sh")
            .args(["-c", &step.command])
            .env_clear()
            .env("PATH", &path)
            .env("HOME", home.path())
            .current_dir(home.path())
            .output()
            .unwrap();
        let plain = |raw: &[u8]| {
            let text = String::from_utf8_lossy(raw).replace(&home.path().display().to_string(), "[HOME]");
            text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
        };
        let (stdout, stderr) = (plain(&output.stdout), plain(&output.stderr));
        let exit = output.status.code().unwrap_or(-1);
        if exit != step.exit || differs(&step.stdout, &stdout) || differs(&step.stderr, &stderr) {
            problems.push(format!(
                "{}:{}: $ {}\n--- stdout\n{stdout}--- stderr\n{stderr}--- exit {exit}, wanted {}",
                file.display(),
                step.line,
                step.command,
                step.exit
            ));
        }
    }
    problems
}

#[test]
fn transcripts_are_true() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut problems = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        files += 1;
        problems.extend(replay(&entry.unwrap().path()));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(files >= 4);
}

#[test]
fn patterns_match_whole_lines() {
    assert!(matches("a[..]c", "abc") && matches("a[..]", "abc") && matches("abc", "abc"));
    assert!(!matches("a[..]d", "abc") && !matches("ab", "abc"));
}
