//! The sessions of the gate: twenty seeds, five at a time.

use neonvm_e2e::sessions::{Session, fresh_seed};

use crate::world::{LENGTH, World, limits};

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The sessions of a test, five at a time.
async fn play(fixed: [u64; 5]) {
    let fresh: Option<usize> = variable("NEONVM_SESSION_FRESH");
    match (variable("NEONVM_SESSION_SEED"), fresh) {
        (Some(seed), _) => round(&[seed]).await,
        (None, None) => round(&fixed).await,
        (None, Some(rounds)) => {
            for _ in 0..rounds {
                let seed = fresh_seed();
                round(&[seed, seed + 1, seed + 2, seed + 3, seed + 4]).await;
            }
        }
    }
}

async fn round(seeds: &[u64]) {
    let length = variable("NEONVM_SESSION_LENGTH").unwrap_or(LENGTH);
    let world = World::start(seeds).await;
    let sessions = seeds.iter().map(|seed| world.play(Session::new(*seed, &limits(), length)));
    let ended = futures_util::future::join_all(sessions).await;
    let failures: Vec<String> =
        ended.into_iter().filter_map(|ended| Some(ended.err()?.to_string())).collect();
    assert!(
        failures.is_empty(),
        "{}\nagain: NEONVM_SESSION_SEED=SEED NEONVM_SESSION_LENGTH={length} cargo test -p neonvm-cli --test services \
         sessions::seeds_1_to_5",
        failures.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn seeds_1_to_5() {
    play([1, 2, 3, 4, 5]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seeds_6_to_10() {
    play([6, 7, 8, 9, 10]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seeds_11_to_15() {
    play([11, 12, 13, 14, 15]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seeds_16_to_20() {
    play([16, 17, 18, 19, 20]).await;
}
