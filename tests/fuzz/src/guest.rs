//! What a guest sends: metrics, reports, frames, messages of its monitor; and what a QEMU sends that a guest has taken over.

use std::time::Duration;

use neonvm_core_vertical_scaling::agent::metrics::{parse_lfc, parse_system};
use neonvm_hypervisor::qmp::Session;
use neonvm_types::informant_protocol::decode_resources;
use neonvm_types::monitor_protocol::{AgentMessage, HandshakeReply, MonitorMessage, decode_offer};
use neonvm_types::version::InformantProtoVersion;

use crate::{Target, text};

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "guest-metrics",
        from: "guest",
        examples: &[
            b"# TYPE host_load1 gauge\nhost_load1 0.5\nhost_load5 1\nhost_memory_total_bytes 1e9\nhost_memory_available_bytes 5e8\nhost_memory_cached_bytes 3\nhost_cpu_seconds_total{mode=\"steal\"} 3\n",
            b"# TYPE lfc_hits gauge\nlfc_hits 1\n# TYPE lfc_approximate_working_set_size_windows gauge\nlfc_approximate_working_set_size_windows{duration_seconds=\"60\"} 1\n",
        ],
        run: |bytes| {
            let _ = parse_system(bytes, None);
            let _ = parse_system(bytes, Some("host_load1"));
            let _ = parse_lfc(bytes);
            neonvm_runner::hostile::usage(&text(bytes));
        },
    },
    Target {
        name: "guest-report",
        from: "guest",
        examples: &[b"{\"uptimeMs\":1,\"event\":\"ready\"}\n{\"event\":\"failure\",\"uptimeMs\":2,\"message\":\"x\"}\n"],
        run: neonvm_runner::hostile::reports,
    },
    Target {
        name: "guest-dhcp",
        from: "guest",
        examples: &[
            b"\x01\x01\x06\x00\x01\x02\x03\x04\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x52\x54\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x63\x82\x53\x63\x35\x01\x01\x32\x04\x0a\x00\x00\x02\xff",
        ],
        run: neonvm_runner::hostile::dhcp,
    },
    Target {
        name: "guest-monitor",
        from: "guest",
        examples: &[
            b"{\"type\":\"UpscaleRequest\",\"id\":1}",
            b"{\"type\":\"DownscaleResult\",\"id\":3,\"result\":{\"ok\":true,\"status\":\"x\"}}",
            b"{\"version\":{\"min\":1,\"max\":2}}",
            b"{\"id\":{\"agentID\":\"00000000-0000-0000-0000-000000000001\"},\"data\":{\"cpu\":1,\"memory\":2},\"sequenceNumber\":1}",
        ],
        run: |bytes| {
            let _ = AgentMessage::decode(bytes);
            let _ = MonitorMessage::decode(bytes);
            let _ = HandshakeReply::decode(bytes);
            let _ = decode_offer(bytes);
            let _ = decode_resources(bytes, InformantProtoVersion::V1_0);
            let _ = decode_resources(bytes, InformantProtoVersion::V2_0);
        },
    },
    Target {
        name: "qemu-monitor",
        from: "QEMU",
        examples: &[b"{\"QMP\":{\"version\":{\"qemu\":{\"major\":7,\"minor\":2,\"micro\":0},\"package\":\"\"},\"capabilities\":[]}}\n{\"return\":{},\"id\":0}\n{\"event\":\"STOP\",\"timestamp\":{\"seconds\":1,\"microseconds\":2}}\n"],
        run: qmp,
    },
];

/// A whole session with a monitor that sends the bytes and ends.
fn qmp(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        let stream = tokio::io::join(std::io::Cursor::new(bytes.to_vec()), tokio::io::sink());
        if let Ok((session, _greeting, mut events)) = Session::open(stream, Duration::from_secs(1)).await {
            session.ended().await;
            while events.try_recv().is_ok() {}
        }
    });
}
