//! Of two agents of one node one acts.

use crate::cluster::eventually;
use crate::guest::Guest;
use crate::world::{World, set};

/// Two agents that reach the guest at different ports, so that the test can distinguish them.
struct Two {
    world: World,
    second: Guest,
}

impl Two {
    async fn start() -> Self {
        let world = World::start(1).await;
        let second = Guest::start([127, 0, 0, 1].into(), None).await;
        Self { world, second }
    }

    fn seconds_settings(&self) -> serde_json::Value {
        let mut settings = self.world.settings();
        let (metrics, monitor) = self.second.ports();
        set(&mut settings, "metrics.system.port", metrics);
        set(&mut settings, "monitor.serverPort", monitor);
        settings
    }

    /// What each agent did so far at the guest.
    fn acts(&self) -> [usize; 2] {
        [&self.world.guests[0], &self.second].map(|g| g.metrics.count() + g.monitor.connections())
    }
}

/// These mostly wait: together they take as long as the longer one.
#[tokio::test]
async fn of_two_agents_one_acts() {
    tokio::join!(
        the_second_agent_waits_for_the_first(),
        an_agent_that_is_killed_or_loses_its_lease_is_replaced(),
    );
}

/// The second waits until the first has ended, and then need not wait for the end of its lease.
async fn the_second_agent_waits_for_the_first() {
    let two = Two::start().await;
    let world = &two.world;
    let first = world.agent().await;
    let second = World::run(world.config("b", &two.seconds_settings()));
    eventually("the second's metrics", async || {
        tokio::net::TcpStream::connect(second.metrics.address()).await.ok().map(drop)
    })
    .await;
    world.guests[0].load(3);
    world.settles("v0", 3).await;
    assert_eq!(two.acts()[1], 0);
    assert_eq!(world.inspect().await.agent, "a");
    assert!(
        second
            .metrics()
            .await
            .contains("autoscaling_agent_runners_current{is_endpoint=\"false\",state=\"ok\"} 0")
    );

    two.second.load(5);
    first.stop().await;
    let asked = world.scheduler.asked("v0-pod").len();
    let left = two.acts()[0];
    eventually("the second", async || (world.inspect().await.agent == "b").then_some(())).await;
    world.settles("v0", 5).await;
    assert_eq!(two.acts()[0], left, "the first does nothing any more");
    // What the first had requested, the second requests from the beginning.
    assert_eq!(world.scheduler.asked("v0-pod")[asked].1, None);
    assert!(second.is_alive());
}

/// The first is killed; and one that loses its lease to another while it cannot reach the API server stops as soon as
/// it reads the lease.
async fn an_agent_that_is_killed_or_loses_its_lease_is_replaced() {
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::api::{Api, Patch, PatchParams};
    let two = Two::start().await;
    let world = &two.world;
    let first = world.agent().await;
    let second = World::run(world.config("b", &two.seconds_settings()));
    world.settles("v0", 1).await;
    drop(first);
    eventually("the second", async || (two.acts()[1] > 0).then_some(())).await;
    let left = two.acts()[0];
    two.second.load(4);
    world.settles("v0", 4).await;
    assert_eq!(two.acts()[0], left);

    let leases: Api<Lease> = Api::namespaced(world.cluster.client.clone(), crate::cluster::NAMESPACE);
    let name = neonvm_api::names::agent_lease(crate::cluster::NODE);
    let stolen = serde_json::json!({ "spec": { "holderIdentity": "thief", "leaseDurationSeconds": 1 } });
    leases.patch(&name, &PatchParams::default(), &Patch::Merge(stolen)).await.unwrap();
    eventually("the end of all connections", async || (two.second.metrics.open() == 0).then_some(())).await;
    assert!(second.is_alive());
    // The client that took the lease does nothing more, and the lease expires.
    two.second.load(2);
    eventually("its return", async || (two.second.metrics.open() > 0).then_some(())).await;
    world.settles("v0", 2).await;
}
