//! A monitor that misbehaves, for each VM in another way: nothing shrinks without its consent, requests to it stay
//! rare, the reason is shown, and the agent continues when it behaves again.

use serde_json::json;

use crate::cluster::eventually;
use crate::monitor::Mode;
use crate::world::{Pace, World};

/// A way to misbehave, and a part of what the agent reports about it.
fn ways() -> Vec<(Mode, &'static str)> {
    vec![
        (Mode::NoHandshake, "no connection within 1 s"),
        (Mode::Http("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "no websocket"),
        (Mode::Http("220 mail.example.org ESMTP\r\n"), "no websocket"),
        (Mode::EndlessHead, "no websocket"),
        (Mode::Version(r#"{"version":7}"#), "which was not offered"),
        (Mode::Version(r#"{"version":0}"#), "which was not offered"),
        (Mode::Version(r#"{"error":"I am too old"}"#), "I am too old"),
        (Mode::Version("{}"), "exactly one of version and error"),
        (Mode::Version("hello"), "monitor handshake"),
        (Mode::NoVersion, "no connection within 1 s"),
        (Mode::PingsBeforeVersion, "before the handshake"),
        (Mode::Silence, "no answer within 1 s"),
        (Mode::WrongKind, "does not answer"),
        (Mode::WrongNumber, "no answer within 1 s"),
        (Mode::Late, "no answer within 1 s"),
        (Mode::Echo, "is not known"),
        (Mode::Fail, "no database"),
        (Mode::Text("all is well"), "without a number"),
        (Mode::Text("{\"type\":\"DownscaleResult\",\"id\":\"two\"}"), "without a number"),
        (Mode::Text("{\"type\":\"Greeting\",\"id\":2}"), "no answer within 1 s"),
        (Mode::Close, "closed the connection"),
        (Mode::Cut, "monitor"),
        (Mode::Huge, "too long"),
        (Mode::Flood(r#"{"type":"UpscaleRequest","id":3}"#), "too many messages"),
        (Mode::Flood(r#"{"type":"UpscaleConfirmation","id":3}"#), "too many messages"),
        (Mode::Pings, "too many messages"),
    ]
}

#[tokio::test]
async fn a_monitor_that_misbehaves_agrees_to_nothing() {
    let ways = ways();
    let world = World::start(u8::try_from(ways.len()).unwrap() + 1).await;
    let agent = world.agent().await;
    let name = |number: usize| format!("v{number}");
    for guest in &world.guests {
        guest.load(3);
    }
    for number in 0..=ways.len() {
        world.settles(&name(number), 3).await;
    }
    let before: Vec<Pace> = world
        .guests
        .iter()
        .map(|guest| Pace::new(guest.monitor.connections() + guest.monitor.count()))
        .collect();
    for (number, (mode, _)) in ways.iter().enumerate() {
        let guest = &world.guests[number];
        guest.monitor.set(mode.clone());
        guest.monitor.cut();
        guest.load(2);
    }
    world.guests[ways.len()].load(2);
    world.settles(&name(ways.len()), 2).await;
    for (number, (_, reason)) in ways.iter().enumerate() {
        world.shows(&name(number), reason).await;
    }
    world.reads_on().await;
    for (number, (mode, _)) in ways.iter().enumerate() {
        let vm = name(number);
        // A guest that requests more without end gets it, but for that it has to agree to no less.
        let grows = matches!(mode, Mode::Flood(text) if text.contains("UpscaleRequest"));
        let asked = world.cluster.asked(&vm).await;
        assert!(asked == 3 || grows && asked > 3, "{mode:?}: {asked}");
    }
    for (number, (mode, _)) in ways.iter().enumerate() {
        let monitor = &world.guests[number].monitor;
        // Connections, requests, and complaints of the agent.
        before[number].is_kept(&format!("{mode:?}"), monitor.connections() + monitor.count(), 3);
        monitor.set(Mode::Good);
        monitor.cut();
    }
    for number in 0..ways.len() {
        world.settles(&name(number), 2).await;
    }
    assert!(agent.is_alive());
}

/// These mostly wait: together they take as long as the longest of them.
#[tokio::test]
async fn a_monitor_that_stumbles_is_borne_with() {
    tokio::join!(
        an_answer_counts_once(),
        a_connection_that_breaks_is_made_again(),
        a_monitor_that_only_fails_is_connected_to_again(),
        an_answer_without_a_status_is_one(),
        requests_end_at_the_bounds_and_invalid_ones_are_answered(),
    );
}

/// Each answer twice: the second is none.
async fn an_answer_counts_once() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    let connections = guest.monitor.connections();
    guest.monitor.set(Mode::Twice);
    guest.load(3);
    world.settles("v0", 3).await;
    guest.load(1);
    world.settles("v0", 1).await;
    assert!(
        !guest.monitor.messages("InvalidMessage").is_empty(),
        "it is notified that the second is invalid"
    );
    assert_eq!(guest.monitor.connections(), connections, "the connection stays");
}

/// The connection breaks between the agreement to shrink and what follows from it, and while the VM grows.
async fn a_connection_that_breaks_is_made_again() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    for units in [4, 1, 6] {
        guest.load(units);
        guest.monitor.cut();
        world.settles("v0", units).await;
    }
    assert!(guest.monitor.connections() >= 4);
}

/// A health check that is answered with an error shows no life.
async fn a_monitor_that_only_fails_is_connected_to_again() {
    let world = World::start(1).await;
    let monitor = &world.guests[0].monitor;
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    monitor.set(Mode::Fail);
    let connections = monitor.connections();
    eventually("a new connection", async || (monitor.connections() > connections).then_some(())).await;
    assert!(!monitor.messages("HealthCheck").is_empty());
    monitor.set(Mode::Good);
    world.guests[0].load(2);
    world.settles("v0", 2).await;
}

/// A field that is missing has its zero value.
async fn an_answer_without_a_status_is_one() {
    let world = World::start(1).await;
    let guest = &world.guests[0];
    let _agent = world.agent().await;
    guest.load(3);
    world.settles("v0", 3).await;
    guest.monitor.set(Mode::NoStatus);
    guest.load(1);
    world.settles("v0", 1).await;
    assert!(guest.monitor.messages("InvalidMessage").is_empty());
}

async fn requests_end_at_the_bounds_and_invalid_ones_are_answered() {
    let world = World::start(1).await;
    let monitor = &world.guests[0].monitor;
    let _agent = world.agent().await;
    world.settles("v0", 1).await;
    let connections = monitor.connections();
    let request = |wants: serde_json::Value| json!({ "type": "UpscaleRequest", "id": 5, "wants": wants });
    monitor.send(&request(json!({ "cpu": "many", "mem": [] })));
    monitor.send(&request(json!({ "cpu": -1 })));
    monitor.send(&request(json!({ "mem": "1e99Gi" })));
    // Others may be about answers that came too late.
    let complaints = || monitor.messages("InvalidMessage").iter().filter(|about| about["id"] == 5).count();
    eventually("three complaints", async || (complaints() == 3).then_some(())).await;
    assert_eq!(world.cluster.asked("v0").await, 1);
    assert_eq!(monitor.connections(), connections, "the connection stays");
    let long = "because ".repeat(1000);
    // It stays as large as it has become until that was seen.
    monitor.set(Mode::Deny);
    monitor.send(&request(
        json!({ "cpu": 4_000_000, "mem": "16383Pi", "reason": format!("\u{1b}[31m{long}\n") }),
    ));
    world.settles("v0", 16).await;
    let shown = format!("{:?}", world.view("v0").await.unwrap().decisions);
    assert!(shown.contains("because") && !shown.contains("u{1b}") && shown.len() < 8000, "{shown}");
    monitor.set(Mode::Good);
    world.settles("v0", 1).await;
}
