#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::kinds::Kinds;

/// What is wrong with a volume of that kind in a pod, with its path left out.
fn faults(kind: &str, source: Value) -> Vec<String> {
    let kinds = Kinds::builtin();
    let pods = kinds.resource("", "v1", "pods").unwrap();
    let volume = json!({ "name": "v", (kind): source });
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "volumes": [volume] });
    let mut pod = json!({ "metadata": { "name": "p" }, "spec": spec });
    crate::schema::decode::decode_builtin(&mut pod, pods.schema(), &[]).unwrap();
    crate::builtin::default("", "v1", "Pod", &mut pod);
    let errors = crate::builtin::validate_create("", "Pod", &pod);
    errors.iter().map(|error| error.to_string().replacen("spec.volumes[0].", "", 1)).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one row per case")]
fn old_volumes_are_refused_as_by_a_real_server() {
    for (kind, source, want) in [
        (
            "gitRepo",
            json!({ "repository": "", "directory": "/a/.." }),
            vec![
                "gitRepo.repository: Required value",
                "gitRepo.directory: Invalid value: \"/a/..\": must be a relative path",
                "gitRepo.directory: Invalid value: \"/a/..\": must not contain '..'",
            ],
        ),
        (
            "gcePersistentDisk",
            json!({ "pdName": "", "partition": 256 }),
            vec![
                "persistentDisk.pdName: Required value",
                "persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
            ],
        ),
        (
            "awsElasticBlockStore",
            json!({ "volumeID": "", "partition": -1 }),
            vec![
                "awsElasticBlockStore.volumeID: Required value",
                "awsElasticBlockStore.partition: Invalid value: -1: must be between 1 and 255, inclusive",
            ],
        ),
        (
            "iscsi",
            json!({ "targetPortal": "", "iqn": "x", "lun": 256, "chapAuthSession": true, "initiatorName": "iqn.2024-1.a:b" }),
            vec![
                "iscsi.targetPortal: Required value",
                "iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
                "iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                "iscsi.secretRef: Required value",
                "iscsi.initiatorname: Invalid value: \"iqn.2024-1.a:b\": must be valid format",
            ],
        ),
        (
            "iscsi",
            json!({ "targetPortal": "a".repeat(63), "iqn": "iqn.2024-01.com.example:storage", "lun": 0,
                "initiatorName": "eui.0123456789abcdef" }),
            vec![
                "name: Invalid value: \"v\": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
            ],
        ),
        (
            "glusterfs",
            json!({ "endpoints": "", "path": "" }),
            vec!["glusterfs.endpoints: Required value", "glusterfs.path: Required value"],
        ),
        (
            "flocker",
            json!({}),
            vec!["flocker: Required value: one of datasetName and datasetUUID is required"],
        ),
        (
            "flocker",
            json!({ "datasetName": "a/b", "datasetUUID": "u" }),
            vec![
                "flocker: Invalid value: \"resource\": datasetName and datasetUUID can not be specified simultaneously",
                "flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
            ],
        ),
        (
            "rbd",
            json!({ "monitors": [], "image": "" }),
            vec!["rbd.monitors: Required value", "rbd.image: Required value"],
        ),
        (
            "cinder",
            json!({ "volumeID": "", "secretRef": {} }),
            vec!["cinder.volumeID: Required value", "cinder.secretRef.name: Required value"],
        ),
        ("cephfs", json!({ "monitors": [] }), vec!["cephfs.monitors: Required value"]),
        (
            "quobyte",
            json!({ "registry": "a:1,b", "volume": "" }),
            vec![
                "quobyte.registry: Invalid value: \"a:1,b\": must be a host:port pair or multiple pairs separated by commas",
                "quobyte.volume: Required value",
            ],
        ),
        (
            "fc",
            json!({}),
            vec!["fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
        ),
        (
            "fc",
            json!({ "targetWWNs": ["a"], "wwids": ["b"] }),
            vec![
                "fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously",
                "fc.lun: Required value: lun is required if targetWWNs is specified",
            ],
        ),
        (
            "flexVolume",
            json!({ "driver": "", "options": { "a.k8s.io/b": "c", "d": "e" } }),
            vec![
                "flexVolume.driver: Required value",
                "flexVolume.options[a.k8s.io/b]: Invalid value: \"a.k8s.io/b\": kubernetes.io and k8s.io namespaces are reserved",
            ],
        ),
        (
            "azureFile",
            json!({ "secretName": "", "shareName": "" }),
            vec!["azureFile.secretName: Required value", "azureFile.shareName: Required value"],
        ),
        (
            "azureDisk",
            json!({ "diskName": "", "diskURI": "", "cachingMode": "X", "kind": "Managed" }),
            vec![
                "azureDisk.diskName: Required value",
                "azureDisk.diskURI: Required value",
                "azureDisk.cachingMode: Unsupported value: \"X\": supported values: \"None\", \"ReadOnly\", \"ReadWrite\"",
                "azureDisk.diskURI: Unsupported value: \"\": supported values: \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
            ],
        ),
        ("azureDisk", json!({ "diskName": "d", "diskURI": "https://a" }), vec![]),
        ("vsphereVolume", json!({ "volumePath": "" }), vec!["vsphereVolume.volumePath: Required value"]),
        ("photonPersistentDisk", json!({ "pdID": "" }), vec!["photonPersistentDisk.pdID: Required value"]),
        ("portworxVolume", json!({ "volumeID": "" }), vec!["portworxVolume.volumeID: Required value"]),
        (
            "scaleIO",
            json!({ "gateway": "", "system": "", "secretRef": null }),
            vec![
                "scaleIO.gateway: Required value",
                "scaleIO.system: Required value",
                "scaleIO.volumeName: Required value",
            ],
        ),
        (
            "storageos",
            json!({ "volumeNamespace": "A", "secretRef": {} }),
            vec![
                "storageos.volumeName: Required value",
                "storageos.volumeNamespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "storageos.secretRef.name: Required value",
            ],
        ),
    ] {
        assert_eq!(faults(kind, source.clone()), want, "{kind} {source}");
    }
}

#[test]
fn what_a_feature_gate_holds_back_is_dropped_from_projected_volumes() {
    let sources = json!([{ "clusterTrustBundle": { "name": "b", "path": "p" } },
        { "podCertificate": { "signerName": "a/b", "keyType": "ED25519" } }, { "secret": { "name": "s" } }]);
    let mut pod = json!({ "spec": { "volumes": [{ "name": "v", "projected": { "sources": sources } }] } });
    let kinds = Kinds::builtin();
    let _ = kinds.resource("", "v1", "pods").unwrap().schema();
    crate::builtin::default("", "v1", "Pod", &mut pod);
    assert_eq!(
        pod["spec"]["volumes"][0]["projected"]["sources"],
        json!([{}, {}, { "secret": { "name": "s" } }])
    );
}
