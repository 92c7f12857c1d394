//! The kill loop at its everyday length, against the server that is built into the binary of this crate.

use neonvm_apiserver_endurance::kill;
use neonvm_bench::process::Program;

/// Kills in an ordinary test run; `ENDURANCE_ROUNDS` changes it.
const ROUNDS: u32 = 200;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_neonvm-apiserver-endurance"), &["serve"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_keeps_what_it_acknowledged() {
    let rounds = std::env::var("ENDURANCE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let outcome = kill::run(&program(), rounds, 1).await.unwrap();
    assert_eq!(outcome.kills, rounds);
    assert!(outcome.acknowledged > u64::from(rounds), "hardly any load: {outcome}");
    assert!(outcome.resumed > 0 && outcome.expired > 0, "one kind of resumption was never met: {outcome}");
}
