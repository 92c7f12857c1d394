//! The whole loop, with peers that behave.

use serde_json::json;

use crate::cluster::eventually;
use crate::monitor::Mode;
use crate::world::World;

/// These mostly wait: together they take as long as the longest of them.
#[tokio::test]
async fn a_vm_follows_its_load() {
    tokio::join!(
        a_vm_follows_its_load_up_and_down(),
        a_patch_is_not_a_size(),
        the_monitor_asks_for_more_and_denies_less(),
    );
}

/// Upstream's request, GET with a document as its body, over plain HTTP.
#[tokio::test]
async fn the_state_is_dumped_as_upstream_requests_it() {
    let world = World::start(1).await;
    let port = neonvm_kit::port::Reserved::loopback().unwrap();
    let mut config = world.config("a", &world.settings());
    config.dump_state = Some(port.address());
    let _agent = World::run(config);
    world.settles("v0", 1).await;
    let endpoint = neonvm_kit::service::Endpoint { address: port.address(), plain: true };
    let mut caller = neonvm_kit::call::Caller::new(endpoint, None, "");
    let mut send = async |method: http::Method, body: &'static str| {
        let body = bytes::Bytes::from_static(body.as_bytes());
        let (status, body) =
            caller.call(method, "/", body, std::time::Duration::from_secs(10)).await.unwrap();
        (status.as_u16(), serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default())
    };
    let (status, dump) = send(http::Method::GET, "{}").await;
    assert_eq!(
        (status, &dump["stopped"], &dump["buildInfo"]["gitInfo"].is_string()),
        (200, &json!(false), &true)
    );
    let pod = &dump["pods"][0];
    assert_eq!(pod["podName"], json!({ "namespace": "default", "name": "v0-pod" }));
    assert_eq!(pod["status"]["vmInfo"]["name"], "v0", "{dump}");
    assert_eq!(pod["runner"]["executorState"]["name"], "v0");
    for (method, body, expected) in [(http::Method::GET, "", 400), (http::Method::POST, "{}", 405)] {
        assert_eq!(send(method, body).await.0, expected, "{body:?}");
    }
}

/// While a guest stands still it is neither read nor connected to, and its size stays; then it follows its load again.
#[tokio::test]
async fn a_paused_vm_is_left_alone_until_it_is_resumed() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    world.cluster.patch("v0", json!({ "spec": { "powerState": "Paused" } })).await;
    world.shows("v0", "state: \"paused\"").await;
    guest.load(4);
    // A reading that was under way when it was paused may still come.
    let idle = async || {
        let (reads, connections) = (guest.metrics.count(), guest.monitor.connections());
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        ((guest.metrics.count(), guest.monitor.connections()) == (reads, connections)).then_some(())
    };
    eventually("neither metrics nor monitor are requested", idle).await;
    let view = world.view("v0").await.unwrap();
    assert_eq!((view.stuck, view.approved, view.asked.unwrap().vcpus.milli()), (None, None, 250));
    world.cluster.patch("v0", json!({ "spec": { "powerState": null } })).await;
    world.settles("v0", 4).await;
}

/// Up: scheduler, VM, status, monitor. Down: monitor, VM, status, scheduler.
async fn a_vm_follows_its_load_up_and_down() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    assert_eq!(world.scheduler.asked("v0-pod")[0], (1, None), "first it reports what there is");

    guest.load(4);
    world.settles("v0", 4).await;
    assert!(world.scheduler.asked("v0-pod").contains(&(4, Some(1))));
    let notifications = guest.monitor.messages("UpscaleNotification");
    assert_eq!(notifications.last().unwrap()["content"]["granted"], json!({ "cpu": 1, "mem": 4_u64 << 30 }));
    let revision = world.cluster.get("v0").await.spec.target_revision.unwrap();
    assert!(revision.revision.value > 0);

    guest.load(1);
    world.settles("v0", 1).await;
    let asked = guest.monitor.messages("DownscaleRequest");
    assert_eq!(asked.last().unwrap()["content"]["target"], json!({ "cpu": 0.25, "mem": 1_u64 << 30 }));
    let view = world.view("v0").await.unwrap();
    let text = format!("{:?}", view.decisions);
    for part in ["ask scheduler", "set VM", "notify monitor", "ask monitor", "notify scheduler"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Only observation changes the applied size: as long as the status shows no change, the monitor is notified of the size that it had
/// when it connected, and of no other.
async fn a_patch_is_not_a_size() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    world.cluster.follows(false);
    guest.load(3);
    world.cluster.is_asked("v0", 3).await;
    world.reads_on().await;
    let notified = guest.monitor.messages("UpscaleNotification");
    assert!(notified.iter().all(|one| one["content"]["granted"]["cpu"] == 0.25), "{notified:?}");
    let view = world.view("v0").await.unwrap();
    assert_eq!(view.now.unwrap().vcpus.milli(), 250);
    world.cluster.follows(true);
    world.cluster.patch("v0", json!({ "metadata": { "labels": { "touched": "yes" } } })).await;
    world.settles("v0", 3).await;
}

/// What the monitor wants comes before the next reading of metrics, and shrinking waits for its agreement.
async fn the_monitor_asks_for_more_and_denies_less() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    guest.monitor.set(Mode::Deny);
    guest
        .monitor
        .send(&json!({ "type": "UpscaleRequest", "id": 3, "wants": { "mem": "5Gi", "reason": "sorting" } }));
    world.settles("v0", 5).await;
    world.shows("v0", "sorting").await;
    world.shows("v0", "memory is in use").await;
    assert_eq!(world.cluster.asked("v0").await, 5);
    guest.monitor.set(Mode::Good);
    world.settles("v0", 1).await;
}
