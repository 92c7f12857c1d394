//! Forwarded connections, by OpenSSH's client: editors and browsers reach what listens in a VM by them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use neonvm_test_support::{Running, eventually_blocking, need, needs};

use crate::ssh::{Server, numbers, through};

/// A server that gives back what it gets.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut copy = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut copy, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    port
}

fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A client that only forwards.
fn forwarding(mut command: Command) -> Running {
    Running(command.arg("-N").stderr(Stdio::piped()).spawn().unwrap())
}

/// What comes back for ten megabytes, with both ends closed on their own.
fn exchange(
    mut stream: impl Read + Write + Send + 'static,
    mut half: impl Write + Send + 'static,
    close: impl FnOnce() + Send + 'static,
) {
    let writer = std::thread::spawn(move || {
        half.write_all(&numbers()).unwrap();
        close();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(back, numbers());
}

fn through_tcp(port: u16) {
    let stream =
        eventually_blocking(|| "the forwarded port".into(), || TcpStream::connect(("127.0.0.1", port)).ok());
    let (half, end) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    exchange(stream, half, move || end.shutdown(Shutdown::Write).unwrap());
}

#[test]
fn local_ports_lead_into_the_guest() {
    let server = need!(Server::start(""));
    let (echo, local) = (echo(), free());
    let _client = forwarding(server.ssh(&["-L", &format!("{local}:127.0.0.1:{echo}")], &[]));
    // Several at a time, and one without a listener behind it.
    let all: Vec<_> = (0..3).map(|_| std::thread::spawn(move || through_tcp(local))).collect();
    all.into_iter().for_each(|one| one.join().unwrap());
    let output = through(server.ssh(&["-W", &format!("localhost:{echo}")], &[]), b"standard streams");
    assert_eq!(output, b"standard streams");
    let closed = server.ssh(&["-W", &format!("127.0.0.1:{}", free())], &[]).output().unwrap();
    assert!(!closed.status.success());
    let text = String::from_utf8_lossy(&closed.stderr).into_owned();
    assert!(text.contains("onnect failed") || text.contains("forwarding failed"), "{text}");
}

#[test]
fn remote_ports_lead_out_of_the_guest() {
    let server = need!(Server::start(""));
    let (echo, port) = (echo(), free());
    let client = forwarding(server.ssh(&["-R", &format!("{port}:127.0.0.1:{echo}")], &[]));
    through_tcp(port);
    drop(client);
    eventually_blocking(
        || "the end of the listener".into(),
        || TcpStream::connect(("127.0.0.1", port)).err(),
    );
    // Any port, and one that is taken.
    assert!(server.ssh(&["-R", &format!("0:127.0.0.1:{echo}")], &["true"]).status().unwrap().success());
    let taken = ["-o", "ExitOnForwardFailure=yes", "-R", &format!("{echo}:127.0.0.1:{echo}")];
    assert!(!server.ssh(&taken, &["true"]).status().unwrap().success());
}

#[test]
fn a_dynamic_port_is_a_socks_proxy() {
    let server = need!(Server::start(""));
    let (echo, local) = (echo(), free());
    let _client = forwarding(server.ssh(&["-D", &local.to_string()], &[]));
    let mut stream =
        eventually_blocking(|| "the proxy".into(), || TcpStream::connect(("127.0.0.1", local)).ok());
    // RFC 1928: no authentication, then a name.
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    let mut request = vec![5, 1, 0, 3, 9];
    request.extend(b"localhost");
    request.extend(echo.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[1], 0, "{answer:?}");
    let (half, end) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    exchange(stream, half, move || end.shutdown(Shutdown::Write).unwrap());
}

#[test]
fn sockets_of_the_guest_are_reached_by_root() {
    need!(needs::root());
    let server = need!(Server::start(""));
    let (there, local) = (server.path("there.sock"), free());
    let listener = UnixListener::bind(&there).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut copy = stream.try_clone().unwrap();
            let _ = std::io::copy(&mut copy, &mut stream);
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    let _client = forwarding(server.ssh(&["-L", &format!("{local}:{}", there.display())], &[]));
    through_tcp(local);
}

#[test]
fn a_key_without_forwarding_forwards_nothing() {
    for options in ["no-port-forwarding", "restrict"] {
        let server = need!(Server::start(options));
        let echo = echo();
        let output = server.ssh(&["-W", &format!("127.0.0.1:{echo}")], &[]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        let output =
            server.ssh(&["-o", "ExitOnForwardFailure=yes", "-R", &format!("0:127.0.0.1:{echo}")], &["true"]);
        let mut output = output;
        assert!(!output.output().unwrap().status.success());
    }
}
