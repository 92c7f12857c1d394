#![allow(clippy::needless_pass_by_value, reason = "`json!` literals are passed as they are")]

use serde_json::{Value, json};

use crate::kinds::Kinds;

/// What is wrong with a new pod, with `spec.` left out.
fn faults(spec: Value) -> Vec<String> {
    let kinds = Kinds::builtin();
    let kind = kinds.resource("", "v1", "pods").unwrap();
    let mut pod = json!({ "metadata": { "name": "p" }, "spec": spec });
    crate::schema::decode::decode_builtin(&mut pod, kind.schema(), &[]).unwrap();
    crate::builtin::default("", "v1", "Pod", &mut pod);
    let mut errors = Vec::new();
    super::validate_create(&pod, &mut errors);
    errors.iter().map(|error| error.to_string().replacen("spec.", "", 1)).collect()
}

/// What is wrong with a pod that has one more field in its only container, without the container's path.
fn of_container(field: &str, value: Value) -> Vec<String> {
    let container = json!({ "name": "c", "image": "i", (field): value });
    let volumes = json!([{ "name": "v" }, { "name": "d", "persistentVolumeClaim": { "claimName": "x" } }]);
    let found = faults(json!({ "containers": [container], "volumes": volumes }));
    found.iter().map(|text| text.replacen("containers[0].", "", 1)).collect()
}

/// What is wrong with a pod that has one more field.
fn of_spec(field: &str, value: Value) -> Vec<String> {
    faults(json!({ "containers": [{ "name": "c", "image": "i" }], (field): value }))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one row per case")]
fn containers_are_refused_as_by_a_real_server() {
    let ports = |ports: Value| of_container("ports", ports);
    for (found, want) in [
        (
            of_container("livenessProbe", json!({ "periodSeconds": -1, "successThreshold": 2 })),
            vec![
                "livenessProbe: Required value: must specify a handler type",
                "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                "livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            of_container(
                "readinessProbe",
                json!({ "exec": { "command": [] }, "httpGet": { "port": 0 },
                "terminationGracePeriodSeconds": 5 }),
            ),
            vec![
                "readinessProbe.exec.command: Required value",
                "readinessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
                "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
            ],
        ),
        (
            of_container("startupProbe", json!({ "httpGet": { "port": "No", "scheme": "FTP" } })),
            vec![
                "startupProbe.httpGet.port: Invalid value: \"No\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "startupProbe.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
            ],
        ),
        (
            of_container("lifecycle", json!({ "preStop": { "sleep": { "seconds": 31 } }, "postStart": {} })),
            vec![
                "lifecycle.postStart: Required value: must specify a handler type",
                "lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        ),
        (
            ports(
                json!([{ "containerPort": 1, "name": "a--b" }, { "containerPort": 0, "hostPort": 70000, "protocol": "X" }]),
            ),
            vec![
                "ports[0].name: Invalid value: \"a--b\": must not contain consecutive hyphens",
                "ports[1].containerPort: Required value",
                "ports[1].hostPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            ports(json!([{ "containerPort": 1, "hostPort": 1 }, { "containerPort": 2, "hostPort": 1 }])),
            vec!["ports[1].hostPort: Duplicate value: \"TCP//1\""],
        ),
        (
            of_container(
                "env",
                json!([{ "name": "" }, { "name": "A=B", "value": "x", "valueFrom": { "fieldRef": { "fieldPath": "spec.x" } } },
                { "name": "C", "valueFrom": {} }, { "name": "D", "valueFrom": { "fieldRef": { "fieldPath": "status.phase" } } }]),
            ),
            vec![
                "env[0].name: Required value",
                "env[1].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
                "env[1].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x",
                "env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
                "env[2].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                "env[3].valueFrom.fieldRef.fieldPath: Unsupported value: \"status.phase\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
            ],
        ),
        (
            of_container("envFrom", json!([{}, { "secretRef": { "name": "" } }])),
            vec![
                "envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
                "envFrom[1].secretRef.name: Required value",
            ],
        ),
        (
            of_container(
                "volumeMounts",
                json!([{ "name": "w", "mountPath": "" }, { "name": "v", "mountPath": "/a", "subPath": "/x/../y" },
                { "name": "v", "mountPath": "/a" }]),
            ),
            vec![
                "volumeMounts[0].name: Not found: \"w\"",
                "volumeMounts[0].mountPath: Required value",
                "volumeMounts.subPath: Invalid value: \"/x/../y\": must be a relative path",
                "volumeMounts.subPath: Invalid value: \"/x/../y\": must not contain '..'",
                "volumeMounts[2].mountPath: Invalid value: \"/a\": must be unique",
            ],
        ),
        (
            of_container("volumeDevices", json!([{ "name": "v", "devicePath": "/x" }])),
            vec![
                "volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ],
        ),
        (of_container("volumeDevices", json!([{ "name": "d", "devicePath": "/x" }])), vec![]),
        (
            of_container("terminationMessagePolicy", json!("X")),
            vec![
                "terminationMessagePolicy: Unsupported value: \"X\": supported values: \"File\", \"FallbackToLogsOnError\"",
            ],
        ),
        (of_container("name", json!("a.b")), vec!["name: Invalid value: \"a.b\": must not contain dots"]),
        (
            of_container("securityContext", json!({ "runAsUser": -1 })),
            vec!["securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
        ),
    ] {
        assert_eq!(found, want);
    }
}

#[test]
fn security_is_refused_as_by_a_real_server() {
    let of_security = |context: Value| of_container("securityContext", context);
    for (found, want) in [
        (
            of_security(json!({ "allowPrivilegeEscalation": false, "privileged": true })),
            vec![
                "securityContext: Invalid value: {\"Capabilities\":null,\"Privileged\":true,\"SELinuxOptions\":null,\"WindowsOptions\":null,\"RunAsUser\":null,\"RunAsGroup\":null,\"RunAsNonRoot\":null,\"ReadOnlyRootFilesystem\":null,\"AllowPrivilegeEscalation\":false,\"ProcMount\":null,\"SeccompProfile\":null,\"AppArmorProfile\":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            ],
        ),
        (
            of_security(json!({ "procMount": "Unmasked", "runAsUser": -1 })),
            vec![
                "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                "securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            ],
        ),
        (
            of_security(json!({ "seccompProfile": { "type": "RuntimeDefault", "localhostProfile": "p" },
                "appArmorProfile": { "type": "Localhost", "localhostProfile": " p" } })),
            vec![
                "securityContext.seccompProfile.localhostProfile: Invalid value: {\"Type\":\"RuntimeDefault\",\"LocalhostProfile\":\"p\"}: can only be set when seccomp type is Localhost",
                "securityContext.appArmorProfile.localhostProfile: Invalid value: \" p\": must not be padded with whitespace",
            ],
        ),
        (
            of_spec(
                "securityContext",
                json!({ "sysctls": [{ "name": "a.b" }, { "name": "a.b" }, { "name": "A" }, {}],
                    "supplementalGroupsPolicy": "X" }),
            ),
            vec![
                "securityContext.sysctls[1].name: Duplicate value: \"a.b\"",
                "securityContext.sysctls[2].name: Invalid value: \"A\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
                "securityContext.sysctls[3].name: Required value",
                "securityContext.supplementalGroupsPolicy: Unsupported value: \"X\": supported values: \"Merge\", \"Strict\"",
            ],
        ),
    ] {
        assert_eq!(found, want);
    }
}

#[test]
fn several_faults_of_a_pod_stand_in_the_order_of_its_checks() {
    let found = faults(json!({
        "containers": [
            { "name": "c", "image": " i", "restartPolicyRules": [{ "action": "Restart", "exitCodes": { "operator": "In" } }],
              "ports": [{ "containerPort": 1, "hostPort": 1 }, { "containerPort": 2, "hostPort": 1 }] },
            { "name": "c", "image": "" },
        ],
        "activeDeadlineSeconds": 0,
        "hostUsers": false,
        "hostPID": true,
        "hostname": "ok",
        "dnsPolicy": "None",
        "os": { "name": "beos" },
        "preemptionPolicy": "X",
        "resourceClaims": [{ "name": "r" }],
        "restartPolicy": "X",
        "schedulingGates": [{ "name": "g" }, { "name": "g" }],
        "tolerations": [{ "key": "k", "operator": "Odd" }],
    }));
    let fields: Vec<&str> = found.iter().filter_map(|text| text.split(": ").next()).collect();
    assert_eq!(
        fields,
        [
            "resourceClaims[0]",
            "containers[0].restartPolicy",
            "containers[1].image",
            "containers[1].name",
            "containers[0].ports[1].hostPort",
            "restartPolicy",
            "dnsConfig",
            "schedulingGates[1]",
            "HostPID",
            "activeDeadlineSeconds",
            "tolerations[0].operator",
            "preemptionPolicy",
            "os",
            "containers[0].image",
        ],
        "{found:#?}"
    );
}

#[test]
fn labels_that_a_pod_selects_by_are_its_own() {
    let mut pod = json!({ "metadata": { "labels": { "v": "1" } }, "spec": { "topologySpreadConstraints": [
        { "labelSelector": { "matchLabels": { "a": "b" } }, "matchLabelKeys": ["v", "other"] },
        { "matchLabelKeys": ["v"] }] } });
    crate::builtin::placement::take_own_labels(&mut pod);
    assert_eq!(
        pod["spec"]["topologySpreadConstraints"],
        json!([
            { "labelSelector": { "matchLabels": { "a": "b" },
                "matchExpressions": [{ "key": "v", "operator": "In", "values": ["1"] }] },
              "matchLabelKeys": ["v", "other"] },
            { "matchLabelKeys": ["v"] },
        ])
    );
    let twice = of_spec(
        "topologySpreadConstraints",
        json!([{ "maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["v"],
            "labelSelector": { "matchLabels": { "v": "1" },
                "matchExpressions": [{ "key": "v", "operator": "In", "values": ["1"] }] } }]),
    );
    assert_eq!(
        twice,
        [
            "topologySpreadConstraints[0][0]: Invalid value: \"v\": exists in both matchLabelKeys and labelSelector"
        ]
    );
}

#[test]
fn variables_come_from_files_of_fitting_volumes() {
    let found = of_container(
        "env",
        json!([{ "name": "A", "valueFrom": { "fileKeyRef": { "key": "", "volumeName": "d", "path": "../x" } } },
            { "name": "B", "valueFrom": { "fileKeyRef": { "key": "k", "volumeName": "none", "path": "x" } } }]),
    );
    assert_eq!(
        found,
        [
            "env[0].valueFrom.fileKeyRef.key: Required value",
            "env[0].valueFrom.fileKeyRef.path: Invalid value: \"../x\": must not contain '..'",
            "env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"d\": referenced volume must be of type emptyDir",
            "env[1].valueFrom.fileKeyRef.volumeName: Not found: \"none\"",
        ]
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one row per case")]
fn pods_are_refused_as_by_a_real_server() {
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for (found, want) in [
        (
            of_spec("restartPolicy", json!("X")),
            vec![
                "restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        ),
        (
            of_spec("dnsPolicy", json!("X")),
            vec![
                "dnsPolicy: Unsupported value: \"X\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
            ],
        ),
        (
            of_spec("dnsPolicy", json!("None")),
            vec!["dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        ),
        (
            of_spec(
                "tolerations",
                json!([{ "operator": "Equal", "effect": "X" }, { "key": "k", "operator": "Odd" }]),
            ),
            vec![
                "tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
                "tolerations[0].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                "tolerations[1].operator: Unsupported value: \"Odd\": supported values: \"Equal\", \"Exists\"",
            ],
        ),
        (
            of_spec(
                "affinity",
                json!({ "nodeAffinity": { (PREFERRED): [{ "weight": 0, "preference": {
                "matchExpressions": [{ "key": "a", "operator": "In" }] } }] } }),
            ),
            vec![
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        ),
        (
            of_spec(
                "topologySpreadConstraints",
                json!([{ "maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X" }]),
            ),
            vec![
                "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                "topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"X\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
            ],
        ),
        (
            of_spec(
                "initContainers",
                json!([{ "name": "c", "image": " i", "livenessProbe": { "exec": { "command": ["x"] } } }]),
            ),
            vec![
                "initContainers[0].name: Duplicate value: \"c\"",
                "initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
                "initContainers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            ],
        ),
        (
            of_spec("ephemeralContainers", json!([{ "name": "e", "image": "i" }])),
            vec!["ephemeralContainers: Forbidden: cannot be set on create"],
        ),
        (
            of_spec(
                "volumes",
                json!([{ "name": "", "hostPath": { "path": "" } }, { "name": "b", "secret": {}, "configMap": {} },
                { "name": "c", "configMap": { "name": "m", "defaultMode": 512, "items": [{ "key": "k", "path": "../p" }] } }]),
            ),
            vec![
                "volumes[0].hostPath.path: Required value",
                "volumes[0].name: Required value",
                "volumes[1].secret.secretName: Required value",
                "volumes[1].configMap: Forbidden: may not specify more than 1 volume type",
                "volumes[2].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                "volumes[2].configMap.items[0].path: Invalid value: \"../p\": must not contain '..'",
            ],
        ),
        (
            of_spec(
                "volumes",
                json!([{ "name": "p", "projected": { "sources": [
                { "secret": { "name": "s", "items": [{ "key": "k", "path": "x" }] } },
                { "configMap": { "name": "m", "items": [{ "key": "k", "path": "x" }] } }] } }]),
            ),
            vec!["volumes[0].projected: Invalid value: \"m\": conflicting duplicate paths"],
        ),
        (
            of_spec("hostname", json!("A")),
            vec![
                "hostname: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
    ] {
        assert_eq!(found, want);
    }
}
