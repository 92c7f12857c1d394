//! Which clients may connect to the services of the manifests: policies of networks, and of admission to the keys of
//! the overlay.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::manifests;

/// Ports that no policy opens; the pod's own node connects all the same, because policies do not apply to it.
const CLOSED: [&str; 2] = ["probes", "plugin-probes"];
/// Labels of namespaces by which an administrator lets pods in.
const BY_LABEL: [&str; 2] = ["vm.neon.tech/metrics", "vm.neon.tech/operators"];

fn of_kind(kind: &str) -> Vec<Value> {
    manifests().into_iter().map(|(_, object)| object).filter(|object| object["kind"] == kind).collect()
}

/// Pod templates: labels, and the ports' names with their numbers. Those in the network of their node are left out.
fn pods() -> Vec<(Value, BTreeMap<String, u64>)> {
    let templates = ["Deployment", "DaemonSet", "StatefulSet", "Job"].into_iter().flat_map(of_kind);
    let templates = templates.map(|workload| workload["spec"]["template"].clone());
    let covered = templates.filter(|template| template["spec"]["hostNetwork"] != true);
    let ports = |template: &Value| {
        let containers = template["spec"]["containers"].as_array().unwrap();
        let all = containers.iter().flat_map(|one| one["ports"].as_array().into_iter().flatten());
        all.map(|port| (port["name"].as_str().unwrap().to_owned(), port["containerPort"].as_u64().unwrap()))
            .collect()
    };
    covered.map(|template| (template["metadata"]["labels"].clone(), ports(&template))).collect()
}

/// Whether `matchLabels` select labels; nothing else is used here.
fn selects(selector: &Value, labels: &Value) -> bool {
    let only = selector.as_object().unwrap().keys().all(|key| key == "matchLabels");
    assert!(only, "{selector}");
    let wanted = selector["matchLabels"].as_object();
    wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

/// Nothing is open unless a policy opens it.
#[test]
fn ingress_is_denied_unless_it_is_allowed() {
    let all = of_kind("NetworkPolicy");
    let deny = all.iter().find(|policy| policy["spec"]["podSelector"] == json!({})).unwrap();
    assert_eq!(deny["spec"], json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    for policy in &all {
        // What upstream's agents find is where they look for it.
        let is_theirs = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
            == "neonvm-upstream-agents";
        let namespace = if is_theirs { "kube-system" } else { "neonvm-system" };
        assert_eq!(policy["metadata"]["namespace"], namespace, "{policy}");
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "{policy}");
    }
}

/// Each port of a pod is opened by a policy for its pods, or is closed on purpose; no policy opens what is not there.
#[test]
fn each_port_has_a_rule_or_is_closed() {
    let policies = of_kind("NetworkPolicy");
    let opening = |labels: &Value| {
        let own = policies.iter().filter(|one| one["spec"].get("ingress").is_some());
        let own = own.filter(|one| selects(&one["spec"]["podSelector"], labels));
        let rules = own.flat_map(|one| one["spec"]["ingress"].as_array().unwrap());
        let ports = rules.flat_map(|rule| rule["ports"].as_array().expect("a rule without ports opens all"));
        ports.map(|port| port["port"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let pods = pods();
    for (labels, ports) in &pods {
        let opened = opening(labels);
        let wanted = ports.keys().filter(|name| !CLOSED.contains(&name.as_str())).cloned().collect();
        assert_eq!(opened, wanted, "{labels}");
    }
    for policy in &policies {
        let selector = &policy["spec"]["podSelector"];
        assert!(pods.iter().any(|(labels, _)| selects(selector, labels)), "{selector} selects nothing");
    }
}

/// The targets of a Service are open; the client of a Service of ours is the API server, with an unknown address.
#[test]
fn what_a_service_leads_to_is_open_to_all() {
    let policies = of_kind("NetworkPolicy");
    for service in of_kind("Service") {
        let labels = &service["spec"]["selector"];
        let own = policies.iter().filter(|one| one["spec"]["podSelector"]["matchLabels"] == *labels);
        let rules: Vec<&Value> =
            own.flat_map(|one| one["spec"]["ingress"].as_array().into_iter().flatten()).collect();
        for port in service["spec"]["ports"].as_array().unwrap() {
            let open = rules.iter().any(|rule| {
                let ports = rule["ports"].as_array().unwrap();
                rule.get("from").is_none() && ports.iter().any(|one| one["port"] == port["targetPort"])
            });
            assert!(open, "{service}");
        }
    }
}

/// Peers that are let in by name are pods of the manifests, a kube-scheduler, or in a namespace that an administrator has
/// labelled; SECURITY.md describes both labels.
#[test]
fn who_is_let_in_is_known() {
    let pods = pods();
    let table = include_str!("../../../../SECURITY.md");
    for label in BY_LABEL {
        assert!(table.contains(&format!("`{label}: \"true\"`")), "SECURITY.md does not describe {label}");
    }
    for policy in of_kind("NetworkPolicy") {
        let rules = policy["spec"]["ingress"].as_array().cloned().unwrap_or_default();
        for peer in rules.iter().filter_map(|rule| rule["from"].as_array()).flatten() {
            let Some(namespace) = peer.get("namespaceSelector") else {
                let known = pods.iter().any(|(labels, _)| selects(&peer["podSelector"], labels));
                assert!(known, "{peer} is no pod of the manifests");
                continue;
            };
            let labels = namespace["matchLabels"].as_object().unwrap();
            let by_label = labels.keys().all(|key| BY_LABEL.contains(&key.as_str()));
            let selector = &peer["podSelector"];
            let ours = selector.is_object() && pods.iter().any(|(labels, _)| selects(selector, labels));
            let is_scheduler = peer["podSelector"]["matchLabels"]["component"] == "kube-scheduler";
            assert!(by_label || is_scheduler || ours, "{peer}");
        }
    }
}

/// Whether the admission policy admits a request of `user` to write a lease.
fn admits(user: &Value, lease: &str) -> bool {
    let policy = of_kind("ValidatingAdmissionPolicy").into_iter().next().unwrap();
    let env = std::sync::Arc::new(cel::Env::stdlib());
    let evaluate = |expression: &Value, variables: &Value| {
        let mut context = cel::Context::with_env(std::sync::Arc::clone(&env));
        context.add_variable("object", json!({"metadata": {"name": lease}})).unwrap();
        context.add_variable("request", json!({"userInfo": user})).unwrap();
        context.add_variable("variables", variables.clone()).unwrap();
        let program = env.compile(expression.as_str().unwrap()).unwrap();
        match program.execute(&context).unwrap() {
            cel::Value::Bool(value) => json!(value),
            cel::Value::String(text) => json!(text.as_str()),
            other => panic!("{expression}: {other:?}"),
        }
    };
    let mut variables = json!({});
    for variable in policy["spec"]["variables"].as_array().unwrap() {
        let value = evaluate(&variable["expression"], &variables);
        variables[variable["name"].as_str().unwrap()] = value;
    }
    let validations = policy["spec"]["validations"].as_array().unwrap();
    validations.iter().all(|one| evaluate(&one["expression"], &variables) == true)
}

/// The key of a node is written by the controller on that node; its account writes nothing else. Other users write all
/// other leases.
#[test]
fn a_key_is_written_by_its_own_node() {
    let account = "system:serviceaccount:neonvm-system:neonvm-vxlan-controller";
    let on = |node: &str| json!({"username": account, "extra": {"authentication.kubernetes.io/node-name": [node]}});
    assert!(admits(&on("n1"), "neonvm-overlay-key-n1"));
    for lease in
        ["neonvm-overlay-key-n2", "neonvm-overlay-key-", "neonvm-overlay-key-n11", "scheduler", "agent-n1"]
    {
        assert!(!admits(&on("n1"), lease), "{lease}");
    }
    for unbound in
        [json!({"username": account}), json!({"username": account, "extra": {"other": ["n1"]}}), on("")]
    {
        assert!(!admits(&unbound, "neonvm-overlay-key-n1"), "{unbound}");
        assert!(!admits(&unbound, "neonvm-overlay-key-"), "{unbound}");
    }
    let agent = "system:serviceaccount:neonvm-system:neonvm-agent";
    let agent = json!({"username": agent, "extra": {"authentication.kubernetes.io/node-name": ["n1"]}});
    assert!(!admits(&agent, "neonvm-overlay-key-n1"));
    assert!(admits(&agent, "agent-n1"));
    let policies = of_kind("ValidatingAdmissionPolicyBinding");
    assert_eq!(policies[0]["spec"]["validationActions"], json!(["Deny"]));
}
