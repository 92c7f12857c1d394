//! Of several schedulers one leads; nothing is permitted twice when the lead changes.

use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::VirtualMachineMigrationSpec;
use neonvm_api::names::SCHEDULER_LEASE;
use neonvm_kit::call::Caller;
use neonvm_kit::lease::{Beside, Times};
use neonvm_kit::service;
use neonvm_scheduler::{Config, Mode};
use serde_json::json;

use crate::world::{Cluster, Scheduler, ask, call, eventually, ready, request};

fn config(cluster: &Cluster, identity: &str) -> Config {
    Config { mode: Mode::Extender, ..cluster.config(identity) }
}

async fn two_vms() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.node("n1", "10", "10Gi").await;
    cluster.vm("v", 1, 8, Some("n1")).await;
    cluster.vm("w", 1, 8, Some("n1")).await;
    cluster
}

async fn is_refused(cluster: &Cluster, scheduler: &Scheduler) {
    let mut agent = cluster.agent(scheduler).await;
    let (status, text) = call(&mut agent, Method::POST, "/", request("v", 8, None)).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "another replica leads\n"));
    let (status, text) = call(&mut agent, Method::GET, "/leadz", "").await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "another replica leads\n"));
}

/// A standby is ready when it has listed all objects, so that a rollout and a disruption budget count it.
async fn stands_by(cluster: &Cluster, scheduler: &Scheduler) {
    let mut agent = cluster.agent(scheduler).await;
    eventually("a standby that is ready", async || {
        let (status, _) = call(&mut agent, Method::GET, "/readyz", "").await;
        (status == StatusCode::OK).then_some(())
    })
    .await;
    is_refused(cluster, scheduler).await;
}

/// D20: killed between a request and its answer, or after it; the standby takes over.
#[tokio::test]
async fn d20_the_standby_takes_over_and_permits_nothing_twice() {
    let cluster = two_vms().await;
    let first = cluster.leader(config(&cluster, "first")).await;
    let second = cluster.scheduler(config(&cluster, "second")).await;
    stands_by(&cluster, &second).await;
    let lease = async || service::find(&cluster.client, "neonvm-system", SCHEDULER_LEASE).await.unwrap();
    assert_eq!(lease().await, Some(first.endpoint));

    let mut agent = cluster.agent(&first).await;
    assert_eq!(ask(&mut agent, "w", 1, None).await, 1);
    let (v, w) = (ask(&mut agent, "v", 7, None).await, 1);
    assert_eq!(v, 7);
    // The leader dies before it answers a request: what it wrote, if anything, has no effect.
    let lost = tokio::spawn({
        let mut agent = cluster.agent(&first).await;
        async move {
            agent
                .call(Method::POST, "/", request("w", 8, Some(1)).to_string().into(), Duration::from_secs(5))
                .await
        }
    });
    drop(first);
    let _ = lost.await;
    cluster.server.end_lease(SCHEDULER_LEASE).await;

    ready(&second).await;
    assert_eq!(lease().await, Some(second.endpoint));
    let mut agent = cluster.agent(&second).await;
    // The other VM comes first, and wants everything: `v` may hold its maximum of 8 until its agent has reported.
    let w = ask(&mut agent, "w", 8, Some(w)).await;
    assert!(v + w <= 10, "{v} + {w}");
    assert_eq!(w, 2);
    assert_eq!(ask(&mut agent, "v", 7, Some(v)).await, 7);
    let w = ask(&mut agent, "w", 8, Some(w)).await;
    assert_eq!(v + w, 10, "both agents have reported: nothing stays reserved for them");
    // And back: a leader that restarts has no state from before.
    let third = cluster.scheduler(config(&cluster, "third")).await;
    second.stop().await;
    ready(&third).await;
    let mut agent = cluster.agent(&third).await;
    assert_eq!(ask(&mut agent, "v", 8, Some(v)).await, 7);
}

/// Of a pair of pods the kube-scheduler of one leads: the extender beside it does, too, whatever the other would rather do.
#[tokio::test]
async fn the_extender_leads_where_its_kube_scheduler_does() {
    const LEASE: &str = "neonvm-kube-scheduler";
    let cluster = two_vms().await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "neonvm-system");
    let spec = |holder: &str| json!({ "holderIdentity": holder, "leaseDurationSeconds": 3600 });
    let lease = json!({ "metadata": { "name": LEASE }, "spec": spec("b_77aa") });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let beside = |identity: &str| {
        let beside = Beside { name: LEASE.into(), holder: format!("{identity}_") };
        Config { beside: Some(beside), ..config(&cluster, identity) }
    };
    let a = cluster.scheduler(beside("a")).await;
    let b = cluster.leader(beside("b")).await;
    stands_by(&cluster, &a).await;
    let mut agent = cluster.agent(&b).await;
    assert_eq!(ask(&mut agent, "w", 1, None).await, 1);
    assert_eq!(ask(&mut agent, "v", 7, None).await, 7);
    // It leads in the other pod from now on. The lease of the extender would last for a minute.
    leases
        .patch(LEASE, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec("a_5e2a") })))
        .await
        .unwrap();
    ready(&a).await;
    stands_by(&cluster, &b).await;
    let mut agent = cluster.agent(&a).await;
    let w = ask(&mut agent, "w", 8, Some(1)).await;
    assert_eq!(ask(&mut agent, "v", 7, Some(7)).await, 7);
    assert!(w + 7 <= 10, "{w} + 7");
    // Each kube-scheduler calls only the extender beside it: the one that does not lead gets no results and binds
    // nothing.
    let pod = cluster.pod("p", "1Gi").await;
    let names = json!({ "Pod": pod, "NodeNames": ["n1"] });
    let mut kube = Caller::new(b.plain, None, "");
    let (_, text) = call(&mut kube, Method::POST, "/extender/filter", names).await;
    assert!(text.contains("does not lead"), "{text}");
}

/// #555: with one scheduler that restarts, the agent's last permit is honoured.
#[tokio::test]
async fn d555_a_restart_keeps_what_agents_hold() {
    let cluster = two_vms().await;
    let first = cluster.leader(config(&cluster, "same")).await;
    let mut agent = cluster.agent(&first).await;
    assert_eq!(ask(&mut agent, "w", 2, None).await, 2);
    assert_eq!(ask(&mut agent, "v", 8, None).await, 8);
    drop(first);
    // The same name: it need not wait for the end of its own lease.
    let again = cluster.leader(config(&cluster, "same")).await;
    let dump = cluster.inspect(&again).await;
    assert_eq!(dump.nodes[0].cpu.reserved, 16_000, "both may hold their maximum");
    let mut agent = cluster.agent(&again).await;
    assert_eq!(ask(&mut agent, "w", 8, Some(2)).await, 2);
    assert_eq!(ask(&mut agent, "v", 8, Some(8)).await, 8);
    let dump = cluster.inspect(&again).await;
    assert_eq!((dump.nodes[0].cpu.reserved, dump.nodes[0].cpu.buffer), (10_000, 0));
}

/// A leader that cannot renew its lease stops, before another can have it.
#[tokio::test]
async fn a_leader_that_cannot_renew_permits_nothing() {
    let cluster = two_vms().await;
    let (seconds, retry) = (Duration::from_secs, Duration::from_millis(200));
    let lease = Times { duration: seconds(10), renew_deadline: seconds(8), retry };
    let config = Config { lease, ..config(&cluster, "a") };
    let scheduler = cluster.leader(config).await;
    let mut agent = cluster.agent(&scheduler).await;
    assert_eq!(ask(&mut agent, "v", 2, None).await, 2);
    cluster.server.stop();
    eventually("that it stops", async || {
        let (status, _) = call(&mut agent, Method::POST, "/", request("v", 2, Some(2))).await;
        (status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
}

#[tokio::test]
async fn migrations_are_made_when_asked_for_and_deleted_when_they_have_ended() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "10", "10Gi").await;
    cluster.node("n2", "10", "10Gi").await;
    let mut config = config(&cluster, "a");
    config.settings.do_migration = true;
    let _scheduler = cluster.leader(config).await;
    cluster.vm("fixed", 6, 6, Some("n1")).await;
    let vm = cluster.vm("v", 4, 4, Some("n1")).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let movable =
        json!({ "metadata": { "labels": { "autoscaling.neon.tech/auto-migration-enabled": "true" } } });
    pods.patch("v", &PatchParams::default(), &Patch::Merge(movable)).await.unwrap();
    let migrations: Api<VirtualMachineMigration> = Api::namespaced(cluster.client.clone(), "default");
    let made = eventually("the migration", async || migrations.get_opt("schedplugin-v").await.unwrap()).await;
    assert_eq!(made.spec.vm_name, vm.metadata.name.unwrap());
    assert!(made.spec.prevent_migration_to_same_host && made.spec.incremental && made.spec.auto_converge);
    assert_eq!((made.spec.completion_timeout, made.spec.allow_post_copy), (3600, false));
    assert_eq!(made.metadata.labels.as_ref().unwrap()["autoscaling.neon.tech/created-by-scheduler"], "true");
    // One that is not ours stays.
    let mut theirs = VirtualMachineMigration::new("theirs", VirtualMachineMigrationSpec::new("fixed"));
    theirs.metadata.namespace = Some("default".into());
    migrations.create(&PostParams::default(), &theirs).await.unwrap();
    for name in ["theirs", "schedplugin-v"] {
        let ended = json!({ "status": { "phase": "Failed" } });
        migrations.patch_status(name, &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    }
    eventually("its deletion", async || {
        // The node is as full as before: another may have been made at once.
        let found = migrations.get_opt("schedplugin-v").await.unwrap();
        found.is_none_or(|found| found.metadata.uid != made.metadata.uid).then_some(())
    })
    .await;
    assert!(migrations.get_opt("theirs").await.unwrap().is_some());
}
