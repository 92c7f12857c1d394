//! Clients that are slow, too large or send invalid requests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use crate::process::{DEADLINE, Daemon, answer, connect, machine};

#[test]
fn bodies_above_the_limit_are_refused() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    let mut announced = connect(daemon.api);
    announced.write_all(b"PUT /files/var HTTP/1.1\r\nhost: vm\r\ncontent-length: 16777217\r\n\r\n").unwrap();
    assert_eq!(answer(&mut announced).0, 413);
    let mut chunked = connect(daemon.api);
    chunked.write_all(b"PUT /files/var HTTP/1.1\r\nhost: vm\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    let chunk = [format!("{:x}\r\n", 1 << 20).into_bytes(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
    for _ in 0..17 {
        if chunked.write_all(&chunk).is_err() {
            break;
        }
    }
    // The answer may be lost with the rest of the body unread; that the daemon lives is what counts.
    assert!([413, 0].contains(&answer(&mut chunked).0));
    assert_eq!(daemon.request("GET", "/healthz", b"").0, 200);
}

#[test]
fn slow_clients_are_cut_off() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    let start = Instant::now();
    let mut head = connect(daemon.api);
    head.write_all(b"GET /cpu HTTP/1.1\r\nhost:").unwrap();
    let mut body = connect(daemon.api);
    body.write_all(b"PUT /cpu HTTP/1.1\r\nhost: vm\r\ncontent-length: 4\r\n\r\n1").unwrap();
    let mut silent = connect(daemon.api);
    assert_eq!(answer(&mut body).0, 408);
    for stream in [&mut head, &mut silent] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
}

#[test]
fn a_crowd_does_not_keep_others_out() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    let start = Instant::now();
    let crowd: Vec<TcpStream> = (0..80).map(|_| connect(daemon.api)).collect();
    assert_eq!(daemon.request("GET", "/healthz", b"").0, 200);
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    drop(crowd);
}

#[test]
fn nonsense_is_answered_or_cut_off() {
    let root = machine();
    let daemon = Daemon::start(root.path(), &[]);
    let long = format!("GET /{} HTTP/1.1\r\nhost: vm\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET /cpu HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    for text in [
        "\0\0\0\0",
        "GET\r\n\r\n",
        "GET /cpu HTTP/9.9\r\n\r\n",
        "PUT /cpu HTTP/1.1\r\nhost: vm\r\ncontent-length: -1\r\n\r\n",
        "PUT /cpu HTTP/1.1\r\nhost: vm\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n11",
        "PUT /cpu HTTP/1.1\r\nhost: vm\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}",
        &long,
        &many,
    ] {
        let mut stream = connect(daemon.api);
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let (status, _) = answer(&mut stream);
        assert!(status == 0 || (400..=505).contains(&status), "{status} for {text:.40}");
    }
    assert_eq!(daemon.request("GET", "/cpu", b""), (200, "2000".into()));
}
