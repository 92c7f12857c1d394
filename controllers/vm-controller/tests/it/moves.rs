//! Migrations: the whole way, and what goes wrong on it.

use neonvm_test_support::eventually;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use neonvm_api::migration::MigrationPhase;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{MigrationPolicy, VirtualMachineMigration};
use neonvm_types::runner_protocol::{Exit, ExitReason, MigrationState as S};
use serde_json::{Value, json};

use crate::cluster::{Cluster, phase_of};
use crate::runner::Machine;

impl Cluster {
    pub(crate) fn moves(&self) -> Api<VirtualMachineMigration> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn begin(&self, name: &str, vm: &str, more: Value) {
        let mut object = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
            "metadata": {"name": name}, "spec": {"vmName": vm}});
        object["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object: VirtualMachineMigration = serde_json::from_value(object).unwrap();
        self.moves().create(&PostParams::default(), &object).await.unwrap();
    }

    async fn until_move(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&VirtualMachineMigration) -> bool,
    ) -> VirtualMachineMigration {
        eventually(what, async || {
            let seen = self.moves().get(name).await.unwrap();
            if is(&seen) { Ok(seen) } else { Err(serde_json::to_string_pretty(&seen.status).unwrap()) }
        })
        .await
    }

    async fn until_reason(&self, name: &str, reason: &str) -> VirtualMachineMigration {
        self.until_move(name, reason, |seen| seen.status.as_ref().is_some_and(|now| now.reason == reason))
            .await
    }

    pub(crate) async fn until_over(&self, name: &str) -> VirtualMachineMigration {
        self.until_move(name, "over", is_over).await
    }

    /// Waits until the source was ordered to begin and its answer, with the mode, is noted: later reports may be lost. Returns
    /// the names of both pods.
    pub(crate) async fn until_started(&self, name: &str) -> (String, String) {
        let started = |seen: &VirtualMachineMigration| {
            let noted = seen.status.as_ref().is_some_and(|now| !now.mode.is_empty());
            noted && phase(seen) == Some(MigrationPhase::Running)
        };
        let status = self.until_move(name, "started", started).await.status.unwrap();
        (status.source_pod_name, status.target_pod_name)
    }

    /// What the two runners do when all goes well.
    pub(crate) async fn carry(&self, source: &str, target: &str) {
        self.copy(source, target);
        self.hand_over(source, target).await;
    }

    /// Everything comes to the target, and the source lets go.
    fn copy(&self, source: &str, target: &str) {
        let (from, to) = (self.node.machine(source), self.node.machine(target));
        from.moves(S::Copying);
        to.moves(S::Receiving);
        to.moves(S::Arrived);
        from.moves(S::HandingOver);
    }

    /// The VM continues at the target.
    async fn hand_over(&self, source: &str, target: &str) {
        let (from, to) = (self.node.machine(source), self.node.machine(target));
        to.moves(S::Completed);
        from.moves(S::Completed);
        self.node.end(source, Exit::new(ExitReason::Migrated, "it lives on")).await;
    }

    pub(crate) async fn only_pod(&self, vm: &str) -> Pod {
        eventually(&format!("one pod of {vm}"), async || {
            let pods = self.pods_of(vm).await;
            match &pods[..] {
                [pod] => Ok(pod.clone()),
                _ => Err(format!("{:?}", pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>())),
            }
        })
        .await
    }
}

fn phase(migration: &VirtualMachineMigration) -> Option<MigrationPhase> {
    migration.status.as_ref().and_then(|status| status.phase)
}

fn is_over(migration: &VirtualMachineMigration) -> bool {
    matches!(phase(migration), Some(MigrationPhase::Succeeded | MigrationPhase::Failed))
}

fn fails(runner: &Machine, why: &str) {
    runner.change(|status| {
        let migration = status.migration.as_mut().unwrap();
        (migration.state, migration.reason) = (S::Failed, why.to_owned());
    });
}

#[tokio::test]
async fn a_host_that_cannot_receive_the_vm_gets_no_pod() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.add_node("n2", false).await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
    let facts = json!({"accelerator": "tcg", "qemuVersion": "6.2.0"}).to_string();
    let published = json!({"metadata": {"annotations": {"vm.neon.tech/host-facts": facts}}});
    nodes.patch("n2", &PatchParams::default(), &Patch::Merge(&published)).await.unwrap();
    let known = |pod: &Pod| pod.annotations().get("vm.neon.tech/machine").cloned();
    let before =
        eventually("what the VM is made of, at its pod", async || known(&cluster.only_pod("db").await));
    assert!(before.await.contains("pc-q35-7.2"));
    cluster.begin("move", "db", json!({})).await;
    let done = cluster.until_over("move").await.status.unwrap();
    assert_eq!((done.phase, done.reason.as_str()), (Some(MigrationPhase::Failed), "Refused"));
    let why = "n2 has QEMU 6.2.0, and the VM's machine type pc-q35-7.2 needs 7.2";
    assert!(done.message.contains(why), "{}", done.message);
    // It had none, and the VM runs on in its own.
    assert_eq!(
        (done.target_node.as_str(), cluster.only_pod("db").await.name_any()),
        ("", done.source_pod_name)
    );
    cluster.until_phase("db", Phase::Running).await;
}

#[tokio::test]
async fn the_whole_way() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.begin("move", "db", json!({"maxBandwidth": "100Mi"})).await;
    let (source, target) = cluster.until_started("move").await;
    let vm = cluster.until_phase("db", Phase::Migrating).await;
    assert_eq!(vm.status.unwrap().migration.unwrap().target_pod_name, target);
    let made = cluster.pods().get(&target).await.unwrap();
    let owners: Vec<(&str, Option<bool>)> =
        made.owner_references().iter().map(|owner| (owner.kind.as_str(), owner.controller)).collect();
    assert_eq!(owners, [("VirtualMachineMigration", Some(true)), ("VirtualMachine", None)]);
    // A size that is requested now waits.
    cluster.patch("db", json!({"spec": {"guest": {"memorySlots": {"use": 2}}}})).await;
    cluster.carry(&source, &target).await;
    let done = cluster.until_over("move").await.status.unwrap();
    assert_eq!((done.phase, done.reason.as_str()), (Some(MigrationPhase::Succeeded), "Completed"));
    assert_eq!((done.info.downtime_ms, done.info.passes, done.info.status.as_str()), (42, 3, "completed"));
    assert_eq!((done.source_node.as_str(), done.target_node.as_str()), ("n1", "n2"));
    assert!(done.mode.contains("\"bandwidth\":\"100Mi\""), "{}", done.mode);
    assert!(done.start_time.is_some() && done.completion_time.is_some());
    let vm = cluster
        .until("db", "at the target with its new size", |vm| {
            let status = vm.status.clone().unwrap();
            status.pod_name == target && status.memory_size.is_some_and(|size| size.to_string() == "2Gi")
        })
        .await;
    let status = vm.status.clone().unwrap();
    assert_eq!((status.node.as_str(), status.restart_count, &status.migration), ("n2", 0, &None));
    let pod = cluster.only_pod("db").await;
    assert_eq!(pod.name_any(), target);
    let owners: Vec<String> = pod.owner_references().iter().map(|owner| owner.kind.clone()).collect();
    assert_eq!(owners, ["VirtualMachine"]);
    cluster.until_settled("db").await;
    cluster.server.until_quiet().await;
    assert!(
        cluster.secrets().get_opt(&source).await.unwrap().is_none(),
        "the secret of the old runner is left"
    );
    for object in ["db", "move"] {
        cluster.server.until_events(object, &["MigrationStarted", "Switched", "Migrated"]).await;
    }
    // And back, although the VM has been a target.
    cluster.begin("back", "db", json!({})).await;
    let (source, target) = cluster.until_started("back").await;
    cluster.carry(&source, &target).await;
    assert_eq!(phase(&cluster.until_over("back").await), Some(MigrationPhase::Succeeded));
}

/// A VM whose CPUs are plugged has as many queues at its disks as CPUs at its boot, at each place it comes to.
#[tokio::test]
async fn the_target_learns_with_how_many_cpus_the_vm_booted() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    let cpus = json!({"min": 1, "use": 2, "max": 4});
    cluster.create("db", json!({"cpuScalingMode": "QmpScaling", "guest": {"cpus": cpus}})).await;
    cluster.until_settled("db").await;
    cluster.patch("db", json!({"spec": {"guest": {"cpus": {"use": 3}}}})).await;
    cluster.until_settled("db").await;
    for name in ["move", "back"] {
        cluster.begin(name, "db", json!({})).await;
        let (source, target) = cluster.until_started(name).await;
        let secret = cluster.secrets().get(&target).await.unwrap();
        let config: Value = serde_json::from_slice(&secret.data.unwrap()["vm.json"].0).unwrap();
        assert_eq!(config["receive"]["diskQueues"], 2, "{name}: {config}");
        cluster.carry(&source, &target).await;
        assert_eq!(phase(&cluster.until_over(name).await), Some(MigrationPhase::Succeeded));
        cluster.until_settled("db").await;
    }
}

#[tokio::test]
async fn what_fails_leaves_the_machine_where_it_was() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    for (number, reason) in [(0, "TransferFailed"), (1, "TimedOut"), (2, "TargetFailed")] {
        let name = format!("move-{number}");
        // Otherwise a target could be ready before its preparation was observed.
        cluster.node.cut_off.store(reason == "TargetFailed", Ordering::Relaxed);
        cluster.begin(&name, "db", json!({})).await;
        if reason == "TargetFailed" {
            let target = cluster.until_reason(&name, "Preparing").await.status.unwrap().target_pod_name;
            let made = async || cluster.pods().get_opt(&target).await.unwrap();
            neonvm_test_cluster::eventually("the target", made).await;
            let why = "the machine type pc-q35-9.0 is not known";
            cluster.node.refuse(&target, &Exit::new(ExitReason::StartFailure, why)).await;
        } else {
            let (source, _) = cluster.until_started(&name).await;
            let text = if reason == "TimedOut" { "not done within 3600 s" } else { "QEMU: broken pipe" };
            fails(&cluster.node.machine(&source), text);
        }
        let over = cluster.until_over(&name).await.status.unwrap();
        assert_eq!((over.phase, over.reason.as_str()), (Some(MigrationPhase::Failed), reason), "{over:?}");
        let vm = cluster.until_phase("db", Phase::Running).await.status.unwrap();
        assert_eq!((vm.pod_name.as_str(), vm.migration, vm.restart_count), (home.as_str(), None, 0));
        cluster.only_pod("db").await;
        cluster.server.until_events(&name, &["MigrationFailed"]).await;
    }
}

#[tokio::test]
async fn a_target_that_never_starts() {
    let mut cluster = Cluster::start().await;
    cluster.config.settings.migration.prepare_timeout = 1;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.node.cut_off.store(true, Ordering::Relaxed);
    cluster.begin("move", "db", json!({})).await;
    let over = cluster.until_over("move").await.status.unwrap();
    assert_eq!((over.reason.as_str(), over.phase), ("TargetFailed", Some(MigrationPhase::Failed)));
    assert!(over.message.starts_with("target did not start: "), "{}", over.message);
    cluster.until_phase("db", Phase::Running).await;
    cluster.only_pod("db").await;
}

#[tokio::test]
async fn called_off_before_and_too_late() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    let cancel = async |name: &str| {
        let change = json!({"spec": {"cancel": true}});
        cluster.moves().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    // While memory is copied, by the field.
    cluster.begin("a", "db", json!({})).await;
    let (source, _) = cluster.until_started("a").await;
    cluster.node.machine(&source).moves(S::Copying);
    cancel("a").await;
    assert_eq!(cluster.until_over("a").await.status.unwrap().reason, "Cancelled");
    assert_eq!(cluster.only_pod("db").await.name_any(), home);
    // By deletion; nothing is left to wait for.
    cluster.begin("b", "db", json!({})).await;
    let (source, _) = cluster.until_started("b").await;
    cluster.moves().delete("b", &DeleteParams::default()).await.unwrap();
    eventually("the end of b", async || cluster.moves().get_opt("b").await.unwrap().is_none()).await;
    assert_eq!(cluster.node.machine(&source).state(), Some(S::Cancelled));
    cluster.until_phase("db", Phase::Running).await;
    cluster.only_pod("db").await;
    // The VM has left: it succeeds instead.
    cluster.begin("c", "db", json!({})).await;
    let (source, target) = cluster.until_started("c").await;
    cluster.node.machine(&source).moves(S::HandingOver);
    cancel("c").await;
    cluster
        .until_move("c", "too late", |seen| seen.status.as_ref().unwrap().message.contains("too late"))
        .await;
    cluster.hand_over(&source, &target).await;
    assert_eq!(phase(&cluster.until_over("c").await), Some(MigrationPhase::Succeeded));
}

/// D9: deleting a waiting migration affects no other. The line, and why one waits, are reported.
#[tokio::test]
async fn two_people_move_one_machine() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.begin("first", "db", json!({})).await;
    let (source, target) = cluster.until_started("first").await;
    for name in ["second", "third"] {
        cluster.begin(name, "db", json!({})).await;
        let waits = cluster.until_reason(name, "Queued").await.status.unwrap();
        assert_eq!(waits.message, "waits for migration first of the same VM");
    }
    cluster.moves().delete("third", &DeleteParams::default()).await.unwrap();
    let change = json!({"spec": {"cancel": true}});
    cluster.moves().patch("second", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    assert_eq!(cluster.until_over("second").await.status.unwrap().reason, "Cancelled");
    assert_eq!(phase_of(&cluster.vms().get("db").await.unwrap()), Some(Phase::Migrating));
    cluster.begin("fourth", "db", json!({})).await;
    cluster.carry(&source, &target).await;
    assert_eq!(phase(&cluster.until_over("first").await), Some(MigrationPhase::Succeeded));
    let (source, target) = cluster.until_started("fourth").await;
    cluster.carry(&source, &target).await;
    assert_eq!(phase(&cluster.until_over("fourth").await), Some(MigrationPhase::Succeeded));
}

#[tokio::test]
async fn a_controller_that_is_killed_in_each_phase() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    for kill in 0..5 {
        let name = format!("move-{kill}");
        let again = |now: bool, controller| {
            if now {
                drop(controller);
                cluster.controller()
            } else {
                controller
            }
        };
        cluster.begin(&name, "db", json!({})).await;
        controller = again(kill == 0, controller);
        cluster.until_phase("db", Phase::Migrating).await;
        controller = again(kill == 1, controller);
        let (source, target) = cluster.until_started(&name).await;
        controller = again(kill == 2, controller);
        cluster.copy(&source, &target);
        controller = again(kill == 3, controller);
        if kill == 4 {
            // The switchover happens while no controller runs.
            drop(controller);
            cluster.hand_over(&source, &target).await;
            controller = cluster.controller();
        } else {
            cluster.hand_over(&source, &target).await;
        }
        let over = cluster.until_over(&name).await.status.unwrap();
        assert_eq!(
            (over.phase, over.info.downtime_ms),
            (Some(MigrationPhase::Succeeded), 42),
            "{kill}: {over:?}"
        );
        assert_eq!(cluster.only_pod("db").await.name_any(), target);
        let vm = cluster.until_settled("db").await.status.unwrap();
        assert_eq!((vm.pod_name, vm.restart_count), (target, 0));
    }
}

/// Whichever runner is left and has all of the VM keeps it.
#[tokio::test]
async fn a_verdict_for_the_runner_that_is_left() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    // The source dies when everything is at the target.
    cluster.begin("a", "db", json!({})).await;
    let (source, target) = cluster.until_started("a").await;
    cluster.node.machine(&source).moves(S::Switching);
    cluster.node.machine(&target).moves(S::Arrived);
    cluster.until_reason("a", "Switching").await;
    cluster.node.kill(&source).await;
    assert_eq!(phase(&cluster.until_over("a").await), Some(MigrationPhase::Succeeded));
    assert_eq!(cluster.node.machine(&target).state(), Some(S::Completed));
    assert_eq!(cluster.only_pod("db").await.name_any(), target);
    cluster.until_settled("db").await;
    // The target dies before it has let the guest run.
    cluster.begin("b", "db", json!({})).await;
    let (source, target) = cluster.until_started("b").await;
    cluster.node.machine(&source).moves(S::HandingOver);
    cluster.node.end(&target, Exit::new(ExitReason::MigrationFailed, "cut off")).await;
    let over = cluster.until_over("b").await.status.unwrap();
    assert_eq!(over.reason, "TransferFailed");
    let vm = cluster.until_phase("db", Phase::Running).await.status.unwrap();
    assert_eq!((vm.pod_name, vm.restart_count), (source, 0));
    // Both die: the VM has crashed, and is started again.
    cluster.begin("c", "db", json!({})).await;
    let (source, target) = cluster.until_started("c").await;
    cluster.node.machine(&source).moves(S::Copying);
    cluster.until_reason("c", "Copying").await;
    cluster.node.kill(&source).await;
    cluster.node.end(&target, Exit::new(ExitReason::MigrationFailed, "the source is gone")).await;
    assert_eq!(cluster.until_over("c").await.status.unwrap().reason, "MachineEnded");
    let vm = cluster.until_settled("db").await.status.unwrap();
    assert_eq!(vm.restart_count, 1);
    assert!(vm.pod_name != source && vm.pod_name != target);
    cluster.only_pod("db").await;
}

#[tokio::test]
async fn a_machine_that_is_deleted_on_its_way_and_one_that_never_was() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.begin("missing", "ghost", json!({})).await;
    assert_eq!(cluster.until_over("missing").await.status.unwrap().reason, "MachineMissing");
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.begin("move", "db", json!({})).await;
    cluster.until_started("move").await;
    cluster.vms().delete("db", &DeleteParams::default()).await.unwrap();
    // Its migration is its own: it goes with it, finalizer and all.
    eventually("nothing of the VM", async || {
        cluster.vms().get_opt("db").await.unwrap().is_none()
            && cluster.moves().get_opt("move").await.unwrap().is_none()
            && cluster.pods_of("db").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn policies_set_parameters() {
    let cluster = Cluster::start().await;
    let policies: Api<MigrationPolicy> = Api::all(cluster.client.clone());
    for (name, spec) in [
        ("all", json!({"downtimeLimitMs": 100})),
        ("red", json!({"matchLabels": {"colour": "red"}, "maxBandwidth": "10Mi", "postCopy": "on-timeout"})),
    ] {
        let object = json!({"apiVersion": "vm.neon.tech/v1", "kind": "MigrationPolicy", "metadata": {"name": name},
            "spec": spec});
        policies.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.patch("db", json!({"metadata": {"labels": {"colour": "red"}}})).await;
    cluster.begin("wrong", "db", json!({"policy": "none"})).await;
    let refused = cluster.until_over("wrong").await.status.unwrap();
    assert_eq!(
        (refused.reason.as_str(), refused.message.as_str()),
        ("Refused", "policy none does not exist")
    );
    for (name, more, policy, part) in [
        ("best", json!({}), "red", "\"bandwidth\":\"10Mi\""),
        ("named", json!({"policy": "all"}), "all", "\"downtimeLimitMs\":100"),
        ("own", json!({"channels": 2, "postCopy": "never"}), "red", "\"channels\":2"),
    ] {
        cluster.begin(name, "db", more).await;
        let (source, target) = cluster.until_started(name).await;
        cluster.carry(&source, &target).await;
        let over = cluster.until_over(name).await.status.unwrap();
        assert_eq!(over.policy, policy, "{name}");
        assert!(over.mode.contains(part), "{name}: {}", over.mode);
        cluster.until_settled("db").await;
    }
}
