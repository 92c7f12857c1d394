//! CPUs, files, status.

use std::fs;
use std::io::{Read as _, Write as _};

use crate::process::{Daemon, PROGRAM, answer, connect, machine};

#[test]
fn cpus_are_read_and_switched() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    assert_eq!(daemon.request("GET", "/cpu", b""), (200, "2000".into()));
    assert_eq!(daemon.request("PUT", "/cpu", b"2250"), (200, String::new()));
    let switch =
        |number| fs::read_to_string(root.path().join(format!("sys/devices/system/cpu/cpu{number}/online")));
    assert_eq!(switch(2).unwrap(), "1");
    assert!(switch(3).is_err());
    assert_eq!(daemon.request("PUT", "/cpu", b"250"), (200, String::new()));
    assert_eq!(switch(1).unwrap(), "0");
    for body in ["", " 250", "250\n", "+1", "-1", "1.5", "99999999999"] {
        assert_eq!(daemon.request("PUT", "/cpu", body.as_bytes()).0, 400, "{body:?}");
    }
    assert_eq!(daemon.request("PUT", "/cpu", b"9000").0, 500);
    fs::remove_file(root.path().join("sys/devices/system/cpu/offline")).unwrap();
    assert_eq!(daemon.request("PUT", "/cpu", b"3000").0, 500);
    for (method, path) in
        [("POST", "/cpu"), ("DELETE", "/cpu"), ("HEAD", "/cpu"), ("GET", "/"), ("PUT", "/status")]
    {
        assert_eq!(daemon.request(method, path, b"").0, 404, "{method} {path}");
    }
}

#[test]
fn files_are_kept_with_the_checksum_of_the_contract() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    let path = "/files/var/my%20files";
    assert_eq!(daemon.request("GET", path, b"").0, 400, "nothing there yet");
    let body = br#"{"tls.crt":{"data":"Y2VydGlmaWNhdGUK"},"ca.crt":{"data":"YXV0aG9yaXR5Cg=="}}"#;
    assert_eq!(daemon.request("PUT", path, body), (200, String::new()));
    let directory = root.path().join("var/my files");
    assert_eq!(fs::read_to_string(directory.join("tls.crt")).unwrap(), "certificate\n");
    // Python: hashlib.blake2b(digest_size=32) over both files.
    let sum = "KKRX8S8RO7TFIrmMPMLKr4gHM3fvVMlMKTssld0k6g4";
    assert_eq!(daemon.request("GET", path, b""), (200, sum.into()));
    assert_eq!(daemon.request("GET", "/files//var/my%20files", b""), (200, sum.into()));
    assert_eq!(daemon.request("PUT", path, br#"{"only":{"data":""}}"#).0, 200);
    assert!(!directory.join("tls.crt").exists() && directory.join("only").exists());
    for (path, body) in [
        (path, r#"{"..data":{"data":""}}"#),
        (path, r#"{"a/../b":{"data":""}}"#),
        (path, r#"{"..":{"data":""}}"#),
        (path, r#"{"a":{"data":"%"}}"#),
        (path, r#"{"a":"#),
        ("/files/var/../var", "{}"),
        ("/files/var/%2e%2e/var", "{}"),
        ("/files/var/missing", "{}"),
        ("/files/", "{}"),
        ("/files/var%00", "{}"),
    ] {
        assert_eq!(daemon.request("PUT", path, body.as_bytes()).0, 400, "{path} {body}");
    }
    assert!(directory.join("only").exists(), "refused requests change nothing");
}

/// A process of the guest, of any user, becomes root by no request to the daemon: only the runner's address may send one.
#[test]
fn a_process_of_the_guest_changes_nothing() {
    let root = machine();
    let daemon = Daemon::start_with(root.path(), &["--peer=169.254.254.253".to_owned()]);
    let body = br#"{"passwd":{"data":"cm9vdDo6MDowOjovOi9iaW4vc2gK"}}"#;
    for (method, path) in [
        ("PUT", "/files/var/my%20files"),
        ("GET", "/files/var/my%20files"),
        ("PUT", "/cpu"),
        ("GET", "/status"),
        ("POST", "/disks/grow"),
        ("GET", "/nothing"),
    ] {
        let (status, text) = daemon.request(method, path, body);
        assert_eq!(status, 403, "{method} {path}");
        assert!(text.contains("only the runner of this VM"), "{text}");
    }
    assert!(!root.path().join("var/my files/passwd").exists());
    // The runner, which is at this address here.
    let daemon =
        Daemon::start_with(root.path(), &["--peer=10.0.2.2".to_owned(), "--peer=127.0.0.1".to_owned()]);
    assert_eq!(daemon.request("PUT", "/files/var/my%20files", body).0, 200);
}

#[test]
fn status_reports_version_and_workload() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    assert_eq!(daemon.request("GET", "/healthz", b""), (200, "ok".into()));
    let status =
        || -> serde_json::Value { serde_json::from_str(&daemon.request("GET", "/status", b"").1).unwrap() };
    assert_eq!(status()["workload"], serde_json::Value::Null);
    fs::create_dir_all(root.path().join("run/neonvm")).unwrap();
    fs::write(root.path().join("run/neonvm/status.json"), r#"{"state":"running","pid":7}"#).unwrap();
    assert_eq!(status()["workload"]["state"], "running");
    assert_eq!(status()["version"], env!("CARGO_PKG_VERSION"));
}

/// Nothing is mounted in the machine of the test, and no request names what is mounted elsewhere.
#[test]
fn file_systems_grow_by_a_post_that_names_none() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    assert_eq!(daemon.request("POST", "/disks/grow", b"/"), (200, "[]".into()));
    for (method, path) in [("GET", "/disks/grow"), ("PUT", "/disks/grow"), ("POST", "/disks/grow/data")] {
        assert_eq!(daemon.request(method, path, b"").0, 404, "{method} {path}");
    }
}

#[test]
fn a_connection_serves_several_requests() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    let mut stream = connect(daemon.api);
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: vm\r\n\r\n").unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\nok") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1);
            text.extend(byte);
        }
    }
    stream.write_all(b"GET /cpu HTTP/1.1\r\nhost: vm\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream), (200, "2000".into()));
}

#[test]
fn flags_that_are_not_understood_end_the_daemon() {
    let status = std::process::Command::new(PROGRAM).args(["daemon", "--adr=1"]).output().unwrap();
    assert!(!status.status.success());
    assert!(String::from_utf8_lossy(&status.stderr).contains("--adr"));
}
