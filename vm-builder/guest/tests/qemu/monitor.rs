//! The monitor as init starts it, in a VM that is short of everything.

use neonvm_test_support::need;
use std::net::TcpStream;
use std::time::Duration;

use neonvm_types::guest::{ImageConfig, Monitor, Process, ReportKind};
use neonvm_types::monitor_protocol::{MONITOR_PORT, MonitorMessage, Wants};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use crate::lab::lab;
use crate::machine::{Machine, Plan};

fn image(mode: &str) -> ImageConfig {
    let cmd = vec!["/workload".to_owned(), mode.to_owned()];
    let process = Process { cmd, stop_signal: "SIGINT".into(), ..Process::default() };
    ImageConfig { process, ..ImageConfig::default() }
}

pub(crate) fn agent(machine: &mut Machine) -> WebSocket<TcpStream> {
    let address = machine.address(MONITOR_PORT);
    machine.wait("the monitor", |_| {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        let (mut socket, _) = client(format!("ws://{address}/monitor"), stream).ok()?;
        socket.send(Message::text(r#"{"min":1,"max":2}"#)).ok()?;
        let answer = socket.read().ok()?;
        assert_eq!(answer.to_text().unwrap(), r#"{"version":2}"#);
        Some(socket)
    })
}

#[test]
fn a_guest_under_load_asks_for_processors_and_memory() {
    let lab = need!(lab());
    let plan = Plan {
        image: image("load"),
        command_line: "rw quiet",
        processors: 2,
        ports: vec![MONITOR_PORT],
        ..Plan::default()
    };
    let mut machine = Machine::start(lab, &plan);
    let mut agent = agent(&mut machine);
    let mut wants = Wants::default();
    machine.wait("what is wanted", |_| {
        let message = agent.read().ok()?;
        if let Ok((_, MonitorMessage::UpscaleRequest { wants: Some(request) })) =
            MonitorMessage::decode(message.to_text().ok()?.as_bytes())
        {
            println!("{request:?}");
            wants.cpu = request.cpu.or(wants.cpu);
            wants.mem = request.mem.or(wants.mem);
        }
        (wants.cpu.is_some() && wants.mem.is_some()).then_some(())
    });
    // Four busy tasks, two processors at most.
    assert_eq!(wants.cpu.map(neonvm_types::MilliCpu::milli), Some(2000));
    assert!(wants.mem.is_some_and(|mem| (400 << 20..2 << 30).contains(&mem.get())), "{wants:?}");
    machine.press_power();
    let (_, reports, _) = machine.wait_end();
    assert!(!reports.iter().any(|report| matches!(report.kind, ReportKind::Failure { .. })), "{reports:?}");
}

#[test]
fn an_image_with_a_monitor_of_its_own_has_the_port() {
    let lab = need!(lab());
    let mut image = image("serve");
    image.monitor = Some(Monitor { enabled: false, ..Monitor::default() });
    let plan = Plan { image, command_line: "rw quiet", ports: vec![MONITOR_PORT, 25183], ..Plan::default() };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_report("the daemon", |kind| *kind == ReportKind::Ready);
    assert_eq!(machine.http("GET", "/healthz", "").0, 200);
    // The network of QEMU takes every connection; only a server sends data.
    let address = machine.address(MONITOR_PORT);
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(client(format!("ws://{address}/monitor"), stream).is_err());
}
