//! Volumes and environment.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use neonvm_kubelet::Network;
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};

use crate::support::{Cluster, content, eventually, is_root, with};

const IDLE: &str = "trap 'exit 0' TERM; env > $NEONVM_ROOT/out/env; while :; do sleep 0.05; done";

async fn object<K>(cluster: &Cluster, value: Value) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), "default");
    api.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap();
    api
}

/// A pod with a volume and a variable of each kind.
fn every_kind(host: &std::path::Path) -> Value {
    json!({ "metadata": { "annotations": { "note": "x" } }, "spec": {
        "volumes": [
            { "name": "map", "configMap": { "name": "m" } },
            { "name": "some", "configMap": { "name": "m", "items": [{ "key": "b", "path": "deep/b", "mode": 0o600 }] } },
            { "name": "secret", "secret": { "secretName": "s", "defaultMode": 0o400 } },
            { "name": "none", "secret": { "secretName": "missing", "optional": true } },
            { "name": "own", "downwardAPI": { "items": [{ "path": "notes", "fieldRef": { "fieldPath": "metadata.annotations" } }] } },
            { "name": "all", "projected": { "sources": [
                { "configMap": { "name": "kube-root-ca.crt" } }, { "serviceAccountToken": { "path": "token" } } ] } },
            { "name": "empty", "emptyDir": { "sizeLimit": "1Gi" } },
            { "name": "host", "hostPath": { "path": host, "type": "Directory" } },
        ],
        "containers": [{
            "env": [
                { "name": "A", "value": "a" }, { "name": "B", "value": "$(A)b" },
                { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "s", "key": "key" } } },
            ],
            "envFrom": [{ "prefix": "M_", "configMapRef": { "name": "m" } }],
            "volumeMounts": [
                { "name": "map", "mountPath": "/vm/map" }, { "name": "some", "mountPath": "/vm/map/within" },
                { "name": "secret", "mountPath": "/vm/secret" }, { "name": "none", "mountPath": "/vm/none" },
                { "name": "own", "mountPath": "/own" }, { "name": "all", "mountPath": "/all" },
                { "name": "empty", "mountPath": "/vm/images" }, { "name": "host", "mountPath": "/host" },
            ] }] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_laid_out_and_follow_their_objects() {
    let cluster = Cluster::with_node().await;
    let maps =
        object::<ConfigMap>(&cluster, json!({ "metadata": { "name": "m" }, "data": { "a": "1", "b": "2" } }))
            .await;
    object::<Secret>(&cluster, json!({ "metadata": { "name": "s" }, "stringData": { "key": "hidden" } }))
        .await;
    let more = every_kind(cluster.server.directory());
    let pod = cluster.create("n1", "v", IDLE, &more).await;
    let ready = cluster.ready("v").await;
    let root = cluster.seen("n1", &pod).await;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(
        (read("vm/map/a"), read("vm/map/within/deep/b"), read("vm/secret/key")),
        ("1".into(), "2".into(), "hidden".into())
    );
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &str| std::fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("vm/secret/key"), mode("vm/secret"), mode("vm/map/within/deep/b")),
        // As with kubelets the group of the pod's volumes reads them.
        if is_root() { (0o440, 0o750, 0o640) } else { (0o400, 0o700, 0o600) }
    );
    assert!(read("all/ca.crt").contains("BEGIN CERTIFICATE") && read("all/token").split('.').count() == 3);
    assert!(
        root.join("host/kubeconfig").exists()
            && root.join("vm/images").is_dir()
            && root.join("vm/none").is_dir()
    );
    assert_eq!(read("own/notes"), "note=\"x\"");
    let env = content(&root.join("out/env"), |text| text.contains("NEONVM_ROOT")).await;
    let ip = ready["status"]["podIP"].as_str().unwrap();
    for line in [
        "B=ab",
        "KEY=hidden",
        "M_a=1",
        &format!("IP={ip}"),
        "NEONVM_NETWORK=user",
        "NEONVM_GRACE_SECONDS=5",
        "NEONVM_LOG_FORMAT=cri",
        "NEONVM_ACCEL=auto",
        "KUBERNETES_SERVICE_PORT=443",
    ] {
        assert!(env.lines().any(|own| own == line), "{line} is not in {env}");
    }
    let change = json!({ "data": { "a": "changed", "b": null } });
    maps.patch("m", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    content(&root.join("vm/map/a"), |text| text == "changed").await;
    assert!(!root.join("vm/map/b").exists());
    let note = json!({ "metadata": { "annotations": { "note": "y" } } });
    cluster.pods().patch("v", &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
    content(&root.join("own/notes"), |text| text == "note=\"y\"").await;
    cluster.delete("v").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_waited_for() {
    let cluster = Cluster::with_node().await;
    let more = json!({ "spec": { "volumes": [{ "name": "map", "configMap": { "name": "late" } }],
        "containers": [{ "volumeMounts": [{ "name": "map", "mountPath": "/vm/map" }] }] } });
    cluster.create("n1", "waits", IDLE, &more).await;
    let waiting = cluster
        .wait("waits", "the reason", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].is_string()
        })
        .await;
    let message = waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("configmap \"late\" not found"), "{message}");
    object::<ConfigMap>(&cluster, json!({ "metadata": { "name": "late" } })).await;
    cluster.ready("waits").await;
    cluster.delete("waits").await;
}

fn image_pod(reference: &str) -> Value {
    let mut more = json!({ "spec": { "volumes": [{ "name": "rootdisk", "image": { "reference": reference, "pullPolicy": "IfNotPresent" } }] } });
    let mount =
        json!({ "volumeMounts": [{ "name": "rootdisk", "mountPath": "/vm/rootdisk", "readOnly": true }] });
    crate::support::merge(&mut more, &with(&mount));
    more
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_come_from_files_and_from_the_local_store() {
    let mut cluster = Cluster::start().await;
    let (file, store) =
        (cluster.server.directory().join("my.qcow2"), cluster.server.directory().join("store"));
    std::fs::write(&file, "a disk").unwrap();
    fill_store(&store, cluster.server.directory());
    let mut config = cluster.config("n1", Network::User);
    config.images.store = Some(store);
    config.images.files = vec![cluster.server.directory().to_path_buf()];
    config.images.keep = 0;
    cluster.add_node(config).await;
    let reference = format!("file://{}", file.display());
    let first = cluster.create("n1", "file", IDLE, &image_pod(&reference)).await;
    let second = cluster.create("n1", "store", IDLE, &image_pod("example.org/disk:1")).await;
    cluster.ready("file").await;
    cluster.ready("store").await;
    for (pod, content) in [(&first, "a disk"), (&second, "a disk of the store")] {
        let disk = cluster.seen("n1", pod).await.join("vm/rootdisk/disk.qcow2");
        assert_eq!(std::fs::read_to_string(disk).unwrap(), content);
    }
    let images = cluster.server.directory().join("images");
    let count = || {
        let names = std::fs::read_dir(&images)
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("sha256-") || name.starts_with("file-")).count()
    };
    assert_eq!(count(), 2);
    let nowhere = format!("file://{}/nowhere/disk.qcow2", cluster.server.directory().display());
    let missing = cluster.create("n1", "missing", IDLE, &image_pod(&nowhere)).await;
    // Neither by another directory nor by a link that leads out of one that is named, and whether a file is there is not shown.
    let out = cluster.server.directory().join("out.qcow2");
    std::os::unix::fs::symlink("/etc/hostname", &out).unwrap();
    let reached =
        [format!("file://{}", out.display()), "file:///etc/shadow".into(), "file:///etc/none".into()];
    for (index, reference) in reached.iter().enumerate() {
        cluster.create("n1", &format!("out-{index}"), IDLE, &image_pod(reference)).await;
        let refused = |pod: &Value| pod["status"].to_string().contains("is below no directory of files");
        cluster.wait(&format!("out-{index}"), "the refusal", refused).await;
    }
    let reason = |pod: &Value, wanted: &str| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == wanted
    };
    // The one is soon followed by the other.
    let is_reported = |pod: &Value| reason(pod, "ErrImagePull") || reason(pod, "ImagePullBackOff");
    let waiting = cluster.wait("missing", "the reason", is_reported).await;
    assert!(waiting.to_string().contains("/nowhere/disk.qcow2"), "{}", missing.metadata.name.unwrap());
    cluster.server.until_events("missing", &["ErrImagePull"]).await;
    cluster.create("n1", "unreachable", IDLE, &image_pod("127.0.0.1:1/disk:1")).await;
    cluster.wait("unreachable", "the back-off", |pod| reason(pod, "ImagePullBackOff")).await;
    for name in ["file", "store", "missing", "unreachable"] {
        cluster.delete(name).await;
    }
    eventually("the removal of unused images", || async { (count() == 0).then_some(()) }).await;
    assert!(file.exists());
}

/// An image with a disk, in a new store.
fn fill_store(store: &std::path::Path, scratch: &std::path::Path) {
    let store = neonvm_builder::store::Store::open(store).unwrap();
    store.put(&image(scratch), &"example.org/disk:1".parse().unwrap()).unwrap();
}

fn image(scratch: &std::path::Path) -> neonvm_builder::store::Image {
    let content = scratch.join("content");
    std::fs::create_dir(&content).unwrap();
    std::fs::write(content.join("disk.qcow2"), "a disk of the store").unwrap();
    let tar = std::process::Command::new("tar")
        .args(["-C", content.to_str().unwrap(), "-c", "disk.qcow2"])
        .output()
        .unwrap();
    assert!(tar.status.success());
    use neonvm_builder::store::{Blob, CONFIG, Descriptor, Image, LAYER, MANIFEST};
    let layer = Blob::bytes(LAYER, tar.stdout);
    let diff = layer.descriptor.digest.to_string();
    let config =
        json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [diff] } });
    let config = Blob::bytes(CONFIG, config.to_string().into_bytes());
    let describe = |descriptor: &Descriptor| json!({ "mediaType": descriptor.media_type, "digest": descriptor.digest.to_string(), "size": descriptor.size });
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": describe(&config.descriptor),
        "layers": [describe(&layer.descriptor)] });
    Image {
        manifest: manifest.to_string().into_bytes(),
        media_type: MANIFEST.into(),
        config,
        layers: vec![layer],
    }
}

/// A registry that ends with the test.
struct Registry(std::process::Child);

impl Drop for Registry {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_come_from_registries() {
    let cluster = Cluster::with_node().await;
    let place = cluster.server.directory();
    let listen = neonvm_kit::port::Reserved::loopback().unwrap();
    let address = listen.address();
    let config = place.join("registry.yml");
    let storage = place.join("registry");
    let text = json!({ "version": 0.1, "http": { "addr": address.to_string() },
        "storage": { "filesystem": { "rootdirectory": storage } } });
    std::fs::write(&config, text.to_string()).unwrap();
    let mut command = std::process::Command::new(need!(needs::program("docker-registry")));
    command.arg("serve").arg(&config).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _registry = Registry(command.spawn().unwrap());
    eventually("the registry", || async { tokio::net::TcpStream::connect(address).await.ok() }).await;
    let reference = format!("{address}/nvm/disk:1");
    let network = neonvm_builder::source::Network::default();
    let quiet = neonvm_builder::source::Quiet;
    neonvm_builder::push::push(&image(place), &reference.parse().unwrap(), &network, &quiet).await.unwrap();
    let mut pods = Vec::new();
    for name in ["one", "two"] {
        pods.push(cluster.create("n1", name, IDLE, &image_pod(&reference)).await);
    }
    for (name, pod) in ["one", "two"].iter().zip(&pods) {
        cluster.ready(name).await;
        let disk = cluster.seen("n1", pod).await.join("vm/rootdisk/disk.qcow2");
        assert_eq!(std::fs::read_to_string(&disk).unwrap(), "a disk of the store");
        assert!(std::fs::metadata(&disk).unwrap().permissions().readonly());
    }
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(cluster.client.clone(), "default");
    eventually("the events", || async {
        let all = events.list(&kube::api::ListParams::default()).await.unwrap().items;
        let has = |reason: &str| all.iter().any(|event| event.reason.as_deref() == Some(reason));
        (has("Pulling") && has("Pulled")).then_some(())
    })
    .await;
    cluster.delete("one").await;
    cluster.delete("two").await;
}
