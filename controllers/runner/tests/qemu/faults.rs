//! Faults at the switchover. The connection between the two runners is held at the exact place first; the test then sends the
//! verdict that the controller would.

use neonvm_test_support::need;
use neonvm_types::runner_protocol::{ExitReason, MIGRATION_SETTLE_PATH, MigrationState as State};
use serde_json::json;

use crate::link::{Hold, Link};
use crate::process::Process;
use crate::runner::{Runner, until};
use crate::world::{World, begin_at, fast, migration, request, stays};

/// A migration of `source` that is held by the link.
async fn held(world: &World, source: &Runner, id: &str, hold: Hold) -> (Runner, Link) {
    let target = world.target(source, id).await;
    let link = Link::to(target.address, Hold::Bulk).await;
    begin_at(source, link.address, id, fast()).await;
    source.is(State::Mirroring).await;
    let switches = |runner: &Runner| runner.log().matches("action=SwitchOver").count();
    let before = switches(source);
    link.hold(hold);
    until("something to hold", async || link.is_holding().then_some(())).await;
    let (here, there) = match hold {
        Hold::Settle | Hold::Rest => (State::Switching, State::Receiving),
        Hold::Run => (State::HandingOver, State::Arrived),
        Hold::Answer => (State::HandingOver, State::Completed),
        Hold::Farewell => (State::Completed, State::Completed),
        Hold::Nothing | Hold::Bulk => (State::Mirroring, State::Receiving),
    };
    source.is(here).await;
    target.is(there).await;
    if hold == Hold::Rest {
        until("the word to send the rest", async || (switches(source) > before).then_some(())).await;
    }
    (target, link)
}

/// The other of the two is gone for good.
async fn verdict(runner: &Runner, id: &str, keep: bool) -> u16 {
    let (code, _) =
        runner.call("POST", MIGRATION_SETTLE_PATH, &json!({ "id": id, "keep": keep })).await.unwrap();
    code
}

async fn ends(what: &str, process: Process) {
    until(what, async || process.is_over().then_some(())).await;
}

/// It has the VM, as if it had never been elsewhere.
async fn has_it(runner: &Runner) {
    let status = runner.ready().await;
    assert_eq!(status.migration.map(|moved| moved.state), Some(State::Completed));
    runner.lives().await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Runner,
    Qemu,
}

impl Victim {
    /// Kills it; QEMU has ended when this returns.
    async fn dies(self, runner: &mut Runner) {
        let qemu = runner.qemu();
        match self {
            Self::Runner => runner.kill(),
            Self::Qemu => qemu.kill(),
        }
        ends("the end of its QEMU", qemu).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_at_the_switch_leaves_the_guest_at_home() {
    let world = need!(World::new());
    let mut source = world.source().await;
    let sockets = source.sockets();
    let faults = [
        (Hold::Settle, Victim::Runner),
        (Hold::Settle, Victim::Qemu),
        (Hold::Rest, Victim::Runner),
        (Hold::Rest, Victim::Qemu),
        (Hold::Run, Victim::Runner),
        (Hold::Run, Victim::Qemu),
        (Hold::Answer, Victim::Runner),
    ];
    for (hold, victim) in faults {
        let id = format!("{hold:?}-{victim:?}");
        println!("{id}");
        let (mut target, link) = held(&world, &source, &id, hold).await;
        victim.dies(&mut target).await;
        if matches!(hold, Hold::Run | Hold::Answer) {
            // The source has no evidence that the guest does not run on the target; it continues only if the target
            // reports a failure.
            link.cut();
            link.hold(Hold::Nothing);
            until("an attempt that fails", async || {
                let seen = source.status().await?.migration?;
                assert_eq!(seen.state, State::HandingOver, "{seen:?}");
                (!seen.reason.is_empty()).then_some(())
            })
            .await;
            let call = json!({ "id": id, "reason": "a person wants it" });
            assert_eq!(source.call("POST", "/v1/migration/cancel", &call).await.unwrap().0, 409);
            assert_eq!(verdict(&source, &id, true).await, 202);
        }
        let reason = stays(&source, State::Failed).await;
        assert!(!reason.is_empty());
        if victim == Victim::Qemu {
            assert_eq!(target.exit().await.reason, ExitReason::MigrationFailed, "{id}");
        }
        source.has_closed_all_but(sockets).await;
    }
    // Both live, and only the way is lost: it is made again, and the order is repeated.
    for hold in [Hold::Run, Hold::Answer] {
        let (target, link) = held(&world, &source, &format!("cut-{hold:?}"), hold).await;
        link.cut();
        link.hold(Hold::Nothing);
        assert_eq!(source.exit().await.reason, ExitReason::Migrated);
        has_it(&target).await;
        source = target;
    }
    // The rest is on its way, and the source dies: there is no whole guest at the target, and nothing runs there.
    let (target, _link) = held(&world, &source, "half", Hold::Rest).await;
    let qemu = target.qemu();
    Victim::Runner.dies(&mut source).await;
    never_ran(target, qemu).await;
}

/// A target that was left with less than the whole guest.
async fn never_ran(mut target: Runner, qemu: Process) {
    let exit = target.exit().await;
    assert_eq!(exit.reason, ExitReason::MigrationFailed, "{exit:?}");
    assert!(!exit.message.is_empty() && !target.log().contains("the guest runs here"), "{exit:?}");
    ends("the end of its QEMU", qemu).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_dies_at_the_switch_leaves_the_guest_to_the_target_that_has_all_of_it() {
    let world = need!(World::new());
    let mut source = world.source().await;
    for victim in [Victim::Runner, Victim::Qemu] {
        let id = format!("{victim:?}");
        let (target, _link) = held(&world, &source, &id, Hold::Run).await;
        victim.dies(&mut source).await;
        if victim == Victim::Qemu {
            let exit = source.exit().await;
            assert_eq!(exit.reason, ExitReason::QemuEnded, "{exit:?}");
            // A controller that sees a failure would take the target's memory for outdated.
            assert!(!source.log().contains("state=Failed"), "{}", source.log());
        }
        assert_eq!(
            migration(&target).await.state,
            State::Arrived,
            "it waits for the word that its source is gone"
        );
        assert_eq!(verdict(&target, "another", true).await, 404);
        assert_eq!(verdict(&target, &id, true).await, 202);
        has_it(&target).await;
        assert_eq!(verdict(&target, &id, false).await, 409, "it runs");
        source = target;
    }
    // It runs there already, and its source dies before it receives the answer.
    let (target, _link) = held(&world, &source, "answered", Hold::Answer).await;
    Victim::Runner.dies(&mut source).await;
    has_it(&target).await;
    source = target;
    // The disks are not finished.
    let (target, _link) = held(&world, &source, "early", Hold::Settle).await;
    let qemu = target.qemu();
    Victim::Runner.dies(&mut source).await;
    never_ran(target, qemu).await;
}

/// The guest runs elsewhere, and its source is still there for a moment: it must not take the guest for its own again.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_has_left_moves_nowhere_else() {
    let world = need!(World::new());
    let mut source = world.source().await;
    let target = world.target(&source, "left").await;
    let link = Link::to(target.address, Hold::Bulk).await;
    begin_at(&source, link.address, "left", fast()).await;
    source.is(State::Mirroring).await;
    link.hold(Hold::Farewell);
    let another = request(&target, "another", fast());
    until("the end of the source", async || {
        let Some((code, text)) = source.call("PUT", "/v1/migration", &another).await else { return Some(()) };
        assert_eq!(code, 409, "{text}");
        None
    })
    .await;
    assert_eq!(source.exit().await.reason, ExitReason::Migrated);
    has_it(&target).await;
}
