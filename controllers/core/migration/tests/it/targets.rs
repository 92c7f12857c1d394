//! Targets of migrations: what they accept, and when they must not get the VM.

use k8s_openapi::api::core::v1::Pod;
use neonvm_api::names::annotation;
use neonvm_api::virtual_machine::{ActiveMigration, Phase};
use neonvm_api::{VirtualMachine, VirtualMachineMigration, VirtualMachineMigrationSpec};
use neonvm_core_migration::phases::plan_target;
use neonvm_core_vm_lifecycle::{Action, Mover, Moving, Observed, step};
use neonvm_types::runner_protocol::{
    MigrationRole, MigrationState, MigrationStatus, RunnerState, RunnerStatus, SizeRequest,
};
use neonvm_types::{Bytes, MilliCpu};

use crate::machine::{at, pod, runner, running, seen, settings, vm};

fn usage(vm: &VirtualMachine) -> String {
    let mut migration = VirtualMachineMigration::new("move", VirtualMachineMigrationSpec::new("db"));
    migration.metadata.uid = Some("uid-move".into());
    let size = SizeRequest { cpu: MilliCpu::new(500), memory: Bytes::gib(1) };
    let plan = plan_target(vm, &migration, "db-2", "n1", size, &settings()).unwrap();
    usage_of(&plan)
}

fn usage_of(plan: &Pod) -> String {
    plan.metadata.annotations.as_ref().unwrap()[annotation::USAGE].clone()
}

/// A VM that shrinks has what it has not given back yet: its pod counts that, and its target must have room for it.
#[test]
fn a_target_has_room_for_what_was_not_given_back() {
    let mut vm = vm();
    assert_eq!(usage(&vm), r#"{"cpu":"500m","memory":"1Gi"}"#);
    let status = vm.status.get_or_insert_default();
    status.phase = Some(Phase::Running);
    (status.cpus, status.memory_size) = (Some(MilliCpu::new(250)), Some(Bytes::gib(3).to_quantity()));
    assert_eq!(usage(&vm), r#"{"cpu":"500m","memory":"3Gi"}"#);
    assert_eq!(usage(&vm), usage_of(&neonvm_core_vm_lifecycle::pod::plan(&vm, "db-1", &settings()).unwrap()));
    let status = vm.status.get_or_insert_default();
    (status.cpus, status.memory_size) = (Some(MilliCpu::new(2000)), Some(Bytes::gib(1).to_quantity()));
    assert_eq!(usage(&vm), r#"{"cpu":"2","memory":"1Gi"}"#);
}

/// It was decided that the VM stays, because the source reported that its guest continued; then the source is gone. The
/// target has the whole guest, but in an older state.
#[test]
fn a_machine_that_was_decided_to_stay_is_not_given_to_the_target() {
    for (over, given) in [(true, false), (false, true)] {
        let mut vm = vm();
        let status = vm.status.get_or_insert_default();
        (status.phase, status.pod_name) = (Some(Phase::Migrating), "db-1".into());
        status.migration = Some(ActiveMigration {
            name: "move".into(),
            uid: "m".into(),
            target_pod_name: "db-2".into(),
            ..ActiveMigration::default()
        });
        let reported = MigrationStatus {
            id: "m".into(),
            role: MigrationRole::Target,
            state: MigrationState::Arrived,
            ..MigrationStatus::default()
        };
        let document =
            RunnerStatus { state: RunnerState::Preparing, migration: Some(reported), ..runner(500, 1) };
        let moving = Moving {
            mover: Some(Mover { ordered: true, over }),
            target: Some(running(pod(&vm, "db-2"))),
            target_runner: seen(document),
            ..Moving::default()
        };
        let observed = Observed { fresh: true, moving, suffix: "new01".into(), ..Observed::default() };
        let outcome = step(at(1000), &vm, &observed, &settings());
        let settled = outcome.actions.iter().any(|action| matches!(action, Action::Settle { .. }));
        assert_eq!(settled, given, "{:?}", outcome.actions);
        let failed = outcome.status.phase == Some(Phase::Failed);
        assert_eq!(failed, over, "{:?}", outcome.status);
    }
}
