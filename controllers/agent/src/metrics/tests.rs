//! Names, types and labels are upstream's: existing dashboards use them.

use std::time::Duration;

use kube::runtime::watcher::Event;
use neonvm_api::virtual_machine::{CpuBounds, Guest, MemorySlots};
use neonvm_api::{VirtualMachine, VirtualMachineSpec};
use neonvm_core_vertical_scaling::agent::action::Latency;
use neonvm_kit::expiry::Use;
use neonvm_test_cluster::metrics::families;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::{Bytes, MilliCpu, NamespacedName};

use super::*;
use crate::disks::DiskUses;

fn size(units: u32) -> Resources {
    Resources::new(MilliCpu::new(250 * units), Bytes::gib(units))
}

#[test]
fn texts_of_errors_do_not_grow_without_end() {
    let metrics = Metrics::default();
    for number in 0..1000 {
        metrics.scheduler(&format!("[error {number}]"), None, Resources::default(), None);
    }
    let text = metrics.page().finish();
    let name = "autoscaling_agent_scheduler_plugin_requests_total{";
    assert_eq!(text.lines().filter(|line| line.starts_with(name)).count(), MOST_CODES + 1);
    assert!(text.contains("{code=\"[other]\"} 936\n"), "{text}");
}

#[test]
fn a_denial_is_distinguished_from_a_partial_permit() {
    let metrics = Metrics::default();
    metrics.scheduler("200", Some(size(1)), size(4), Some(&PluginResponse::permit(size(1))));
    metrics.scheduler("200", Some(size(1)), size(4), Some(&PluginResponse::permit(size(3))));
    let text = metrics.page().finish();
    for line in [
        "autoscaling_agent_scaling_full_denials_total{direction=\"inc\"} 1",
        "autoscaling_agent_scaling_partial_approvals_total{direction=\"inc\"} 1",
        "autoscaling_agent_scheduler_plugin_accepted_cpu_change_total{direction=\"inc\"} 0.5",
        "autoscaling_agent_scheduler_plugin_requested_mem_change_total{direction=\"inc\"} 6144",
        "autoscaling_agent_scheduler_plugin_requests_total{code=\"200\"} 2",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// A family that is counted when it is read.
fn runners() -> String {
    let mut page = Page::new();
    page.family("autoscaling_agent_runners_current", neonvm_kit::metrics::Kind::Gauge, "VMs.");
    page.sample(&[("is_endpoint", "true"), ("state", "ok")], 1.0);
    page.finish()
}

/// Something in every family.
fn full() -> Metrics {
    let metrics = Metrics::default();
    let latency = |of| Latency { of, flags: RevisionFlags::UPSCALE, took: Duration::from_millis(200) };
    let all = [LatencyOf::Scaling, LatencyOf::Plugin, LatencyOf::Monitor, LatencyOf::NeonVm];
    metrics.observe(&Outcome { latencies: all.map(latency).to_vec(), ..Outcome::default() });
    metrics.runner_started();
    metrics.runner_restarted();
    metrics.runner_panicked();
    metrics.sampled([(true, false, "Running".to_owned())]);
    for shown in [Event::Init, Event::Init, Event::InitDone, Event::Apply(1)] {
        metrics.watches.observe("VirtualMachines", &Ok(shown));
    }
    metrics.watches.observe::<()>("VirtualMachines", &Err(kube::runtime::watcher::Error::NoResourceVersion));
    metrics.scaling_event("real");
    metrics.scheduler("200", Some(size(1)), size(4), Some(&PluginResponse::permit(size(1))));
    metrics.scheduler("200", Some(size(1)), size(4), Some(&PluginResponse::permit(size(3))));
    metrics.patched(Direction::Inc, size(1), size(2), true);
    metrics.monitor_asked("UpscaleNotification", "ok");
    metrics.monitor_asks("UpscaleRequest");
    metrics.monitor_change(size(1), size(2));
    metrics.informant_asked("200");
    metrics.informant_asks("/id", 200);
    metrics.monitor_approved(size(1), size(2));
    let validity = neonvm_kit::certificate::Validity { from: 0, until: 1, spread: 0 };
    metrics.certificates.set("neonvm-agent:n1", Use::Client, validity);
    let names = ExporterNames {
        queue: "x_queue_size",
        took: "x_took",
        errors: "x_errors_total",
        dropped: "x_dropped_total",
    };
    let exporter = metrics.exporter(names);
    exporter.queue.with(["http"]).set(1.0);
    exporter.took.with(["http"]).set(1.0);
    exporter.errors.with(["http", "\"no\" \\"]).inc();
    // Another client of the same kind counts in the same families.
    metrics.exporter(names).dropped.with(["s3"]).inc();
    metrics
}

#[test]
fn names_stay() {
    let text = full().page().finish();
    let expected = [
        "autoscaling_agent_runner_next_actions_total counter",
        "autoscaling_agent_runner_starts counter",
        "autoscaling_agent_runner_restarts counter",
        "autoscaling_agent_runner_thread_panics_total counter",
        "autoscaling_agent_billing_vms_processed_total counter is_endpoint autoscaling_enabled phase",
        "autoscaling_agent_billing_vms_current gauge is_endpoint autoscaling_enabled phase",
        "autoscaling_agent_watchers_client_calls_total counter watcher_instance method",
        "autoscaling_agent_watchers_relist_requests_total counter watcher_instance",
        "autoscaling_agent_watchers_events_total counter watcher_instance type",
        "autoscaling_agent_watchers_errors_total counter watcher_instance source",
        "autoscaling_agent_watchers_alive_current gauge watcher_instance",
        "autoscaling_agent_watchers_failing_current gauge watcher_instance",
        "autoscaling_agent_scaling_events_total counter kind",
        "autoscaling_agent_scaling_latency_seconds histogram direction",
        "autoscaling_agent_plugin_latency_seconds histogram direction",
        "autoscaling_agent_monitor_latency_seconds histogram direction",
        "autoscaling_agent_neonvm_latency_seconds histogram direction",
        "autoscaling_agent_scheduler_plugin_requests_total counter code",
        "autoscaling_agent_scheduler_plugin_requested_cpu_change_total counter direction",
        "autoscaling_agent_scheduler_plugin_requested_mem_change_total counter direction",
        "autoscaling_agent_scheduler_plugin_accepted_cpu_change_total counter direction",
        "autoscaling_agent_scheduler_plugin_accepted_mem_change_total counter direction",
        "autoscaling_agent_scaling_full_denials_total counter direction",
        "autoscaling_agent_scaling_partial_approvals_total counter direction",
        "autoscaling_agent_neonvm_outbound_requests_total counter result",
        "autoscaling_agent_neonvm_requested_cpu_change_total counter direction",
        "autoscaling_agent_neonvm_requested_mem_changed_total counter direction",
        "autoscaling_agent_monitor_outbound_requests_total counter endpoint code",
        "autoscaling_agent_monitor_inbound_requests_total counter endpoint code",
        "autoscaling_agent_monitor_requested_cpu_change_total counter direction",
        "autoscaling_agent_monitor_requested_mem_change_total counter direction",
        "autoscaling_agent_informant_outbound_requests_total counter code",
        "autoscaling_agent_informant_inbound_requests_total counter endpoint code",
        "autoscaling_agent_monitor_approved_cpu_change_total counter direction",
        "autoscaling_agent_monitor_approved_mem_change_total counter direction",
        "neonvm_certificate_expiry_timestamp_seconds gauge certificate purpose",
        "neonvm_certificate_lifetime_seconds gauge certificate purpose",
        "x_queue_size gauge client",
        "x_took gauge client",
        "x_errors_total counter client cause",
        "x_dropped_total counter client",
    ];
    assert_eq!(families(&text), expected);
    for line in [
        "autoscaling_agent_scaling_latency_seconds_bucket{direction=\"inc\",le=\"0.15\"} 0",
        "autoscaling_agent_scaling_latency_seconds_bucket{direction=\"inc\",le=\"0.2\"} 1",
        "autoscaling_agent_scaling_latency_seconds_bucket{direction=\"inc\",le=\"60\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn names_of_metrics_of_vms_stay() {
    let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(1000), r#use: MilliCpu::new(500) };
    let slots = MemorySlots { min: 1, max: 4, r#use: 2 };
    let mut vm = VirtualMachine::new("vm", VirtualMachineSpec::new(Guest::new(cpus, slots, "img")));
    vm.metadata.namespace = Some("default".into());
    let other = VirtualMachine::new("other", vm.spec.clone());
    let view = VmInspect {
        name: "vm".into(),
        namespace: "default".into(),
        goal: Some(size(3)),
        compute_unit: size(1),
        ..VmInspect::default()
    };
    let (disks, page) = (
        DiskUses::default(),
        b"host_filesystem_total_bytes{device=\"/dev/vdc\",mountpoint=\"/data\"} 10\n\
        host_filesystem_used_bytes{device=\"/dev/vdc\",mountpoint=\"/data\"} 4\n\
        host_filesystem_files{device=\"/dev/vdc\",mountpoint=\"/data\"} 5\n",
    );
    disks.read(&NamespacedName::new("default", "vm"), page, &[("data".to_owned(), "/data".to_owned())]);
    let text = per_vm([vm, other].iter(), &[view], 1.0, &disks).finish();
    let vm_labels = "vm_namespace vm_name endpoint_id project_id";
    let expected = [
        format!("autoscaling_vm_cpu_cores gauge {vm_labels} value"),
        format!("autoscaling_vm_memory_bytes gauge {vm_labels} value"),
        format!("autoscaling_vm_restart_count gauge {vm_labels}"),
        format!("autoscaling_vm_desired_cu gauge {vm_labels} component"),
        format!("autoscaling_vm_extra_ip gauge {vm_labels}"),
        format!("neonvm_vm_disk_size_bytes gauge {vm_labels} disk"),
        format!("neonvm_vm_disk_used_bytes gauge {vm_labels} disk"),
        format!("neonvm_vm_disk_available_bytes gauge {vm_labels} disk"),
        format!("neonvm_vm_disk_inodes gauge {vm_labels} disk"),
        format!("neonvm_vm_disk_inodes_used gauge {vm_labels} disk"),
    ];
    assert_eq!(families(&text), expected);
    let own = "vm_namespace=\"default\",vm_name=\"vm\",endpoint_id=\"\",project_id=\"\"";
    for line in [
        format!("autoscaling_vm_cpu_cores{{{own},value=\"spec_use\"}} 0.5\n"),
        format!("autoscaling_vm_desired_cu{{{own},component=\"total\"}} 3\n"),
        format!("autoscaling_vm_extra_ip{{{own}}} 0\n"),
        format!("neonvm_vm_disk_used_bytes{{{own},disk=\"data\"}} 4\n"),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}

/// The table of the README against what is served.
#[test]
fn the_table_of_upstream_s_names_is_true() {
    let text = full().page().finish() + &runners();
    let served = families(&text);
    let mut rows = 0;
    for line in include_str!("../../README.md").lines() {
        let Some((name, here)) =
            line.strip_prefix("| `autoscaling_agent_").and_then(|rest| rest.split_once("` | "))
        else {
            continue;
        };
        rows += 1;
        let name = format!("autoscaling_agent_{name}");
        let is_served = served.iter().any(|family| family.split(' ').next() == Some(&name));
        let claimed = here.starts_with("the same");
        assert!(claimed || here.starts_with("none: "), "{line}");
        assert_eq!(is_served, claimed, "{line}");
    }
    assert!(rows > 20, "{rows}");
}
