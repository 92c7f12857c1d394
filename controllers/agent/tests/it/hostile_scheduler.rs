//! A scheduler that misbehaves, for each VM in another way: nothing grows without a permit, no peer is flooded, the reason
//! is shown, and everything continues when it behaves again.

use serde_json::json;

use crate::cluster::eventually;
use crate::scheduler::{Mode, Scheduler};
use crate::web::Reply;
use crate::world::{Pace, World};

/// A way to misbehave, and a part of what the agent reports about it.
fn ways() -> Vec<(Mode, &'static str)> {
    let text = |status, text: &str| Mode::Reply(Reply::Text(status, text.into()));
    vec![
        (Mode::Reply(Reply::Silence), "did not answer within"),
        (Mode::Reply(Reply::Late(200, "{}".into())), "did not answer within"),
        (Mode::Reply(Reply::Endless), "scheduler failed"),
        (Mode::Reply(Reply::EndlessHead), "does not speak HTTP as it should"),
        (Mode::Reply(Reply::Cut), "too large or broken"),
        (Mode::Reply(Reply::HangUp), "does not speak HTTP as it should"),
        (Mode::Reply(Reply::Raw(b"\x15\x03\x01 garbage".to_vec())), "does not speak HTTP as it should"),
        (text(200, "you may have it all"), "is invalid"),
        (text(200, "[]"), "is invalid"),
        (text(200, "{\"permit\":{\"vCPUs\":\"-1\",\"mem\":\"1Gi\"}}"), "is invalid"),
        (text(200, "{}"), "a field of the permit is 0"),
        (text(200, ""), "is invalid"),
        (text(404, "who are you?"), "refuses with 404 Not Found: who are you?"),
        (text(503, "another replica leads"), "another replica leads"),
        (text(302, "elsewhere"), "refuses with 302"),
        (Mode::Above, "the permit is above the request"),
        (Mode::Zero, "a field of the permit is 0"),
        (Mode::Below, "the permit is below what the VM has"),
    ]
}

#[tokio::test]
async fn a_scheduler_that_misbehaves_permits_nothing() {
    let ways = ways();
    let world = World::start(u8::try_from(ways.len()).unwrap() + 1).await;
    let agent = world.agent().await;
    let name = |number: usize| (format!("v{number}"), format!("v{number}-pod"));
    let well = name(ways.len());
    for number in 0..=ways.len() {
        world.settles(&name(number).0, 1).await;
    }
    let pace = Pace::new(world.scheduler.web.count());
    for (number, (mode, _)) in ways.iter().enumerate() {
        world.scheduler.set(&name(number).1, mode.clone());
        world.guests[number].load(3);
    }
    world.guests[ways.len()].load(3);
    // One VM among the others has nothing to suffer.
    world.settles(&well.0, 3).await;
    for (number, (mode, reason)) in ways.iter().enumerate() {
        let (vm, _) = name(number);
        world.shows(&vm, reason).await;
        assert_eq!(world.cluster.asked(&vm).await, 1, "{mode:?}");
        assert_eq!(world.view(&vm).await.unwrap().permit.unwrap().vcpus.milli(), 250, "{mode:?}");
    }
    pace.is_kept("requests to the scheduler", world.scheduler.web.count(), 2 * (ways.len() + 1));
    assert!(world.scheduler.web.open() <= ways.len() + 10, "connections: {}", world.scheduler.web.open());
    for number in 0..ways.len() {
        world.scheduler.set(&name(number).1, Mode::Permit);
    }
    for number in 0..ways.len() {
        world.settles(&name(number).0, 3).await;
    }
    assert!(agent.is_alive());
}

/// These mostly wait: together they take as long as the longest of them.
#[tokio::test]
async fn a_scheduler_that_changes_is_followed() {
    tokio::join!(
        a_part_is_taken_and_the_rest_asked_for_again(),
        a_vm_to_be_migrated_keeps_its_size(),
        the_scheduler_restarts_moves_and_goes(),
        upstreams_scheduler_is_found_by_its_pod(),
        an_impostor_gets_no_request(),
        a_lease_that_moved_unseen_is_read(),
    );
}

/// After an outage of the API server the watch of the lease may be behind for long. The replica that led answers that another one does.
async fn a_lease_that_moved_unseen_is_read() {
    let world = World::start(1).await;
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    let next = Scheduler::start(&world.cluster).await;
    world.cluster.server.fault("delay-watch", 600_000).await;
    world.cluster.scheduler_is_at(Some(next.endpoint())).await;
    world.scheduler.set("v0-pod", Mode::Reply(Reply::Text(503, "another replica leads".into())));
    eventually("a request to the new leader", async || (!next.asked("v0-pod").is_empty()).then_some(()))
        .await;
}

/// The agents of all nodes may write the scheduler's lease: one that names another address is followed, but with TLS, and a server
/// without the scheduler's certificate gets no request.
async fn an_impostor_gets_no_request() {
    let world = World::start(1).await;
    let agent = world.agent().await;
    world.settles("v0", 1).await;
    let impostor = Scheduler::plain().await;
    world.cluster.scheduler_is_at(Some(impostor.endpoint())).await;
    eventually("a connection", async || (impostor.web.open() > 0).then_some(())).await;
    world.guests[0].load(2);
    world.cluster.scheduler_is_at(Some(world.scheduler.endpoint())).await;
    world.settles("v0", 2).await;
    assert_eq!(impostor.web.count(), 0);
    assert!(agent.is_alive());
}

/// A denial is a reply: it is shown, the request is repeated at a limited rate, and the permit is used in whole units.
async fn a_part_is_taken_and_the_rest_asked_for_again() {
    let world = World::start(1).await;
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    let pace = Pace::new(world.scheduler.web.count());
    world.scheduler.set("v0-pod", Mode::AtMost(2));
    world.guests[0].load(6);
    world.cluster.is_asked("v0", 2).await;
    world.shows("v0", "scheduler permits 2").await;
    let asked = world.scheduler.web.count();
    eventually("two more requests", async || (world.scheduler.web.count() >= asked + 2).then_some(())).await;
    pace.is_kept("requests to the scheduler", world.scheduler.web.count(), 3);
    world.scheduler.set("v0-pod", Mode::Permit);
    world.settles("v0", 6).await;
}

/// The VM keeps its size as long as the scheduler announces its migration, and that is shown; only what it has is reported.
async fn a_vm_to_be_migrated_keeps_its_size() {
    const HELD: &str = "autoscaling_agent_runners_migration_announced";
    let world = World::start(1).await;
    let agent = world.agent().await;
    world.settles("v0", 1).await;
    let held = async |count: &str| {
        let line = format!("{HELD} {count}");
        eventually(&line, async || agent.metrics().await.lines().any(|l| l == line).then_some(())).await;
    };
    held("0").await;
    world.scheduler.set("v0-pod", Mode::Migrate);
    world.shows("v0", "scheduler announces a migration").await;
    held("1").await;
    let pace = Pace::new(world.scheduler.web.count());
    let before = world.scheduler.asked("v0-pod").len();
    world.guests[0].load(6);
    world.reads_on().await;
    eventually("reports", async || (world.scheduler.asked("v0-pod").len() >= before + 2).then_some(())).await;
    assert!(world.scheduler.asked("v0-pod")[before..].iter().all(|asked| *asked == (1, Some(1))));
    assert_eq!(world.cluster.asked("v0").await, 1);
    pace.is_kept("requests to the scheduler", world.scheduler.web.count(), 3);
    // It begins, and is cancelled: then the answer of the scheduler counts again.
    let migration = json!({ "name": "m", "uid": "u", "targetPodName": "p" });
    world.cluster.patch_status("v0", json!({ "phase": "PreMigrating", "migration": migration })).await;
    world.scheduler.set("v0-pod", Mode::Permit);
    world.cluster.patch_status("v0", json!({ "phase": "Running", "migration": null })).await;
    world.settles("v0", 6).await;
    held("0").await;
}

/// Gone between request and answer, come back at another address, and gone for good.
async fn the_scheduler_restarts_moves_and_goes() {
    let mut world = World::start(1).await;
    let agent = world.agent().await;
    world.settles("v0", 1).await;
    world.scheduler.set("v0-pod", Mode::Reply(Reply::Silence));
    world.guests[0].load(2);
    eventually("the request", async || world.scheduler.asked("v0-pod").contains(&(2, Some(1))).then_some(()))
        .await;
    // The request is under way. Now the process is killed, and another one listens at its address.
    let next = Scheduler::start(&world.cluster).await;
    let killed = std::mem::replace(&mut world.scheduler, next);
    let place = killed.kill();
    let free = async || tokio::net::TcpListener::bind(place.address()).await.ok().map(drop);
    eventually("the address", free).await;
    world.scheduler = Scheduler::at(&world.cluster, place).await;
    world.settles("v0", 2).await;
    let first = world.scheduler.asked("v0-pod")[0];
    assert_eq!(first.1, Some(1), "the new one gets the last permit");

    // Another replica leads now: the old one must not receive requests any more.
    let other = Scheduler::start(&world.cluster).await;
    world.cluster.scheduler_is_at(Some(other.endpoint())).await;
    eventually("a request to the new one", async || (!other.asked("v0-pod").is_empty()).then_some(())).await;
    let before = world.scheduler.web.count();
    world.guests[0].load(3);
    world.settles("v0", 3).await;
    assert_eq!(world.scheduler.web.count(), before);

    world.cluster.scheduler_is_at(None).await;
    world.guests[0].load(4);
    world.shows("v0", "there is no scheduler").await;
    assert_eq!(world.cluster.asked("v0").await, 3);
    world.cluster.scheduler_is_at(Some(world.scheduler.endpoint())).await;
    world.settles("v0", 4).await;
    assert!(agent.is_alive());
}

/// Without a lease, upstream's scheduler is found by its pod.
async fn upstreams_scheduler_is_found_by_its_pod() {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, Patch, PatchParams, PostParams};
    let world = World::start(1).await;
    world.cluster.scheduler_is_at(None).await;
    let mut settings = world.settings();
    let upstreams = Scheduler::plain().await;
    crate::world::set(&mut settings, "scheduler.requestPort", upstreams.web.address.port());
    crate::world::set(&mut settings, "neonvm.requestTimeoutSeconds", 10);
    let _agent = world.agent_with(&settings).await;
    world.shows("v0", "there is no scheduler").await;
    let pods: Api<Pod> = Api::namespaced(world.cluster.client.clone(), "kube-system");
    let pod = json!({ "metadata": { "name": "s-1", "labels": { "name": "autoscale-scheduler" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status =
        json!({ "status": { "podIP": "127.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status("s-1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.settles("v0", 1).await;
    world.guests[0].load(2);
    world.settles("v0", 2).await;
    // It waits for its own patch before it answers; its agents wait for as long as a patch may take.
    upstreams.set("v0-pod", Mode::Slow);
    world.guests[0].load(3);
    world.settles("v0", 3).await;
}
