//! The level `restricted` of Pod Security as a function of a pod, of Kubernetes 1.36
//! (`staging/src/k8s.io/pod-security-admission/policy/check_*.go`, newest versions of the checks).

use serde_json::{Value, json};

/// Kinds of volumes that the level permits.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Parameters of the kernel that a pod may set.
const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What a context must not have, whosever it is.
fn of_context(path: &str, context: &Value, all: &mut Vec<String>) {
    let mut check = |is_fine: bool, field: &str| {
        if !is_fine {
            all.push(format!("{path}.securityContext.{field}"));
        }
    };
    let one_of = |field: &str, allowed: &[&str]| {
        let value = context.pointer(field).unwrap_or(&Value::Null);
        value.is_null() || value.as_str().is_some_and(|value| allowed.contains(&value))
    };
    check(context["runAsUser"] != 0, "runAsUser");
    check(context["runAsNonRoot"] != false, "runAsNonRoot");
    check(one_of("/seccompProfile/type", &["RuntimeDefault", "Localhost"]), "seccompProfile");
    check(one_of("/appArmorProfile/type", &["RuntimeDefault", "Localhost"]), "appArmorProfile");
    let types = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    check(one_of("/seLinuxOptions/type", &types), "seLinuxOptions.type");
    check(one_of("/seLinuxOptions/user", &[""]) && one_of("/seLinuxOptions/role", &[""]), "seLinuxOptions");
    check(context.pointer("/windowsOptions/hostProcess") != Some(&Value::Bool(true)), "windowsOptions");
}

fn of_container(path: &str, container: &Value, pod: &Value, all: &mut Vec<String>) {
    let context = &container["securityContext"];
    of_context(path, context, all);
    let mut check = |is_fine: bool, field: &str| {
        if !is_fine {
            all.push(format!("{path}.{field}"));
        }
    };
    let either = |field: &str| if context[field].is_null() { &pod[field] } else { &context[field] };
    check(context["privileged"] != true, "securityContext.privileged");
    check(context["allowPrivilegeEscalation"] == false, "securityContext.allowPrivilegeEscalation");
    check(either("runAsNonRoot") == true, "securityContext.runAsNonRoot");
    check(!either("seccompProfile")["type"].is_null(), "securityContext.seccompProfile");
    check(context["procMount"].is_null() || context["procMount"] == "Default", "securityContext.procMount");
    let capabilities = &context["capabilities"];
    check(list(capabilities, "drop").contains(&json!("ALL")), "securityContext.capabilities.drop");
    let added = list(capabilities, "add");
    check(added.iter().all(|one| one == "NET_BIND_SERVICE"), "securityContext.capabilities.add");
    let ports = list(container, "ports");
    check(ports.iter().all(|port| port["hostPort"].as_u64().unwrap_or(0) == 0), "ports[].hostPort");
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let hosts = ["httpGet", "tcpSocket"].map(|way| &container[kind][way]["host"]);
        check(hosts.iter().all(|host| host.as_str().unwrap_or_default().is_empty()), kind);
    }
}

/// Fields of a pod that the level forbids, or demands otherwise.
pub(crate) fn violations(pod: &Value) -> Vec<String> {
    let (spec, mut all) = (&pod["spec"], Vec::new());
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[field] == true {
            all.push(format!("spec.{field}"));
        }
    }
    let context = &spec["securityContext"];
    of_context("spec", context, &mut all);
    for sysctl in list(context, "sysctls") {
        if !SYSCTLS.iter().any(|allowed| sysctl["name"] == *allowed) {
            all.push(format!("spec.securityContext.sysctls: {}", sysctl["name"]));
        }
    }
    for volume in list(spec, "volumes") {
        let kinds =
            volume.as_object().into_iter().flatten().map(|(kind, _)| kind).filter(|kind| *kind != "name");
        all.extend(
            kinds
                .filter(|kind| !VOLUMES.contains(&kind.as_str()))
                .map(|kind| format!("spec.volumes[].{kind}")),
        );
    }
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(spec, kind) {
            of_container(&format!("spec.{kind}[{}]", container["name"]), container, context, &mut all);
        }
    }
    all
}

#[test]
fn each_check_finds_what_it_forbids() {
    let fine = json!({"spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
    assert_eq!(violations(&fine), [""; 0]);
    let own = "/spec/containers/0/securityContext";
    for (path, field, value) in [
        ("/spec", "hostNetwork", json!(true)),
        ("/spec", "volumes", json!([{"name": "v", "hostPath": {"path": "/"}}])),
        ("/spec/securityContext", "runAsUser", json!(0)),
        ("/spec/securityContext", "runAsNonRoot", json!(false)),
        ("/spec/securityContext", "seccompProfile", json!({"type": "Unconfined"})),
        ("/spec/securityContext", "sysctls", json!([{"name": "kernel.msgmax", "value": "1"}])),
        (own, "runAsUser", json!(0)),
        (own, "privileged", json!(true)),
        (own, "allowPrivilegeEscalation", Value::Null),
        (own, "capabilities", json!({"add": ["CHOWN"], "drop": ["ALL"]})),
        (own, "capabilities", json!({})),
        (own, "procMount", json!("Unmasked")),
        (own, "seLinuxOptions", json!({"type": "spc_t"})),
        (own, "appArmorProfile", json!({"type": "Unconfined"})),
        ("/spec/containers/0", "ports", json!([{"containerPort": 1, "hostPort": 1}])),
        ("/spec/containers/0", "livenessProbe", json!({"tcpSocket": {"host": "10.0.0.1", "port": 1}})),
    ] {
        let mut pod = fine.clone();
        pod.pointer_mut(path).unwrap()[field] = value;
        assert!(!violations(&pod).is_empty(), "{path} {field}");
    }
}
