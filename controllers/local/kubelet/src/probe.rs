//! Probes of containers. Until the first success they come in quick succession, later at their own period.

mod http;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::node::Node;
use crate::pod::Handle;
use neonvm_core_kubelet::{Event, ProbeKind};

/// Pause between probes of a container that has not answered well yet, and for how long.
const QUICK: Duration = Duration::from_millis(200);
const QUICK_FOR: Duration = Duration::from_secs(60);

pub(crate) struct Target {
    pub(crate) container: Container,
    pub(crate) handle: Arc<Handle>,
    pub(crate) node: Arc<Node>,
}

fn seconds(given: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(given.and_then(|given| u64::try_from(given).ok()).unwrap_or(default))
}

fn threshold(given: Option<i32>, default: u32) -> u32 {
    given.and_then(|given| u32::try_from(given).ok()).unwrap_or(default).max(1)
}

/// Probes until it is dropped, or until the start-up probe has succeeded. Reports changes only.
pub(crate) async fn run(kind: ProbeKind, probe: Probe, target: Target, events: mpsc::Sender<Event>) {
    let (period, timeout) = (seconds(probe.period_seconds, 10), seconds(probe.timeout_seconds, 1));
    let period = period.max(Duration::from_secs(1));
    let (most_failures, least_successes) =
        (threshold(probe.failure_threshold, 3), threshold(probe.success_threshold, 1));
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let began = Instant::now();
    let mut connection = http::Connection::default();
    let (mut failures, mut successes, mut reported) = (0, 0, None);
    let mut next_count = Instant::now();
    loop {
        let result = match tokio::time::timeout(timeout, attempt(&probe, &target, &mut connection)).await {
            Ok(result) => result,
            Err(_) => {
                connection = http::Connection::default();
                Err(format!("no answer within {} s", timeout.as_secs()))
            }
        };
        let good = result.is_ok();
        if good {
            (successes, failures) = (successes + 1, 0);
        } else {
            // Probes in quick succession count as one in a period.
            successes = 0;
            if Instant::now() >= next_count {
                failures += 1;
                next_count = Instant::now() + period;
            }
        }
        let reached = if good { successes >= least_successes } else { failures >= most_failures };
        let news = reported != Some(good) && !(kind == ProbeKind::Readiness && !good && reported.is_none());
        if reached && news {
            reported = Some(good);
            let (container, message) = (target.container.name.clone(), result.err().unwrap_or_default());
            if events.send(Event::Probed { container, probe: kind, good, message }).await.is_err() {
                return;
            }
            if good && kind == ProbeKind::Startup {
                return;
            }
        }
        let quick = kind != ProbeKind::Liveness && reported != Some(true) && began.elapsed() < QUICK_FOR;
        tokio::time::sleep(if quick { QUICK.min(period) } else { period }).await;
    }
}

fn port_of(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| format!("there is no port {port:?}"))
}

async fn attempt(probe: &Probe, target: &Target, connection: &mut http::Connection) -> Result<(), String> {
    let ip = target.handle.view.borrow().ip.clone();
    if let Some(get) = &probe.http_get {
        let port = port_of(&get.port, &target.container)?;
        return connection.get(&ip, port, get).await;
    }
    if let Some(TCPSocketAction { host, port }) = &probe.tcp_socket {
        let port = port_of(port, &target.container)?;
        let host = host.clone().unwrap_or(ip);
        return tokio::net::TcpStream::connect((host, port))
            .await
            .map(drop)
            .map_err(|error| error.to_string());
    }
    if let Some(exec) = &probe.exec {
        let argv = exec.command.clone().unwrap_or_default();
        return crate::server::exec::check(&target.node, &target.handle, &target.container.name, &argv).await;
    }
    Err("it is of a kind that this node does not have".to_owned())
}
