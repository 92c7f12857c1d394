//! C2, C3, H2, M5: what is gained with the rights of one node, of a VM's author, or with a runner's key.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use neonvm_api::runner_pod::identity_secret;
use neonvm_kit::authority::{SCHEDULER_NAME, agent_name, trusted};
use neonvm_kit::ca::{Authority, Identity, Purpose};
use neonvm_kit::call::Caller;
use neonvm_kit::certificate::{Certificate, CertificateFor, Validity, request};
use neonvm_kit::{service, tls};
use neonvm_test_support::eventually;
use serde_json::{Value, json};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::attacker::{SYSTEM, VMS, apply_file, client, post, refusal, send, stolen_agent};
use crate::cluster::Cluster;

/// Leases, in which services write where they are reached.
const SCHEDULER_LEASE: &str = "neonvm-scheduler";
const AGENT_LEASE: &str = "neonvm-agent-n1";
/// Time for an answer of a service.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);
/// A VM's pod with this image is bound to a node and never runs.
const NO_IMAGE: &str = "127.0.0.1:1/none:1";

pub(crate) fn vm(name: &str, spec: &Value) -> Value {
    let mut vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"guest": {"cpus": {"min": "250m", "max": 1, "use": "250m"}, "memorySlotSize": "128Mi",
            "memorySlots": {"min": 1, "max": 2, "use": 1}, "rootDisk": {"image": NO_IMAGE}}}});
    for (key, value) in spec.as_object().unwrap() {
        vm["spec"][key] = value.clone();
    }
    vm
}

/// A VM whose pod is bound to a node; the pod's name.
pub(crate) async fn bound(admin: &Client, name: &str, node: &str) -> String {
    let spec = json!({"nodeSelector": {"kubernetes.io/hostname": node}});
    post(admin, VMS, &vm(name, &spec)).await.unwrap();
    eventually(&format!("VM {name} on {node}"), async || {
        let vm: Value = send(admin, Method::GET, &format!("{VMS}/{name}"), "", None).await.unwrap();
        let status = &vm["status"];
        (status["node"] == node).then(|| status["podName"].as_str().unwrap().to_owned())
    })
    .await
}

async fn scale(who: &Client, name: &str, change: Value) -> kube::Result<Value> {
    send(who, Method::PATCH, &format!("{VMS}/{name}"), "application/merge-patch+json", Some(&change)).await
}

/// The answer of a service to a client with this certificate; an error if there is no connection with it.
async fn answer(
    admin: &Client,
    identity: &Identity,
    (lease, name): (&str, &str),
    (method, path, body): (Method, &str, Value),
) -> Result<(StatusCode, String), String> {
    let authority = trusted(admin, SYSTEM).await.unwrap();
    let config = tls::client(Some(identity), authority.as_bytes()).unwrap();
    let endpoint = service::find(admin, SYSTEM, lease).await.unwrap().unwrap();
    let mut caller = Caller::new(endpoint, Some(Arc::new(config)), name);
    let (status, body) = caller
        .call(method, path, body.to_string().into(), WITHIN)
        .await
        .map_err(|error| error.to_string())?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn permit(pod: &str) -> Value {
    let amount = json!({"vCPUs": 1, "mem": "1Gi"});
    json!({"protoVersion": 7, "pod": {"namespace": "default", "name": pod}, "computeUnit": amount,
        "resources": amount, "lastPermit": null, "metrics": {"loadAvg1M": 0.5}})
}

/// C3: the token and the certificates of the agent of one node.
#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_one_agent_end_at_its_node() {
    let cluster = Cluster::start(2);
    let admin = client(&cluster).await;
    apply_file(&admin, "deploy/manifests/agent.yaml").await;
    let (_, pod) = tokio::join!(bound(&admin, "own", "n1"), bound(&admin, "victim", "n2"));
    let agent = stolen_agent(&cluster, &admin, Some("n1")).await;

    // No key, and nothing to sign with.
    for secret in ["neonvm-internal-ca", "neonvm-vm-ca"] {
        let path = format!("/api/v1/namespaces/{SYSTEM}/secrets/{secret}");
        refusal(send(&agent, Method::GET, &path, "", None).await, "cannot get resource \"secrets\"");
    }
    refusal(send(&agent, Method::GET, "/api/v1/secrets", "", None).await, "cannot list resource \"secrets\"");

    // VMs of other nodes, and everything but the size of its own.
    let size = || json!({"spec": {"guest": {"cpus": {"use": "500m"}}}});
    refusal(scale(&agent, "victim", size()).await, "the VM is on node n2; the agent of n1");
    let image = json!({"spec": {"runnerImage": "evil"}});
    refusal(scale(&agent, "victim", image.clone()).await, "the VM is on node n2");
    refusal(scale(&agent, "own", image).await, "not spec.runnerImage");
    let label = json!({"metadata": {"labels": {"autoscaling.neon.tech/enabled": "false"}}});
    refusal(scale(&agent, "own", label).await, "agents may change the size of a VM only");
    scale(&agent, "own", size()).await.unwrap();
    let unbound = stolen_agent(&cluster, &admin, None).await;
    refusal(scale(&unbound, "own", size()).await, "does not name one node");

    // Certificates of others.
    for (wanted, why) in [
        (CertificateFor::agent("n2", Purpose::Client), "the token is of a pod on n1, not on n2"),
        (CertificateFor::agent("n2", Purpose::Server), "the token is of a pod on n1, not on n2"),
        (CertificateFor::scheduler(), "is not the service account neonvm-scheduler"),
        (CertificateFor::operator(), "may not inspect the signer"),
    ] {
        let denied = request(&agent, &wanted).await.unwrap_err().to_string();
        assert!(denied.contains(why), "{denied}");
    }

    // Its own gets no permits for pods of other nodes.
    let own = request(&agent, &CertificateFor::agent("n1", Purpose::Client)).await.unwrap();
    let validity = Validity::from_identity(&own).unwrap();
    assert!(validity.until - validity.from <= 25 * 3600, "{validity:?}");
    let scheduler = (SCHEDULER_LEASE, SCHEDULER_NAME);
    let (status, text) = answer(&admin, &own, scheduler, (Method::POST, "/", permit(&pod))).await.unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("the pod is on node n2"), "{text}");
    let (status, _) =
        answer(&admin, &own, scheduler, (Method::GET, "/v1/inspect", Value::Null)).await.unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN);
}

async fn secret(admin: &Client, namespace: &str, name: &str) -> Identity {
    let api: Api<Secret> = Api::namespaced(admin.clone(), namespace);
    let secret = eventually(&format!("the secret {name}"), async || api.get_opt(name).await.unwrap()).await;
    let data = secret.data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    Identity { certificate: text("tls.crt"), key: text("tls.key") }
}

/// Whether a client connects to a server that shows this certificate.
async fn connects(config: ClientConfig, server: &Identity, name: &str) -> Result<(), String> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let acceptor = TlsAcceptor::from(Arc::new(tls::open_server(server).unwrap()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let (_, connected) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
    connected.map(drop).map_err(|error| error.to_string())
}

/// H2: the author of a VM chooses the name in its certificate.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_guest_passes_for_no_service() {
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let named = |name: &str| vm("db", &json!({"tls": {"serverName": name}}));
    for name in ["scheduler.neonvm", "n1.agent.neonvm", "*.neonvm", "SCHEDULER.NEONVM.", "u.vm.neon.tech"] {
        let refused = post(&admin, VMS, &named(name)).await.unwrap_err().to_string();
        assert!(refused.contains("is a name of the services of the cluster"), "{name}: {refused}");
    }
    post(&admin, VMS, &named("db.example")).await.unwrap();
    let guest = secret(&admin, "default", "tls-neonvm-db").await;

    // Services do not accept it from a client.
    for service in [(SCHEDULER_LEASE, SCHEDULER_NAME), (AGENT_LEASE, agent_name("n1").as_str())] {
        let answered = answer(&admin, &guest, service, (Method::GET, "/v1/inspect", Value::Null)).await;
        assert!(answered.is_err(), "{answered:?}");
    }
    // What agents and operators trust does not accept it from a server, not even with the name of a service in it: here signed
    // with the key of that authority itself.
    let operator = Certificate::obtain(&admin, SYSTEM, CertificateFor::operator()).await.unwrap();
    let kept = secret(&admin, SYSTEM, "neonvm-vm-ca").await;
    let vms = Authority::from_pem(&kept.certificate, &kept.key).unwrap();
    let forged = vms.server(SCHEDULER_NAME, &[SCHEDULER_NAME.to_owned()]).unwrap();
    for (server, name) in [(&guest, "db.example"), (&forged, SCHEDULER_NAME)] {
        let refused = connects(operator.client_config().unwrap(), server, name).await.unwrap_err();
        assert!(refused.contains("UnknownIssuer"), "{refused}");
    }
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), SYSTEM);
    for name in ["neonvm-internal-ca", "neonvm-vm-ca"] {
        let text = serde_json::to_string(&maps.get(name).await.unwrap()).unwrap();
        assert!(!text.contains("PRIVATE KEY"), "{name}");
    }
}

/// M5: a user who may read secrets beside a VM has its runner's key.
#[tokio::test(flavor = "multi_thread")]
async fn a_runners_key_opens_nothing_else_and_not_for_long() {
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let pod = bound(&admin, "db", "n1").await;
    let runner = secret(&admin, "default", &identity_secret(&pod)).await;
    let validity = Validity::from_identity(&runner).unwrap();
    // It is predated for clocks that differ.
    assert!(validity.until - validity.from <= 25 * 3600, "{validity:?}");
    for (service, what) in [
        ((SCHEDULER_LEASE, SCHEDULER_NAME), (Method::GET, "/v1/inspect", Value::Null)),
        ((SCHEDULER_LEASE, SCHEDULER_NAME), (Method::POST, "/", permit(&pod))),
        ((SCHEDULER_LEASE, SCHEDULER_NAME), (Method::POST, "/extender/filter", json!({}))),
        ((AGENT_LEASE, agent_name("n1").as_str()), (Method::GET, "/v1/inspect", Value::Null)),
    ] {
        let (status, text) = answer(&admin, &runner, service, what).await.unwrap();
        assert_eq!(status, StatusCode::FORBIDDEN, "{service:?}: {text}");
    }
    let operator = Certificate::obtain(&admin, SYSTEM, CertificateFor::operator()).await.unwrap();
    let refused = connects(operator.client_config().unwrap(), &runner, SCHEDULER_NAME).await.unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");
}
