//! A metrics port that misbehaves, for each VM in another way: no size follows from it, requests to it stay rare, the
//! reason is shown, and the agent continues when it behaves again.

use crate::cluster::eventually;
use crate::guest::load;
use crate::web::Reply;
use crate::world::{Pace, World};

/// A way to misbehave, and a part of what the agent reports about it.
fn ways() -> Vec<(Reply, &'static str)> {
    let text = |text: String| Reply::Text(200, text);
    let changed = |from: &str, to: &str| Reply::Text(200, load(10).replace(from, to));
    vec![
        (Reply::Silence, "no answer within 1 s"),
        (Reply::Late(200, load(10)), "no answer within 1 s"),
        (Reply::Endless, "no metrics"),
        (Reply::EndlessHead, "no metrics"),
        (Reply::Cut, "broken or too long"),
        (Reply::HangUp, "no metrics"),
        (Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "no metrics"),
        (Reply::Raw(vec![0xff; 4096]), "no metrics"),
        (Reply::Text(500, load(10)), "answers 500"),
        (Reply::Text(204, String::new()), "answers 204"),
        (text(String::new()), "host_load1"),
        (text("\u{0}\u{7f}}{=,".repeat(1000)), "host_load1"),
        (text(format!("{}{}", load(10), "z 1\n".repeat(600_000))), "too long"),
        (changed("host_load1 2.25", "host_load1 NaN"), "host_load1"),
        (changed("host_load1 2.25", "host_load1 +Inf"), "host_load1"),
        (changed("host_load5 2.25", "host_load5 -3"), "host_load5"),
        (changed("host_load1 2.25", "host_load1 2.25\nhost_load1 9"), "host_load1"),
        (changed("# TYPE host_load1 gauge", "# TYPE host_load1 counter"), "host_load1"),
        (changed("host_memory_available_bytes", "host_memory_avail"), "host_memory_available_bytes"),
    ]
}

#[tokio::test]
async fn metrics_that_make_no_sense_move_nothing() {
    let ways = ways();
    let world = World::start(u8::try_from(ways.len()).unwrap() + 1).await;
    let agent = world.agent().await;
    let name = |number: usize| format!("v{number}");
    for number in 0..=ways.len() {
        world.guests[number].load(2);
    }
    for number in 0..=ways.len() {
        world.settles(&name(number), 2).await;
    }
    let paces: Vec<Pace> = world.guests.iter().map(|guest| Pace::new(guest.metrics.count())).collect();
    for (number, (reply, _)) in ways.iter().enumerate() {
        world.guests[number].show(reply.clone());
    }
    world.guests[ways.len()].load(3);
    world.settles(&name(ways.len()), 3).await;
    for (number, (_, reason)) in ways.iter().enumerate() {
        world.shows(&name(number), reason).await;
    }
    world.reads_on().await;
    for (number, (reply, _)) in ways.iter().enumerate() {
        assert_eq!(world.cluster.asked(&name(number)).await, 2, "{:.100}", format!("{reply:?}"));
    }
    for (number, guest) in world.guests.iter().enumerate() {
        // A kept connection that breaks is made again once.
        paces[number].is_kept(&format!("readings of v{number}"), guest.metrics.count(), 2);
        let few = async || (guest.metrics.open() <= 2).then_some(());
        eventually(&format!("at most two connections to v{number}"), few).await;
        guest.load(1);
    }
    for number in 0..=ways.len() {
        world.settles(&name(number), 1).await;
    }
    assert!(agent.is_alive());
}

/// Extremes that are numbers nevertheless: the bounds hold.
#[tokio::test]
async fn an_absurd_load_ends_at_the_bounds() {
    let world = World::start(1).await;
    let _agent = world.agent().await;
    world.guests[0].show(Reply::Text(200, load(1).replace("load1 0.225", "load1 1.7e308")));
    world.settles("v0", 16).await;
    world.shows("v0", "upper bound").await;
    world.guests[0].show(Reply::Text(
        200,
        load(1).replace("load1 0.225", "load1 0").replace("load5 0.225", "load5 5e-324"),
    ));
    world.settles("v0", 1).await;
}
