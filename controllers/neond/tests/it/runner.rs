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
