//! Objects that change under the agent, are not its own, or are invalid.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::Power;
use neonvm_api::names::annotation::{BOUNDS, CONFIG, HOLD, METRIC};
use serde_json::{Value, json};

use crate::cluster::eventually;
use crate::monitor::Mode;
use crate::scheduler;
use crate::web::Reply;
use crate::world::World;

/// These mostly wait: together they take as long as the longest of them.
#[tokio::test]
async fn what_the_api_server_does_not_do_is_not_taken_for_done() {
    tokio::join!(
        a_conflict_is_seen_and_taken_in(),
        a_bad_day_of_the_api_server_passes(),
        the_reason_of_a_refused_patch_is_shown(),
    );
}

/// Another client changes the size while the agent, whose watch lags, patches: the change is not overwritten unnoticed.
async fn a_conflict_is_seen_and_taken_in() {
    let world = World::start(1).await;
    let agent = world.agent().await;
    world.settles("v0", 1).await;
    world.cluster.server.fault("delay-watch", 10_000).await;
    world.cluster.follows(false);
    let use_of = |units: u32| {
        json!({ "spec": { "guest": { "cpus": { "use": format!("{}m", units * 250) },
        "memorySlots": { "use": units } } } })
    };
    world.cluster.patch("v0", use_of(2)).await;
    world.guests[0].load(4);
    world.shows("v0", "the VM had changed").await;
    assert_eq!(world.cluster.asked("v0").await, 2);
    world.cluster.server.fault("delay-watch", 0).await;
    world.cluster.follows(true);
    world.cluster.patch("v0", json!({ "metadata": { "labels": { "touched": "yes" } } })).await;
    world.settles("v0", 4).await;
    let text = agent.metrics().await;
    assert!(text.contains("autoscaling_agent_neonvm_outbound_requests_total{result=\"error\"}"), "{text}");
    let families = neonvm_test_cluster::metrics::families(&text);
    assert!(
        families.contains(&"autoscaling_agent_runners_current gauge is_endpoint state".to_owned()),
        "{families:?}"
    );
}

/// The API server refuses, or executes a request and its reply is lost.
async fn a_bad_day_of_the_api_server_passes() {
    let world = World::start(1).await;
    let agent = world.agent().await;
    world.settles("v0", 1).await;
    for (units, status) in [(2, 500), (3, 409), (4, 429)] {
        world.cluster.fail(status, 2).await;
        world.guests[0].load(units);
        world.settles("v0", units).await;
    }
    for units in [5, 1] {
        world.cluster.server.fault("lose-response", 1).await;
        world.cluster.server.fault("drop-watch", 1).await;
        world.cluster.server.fault("duplicate-watch", 2).await;
        world.guests[0].load(units);
        world.settles("v0", units).await;
    }
    assert!(agent.is_alive());
}

/// An admission that refuses the patch is named, and the VM counts as stuck.
async fn the_reason_of_a_refused_patch_is_shown() {
    let world = World::start(1).await;
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    // Within the annotation's bounds, and beyond those of the spec, which the server insists on.
    let bounds = r#"{"min":{"cpu":"250m","mem":"1Gi"},"max":{"cpu":8,"mem":"32Gi"}}"#;
    world.cluster.annotate("v0", BOUNDS, Some(bounds)).await;
    world.guests[0].load(20);
    world.shows("v0", "above max").await;
    assert_eq!(world.cluster.asked("v0").await, 1);
    world.cluster.annotate("v0", BOUNDS, None).await;
    world.settles("v0", 16).await;
}

#[tokio::test]
async fn only_vms_that_are_ours_are_scaled() {
    let mut world = World::start(1).await;
    let elsewhere: [(&str, Value, Value); 5] = [
        ("node", json!({}), json!({ "node": "n2" })),
        ("scheduler", json!({ "spec": { "schedulerName": "another" } }), json!({})),
        ("label", json!({ "metadata": { "labels": { "autoscaling.neon.tech/enabled": "yes" } } }), json!({})),
        ("phase", json!({}), json!({ "phase": "Migrating" })),
        ("address", json!({}), json!({ "podIP": "" })),
    ];
    // One of them has a scheduler of its author's choice.
    let label = json!({ "metadata": { "labels": { Power::Scheduler.label(): "true" } } });
    let namespaces: Api<Namespace> = Api::all(world.cluster.client.clone());
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let _agent = world.agent().await;
    for (number, (name, more, status)) in elsewhere.iter().enumerate() {
        let guest = world.guest(u8::try_from(number).unwrap() + 1).await;
        // So that it never counts as ours in between, it is not enabled until its object is complete.
        let ip = guest.ip.to_string();
        let pending = json!({ "metadata": { "labels": { "autoscaling.neon.tech/enabled": "not-yet" } } });
        world.cluster.vm(name, &ip, pending).await;
        world.cluster.patch_status(name, status.clone()).await;
        let enabled = json!({ "metadata": { "labels": { "autoscaling.neon.tech/enabled": "true" } } });
        if more != &json!({}) {
            world.cluster.delete(name).await;
            world.cluster.vm(name, &ip, more.clone()).await;
        } else {
            world.cluster.patch(name, enabled).await;
        }
        guest.load(4);
        world.guests.push(guest);
    }
    world.guests[0].load(2);
    world.settles("v0", 2).await;
    let shown: Vec<String> = world.inspect().await.vms.into_iter().map(|vm| vm.name).collect();
    assert_eq!(shown, ["v0"]);
    for (number, (name, _, _)) in elsewhere.iter().enumerate() {
        let guest = &world.guests[number + 1];
        assert_eq!((guest.metrics.count(), guest.monitor.connections()), (0, 0), "{name}");
        assert!(world.scheduler.asked(&format!("{name}-pod")).is_empty(), "{name}");
        assert_eq!(world.cluster.asked(name).await, 1, "{name}");
    }
    // And what becomes ours is taken.
    world.cluster.patch_status("node", json!({ "node": "n1" })).await;
    world.cluster.patch_status("phase", json!({ "phase": "Running" })).await;
    world.cluster.patch_status("address", json!({ "podIP": world.guests[5].ip.to_string() })).await;
    for name in ["node", "phase", "address"] {
        world.settles(name, 4).await;
    }
}

/// Deleted between request and reply, or released by its label: no action follows, and no state is left.
#[tokio::test]
async fn what_is_gone_is_left_alone() {
    let world = World::start(3).await;
    let agent = world.agent().await;
    for vm in ["v0", "v1", "v2"] {
        world.settles(vm, 1).await;
    }
    world.scheduler.set("v0-pod", scheduler::Mode::Reply(Reply::Silence));
    world.guests[1].load(3);
    world.settles("v1", 3).await;
    world.guests[1].monitor.set(Mode::Silence);
    world.guests[0].load(3);
    world.guests[1].load(1);
    eventually("the requests", async || {
        let asked = world.scheduler.asked("v0-pod").contains(&(3, Some(1)));
        (asked && !world.guests[1].monitor.messages("DownscaleRequest").is_empty()).then_some(())
    })
    .await;
    world.cluster.delete("v0").await;
    let off = json!({ "metadata": { "labels": { "autoscaling.neon.tech/enabled": null } } });
    world.cluster.patch("v1", off).await;
    eventually("the end of both", async || (world.inspect().await.vms.len() == 1).then_some(())).await;
    eventually("the end of their connections", async || {
        let open: usize = world.guests[..2].iter().map(|guest| guest.metrics.open()).sum();
        (open == 0).then_some(())
    })
    .await;
    let count = || {
        let guests = &world.guests[..2];
        let peers: usize =
            guests.iter().map(|g| g.metrics.count() + g.monitor.count() + g.monitor.connections()).sum();
        (peers, world.scheduler.asked("v0-pod").len() + world.scheduler.asked("v1-pod").len())
    };
    let other_goes_on = async || {
        let readings = world.guests[2].metrics.count();
        eventually("the other goes on", async || {
            (world.guests[2].metrics.count() > readings + 2).then_some(())
        })
        .await;
    };
    // What was sent before the end is read by then.
    other_goes_on().await;
    let before = count();
    other_goes_on().await;
    assert_eq!(count(), before);
    assert_eq!(world.cluster.asked("v1").await, 3, "it keeps its size");
    // A VM of the same name is another VM.
    world.scheduler.set("v0-pod", scheduler::Mode::Permit);
    world.cluster.vm("v0", "127.0.0.1", json!({})).await;
    world.settles("v0", 3).await;
    world.guests[1].monitor.set(Mode::Good);
    let on = json!({ "metadata": { "labels": { "autoscaling.neon.tech/enabled": "true" } } });
    world.cluster.patch("v1", on).await;
    world.settles("v1", 1).await;
    assert!(agent.is_alive());
}

/// Invalid annotations: the VM keeps its size, the field is named, and scaling continues when it is corrected.
#[tokio::test]
async fn nonsense_in_an_annotation_is_named_and_scales_nothing() {
    let cases = [
        (BOUNDS, "{", "autoscaling.neon.tech/bounds"),
        (BOUNDS, "[1,2,3]", "autoscaling.neon.tech/bounds"),
        (BOUNDS, r#"{"min":{"cpu":1,"mem":"1500Mi"},"max":{"cpu":2,"mem":"4Gi"}}"#, "min.mem"),
        (BOUNDS, r#"{"min":{"cpu":-1,"mem":"1Gi"},"max":{"cpu":2,"mem":"4Gi"}}"#, "min.cpu"),
        (BOUNDS, r#"{"min":{"cpu":2,"mem":"1Gi"},"max":{"cpu":1,"mem":"4Gi"}}"#, "cpu: min 2 is above max 1"),
        (BOUNDS, r#"{"min":{"cpu":1,"mem":"1Gi"},"max":{"cpu":2}}"#, "max.mem"),
        (CONFIG, r#"{"loadAverageFractionTarget":0}"#, "loadAverageFractionTarget"),
        (CONFIG, r#"{"memoryUsageFractionTarget":"most"}"#, "autoscaling.neon.tech/config"),
        (CONFIG, r#"{"lfcWindowSizeMinutes":-5}"#, "autoscaling.neon.tech/config"),
        (HOLD, "for ever", "autoscaling.neon.tech/hold"),
        (HOLD, r#"{"size":{"vCPUs":1,"mem":"4Gi"},"until":"tomorrow"}"#, "autoscaling.neon.tech/hold"),
        (METRIC, r#"{"name":"queue depth","target":8}"#, "queue depth"),
        (METRIC, r#"{"name":"queue_depth","target":0}"#, "target: 0"),
    ];
    let count = u8::try_from(cases.len()).unwrap();
    let mut world = World::start(1).await;
    // Half of them from the beginning, half of them later.
    for number in 1..=count {
        let guest = world.guest(number).await;
        let (key, value, _) = cases[usize::from(number) - 1];
        let annotations = if number % 2 == 0 { json!({ key: value }) } else { json!({}) };
        let more = json!({ "metadata": { "annotations": annotations } });
        world.cluster.vm(&format!("v{number}"), &guest.ip.to_string(), more).await;
        world.guests.push(guest);
    }
    let agent = world.agent().await;
    for number in (1..=usize::from(count)).step_by(2) {
        world.settles(&format!("v{number}"), 1).await;
        world.cluster.annotate(&format!("v{number}"), cases[number - 1].0, Some(cases[number - 1].1)).await;
    }
    for (number, (_, value, part)) in cases.iter().enumerate() {
        let vm = format!("v{}", number + 1);
        eventually(&format!("{vm} is stuck for {value}"), async || {
            world.view(&vm).await?.stuck?.contains(part).then_some(())
        })
        .await;
    }
    for guest in &world.guests {
        guest.load(4);
    }
    world.settles("v0", 4).await;
    for (number, (key, value, _)) in cases.iter().enumerate() {
        let vm = format!("v{}", number + 1);
        assert_eq!(world.cluster.asked(&vm).await, 1, "{key} {value}");
        world.cluster.annotate(&vm, key, None).await;
    }
    for number in 1..=count {
        world.settles(&format!("v{number}"), 4).await;
    }
    let none = "autoscaling_agent_runners_current{is_endpoint=\"false\",state=\"stuck\"} 0";
    eventually("that none is stuck", async || agent.metrics().await.contains(none).then_some(())).await;
}

/// Extreme but valid values.
#[tokio::test]
async fn holds_and_bounds_are_obeyed_within_reason() {
    let world = World::start(1).await;
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    let hold = |cpu: u32, until: &str| {
        format!(r#"{{"size":{{"vCPUs":{cpu},"mem":"{}Gi"}},"until":"{until}"}}"#, cpu * 4)
    };
    world.cluster.annotate("v0", HOLD, Some(&hold(100, "9999-12-31T23:59:59Z"))).await;
    world.settles("v0", 16).await;
    world.cluster.annotate("v0", HOLD, Some(&hold(2, "1970-01-01T00:00:00Z"))).await;
    world.settles("v0", 1).await;
    let bounds = r#"{"min":{"cpu":"500m","mem":"2Gi"},"max":{"cpu":"750m","mem":"3Gi"}}"#;
    world.cluster.annotate("v0", BOUNDS, Some(bounds)).await;
    world.settles("v0", 2).await;
    world.guests[0].load(9);
    world.settles("v0", 3).await;
    world.shows("v0", "upper bound").await;
}
