//! C1, H3 and the low list: a user who may write VMs, migrations and autoscalers in one namespace, and has no other right.

use http::Method;
use kube::Client;
use kube::config::AuthInfo;
use neonvm_api::Power;
use neonvm_test_support::eventually;
use serde_json::{Value, json};

use crate::attacker::{client, configuration, post, refusal, send};
use crate::authority::vm;
use crate::cluster::Cluster;

/// The tenant's namespace.
pub(crate) const NAMESPACE: &str = "tenant";

fn vms(name: &str) -> String {
    format!("/apis/vm.neon.tech/v1/namespaces/{NAMESPACE}/virtualmachines{name}")
}

/// A client with the tenant's token; makes its namespace.
pub(crate) async fn tenant(cluster: &Cluster, admin: &Client) -> Client {
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let access = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let named = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAMESPACE}});
    let mut role = named("Role", "rbac.authorization.k8s.io/v1");
    role["rules"] = json!([
        {"apiGroups": ["vm.neon.tech"], "resources": ["virtualmachines", "virtualmachinemigrations"], "verbs": ["*"]},
        {"apiGroups": ["autoscaling.aibrix.ai"], "resources": ["podautoscalers"], "verbs": ["*"]}]);
    let mut binding = named("RoleBinding", "rbac.authorization.k8s.io/v1");
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAMESPACE});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": NAMESPACE, "namespace": NAMESPACE}]);
    for (path, object) in [
        ("/api/v1/namespaces".to_owned(), named("Namespace", "v1")),
        (format!("{core}/serviceaccounts"), named("ServiceAccount", "v1")),
        (format!("{access}/roles"), role),
        (format!("{access}/rolebindings"), binding),
    ] {
        post(admin, &path, &object).await.unwrap();
    }
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = post(admin, &format!("{core}/serviceaccounts/{NAMESPACE}/token"), &wanted).await.unwrap();
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    let mut config = configuration(cluster).await;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    neonvm_kit::client::from_config(config).unwrap()
}

/// Each field that has power, with a value that an attacker would choose.
fn attacks() -> Vec<(Power, &'static str, Value)> {
    let network = |field: &str, value: &str| json!({"extraNetwork": {"enable": true, field: value}});
    let privileged = json!({"name": "i", "image": "i", "securityContext": {"privileged": true}});
    vec![
        (Power::RunnerImage, "spec.runnerImage", json!({"runnerImage": "evil"})),
        (Power::InitContainers, "spec.extraInitContainers", json!({"extraInitContainers": [privileged]})),
        (Power::InitScript, "spec.initScript", json!({"initScript": "cat /etc/shadow"})),
        (Power::Overcommit, "spec.overcommit", json!({"overcommit": {"cpu": "1000", "memory": "1000"}})),
        (Power::Scheduler, "spec.schedulerName", json!({"schedulerName": "mine"})),
        (Power::ServiceAccount, "spec.serviceAccountName", json!({"serviceAccountName": "admin"})),
        (Power::Network, "spec.extraNetwork.interface", network("interface", "eth0")),
        (Power::Network, "spec.extraNetwork.multusNetwork", network("multusNetwork", "kube-system/host")),
    ]
}

async fn label(admin: &Client, power: Power, value: &str) {
    let change = json!({"metadata": {"labels": {power.label(): value}}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    send(admin, Method::PATCH, &path, "application/merge-patch+json", Some(&change)).await.unwrap();
}

/// C1, H3: what has power over the node is refused to an author, by name, with the policy that refuses it; when it is created, when
/// it is changed, and by the controller for what got past admission.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_carries_no_power_over_its_node() {
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let tenant = tenant(&cluster, &admin).await;
    post(&tenant, &vms(""), &vm("plain", &json!({}))).await.unwrap();
    for (power, field, spec) in attacks() {
        let policy = format!("{}=true", power.label());
        for refused in [
            post(&tenant, &vms(""), &vm("evil", &spec)).await,
            send(
                &tenant,
                Method::PATCH,
                &vms("/plain"),
                "application/merge-patch+json",
                Some(&json!({"spec": spec})),
            )
            .await,
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(field), "{field}: {error}");
            assert!(error.contains(&policy) || error.contains("immutable"), "{field}: {error}");
        }
    }
    // The tenant cannot allow it.
    let change = json!({"metadata": {"labels": {Power::RunnerImage.label(): "true"}}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    refusal(
        send(&tenant, Method::PATCH, &path, "application/merge-patch+json", Some(&change)).await,
        "cannot patch",
    );

    // Written while it was allowed: the controller looks again before it makes a pod. It may have made one before.
    for (power, ..) in attacks() {
        label(&admin, power, "true").await;
    }
    let spec = json!({"initScript": "id", "runnerImage": "evil", "nodeSelector": {"kubernetes.io/hostname": "none"}});
    let made =
        eventually("a namespace that allows", async || post(&tenant, &vms(""), &vm("late", &spec)).await)
            .await;
    assert_eq!(made["spec"]["runnerImage"], "evil");
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=vm.neon.tech/name%3Dlate");
    for (power, ..) in attacks() {
        label(&admin, power, "false").await;
    }
    send(&admin, Method::DELETE, &pods, "", None).await.unwrap();
    eventually("a VM that the controller refuses", async || {
        let late =
            send(&admin, Method::GET, &vms("/late"), "", None).await.map_err(|error| error.to_string())?;
        let text = late["status"].to_string();
        let named =
            text.contains("spec.runnerImage") && text.contains("allow.vm.neon.tech/runner-image=true");
        let all = send(&admin, Method::GET, &pods, "", None).await.map_err(|error| error.to_string())?;
        let has_pods = all["items"].as_array().is_some_and(|items| !items.is_empty());
        if named && !has_pods { Ok(()) } else { Err(format!("{text} {all:.1000}")) }
    })
    .await;
}

/// Low: `spec.tls` takes no secret of another user, neither its content nor its life; and the secret of one VM is not that of
/// another one.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_others_are_not_taken() {
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let tenant = tenant(&cluster, &admin).await;
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls-neonvm-thief"},
        "stringData": {"password": "mine"}});
    post(&admin, &secrets, &foreign).await.unwrap();
    let tls = json!({"tls": {"serverName": "db.example"}});
    for name in ["thief", "x", "x-tmp"] {
        post(&tenant, &vms(""), &vm(name, &tls)).await.unwrap();
    }
    let of = async |name: &str| send(&admin, Method::GET, &format!("{secrets}/{name}"), "", None).await;
    let certificate = async |name: &str| {
        let what = format!("the certificate {name}");
        eventually(&what, async || {
            let secret = of(name).await.map_err(|error| error.to_string())?;
            let text = secret["data"]["tls.crt"].as_str().map(str::to_owned);
            text.ok_or_else(|| secret.to_string())
        })
        .await
    };
    let (one, other) = (certificate("tls-neonvm-x").await, certificate("tls-neonvm-x-tmp").await);
    assert_ne!(one, other);
    let owner = |secret: &Value| secret["metadata"]["ownerReferences"][0]["name"].clone();
    assert_eq!(owner(&of("tls-neonvm-x").await.unwrap()), "x");
    assert_eq!(owner(&of("tls-neonvm-x-tmp").await.unwrap()), "x-tmp");
    eventually("a word about the foreign secret", async || {
        let vm =
            send(&admin, Method::GET, &vms("/thief"), "", None).await.map_err(|error| error.to_string())?;
        let text = vm["status"].to_string();
        if text.contains("tls-neonvm-thief") { Ok(()) } else { Err(text) }
    })
    .await;
    let kept = of("tls-neonvm-thief").await.unwrap();
    assert_eq!(kept["data"], json!({"password": "bWluZQ=="}), "{kept}");
    assert!(kept["metadata"]["ownerReferences"].is_null(), "{kept}");
    send(&tenant, Method::DELETE, &vms("/thief"), "", None).await.unwrap();
    eventually("the VM is gone", async || {
        matches!(send(&admin, Method::GET, &vms("/thief"), "", None).await, Err(kube::Error::Api(status)) if status.code == 404)
    })
    .await;
    assert!(of("tls-neonvm-thief").await.is_ok(), "the secret outlives the VM");
}
