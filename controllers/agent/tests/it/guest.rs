//! A guest: its metrics port and its monitor, at a loopback address.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use crate::monitor::Monitor;
use crate::web::{Reply, Web};

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) ip: IpAddr,
    pub(crate) metrics: Web,
    pub(crate) monitor: Monitor,
    shows: Arc<Mutex<Reply>>,
}

/// What the metrics port shows of a guest that is busy with so many compute units of work.
pub(crate) fn load(units: u32) -> String {
    // A compute unit is a quarter of a CPU, of which nine tenths are to be used.
    let load = 0.225 * f64::from(units);
    let gib = 1_u64 << 30;
    [
        ("host_load1", load.to_string()),
        ("host_load5", load.to_string()),
        ("host_memory_total_bytes", gib.to_string()),
        ("host_memory_available_bytes", (gib - (50 << 20)).to_string()),
        ("host_memory_cached_bytes", "0".to_owned()),
    ]
    .map(|(name, value)| format!("# TYPE {name} gauge\n{name} {value}\n"))
    .concat()
}

impl Guest {
    /// Idle, and well behaved. The ports are those of the first guest, or free ones.
    pub(crate) async fn start(ip: IpAddr, ports: Option<(u16, u16)>) -> Self {
        let (metrics, monitor) = ports.unwrap_or_default();
        let shows = Arc::new(Mutex::new(Reply::Text(200, load(1))));
        let metrics = Web::start(SocketAddr::new(ip, metrics), {
            let shows = Arc::clone(&shows);
            move |_| shows.lock().unwrap().clone()
        })
        .await;
        Self { ip, metrics, monitor: Monitor::start(SocketAddr::new(ip, monitor)).await, shows }
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.metrics.address.port(), self.monitor.address.port())
    }

    /// Work for so many compute units.
    pub(crate) fn load(&self, units: u32) {
        self.show(Reply::Text(200, load(units)));
    }

    /// What the metrics port does from now on.
    pub(crate) fn show(&self, reply: Reply) {
        *self.shows.lock().unwrap() = reply;
    }
}
