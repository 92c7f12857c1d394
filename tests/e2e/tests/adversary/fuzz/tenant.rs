//! An author in one namespace: a user who may write VMs, migrations and autoscalers there, and nothing else.

use http::Method;
use kube::Client;
use neonvm_e2e::fuzz::{Random, Round, hostile, mutate, rounds, text};
use neonvm_test_support::{eventually, need, needs};
use serde_json::{Value, json};

use super::health::Health;
use super::objects::Objects;
use crate::attacker::{SYSTEM, client, refusal, send};
use crate::cluster::Cluster;
use crate::tenant::{NAMESPACE, tenant};

/// Collections that the tenant may write.
const COLLECTIONS: [(&str, &str); 3] = [
    ("vm.neon.tech/v1", "virtualmachines"),
    ("vm.neon.tech/v1", "virtualmachinemigrations"),
    ("autoscaling.aibrix.ai/v1alpha1", "podautoscalers"),
];

fn path(plural: &str, name: &str) -> String {
    let version = COLLECTIONS.iter().find(|(_, one)| *one == plural).map(|(version, _)| version).unwrap();
    format!("/apis/{version}/namespaces/{NAMESPACE}/{plural}{name}")
}

/// One operation of JSON Patch, which may fit.
fn operation(random: &mut Random) -> Value {
    let paths = [
        "/spec",
        "/spec/guest",
        "/spec/guest/cpus/use",
        "/metadata/labels",
        "/metadata/finalizers/-",
        "/status",
        "",
        "/spec/~2",
    ];
    let verbs = ["add", "replace", "remove", "move", "copy", "test", "x"];
    json!({"op": random.pick(&verbs), "path": random.pick(&paths), "from": random.pick(&paths), "value": hostile(random)})
}

/// Failures that a real Kubernetes answers as well: fields of applied documents that no schema has; a full disk.
fn is_usual(status: &kube::core::Status) -> bool {
    status.code == 507 || status.message.contains("failed to create typed patch object")
}

/// One request of the tenant. Returns the server's error if it is an internal one.
async fn act(tenant: &Client, objects: &Objects, random: &mut Random) -> Option<String> {
    let (object, plural) = objects.make(random);
    let name = format!("/f{}", random.below(6));
    let one = path(plural, &name);
    let (method, path, media, body) = match random.below(14) {
        0..=4 => (Method::POST, path(plural, ""), "application/json", Some(object)),
        5 => (
            Method::POST,
            format!("{}?dryRun=All&fieldValidation=Strict", path(plural, "")),
            "application/json",
            Some(object),
        ),
        6 => (Method::PUT, one, "application/json", Some(object)),
        7 => (
            Method::PATCH,
            format!("{one}?fieldManager=f&force=true"),
            "application/apply-patch+yaml",
            Some(object),
        ),
        8 | 9 => {
            let mut change = json!({"spec": object["spec"]});
            mutate(random, &mut change);
            (Method::PATCH, one, "application/merge-patch+json", Some(change))
        }
        10 => {
            let operations: Vec<Value> = (0..=random.below(4)).map(|_| operation(random)).collect();
            (Method::PATCH, one, "application/json-patch+json", Some(operations.into()))
        }
        11 => (
            Method::PATCH,
            format!("{one}/status"),
            "application/merge-patch+json",
            Some(json!({"status": hostile(random)})),
        ),
        12 => (
            Method::DELETE,
            one,
            "application/json",
            Some(json!({"gracePeriodSeconds": random.below(3), "propagationPolicy": "Background"})),
        ),
        _ => {
            let query: String = text(random).chars().filter(char::is_ascii_alphanumeric).take(200).collect();
            (
                Method::GET,
                format!("{}?limit={query}&labelSelector=a%3D{query}&fieldSelector={query}", path(plural, "")),
                "",
                None,
            )
        }
    };
    let shown = format!("{method} {path} {}", body.as_ref().map(Value::to_string).unwrap_or_default());
    match send(tenant, method, &path, media, body.as_ref()).await {
        // The server is not to fail whatever is written.
        Err(kube::Error::Api(status)) if status.code >= 500 && !is_usual(&status) => {
            Some(format!("{} {} for {shown:.2000}", status.code, status.message))
        }
        Err(kube::Error::Api(_)) | Ok(_) | Err(kube::Error::SerdeError(_)) => None,
        Err(error) => Some(format!("{error:?} for {shown:.2000}")),
    }
}

/// What the tenant may not do, still, and what its pods may not be.
async fn gained(admin: &Client, tenant: &Client) {
    for (method, path) in [
        (Method::GET, "/api/v1/secrets".to_owned()),
        (Method::GET, format!("/api/v1/namespaces/{NAMESPACE}/secrets")),
        (Method::GET, format!("/api/v1/namespaces/{SYSTEM}/secrets/neonvm-internal-ca")),
        (Method::GET, "/apis/vm.neon.tech/v1/virtualmachines".to_owned()),
        (Method::GET, "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines".to_owned()),
        (Method::GET, "/api/v1/nodes".to_owned()),
        (Method::DELETE, format!("/api/v1/namespaces/{NAMESPACE}")),
    ] {
        refusal(send(tenant, method, &path, "", None).await, "cannot");
    }
    let pods =
        send(admin, Method::GET, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), "", None).await.unwrap();
    for pod in pods["items"].as_array().unwrap() {
        let spec = &pod["spec"];
        let containers =
            ["initContainers", "containers"].iter().filter_map(|one| spec[*one].as_array()).flatten();
        let is_privileged = containers.clone().any(|one| one["securityContext"]["privileged"] == true);
        let images: Vec<&str> = containers.filter_map(|one| one["image"].as_str()).collect();
        let is_ours = images.iter().all(|image| images.first() == Some(image));
        let has_host = ["hostNetwork", "hostPID", "hostIPC"].iter().any(|one| spec[*one] == true);
        let account = spec["serviceAccountName"].as_str().unwrap_or("default");
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        let paths: Vec<&Value> = volumes.filter_map(|volume| volume.get("hostPath")).collect();
        assert!(
            !is_privileged && is_ours && !has_host && account == "default" && paths.is_empty(),
            "{pod:#}"
        );
    }
}

/// Deletes everything, and waits until it is gone: whatever was written, nothing hangs.
async fn clear(admin: &Client, tenant: &Client, round: &Round) {
    for (_, plural) in COLLECTIONS {
        send(tenant, Method::DELETE, &path(plural, ""), "", None).await.unwrap();
        let what = format!("no {plural} (tenant {} {})", round.seed, round.cases);
        eventually(&what, async || {
            let all = send(admin, Method::GET, &path(plural, ""), "", None)
                .await
                .map_err(|error| error.to_string())?;
            let items = all["items"].as_array().unwrap().clone();
            // What was written with a finalizer of the author's own stays until the author removes it.
            for item in &items {
                let name = item["metadata"]["name"].as_str().unwrap();
                let foreign = |one: &&Value| !one.as_str().unwrap_or_default().contains("neon.tech");
                if item["metadata"]["finalizers"].as_array().into_iter().flatten().any(|one| foreign(&one)) {
                    let change = json!({"metadata": {"finalizers": null}});
                    let place = path(plural, &format!("/{name}"));
                    let _ =
                        send(tenant, Method::PATCH, &place, "application/merge-patch+json", Some(&change))
                            .await;
                }
            }
            if items.is_empty() { Ok(()) } else { Err(format!("{:.2000}", Value::from(items))) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_gains_breaks_or_fills_nothing() {
    need!(needs::network_namespaces());
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let tenant = tenant(&cluster, &admin).await;
    let objects = Objects::read();
    let mut health = Health::from_cluster(&cluster, "tenant");
    for round in rounds("tenant") {
        let mut random = Random::new(round.seed);
        for _ in 0..round.cases {
            let failed = act(&tenant, &objects, &mut random).await;
            assert_eq!(failed, None, "tenant {} {}", round.seed, round.cases);
        }
        gained(&admin, &tenant).await;
        clear(&admin, &tenant, &round).await;
        tokio::task::block_in_place(|| health.check(&round));
    }
    health.report();
}
