//! The informant as init starts it: an agent outside of the VM registers, changes its size and is called back.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use neonvm_test_support::need;
use neonvm_types::guest::{ImageConfig, Monitor, Process, ReportKind};
use neonvm_types::informant_protocol::INFORMANT_PORT;

use crate::lab::lab;
use crate::machine::{Machine, Plan};

const ID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

/// An agent's server; it ends with the test.
fn agent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (mut stream, sequence) in listener.incoming().map_while(Result::ok).zip(1_u64..) {
            let mut text = Vec::new();
            let mut buffer = [0; 1024];
            while !text.ends_with(b"}") {
                match stream.read(&mut buffer) {
                    Ok(count) if count > 0 => text.extend_from_slice(&buffer[..count]),
                    _ => break,
                }
            }
            let body = format!(r#"{{"data":{{"agentID":"{ID}"}},"sequenceNumber":{sequence}}}"#);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

/// Status and body; none if the guest does not answer yet.
fn request(informant: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(informant).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: vm\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

#[test]
fn an_agent_registers_with_a_guest_and_changes_its_size() {
    let lab = need!(lab());
    let cmd = vec!["/workload".to_owned(), "serve".to_owned()];
    let process = Process { cmd, stop_signal: "SIGINT".into(), ..Process::default() };
    let monitor = Monitor { informant: true, cgroup: Some("workload".into()), ..Monitor::default() };
    let image = ImageConfig { process, monitor: Some(monitor), ..ImageConfig::default() };
    let plan = Plan { image, command_line: "rw quiet", ports: vec![INFORMANT_PORT], ..Plan::default() };
    let mut machine = Machine::start(lab, &plan);
    let informant = machine.address(INFORMANT_PORT);
    // The host, as QEMU shows it to the guest.
    let address = format!("10.0.2.2:{}", agent().port());
    let description = format!(
        r#"{{"agentID":"{ID}","agentServeAddr":"{address}","minProtoVersion":1,"maxProtoVersion":4}}"#
    );
    machine.wait("an answer to /register", |_| {
        // A slow guest may not reach the agent in time at first; what is repeated is known already then.
        let (status, body) = request(informant, "POST", "/register", &description)?;
        println!("/register: {status} {body}");
        [200, 409].contains(&status).then_some(())
    });
    let mut sequence = 1000;
    let mut change = |path: &str, memory: &str| {
        sequence += 1;
        let body = format!(
            r#"{{"data":{{"cpu":"1","memory":"{memory}","id":{{"agentID":"{ID}"}}}},"sequenceNumber":{sequence}}}"#
        );
        let answer = request(informant, "PUT", path, &body);
        println!("{path} {memory}: {answer:?}");
        answer.filter(|(status, _)| *status == 200).map(|(_, body)| body)
    };
    let upscaled = machine.wait("the current agent", |_| change("/upscale", "512Mi"));
    assert_eq!(upscaled, "{}");
    let consent =
        machine.wait("consent", |_| change("/downscale", "384Mi").filter(|body| body.contains("true")));
    assert!(consent.contains("the control group uses"), "the workload's group counts: {consent}");
    let denial = machine.wait("a denial", |_| change("/downscale", "220Mi"));
    assert!(denial.contains(r#""Ok":false"#) && denial.contains("exceeds its limit of"), "{denial}");
    let left = machine
        .wait("an answer to /unregister", |_| request(informant, "DELETE", "/unregister", &description));
    assert_eq!(left, (200, r#"{"wasActive":true}"#.to_owned()));
    machine.press_power();
    let (_, reports, _) = machine.wait_end();
    assert!(!reports.iter().any(|report| matches!(report.kind, ReportKind::Failure { .. })), "{reports:?}");
}
