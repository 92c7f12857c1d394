//! Migrations between two runners.

use neonvm_kit::ca::Authority;
use neonvm_test_support::{Missing, need};
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{
    ExitReason, MachineInfo, MigrationParameters, MigrationState as State, PostCopy, server_name,
};
use serde_json::{Value, json};

use crate::link::{Hold, Link};
use crate::runner::{Pod, Runner, UID, until};
use crate::world::{World, begin, begin_at, fast, migration, moves, request, slow, stays};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_moves_and_moves_on() {
    let world = need!(World::new());
    let mut source = world.source().await;
    let target = world.target(&source, "one").await;
    assert_eq!(target.call("GET", "/ready", &Value::Null).await.unwrap().0, 503);
    assert!(!target.status().await.unwrap().ready);
    begin(&source, &target, "one", fast()).await;
    // Repeating it is harmless, another has to wait, and the size stays.
    let again = request(&target, "one", fast());
    if let Some((code, _)) = source.call("PUT", "/v1/migration", &again).await {
        assert_eq!(code, 202);
    }
    if let Some((code, text)) = source.call("PUT", "/v1/migration", &request(&target, "two", fast())).await {
        assert_eq!(code, 409, "{text}");
    }
    let exit = source.exit().await;
    assert_eq!(exit.reason, ExitReason::Migrated, "{exit:?}");
    let status = target.ready().await;
    let moved = status.migration.unwrap();
    assert!(moved.state == State::Completed && moved.progress.downtime_ms.is_some(), "{moved:?}");
    assert!(source.log().contains("multifd x2, zstd") || moved.progress.passes > 0);
    target.lives().await;
    let console = target.log();
    assert!(!console.contains("WRONG"), "{console}");
    // Another one, back to where it came from.
    let mut target = target;
    let third = world.target(&target, "two").await;
    moves(&mut target, &third, "two").await;
    // As if it had booted here.
    third.terminate();
    let mut third = third;
    assert_eq!(third.exit().await.reason, ExitReason::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_can_be_called_off_and_another_follows() {
    let world = need!(World::new());
    let mut source = world.source().await;
    let mut target = world.target(&source, "one").await;
    begin(&source, &target, "one", slow()).await;
    source.is(State::Copying).await;
    let size = json!({ "cpu": 1, "memory": "256Mi" });
    assert_eq!(source.call("PUT", "/v1/size", &size).await.unwrap().0, 409);
    let other = json!({ "id": "other" });
    assert_eq!(source.call("POST", "/v1/migration/cancel", &other).await.unwrap().0, 404);
    assert_eq!(source.call("POST", "/v1/migration/recover", &json!({ "id": "one" })).await.unwrap().0, 409);
    let call = json!({ "id": "one", "reason": "a person wants it" });
    assert_eq!(source.call("POST", "/v1/migration/cancel", &call).await.unwrap().0, 202);
    assert_eq!(stays(&source, State::Cancelled).await, "a person wants it");
    let exit = target.exit().await;
    assert_eq!(exit.reason, ExitReason::MigrationFailed, "{exit:?}");
    // While disks are copied, and before that.
    for (id, state) in [("two", State::Mirroring), ("three", State::Negotiating)] {
        let target = world.target(&source, id).await;
        begin(&source, &target, id, slow()).await;
        if state == State::Mirroring {
            until("the first copy", async || (source.state().await? != State::Negotiating).then_some(()))
                .await;
        }
        let (code, text) = source.call("POST", "/v1/migration/cancel", &json!({ "id": id })).await.unwrap();
        assert_eq!(code, 202, "{text}");
        stays(&source, State::Cancelled).await;
    }
    let target = world.target(&source, "four").await;
    moves(&mut source, &target, "four").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_survives_the_death_of_its_target() {
    let world = need!(World::new());
    let mut source = world.source().await;
    // It has not come yet.
    let target = world.target(&source, "one").await;
    let gone = request(&target, "one", slow());
    drop(target);
    assert_eq!(source.call("PUT", "/v1/migration", &gone).await.unwrap().0, 202);
    let reason = stays(&source, State::Failed).await;
    assert!(reason.contains("refused"), "{reason}");
    for (id, state) in [("two", State::Mirroring), ("three", State::Copying)] {
        let mut target = world.target(&source, id).await;
        begin(&source, &target, id, slow()).await;
        until("the state", async || {
            let now = source.state().await?;
            (now == state || now == State::Copying).then_some(())
        })
        .await;
        target.kill();
        let reason = stays(&source, State::Failed).await;
        assert!(!reason.is_empty());
    }
    // A runner that was requested to stop is as good as dead.
    let mut target = world.target(&source, "four").await;
    begin(&source, &target, "four", slow()).await;
    source.is(State::Copying).await;
    target.terminate();
    let exit = target.exit().await;
    assert_eq!(exit.reason, ExitReason::MigrationFailed, "{exit:?}");
    let reason = stays(&source, State::Failed).await;
    assert!(reason.contains("asked to stop"), "{reason}");
    let target = world.target(&source, "five").await;
    moves(&mut source, &target, "five").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_without_its_source_ends() {
    let world = need!(World::new());
    let mut source = world.source().await;
    let mut target = world.target(&source, "one").await;
    begin(&source, &target, "one", slow()).await;
    source.is(State::Copying).await;
    source.kill();
    let exit = target.exit().await;
    assert_eq!(exit.reason, ExitReason::MigrationFailed, "{exit:?}");
    // And one that waits for a source that is not there does not start.
    let source = world.source().await;
    let mut world = world;
    let strange = Authority::generate().unwrap().0.peer_for("x", &[server_name(UID)], 3600).unwrap();
    let expired = world.pod.lab.authority.peer_for("x", &[server_name(UID)], -60).unwrap();
    for (identity, why) in [(strange, "is of another authority"), (expired, "has expired")] {
        world.pod.identity = Some(identity);
        let mut target = world.early_target(&source, "two").await;
        let exit = target.exit().await;
        assert_eq!(exit.reason, ExitReason::StartFailure, "{exit:?}");
        assert!(exit.message.contains(why), "{}", exit.message);
    }
    source.lives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_twin_is_let_in() {
    let world = need!(World::new());
    let source = world.source().await;
    let target = world.target(&source, "one").await;
    // A runner of another VM of the same authority, one of this VM of another authority, and one with an expired
    // certificate.
    let other = world.pod.lab.authority.peer_for("x", &[server_name("another")], 3600).unwrap();
    let strange = Authority::generate().unwrap().0.peer_for("x", &[server_name(UID)], 3600).unwrap();
    let expired = world.pod.lab.authority.peer_for("x", &[server_name(UID)], -60).unwrap();
    for (identity, why) in [(other, ""), (strange, "is of another authority"), (expired, "has expired")] {
        let pod = Pod { identity: Some(identity), ..world.pod.clone() };
        let thief = Runner::start(&pod, None);
        thief.ready().await;
        begin(&thief, &target, "one", slow()).await;
        let reason = stays(&thief, State::Failed).await;
        assert!(!reason.is_empty() && reason.contains(why), "{reason}");
        assert_eq!(migration(&target).await.state, State::Waiting, "nothing has happened there");
    }
    // The migration of another object.
    begin(&source, &target, "other", slow()).await;
    let reason = stays(&source, State::Failed).await;
    assert!(reason.contains("waits for the move one"), "{reason}");
    assert_eq!(migration(&target).await.state, State::Waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_differs_reports_the_difference() {
    let mut world = need!(World::new());
    let source = world.source().await;
    world.pod.spec = json!({ "guest": { "memorySlots": { "min": 1, "max": 4, "use": 1 } } });
    let mut target = world.target(&source, "one").await;
    begin(&source, &target, "one", fast()).await;
    let reason = stays(&source, State::Failed).await;
    assert!(reason.contains("the target: QEMU: ") && reason.contains("vmem0"), "{reason}");
    assert_eq!(target.exit().await.reason, ExitReason::MigrationFailed);
    for (change, why) in [
        (
            (|machine| machine.cpu_model = "486-v9".into()) as fn(&mut MachineInfo),
            "has no CPU model \"486-v9\"; it has ",
        ),
        (
            |machine| machine.cpu_features.extend(["avx512f".to_owned()]),
            "this host lacks features of the VM's CPU max: avx512f",
        ),
        (
            |machine| machine.machine_type = "pc-q35-99.0".into(),
            "the VM's machine type pc-q35-99.0 needs 99.0",
        ),
        (|machine| machine.accelerator = "kvm".into(), "this host has no kvm, which runs the VM"),
        (|machine| machine.devices = 99, "those of the VM are of revision 99"),
    ] {
        let exit = world.changed_target(&source, "two", change).await.exit().await;
        assert_eq!(exit.reason, ExitReason::StartFailure);
        assert!(exit.message.contains(why), "{}", exit.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cpu_model_with_a_name_migrates() {
    let mut world = need!(World::new());
    world.pod.spec = json!({ "cpuModel": "EPYC-v1" });
    let mut source = world.source().await;
    let machine = source.status().await.unwrap().machine.unwrap();
    assert_eq!((machine.cpu_model.as_str(), machine.cpu_vendor.as_str()), ("EPYC-v1", "AuthenticAMD"));
    assert!(machine.cpu_features.contains("avx2") && !machine.cpu_features.contains("erms"));
    // What the object has by then does not matter: the VM keeps its CPU.
    world.pod.spec = json!({ "cpuModel": "Haswell-v2" });
    let target = world.target(&source, "one").await;
    moves(&mut source, &target, "one").await;
    let there = target.status().await.unwrap().machine.unwrap();
    assert_eq!((there.cpu_model, there.cpu_features), (machine.cpu_model, machine.cpu_features));
}

#[tokio::test(flavor = "multi_thread")]
async fn features_that_the_guest_did_not_have_are_hidden() {
    let world = need!(World::new());
    let mut source = world.source().await;
    let mut less = source.status().await.unwrap().machine.unwrap().cpu_features;
    // As if the source had been an older host; no program of this guest uses these two.
    assert!(less.remove("mpx") && less.remove("3dnow"));
    let target = world.changed_target(&source, "one", |machine| machine.cpu_features = less.clone()).await;
    target.is(State::Waiting).await;
    moves(&mut source, &target, "one").await;
    assert_eq!(target.status().await.unwrap().machine.unwrap().cpu_features, less);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_of_an_older_runner_is_received() {
    let world = need!(World::new());
    let mut source = world.source().await;
    // What a runner of 0.2.0 reports that has /dev/vhost-net.
    let old = |machine: &mut MachineInfo| {
        machine.network.push_str(", vhost");
        (machine.devices, machine.vhost) = (0, false);
        machine.cpu_vendor.clear();
        machine.cpu_features.clear();
    };
    let target = world.changed_target(&source, "one", old).await;
    target.is(State::Waiting).await;
    moves(&mut source, &target, "one").await;
    assert_eq!(target.status().await.unwrap().machine.unwrap().devices, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_time_is_up() {
    let world = need!(World::new());
    let source = world.source().await;
    let target = world.target(&source, "one").await;
    begin(&source, &target, "one", MigrationParameters { completion_timeout_s: 3, ..slow() }).await;
    let reason = stays(&source, State::Failed).await;
    assert_eq!(reason, "not done within 3 s");
}

/// Whether the kernel lets users handle page faults, which post-copy needs.
fn post_copy_is_allowed() -> bool {
    std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1")
}

fn post_copy() -> MigrationParameters {
    MigrationParameters { post_copy: PostCopy::AfterFirstPass, bandwidth: Bytes::mib(64), ..fast() }
}

#[tokio::test(flavor = "multi_thread")]
async fn post_copy_is_dropped_with_a_reason() {
    let world = need!(World::new());
    let refused = !post_copy_is_allowed();
    need!(refused.then_some(()).ok_or_else(|| Missing::unavailable("vm.unprivileged_userfaultfd is 1")));
    let source = world.source().await;
    let target = world.target(&source, "one").await;
    // It is paused until it was checked.
    let link = Link::to(target.address, Hold::Bulk).await;
    begin_at(&source, link.address, "one", post_copy()).await;
    let dropped = until("what is dropped", async || {
        source.status().await?.migration.map(|migration| migration.dropped).filter(|all| !all.is_empty())
    })
    .await;
    assert!(dropped[0].contains("vm.unprivileged_userfaultfd=1"), "{dropped:?}");
    link.hold(Hold::Nothing);
    target.lives().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn post_copy_runs_the_guest_before_its_memory_is_there() {
    let world = need!(World::new());
    let allowed = post_copy_is_allowed();
    need!(allowed.then_some(()).ok_or_else(|| Missing::unavailable("vm.unprivileged_userfaultfd is not 1")));
    let mut source = world.source().await;
    let target = world.target(&source, "two").await;
    begin(&source, &target, "two", post_copy()).await;
    let exit = source.exit().await;
    assert_eq!(exit.reason, ExitReason::Migrated, "{exit:?}\n{}", source.log());
    assert!(source.log().contains("PostCopyActive"), "{}", source.log());
    target.is(State::Completed).await;
    target.lives().await;
}
