//! What other programs on the network send: agents, runners, scraped pods, DHCP servers, nodes; and backups.

use neonvm_apiserver::disk::Snapshot;
use neonvm_core_pod_autoscaler::exposition::{self, Query};
use neonvm_guest::device::uevent::Uevent;
use neonvm_guest::files::{name, payload::Payload};
use neonvm_guest::network::packet::Reply;
use neonvm_hypervisor::machine::layout::blocks;
use neonvm_types::runner_protocol::RunnerCpu;
use neonvm_types::scheduler_protocol::{PluginResponse, decode_request};
use neonvm_types::version::{PluginProtoVersion, VersionRange};

use crate::{Target, text};

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "agent-request",
        from: "agent, scheduler, runner",
        examples: &[
            br#"{"protoVersion":5,"pod":{"name":"a","namespace":"b"},"computeUnit":{"vCPUs":"250m","mem":1073741824},"resources":{"vCPUs":1,"mem":1073741824},"metrics":{"loadAverage1Min":0.5}}"#,
            br#"{"permit":{"vCPUs":"250m","mem":1},"migrate":null}"#,
            br#"{"VCPUs":1.5}"#,
        ],
        run: |bytes| {
            let all = VersionRange::new(PluginProtoVersion::V1_0, PluginProtoVersion::V5_0);
            let _ = (decode_request(bytes, all), PluginResponse::decode(bytes), RunnerCpu::decode(bytes));
        },
    },
    Target {
        name: "pod-metrics",
        from: "pod",
        examples: &[b"# TYPE a counter\na_total{b=\"c\\\"\"} 1 1700000000 # {t=\"x\"} 1\na_bucket{le=\"+Inf\"} 3\r\nd NaN\n"],
        run: |bytes| {
            let queries: Vec<Query> = ["a", "a_total{b!=\"d\"}", "a_bucket"].iter().filter_map(|query| Query::parse(query).ok()).collect();
            let _ = exposition::read(&text(bytes), &queries);
        },
    },
    Target {
        name: "stored-memory",
        from: "QEMU of a guest",
        examples: &[b"QEVM\0\0\0\x03\x07\0\0\0\x0bpc-q35-10.0\x05\x1aconfiguration/capabilities\0\0\0\x01\0\0\0\x01\x0amapped-ram\x01\0\0\0\x01\x03ram\0\0\0\0\0\0\0\x04\0\0\0\0\x30\0\0\x04\x06pc.ram\0\0\0\0\x30\0\0\0\0\0\0\x01\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\x8b\0\0\0\0\0\x10\0\0"],
        run: |bytes| {
            let read = |at: u64, buffer: &mut [u8]| {
                let part = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..buffer.len()));
                part.map(|part| buffer.copy_from_slice(part)).is_some()
            };
            for block in blocks(1 << 40, read).unwrap_or_default() {
                assert!(block.bitmap + block.bitmap_bytes() <= block.pages && block.pages + block.length <= 1 << 40);
            }
        },
    },
    Target {
        name: "dhcp-reply",
        from: "network of the guest",
        examples: &[b"\x02\x01\x06\0"],
        run: |bytes| {
            let _ = Reply::parse(bytes);
        },
    },
    Target {
        name: "guest-files",
        from: "runner, kernel of the guest",
        examples: &[br#"{"a":{"data":"aGVsbG8="}}"#, b"%2Fvar%2Flib", b"add@/devices/x\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=vda\0"],
        run: |bytes| {
            let _ = (Payload::parse(bytes), name::decode(&text(bytes)));
            let _ = (Uevent::parse(bytes), neonvm_guest::cpu::parse(&text(bytes)));
        },
    },
    Target {
        name: "certificate-request",
        from: "node",
        examples: &[b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"],
        run: |bytes| {
            let _ = neonvm_kit::ca::Request::parse(&text(bytes));
        },
    },
    Target {
        name: "backup",
        from: "file of a backup",
        examples: &[b"{\"format\":1}\n"],
        run: |bytes| {
            let _ = Snapshot::read(bytes);
        },
    },
];
