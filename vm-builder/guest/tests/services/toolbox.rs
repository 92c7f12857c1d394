//! Programs of `/neonvm/bin` as images call them.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use neonvm_test_support::{need, needs};

use crate::process::PROGRAM;

/// Runs a script as `su-exec USER`; its status, its standard output, and the process that was started.
fn as_user(user: &str, script: &str) -> (Option<i32>, String, u32) {
    let mut command = Command::new(PROGRAM);
    command.arg0("/neonvm/bin/su-exec").args([user, "/bin/sh", "-c", script]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap().trim().to_owned(), process)
}

#[test]
fn su_exec_becomes_the_user_and_then_the_program() {
    need!(needs::root());
    let show = "echo $(id -u):$(id -g):$(id -G):$HOME:$$; exit 7";
    for (user, shown) in [
        ("nobody", "65534:65534:65534:/nonexistent"),
        ("65534", "65534:65534:65534:/nonexistent"),
        ("nobody:daemon", "65534:1:1:/nonexistent"),
        ("4321:1234", "4321:1234:1234:/"),
        ("root", "0:0:0:/root"),
    ] {
        let (status, text, process) = as_user(user, show);
        // In place of it: the same process, whose status is the program's.
        assert_eq!((status, text), (Some(7), format!("{shown}:{process}")), "{user}");
    }
    // The rights of before are gone for good.
    let (status, text, _) = as_user("nobody", "cat /etc/shadow 2>/dev/null; echo $?");
    assert_eq!((status, text.as_str()), (Some(0), "1"));
}

#[test]
fn su_exec_names_a_user_and_a_program_that_are_missing() {
    let ended = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.arg0("su-exec").args(arguments).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = ended(&["no-such-user", "true"]);
    assert!(status == Some(1) && text.contains("no-such-user"), "{status:?} {text}");
    let (status, text) = ended(&["0:0"]);
    assert!(status == Some(1) && text.contains("usage: su-exec"), "{status:?} {text}");
}
