//! Guests with an informant beside guests with a monitor, and informants that misbehave.

use std::net::IpAddr;

use neonvm_kit::port::Reserved;
use neonvm_types::informant_protocol::AgentDesc;
use serde_json::{Value, json};

use crate::cluster::eventually;
use crate::informant::{Informant, Mode, call, raw};
use crate::world::{World, set};

const GUEST: [u8; 4] = [127, 0, 0, 9];

/// VM `v0` with a monitor, VM `old` with an informant, and the agent's settings for both.
struct Both {
    world: World,
    informant: Informant,
    settings: Value,
    _port: Reserved,
}

impl Both {
    async fn start(mode: Mode) -> Self {
        let world = World::start(1).await;
        let (_, port) = world.guests[0].ports();
        let informant = Informant::start(GUEST.into(), port, mode).await;
        world
            .cluster
            .vm(
                "old",
                &IpAddr::from(GUEST).to_string(),
                json!({ "metadata": { "labels": { "age": "old" } } }),
            )
            .await;
        let callbacks = Reserved::loopback().unwrap();
        let mut settings = world.settings();
        set(
            &mut settings,
            "informant",
            json!({
                "serverPort": port, "callbackPort": callbacks.address().port(), "retryServerMinWaitSeconds": 1,
                "retryServerNormalWaitSeconds": 1, "registerRetrySeconds": 1, "requestTimeoutSeconds": 1,
                "registerTimeoutSeconds": 1, "downscaleTimeoutSeconds": 1, "unhealthyStartupGracePeriodSeconds": 2,
                "unhealthyAfterSilenceDurationSeconds": 12,
            }),
        );
        Self { world, informant, settings, _port: callbacks }
    }

    async fn is_resumed(&self) {
        self.world.shows("old", "informant v2.0").await;
    }
}

/// Sequence numbers of the signed changes so far.
fn sequence(informant: &Informant) -> Vec<u64> {
    let all = ["/upscale", "/downscale"].map(|path| informant.requests(path)).concat();
    let mut numbers: Vec<u64> = all.iter().map(|body| body["sequenceNumber"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// These mostly wait: together they take as long as the longest of them.
#[tokio::test]
async fn informants_are_served() {
    tokio::join!(
        both_protocols_side_by_side(),
        older_versions(),
        another_agent_takes_over(),
        an_informant_that_was_restarted_is_registered_with_again(),
        an_agent_that_stops_unregisters(),
        vms_are_chosen_by_labels(),
    );
}

/// Each VM by the protocol of its guest, under one agent and one load.
async fn both_protocols_side_by_side() {
    let both = Both::start(Mode::Good).await;
    let (world, informant) = (&both.world, &both.informant);
    let agent = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    world.shows("v0", "monitor v2.0").await;
    let registered = &informant.requests("/register")[0];
    assert_eq!((&registered["minProtoVersion"], &registered["maxProtoVersion"]), (&json!(1), &json!(4)));
    informant.load(4);
    world.guests[0].load(3);
    world.settles("old", 4).await;
    world.settles("v0", 3).await;
    let granted = informant.requests("/upscale").pop().unwrap();
    assert_eq!((&granted["data"]["cpu"], &granted["data"]["memory"]), (&json!("1"), &json!("4Gi")));
    assert_eq!(granted["data"]["id"]["agentID"], registered["agentID"]);
    informant.load(1);
    world.guests[0].load(1);
    world.settles("old", 1).await;
    world.settles("v0", 1).await;
    let asked = informant.requests("/downscale").pop().unwrap();
    assert_eq!((&asked["data"]["cpu"], &asked["data"]["memory"]), (&json!("250m"), &json!("1Gi")));
    let numbers = sequence(informant);
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers[0] > 2, "{numbers:?}");
    assert!(informant.metrics.count() > 0, "metrics are read at the port that the informant names");

    informant.set(Mode::Deny);
    let (status, answer) = informant.call("/try-upscale", json!({ "cpu": false, "memory": true })).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("sequenceNumber"), "{answer}");
    world.settles("old", 2).await;
    world.shows("old", "as the test determines").await;
    informant.set(Mode::Good);
    world.settles("old", 1).await;
    let metrics = agent.metrics().await;
    for part in ["informant_outbound_requests_total{code=\"200\"}", "endpoint=\"/try-upscale\",code=\"200\""]
    {
        assert!(metrics.contains(part), "{metrics}");
    }
}

/// Before v2.0 changes are not signed.
async fn older_versions() {
    let both = Both::start(Mode::Version(1)).await;
    let _agent = both.world.agent_with(&both.settings).await;
    both.world.shows("old", "informant v1.0").await;
    both.informant.load(3);
    both.world.settles("old", 3).await;
    assert_eq!(both.informant.requests("/upscale").pop().unwrap(), json!({ "cpu": "750m", "memory": "3Gi" }));
    let (status, answer) = both.informant.call("/try-upscale", json!({ "cpu": false, "memory": true })).await;
    assert_eq!(status, 400, "{answer}");
    assert!(both.informant.requests("/health-check").is_empty());
}

/// While another agent is the current one, nothing is changed; when it is gone, this one goes on.
async fn another_agent_takes_over() {
    let both = Both::start(Mode::Good).await;
    let (world, informant) = (&both.world, &both.informant);
    let _agent = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    world.settles("old", 1).await;
    let (status, answer) = informant.call("/suspend", json!({})).await;
    assert_eq!(status, 200, "{answer}");
    world.shows("old", "suspended: the informant has another agent").await;
    informant.load(5);
    let read = informant.metrics.count();
    eventually("metrics are read on", async || (informant.metrics.count() > read + 2).then_some(())).await;
    assert_eq!(world.cluster.asked("old").await, 1, "a suspended agent patches nothing");
    let before = informant.requests("/upscale").len();
    let (status, answer) = informant.call("/resume", json!({})).await;
    assert_eq!(status, 200, "{answer}");
    world.settles("old", 5).await;
    assert!(informant.requests("/upscale").len() > before);
}

async fn an_informant_that_was_restarted_is_registered_with_again() {
    let both = Both::start(Mode::Good).await;
    let (world, informant) = (&both.world, &both.informant);
    let _agent = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    let before = informant.agent().unwrap();
    informant.forget();
    // The next health check finds out.
    let again = eventually("another registration", async || informant.agent()).await;
    assert_ne!(again.agent_id, before.agent_id, "each registration has its own identity");
    assert_ne!(again.agent_serve_addr, before.agent_serve_addr);
    let (status, _) = call(GUEST.into(), &before, "GET", "/id", "{}").await;
    assert_eq!(status, 404, "the old registration is gone");
    informant.load(2);
    world.settles("old", 2).await;
}

/// The next agent registers, and the one before has left.
async fn an_agent_that_stops_unregisters() {
    let both = Both::start(Mode::Good).await;
    let (world, informant) = (&both.world, &both.informant);
    let agent = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    let first = informant.agent().unwrap();
    agent.stop().await;
    assert_eq!(informant.requests("/unregister"), [serde_json::to_value(&first).unwrap()]);
    assert_eq!(informant.agent(), None);
    let second = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    // Killed, it does not unregister: the informant suspends it in vain.
    drop(second);
    let _third = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    informant.load(3);
    world.settles("old", 3).await;
}

/// Labels decide which guests may have an informant; a change of labels too.
async fn vms_are_chosen_by_labels() {
    let both = Both::start(Mode::Good).await;
    let (world, informant) = (&both.world, &both.informant);
    let mut settings = both.settings.clone();
    set(&mut settings, "informant.selector", "age=ancient");
    set(&mut settings, "informant.skipMonitor", true);
    let _agent = world.agent_with(&settings).await;
    world.shows("v0", "monitor v2.0").await;
    world.shows("old", "no monitor for").await;
    assert!(informant.requests("/register").is_empty());
    world.cluster.patch("old", json!({ "metadata": { "labels": { "age": "ancient" } } })).await;
    both.is_resumed().await;
}

/// Whatever an informant does, the agent goes on, other VMs are scaled, and once it behaves its VM is too.
#[tokio::test]
async fn informants_that_misbehave() {
    let modes = [
        Mode::NoId,
        Mode::NoResume,
        Mode::ResumeTwice,
        Mode::Version(0),
        Mode::Version(9),
        Mode::NoMetrics,
        Mode::Status(500),
        Mode::Status(404),
        Mode::LaterStatus(404),
        Mode::LaterStatus(400),
        Mode::Silence,
        Mode::LaterSilence,
        Mode::Text("{\"protoVersion\":\"four\"}"),
        Mode::Text("\u{0}"),
        Mode::Huge,
    ];
    for some in modes.chunks(5) {
        let all: Vec<_> = some.iter().map(|mode| misbehaves(*mode)).collect();
        futures_util::future::join_all(all).await;
    }
}

async fn misbehaves(mode: Mode) {
    let both = Both::start(mode).await;
    let (world, informant) = (&both.world, &both.informant);
    let agent = world.agent_with(&both.settings).await;
    let count = || informant.requests("/register").len();
    eventually(&format!("{mode:?}: two attempts"), async || {
        let later = matches!(mode, Mode::LaterStatus(_) | Mode::LaterSilence);
        (count() >= if later { 1 } else { 2 }).then_some(())
    })
    .await;
    world.guests[0].load(2);
    world.settles("v0", 2).await;
    assert!(agent.is_alive(), "{mode:?}");
    informant.set(Mode::Good);
    both.is_resumed().await;
    informant.load(2);
    world.settles("old", 2).await;
}

/// A guest reaches the callback port: it may speak for its own VM only, and send little.
#[tokio::test]
async fn hostile_requests_to_the_agent() {
    let both = Both::start(Mode::Good).await;
    let (world, informant) = (&both.world, &both.informant);
    let agent = world.agent_with(&both.settings).await;
    both.is_resumed().await;
    let own = informant.agent().unwrap();
    let expected = json!({ "expectedID": own.agent_id }).to_string();
    // Another guest that knows path and identity, which it cannot.
    let (status, _) = call([127, 0, 0, 10].into(), &own, "POST", "/suspend", &expected).await;
    assert_eq!(status, 404);
    let other = json!({ "expectedID": "67e55044-10b1-426f-9247-bb680e5fe0c8" }).to_string();
    let huge = "x".repeat(1 << 20);
    for (method, path, body, status) in [
        ("POST", "/suspend", other.as_str(), 404),
        ("POST", "/suspend", "{}", 400),
        ("POST", "/suspend", "\u{0}", 400),
        ("POST", "/try-upscale", "{\"cpu\":7}", 400),
        ("GET", "/suspend", expected.as_str(), 405),
        ("POST", "/id", "{}", 405),
        ("GET", "/id", "", 400),
        ("POST", "/suspend", huge.as_str(), 413),
        ("POST", "/register", "{}", 404),
        ("GET", "/../id", "{}", 404),
    ] {
        let (answered, text) = call(GUEST.into(), &own, method, path, body).await;
        // The answer may be lost with the rest of a huge body unread.
        let lost = answered == 0 && body.len() > 4096;
        assert!(answered == status || lost, "{method} {path}: {answered} {text}");
    }
    let wrong = AgentDesc { agent_serve_addr: own.agent_serve_addr.replace('/', "/0"), ..own.clone() };
    assert_eq!(call(GUEST.into(), &wrong, "GET", "/id", "{}").await.0, 404);
    let address = own.agent_serve_addr.split('/').next().unwrap().parse().unwrap();
    for bytes in
        ["\r\n\r\n", "GET\r\n\r\n", "\u{16}\u{3}\u{1}", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"]
    {
        let _ = tokio::time::timeout(
            std::time::Duration::from_millis(200),
            raw(GUEST.into(), address, bytes.as_bytes()),
        )
        .await;
    }
    // Many connections of one guest that send nothing take no place of others.
    let silent: Vec<_> =
        (0..64).map(|_| tokio::spawn(async move { raw(GUEST.into(), address, b"GET ").await })).collect();
    let other = [127, 0, 0, 10].into();
    assert_eq!(call(other, &own, "GET", "/id", "{}").await.0, 404, "it is answered");
    silent.iter().for_each(tokio::task::JoinHandle::abort);
    futures_util::future::join_all(silent).await;
    assert_eq!(call(GUEST.into(), &own, "GET", "/id", "{}").await.0, 200);
    assert!(agent.is_alive());
    assert_eq!(world.view("old").await.unwrap().guest_protocol.as_deref(), Some("informant v2.0"));

    // More requests than an informant has any use for: registered again after a pause, with another identity.
    for _ in 0..200 {
        call(GUEST.into(), &own, "GET", "/id", "{}").await;
    }
    eventually("another registration", async || {
        informant.agent().filter(|agent| agent.agent_id != own.agent_id)
    })
    .await;
    both.is_resumed().await;
    informant.load(2);
    world.settles("old", 2).await;
}
