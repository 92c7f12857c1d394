//! Certificates of services, operators and runners, signed by a controller with the rights of its role.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::runner_pod::identity_secret;
use neonvm_kit::ca::{Identity, Purpose};
use neonvm_kit::certificate::{Certificate, CertificateFor, request};
use neonvm_kit::tls::{common_name, dns_names, organisations};
use neonvm_test_cluster::{NAMESPACE, apply, documents, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use crate::cluster::Cluster;

async fn client(kubeconfig: &Path) -> Client {
    neonvm_kit::client::connect(Some(kubeconfig)).await.unwrap()
}

/// Common name, organisations and DNS names.
fn names(identity: &Identity) -> (String, Vec<String>, Vec<String>) {
    let der = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    (common_name(&der), organisations(&der), dns_names(&der))
}

#[tokio::test(flavor = "multi_thread")]
async fn services_get_certificates_of_their_own_and_no_others() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.server.kubeconfig_of_service("agent").await;
    cluster.server.kubeconfig_of_service("scheduler").await;
    let agent = client(&cluster.server.kubeconfig_of_pod("neonvm-agent", "n1").await).await;
    let own =
        Certificate::at_start(&agent, NAMESPACE, CertificateFor::agent("n1", Purpose::Client)).await.unwrap();
    own.client_config().unwrap();
    let client_identity = request(&agent, &CertificateFor::agent("n1", Purpose::Client)).await.unwrap();
    let expected = ("neonvm-agent:n1".to_owned(), vec!["neonvm:agents".to_owned()], vec![]);
    assert_eq!(names(&client_identity), expected);
    let server_identity = request(&agent, &CertificateFor::agent("n1", Purpose::Server)).await.unwrap();
    let expected = ("neonvm-agent:n1".to_owned(), vec![], vec!["n1.agent.neonvm".to_owned()]);
    assert_eq!(names(&server_identity), expected);
    let scheduler = client(&cluster.server.kubeconfig_of_pod("neonvm-scheduler", "n1").await).await;
    let identity = request(&scheduler, &CertificateFor::scheduler()).await.unwrap();
    assert_eq!(names(&identity).2, ["scheduler.neonvm", "localhost"]);
    for (who, wanted, why) in [
        (&agent, CertificateFor::agent("n2", Purpose::Client), "the token is of a pod on n1, not on n2"),
        (&agent, CertificateFor::scheduler(), "is not the service account neonvm-scheduler"),
        (&scheduler, CertificateFor::agent("n1", Purpose::Client), "is not the service account neonvm-agent"),
        (&agent, CertificateFor::operator(), "may not inspect the signer vm.neon.tech/operators"),
    ] {
        let denied = request(who, &wanted).await.unwrap_err().to_string();
        assert!(denied.contains("rule ") && denied.contains(why), "{denied}");
    }
    cluster.server.nothing_forbidden().await;
    // The key stays where it is.
    for who in [&agent, &scheduler] {
        let secrets: Api<Secret> = Api::namespaced(who.clone(), NAMESPACE);
        let refused = secrets.get("neonvm-internal-ca").await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    }
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    for name in ["neonvm-internal-ca", "neonvm-vm-ca"] {
        let data = maps.get(name).await.unwrap().data.unwrap();
        assert!(data.len() == 1 && data["ca.crt"].starts_with("-----BEGIN CERTIFICATE"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_who_has_the_right() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    for object in documents("manifests/users.yaml") {
        apply(&cluster.client, &object).await;
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "ann", "namespace": NAMESPACE}});
    apply(&cluster.client, &account).await;
    let subject = json!({"kind": "ServiceAccount", "name": "ann", "namespace": NAMESPACE});
    for (kind, namespace) in [("ClusterRole", None), ("Role", Some(NAMESPACE))] {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": {"name": "ann", "namespace": namespace}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "neonvm-operator"}});
        apply(&cluster.client, &binding).await;
    }
    let ann = client(&cluster.server.kubeconfig_of("ann").await).await;
    Certificate::at_start(&ann, NAMESPACE, CertificateFor::operator()).await.unwrap();
    let identity = request(&ann, &CertificateFor::operator()).await.unwrap();
    let (common_name, organisations, dns_names) = names(&identity);
    assert_eq!(common_name, "neonvm-operator:system:serviceaccount:neonvm-system:ann");
    assert_eq!((organisations, dns_names.len()), (vec!["neonvm:operators".to_owned()], 0));
    cluster.server.nothing_forbidden().await;
}

/// What is due is renewed by the next leader, and only for the VM that the pod is of.
#[tokio::test(flavor = "multi_thread")]
async fn a_runners_certificate_is_renewed_in_its_secret() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller();
    let vm = cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    let pod = cluster.pods_of("db").await.remove(0).metadata.name.unwrap();
    let read = async || {
        let secret = cluster.secrets().get(&identity_secret(&pod)).await.unwrap();
        let data = secret.data.unwrap();
        let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
        (
            Identity { certificate: text("tls.crt"), key: text("tls.key") },
            secret.metadata.annotations.unwrap(),
        )
    };
    let (first, annotations) = read().await;
    drop(controller);
    let over = json!({"metadata": {"annotations": {"vm.neon.tech/tls-not-before": "2020-01-01T00:00:00Z",
        "vm.neon.tech/tls-not-after": "2020-01-02T00:00:00Z"}}});
    cluster
        .secrets()
        .patch(&identity_secret(&pod), &PatchParams::default(), &Patch::Merge(over))
        .await
        .unwrap();
    let _controller = cluster.controller();
    let (second, renewed) = eventually("another certificate", async || {
        let now = read().await;
        (now.0.certificate != first.certificate).then_some(now)
    })
    .await;
    assert_ne!(first.key, second.key);
    let name = format!("{}.vm.neon.tech", vm.metadata.uid.unwrap());
    assert_eq!(names(&second), ("neonvm-runner".to_owned(), vec![], vec![name]));
    assert!(renewed["vm.neon.tech/tls-not-after"] >= annotations["vm.neon.tech/tls-not-after"]);
    cluster.server.nothing_forbidden().await;
}
