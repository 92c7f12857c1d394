//! `neond runner` is `neonvm-runner`.

use std::path::Path;
use std::process::{Command, Output};

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn the_runner_takes_the_place_of_neond() {
    let neond = Path::new(env!("CARGO_BIN_EXE_neond"));
    let runner = Path::new(env!("CARGO_BIN_EXE_neonvm-runner"));
    for arguments in
        [&["runner", "--help"][..], &["runner", "connect", "--help"], &["runner", "--no-such-flag"]]
    {
        let (through, direct) = (run(neond, arguments), run(runner, arguments));
        assert_eq!(through.stdout, direct.stdout, "{arguments:?}");
        assert_eq!(through.stderr, direct.stderr, "{arguments:?}");
        assert_eq!(through.status, direct.status, "{arguments:?}");
        assert!(!through.stdout.is_empty() || !through.status.success(), "{arguments:?}");
    }
}

/// `neonctl` shows the last line that a program wrote as the cause of an error: it is the error, whatever the environment is.
#[test]
fn an_error_is_one_line_and_has_no_backtrace() {
    let neond = Path::new(env!("CARGO_BIN_EXE_neond"));
    let runner = Path::new(env!("CARGO_BIN_EXE_neonvm-runner"));
    let cases = [(neond, &["scheduler", "--config", "/no/such/file"][..]), (runner, &["runner", "status"])];
    for (program, arguments) in cases {
        let mut command = Command::new(program);
        command.args(arguments).env("RUST_BACKTRACE", "1").env("RUST_LIB_BACKTRACE", "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        assert!(text.lines().next_back().is_some_and(|line| line.starts_with("Error: ")), "{text}");
        assert!(!text.to_lowercase().contains("backtrace"), "{text}");
    }
}

#[test]
fn a_missing_runner_is_named() {
    let neond = Path::new(env!("CARGO_BIN_EXE_neond"));
    // Beside it, so that a link is possible: the program is large.
    let directory = tempfile::tempdir_in(neond.parent().unwrap()).unwrap();
    let lonely = directory.path().join("neond");
    std::fs::hard_link(neond, &lonely).unwrap();
    let output = run(&lonely, &["runner"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("neonvm-runner is missing"), "{text}");
}

/// The variable that the vm-controller and the manifests set. Each line keeps its source in front.
#[test]
fn the_runner_writes_its_own_lines_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let lines = |format: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neonvm-runner"));
        command.args(["runner", "--root", directory.path().to_str().unwrap(), "--termination-log"]);
        command.arg(directory.path().join("termination"));
        match format {
            Some(format) => command.env("NEOND_LOG_FORMAT", format),
            None => command.env_remove("NEOND_LOG_FORMAT"),
        };
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let own: Vec<String> = text
            .lines()
            .map(|line| line.strip_prefix("runner| ").unwrap_or_else(|| panic!("{line}")).into())
            .collect();
        (own, error)
    };
    let (text, _) = lines(None);
    assert!(text.iter().any(|line| line.contains("the VM cannot be started")), "{text:?}");
    let (json, _) = lines(Some("json"));
    assert_eq!(json.len(), text.len());
    let json: Vec<serde_json::Value> = json.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed = json.iter().find(|line| line["msg"] == "the VM cannot be started").unwrap();
    assert_eq!(failed["level"], "error");
    assert!(failed["ts"].is_f64() && failed["error"].is_string(), "{failed}");
    let (none, error) = lines(Some("xml"));
    assert!(none.is_empty() && error.contains("xml"), "{error}");
}
