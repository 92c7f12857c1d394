//! The session with a QEMU that hangs, talks nonsense, answers late or goes away.

use std::sync::Arc;
use std::time::Duration;

use neonvm_hypervisor::qmp::{EVENT_BUFFER, Event, MOST_LINE_BYTES, QmpError, Session};
use serde_json::{Value, json};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::fake::{Fake, GREETING, pair};

const LONG: Duration = Duration::from_secs(3600);

async fn open() -> (Arc<Session>, Fake, Receiver<Event>) {
    let (stream, mut fake) = pair();
    let (opened, ()) = tokio::join!(Session::open(stream, LONG), fake.greet());
    let (session, greeting, events) = opened.unwrap();
    assert_eq!(greeting.version.to_string(), "7.2.1");
    (Arc::new(session), fake, events)
}

fn spawn(session: &Arc<Session>, command: &'static str) -> tokio::task::JoinHandle<Result<Value, QmpError>> {
    let session = Arc::clone(session);
    tokio::spawn(async move { session.execute_within(command, Value::Null, LONG).await })
}

#[tokio::test]
async fn answers_find_their_callers_in_any_order_and_in_pieces() {
    let (session, mut fake, mut events) = open().await;
    let calls: Vec<_> = ["a", "b", "c"].map(|name| spawn(&session, name)).into();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(fake.command().await);
    }
    seen.reverse();
    for (id, name) in &seen {
        let text = format!("{{\"id\": {id}, \"return\": \"{name}\"}}\r\n{{\"event\": \"E{name}\"}}\n\n");
        for piece in text.as_bytes().chunks(3) {
            fake.send(std::str::from_utf8(piece).unwrap()).await;
            tokio::task::yield_now().await;
        }
    }
    for (call, name) in calls.into_iter().zip(["a", "b", "c"]) {
        assert_eq!(call.await.unwrap(), Ok(json!(name)));
    }
    assert_eq!(events.recv().await.unwrap().name, "Ec");
}

#[tokio::test(start_paused = true)]
async fn a_monitor_that_hangs_costs_the_deadline_and_late_answers_are_dropped() {
    let (session, mut fake, _events) = open().await;
    let call = spawn_within(&session, "slow", 100);
    let (late, _) = fake.command().await;
    let expected = QmpError::Timeout { command: "slow".into(), deadline: Duration::from_millis(100) };
    assert_eq!(call.await.unwrap(), Err(expected.clone()));
    assert_eq!(expected.to_string(), "QEMU did not answer `slow` within 100 ms");
    fake.answer(late, "1").await;
    fake.answer(987, "2").await;
    fake.line(r#"{"error":{"class":"GenericError","desc":"no id"}}"#).await;
    let call = spawn(&session, "quick");
    let (id, _) = fake.command().await;
    fake.answer(id, "3").await;
    assert_eq!(call.await.unwrap(), Ok(json!(3)));
    assert_eq!(session.late_answers(), 3);
}

fn spawn_within(
    session: &Arc<Session>,
    command: &'static str,
    millis: u64,
) -> tokio::task::JoinHandle<Result<Value, QmpError>> {
    let session = Arc::clone(session);
    let deadline = Duration::from_millis(millis);
    tokio::spawn(async move { session.execute_within(command, Value::Null, deadline).await })
}

#[tokio::test(start_paused = true)]
async fn a_monitor_that_does_not_read_costs_the_deadline() {
    let (session, _fake, _events) = open().await;
    let big = json!({"text": "x".repeat(60 << 10)});
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (session, big) = (Arc::clone(&session), big.clone());
        calls.spawn(async move { session.execute("ignored", big).await });
    }
    while let Some(result) = calls.join_next().await {
        assert!(matches!(result.unwrap(), Err(QmpError::Timeout { .. })));
    }
}

#[tokio::test]
async fn refusals_are_typed() {
    let (session, mut fake, _events) = open().await;
    let call = spawn(&session, "device_del");
    let (id, _) = fake.command().await;
    fake.line(&format!(r#"{{"id":{id},"error":{{"class":"DeviceNotFound","desc":"no such"}}}}"#)).await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "QEMU refuses `device_del`: no such (DeviceNotFound)");
}

#[tokio::test]
async fn the_end_in_the_middle_of_a_message_reaches_every_caller() {
    let (session, mut fake, mut events) = open().await;
    let calls = [spawn(&session, "a"), spawn(&session, "b")];
    for _ in &calls {
        fake.command().await;
    }
    fake.line(r#"{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}"#).await;
    fake.send(r#"{"return": {"#).await;
    drop(fake);
    let expected = QmpError::Closed("QEMU closed it in the middle of a message".into());
    for call in calls {
        assert_eq!(call.await.unwrap(), Err(expected.clone()));
    }
    assert_eq!(session.ended().await, expected);
    assert_eq!(session.execute("more", Value::Null).await, Err(expected));
    let last = events.recv().await.unwrap();
    assert_eq!((last.text("reason"), last.truth("guest")), (Some("guest-shutdown"), Some(true)));
}

#[tokio::test]
async fn nonsense_ends_the_session() {
    for nonsense in ["(qemu) help", "[]", "{\"other\":1}", "\u{0}\u{1}"] {
        let (session, mut fake, _events) = open().await;
        let call = spawn(&session, "a");
        fake.command().await;
        fake.line(nonsense).await;
        assert!(matches!(call.await.unwrap(), Err(QmpError::Garbage(_))), "{nonsense}");
    }
}

#[tokio::test]
async fn a_line_may_be_long_but_not_endless() {
    let (session, mut fake, _events) = open().await;
    let call = spawn(&session, "a");
    let (id, _) = fake.command().await;
    let long = "y".repeat(MOST_LINE_BYTES - 1024);
    fake.answer(id, &format!("\"{long}\"")).await;
    assert_eq!(call.await.unwrap(), Ok(json!(long)));
    let call = spawn(&session, "b");
    fake.command().await;
    let endless = tokio::spawn(async move {
        for _ in 0..=MOST_LINE_BYTES / 1024 + 1024 {
            fake.send(&"z".repeat(1024)).await;
        }
    });
    assert!(matches!(call.await.unwrap(), Err(QmpError::Garbage(_))));
    drop(session);
    // The stream is closed under it.
    assert!(endless.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn no_greeting_no_session() {
    let (stream, fake) = pair();
    let error = Session::open(stream, Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, QmpError::Timeout { ref command, .. } if command == "greeting"), "{error}");
    drop(fake);
    let (stream, mut fake) = pair();
    fake.line(r#"{"event":"STOP"}"#).await;
    assert!(matches!(Session::open(stream, LONG).await, Err(QmpError::Garbage(_))));
    let (stream, mut fake) = pair();
    fake.line(GREETING).await;
    drop(fake);
    assert!(matches!(Session::open(stream, LONG).await, Err(QmpError::Closed(_))));
}

#[tokio::test]
async fn a_slow_listener_learns_what_it_missed_and_delays_no_other() {
    let (session, mut fake, mut events) = open().await;
    for number in 0..EVENT_BUFFER + 10 {
        fake.line(&format!(r#"{{"event":"E","data":{{"number":{number}}}}}"#)).await;
    }
    let call = spawn(&session, "a");
    let (id, _) = fake.command().await;
    fake.answer(id, "{}").await;
    call.await.unwrap().unwrap();
    assert_eq!(events.recv().await, Err(RecvError::Lagged(10)));
    assert_eq!(events.recv().await.unwrap().number("number"), Some(10));
}
