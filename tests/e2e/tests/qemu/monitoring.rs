//! Rules and dashboards of `deploy/monitoring` in a real Prometheus that scrapes a local cluster.

mod incidents;
mod prometheus;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use neonvm_test_support::{need, needs};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, kill, possible, until};
use incidents::{ALERTS, ALWAYS, EMPTY, Incident, METRICS};
use prometheus::{Prometheus, discovered, file};

/// Name of the VM that is scaled.
const BUSY: &str = "busy";

/// An expression, with where it is.
type Expression = (String, String);

/// Every query of every dashboard, with values in place of Grafana's variables.
fn queries() -> Vec<Expression> {
    let source = file("source.yaml");
    let array = |value: &Value| value.as_array().unwrap().clone();
    let mut all = Vec::new();
    for dashboard in array(&source["dashboards"]) {
        for panel in array(&dashboard["rows"]).iter().flat_map(|row| array(&row["panels"])) {
            let place =
                format!("{}: {}", dashboard["name"].as_str().unwrap(), panel["title"].as_str().unwrap());
            for query in array(&panel["queries"]) {
                let expression = query["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
                let plain = ["$namespace", "$node", "$vm"]
                    .iter()
                    .fold(expression, |text, variable| text.replace(variable, ".*"));
                all.push((place.clone(), plain));
            }
        }
    }
    for (name, query) in source["variables"].as_object().unwrap() {
        let query = query.as_str().unwrap().replace("$namespace", ".*");
        let (expression, label) = query
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')')?.rsplit_once(", "))
            .unwrap();
        all.push((format!("variable {name}"), format!("group by ({label}) ({expression})")));
    }
    all
}

/// Rules of a kind, `record` or `alert`, by name.
fn rules(kind: &str) -> Vec<Expression> {
    let groups = file("rules.prometheus.yaml")["groups"].as_array().unwrap().clone();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone());
    let named =
        rules.filter_map(|rule| Some((rule[kind].as_str()?.to_owned(), rule["expr"].as_str()?.to_owned())));
    named.collect()
}

/// Metrics that an expression reads: words of our prefixes, but for labels.
fn metrics(expression: &str) -> BTreeSet<String> {
    // What is in quotes is a value of a label.
    let plain: String = expression.split('"').step_by(2).collect();
    let words = plain.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let is_metric = |word: &&str| {
        let ours = ["autoscaling_", "ipam_", "neonvm:", "neonvm_", "reconcile_", "runner_", "vm_"];
        *word == "up" || ours.iter().any(|prefix| word.starts_with(prefix))
    };
    let is_label = |word: &&str| ["vm_name", "vm_namespace"].contains(word);
    words.filter(|word| is_metric(word) && !is_label(word)).map(str::to_owned).collect()
}

/// Services of the cluster and its runners, as Kubernetes' discovery would find them.
fn targets(cluster: &Cluster) -> Vec<Value> {
    let list = std::fs::read_to_string(cluster.directory().join("metrics.json")).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let jobs = file("source.yaml")["scrape"].as_array().unwrap().clone();
    let mut all = Vec::new();
    for target in list.as_array().unwrap() {
        let text = |name: &str| target["labels"][name].as_str().unwrap_or_default();
        let job = jobs.iter().find(|job| job["name"] == text("job")).unwrap();
        let app = job["app"].as_str().unwrap().to_owned();
        let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), app)]);
        let place = (text("namespace"), text("pod"), text("node"));
        let address = target["targets"][0].as_str().unwrap();
        all.push(discovered(address, place, job["port"].as_str().unwrap(), &labels));
    }
    for pod in cluster.pods_of(BUSY) {
        let labels = pod["metadata"]["labels"].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
        let port = &pod["spec"]["containers"][0]["ports"][0];
        let address = format!("{}:{}", pod["status"]["podIP"].as_str().unwrap(), port["containerPort"]);
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap();
        let place = (text("/metadata/namespace"), text("/metadata/name"), text("/spec/nodeName"));
        all.push(discovered(&address, place, port["name"].as_str().unwrap(), &labels));
    }
    all
}

/// Name of the VM that calls for more than its node has.
const GREEDY: &str = "greedy";

/// A VM that the agent scales up to so much CPU, and whose traffic is counted. It is busy from when it has a file `/go`.
fn scaled(name: &str, cpu: &str) -> String {
    let object = json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": { "name": name,
            "labels": { "autoscaling.neon.tech/enabled": "true", "network-metrics": "enabled" } },
        "spec": { "enableNetworkMonitoring": true, "guest": {
            "cpus": { "min": "250m", "max": cpu, "use": "250m" }, "memorySlotSize": "1Gi",
            "memorySlots": { "min": 1, "max": 2, "use": 1 }, "rootDisk": { "image": "busy:1" } } } });
    object.to_string()
}

/// Whether it has started, and shows its size.
fn runs(vm: &Value) -> bool {
    vm["status"]["phase"] == "Running" && !vm["status"]["cpus"].is_null()
}

/// Waits until all expressions have data but for those of incidents.
fn have_data(prometheus: &Prometheus, expressions: &[Expression], may_be_empty: impl Fn(&str) -> bool) {
    let left = RefCell::new(Vec::new());
    let done = || {
        let is_left = |(place, expression): &&Expression| match prometheus.query(expression) {
            Ok(found) => found.is_empty() && !may_be_empty(place),
            Err(_) => true,
        };
        *left.borrow_mut() = expressions.iter().filter(is_left).cloned().collect::<Vec<_>>();
        left.borrow().is_empty()
    };
    let otherwise = || {
        let shown = left
            .borrow()
            .iter()
            .map(|(place, expression)| format!("{place}: {expression}: {:?}", prometheus.query(expression)))
            .collect::<Vec<_>>();
        format!("without data:\n{}", shown.join("\n"))
    };
    until(done, otherwise);
}

/// The lists of incidents name what exists.
fn lists_are_current(queries: &[Expression]) {
    let places: BTreeSet<&str> = queries.iter().map(|(place, _)| place.as_str()).collect();
    let unknown: Vec<&str> =
        EMPTY.iter().map(|(place, _)| *place).filter(|place| !places.contains(place)).collect();
    assert!(unknown.is_empty(), "no panel: {unknown:?}");
    let alerts: BTreeSet<String> = rules("alert").into_iter().map(|(name, _)| name).collect();
    let listed: BTreeSet<String> = ALERTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(alerts, listed, "each alert has its incident");
}

/// Every rule was evaluated without an error.
fn rules_are_evaluated(prometheus: &Prometheus) {
    let last = RefCell::new(String::new());
    let evaluated = || {
        let Ok(data) = prometheus.get("rules", &[]) else { return false };
        let groups = data["groups"].as_array().cloned().unwrap_or_default();
        let all: Vec<&Value> =
            groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
        let bad: Vec<String> = all
            .iter()
            .filter(|rule| rule["health"] != "ok")
            .map(|rule| format!("{}: {}", rule["name"], rule["lastError"]))
            .collect();
        *last.borrow_mut() = format!("{} rules, of these not well: {bad:?}", all.len());
        all.len() == rules("alert").len() + rules("record").len() && bad.is_empty()
    };
    until(evaluated, || last.borrow().clone());
}

/// Each metric that an alert reads is there, so that the alert could fire.
fn alerts_read_what_is_served(prometheus: &Prometheus) {
    let read: BTreeSet<String> =
        rules("alert").iter().flat_map(|(_, expression)| metrics(expression)).collect();
    let all: Vec<Expression> = read.into_iter().map(|metric| (metric.clone(), metric)).collect();
    have_data(prometheus, &all, |metric| METRICS.iter().any(|(known, _)| *known == metric));
}

/// Alerts that are pending or firing.
fn active(prometheus: &Prometheus) -> BTreeSet<String> {
    let found = prometheus.query("group by (alertname) (ALERTS)").unwrap();
    found.iter().map(|sample| sample["metric"]["alertname"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dashboards_and_rules_work_in_prometheus() {
    need!(possible());
    let program = need!(needs::program("prometheus"));
    let queries = queries();
    lists_are_current(&queries);
    let cluster = Cluster::with(&["--nodes", "1", "--cpus", "1", "--memory", "4Gi", "--metrics"]);
    cluster.image("busy:1", &["/bin/sh", "-c", "while [ ! -e /go ]; do sleep 1; done; while :; do :; done"]);
    cluster.image("broken:1", &["/bin/false"]);
    cluster.apply(scaled(BUSY, "500m"));
    cluster.becomes(BUSY, "runs", runs);
    let prometheus = Prometheus::start(&program, &cluster.path("prometheus"), &targets(&cluster));
    until(
        || prometheus.query("up").is_ok_and(|found| !found.is_empty()),
        || std::fs::read_to_string(cluster.path("prometheus/log")).unwrap_or_default(),
    );
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", BUSY, "--", "touch /go"]));
    cluster.becomes(BUSY, "grows", |vm| vm["status"]["cpus"] == "500m");

    rules_are_evaluated(&prometheus);
    let needs_incident = |place: &str| EMPTY.iter().any(|(known, _)| *known == place);
    have_data(&prometheus, &queries, needs_incident);
    have_data(&prometheus, &rules("record"), |name| METRICS.iter().any(|(known, _)| *known == name));
    alerts_read_what_is_served(&prometheus);
    let false_alarms = || {
        let all = active(&prometheus).into_iter();
        all.filter(|alert| !ALWAYS.contains(&alert.as_str())).collect::<Vec<String>>()
    };
    until(|| false_alarms().is_empty(), || format!("{:?}\n{}", false_alarms(), cluster.logs()));

    cause(&cluster, &prometheus, &queries);
    drop(prometheus);
    cluster.down();
}

/// Incidents, each until its alert is pending or firing, and until the panels that need it have data.
fn cause(cluster: &Cluster, prometheus: &Prometheus, queries: &[Expression]) {
    let becomes_visible = |incident: Incident| {
        let needs_it = |place: &str| EMPTY.contains(&(place, incident));
        // The node here has no room for a part of a growth.
        let is_cut = |expression: &str| expression.contains("scaling_partial_approvals");
        let needing = queries.iter().filter(|(place, query)| needs_it(place) && !is_cut(query));
        let needing: Vec<Expression> = needing.cloned().collect();
        have_data(prometheus, &needing, |_| false);
    };
    let becomes_active = |alert: &str, labels: &str| {
        until(
            || prometheus.alerts(alert, labels),
            || format!("{alert} is not active, but {:?}\n{}", active(prometheus), cluster.logs()),
        );
    };
    // A VM whose command fails.
    let create = ["vm", "create", "broken", "--image", "broken:1", "--cpu", "0.25", "--memory", "256Mi"];
    cluster.good(&[&create[..], &["--restart", "Never", "--no-autoscale"]].concat());
    cluster.becomes("broken", "fails", |vm| vm["status"]["phase"] == "Failed");
    becomes_active("NeonvmVmFailed", "");
    becomes_visible(Incident::VmInTrouble);
    // A node without room for what its VMs call for.
    cluster.apply(scaled(GREEDY, "2"));
    cluster.becomes(GREEDY, "runs", runs);
    cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", GREEDY, "--", "touch /go"]));
    becomes_active("NeonvmGrowthDenied", "");
    becomes_visible(Incident::GrowthDenied);
    cluster.good(&["vm", "delete", GREEDY]);
    // A migration without another node.
    let migration = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration", "metadata": {"name": "nowhere"},
        "spec": {"vmName": BUSY}});
    cluster.apply(migration.to_string());
    becomes_active("NeonvmMigrationsStall", "");
    becomes_visible(Incident::MigrationRuns);
    cluster.good(&["migration", "cancel", "nowhere"]);
    becomes_visible(Incident::MigrationEnded);
    // An agent that does not answer.
    let agent = cluster.service("agent-n1").unwrap();
    kill(agent, Signal::STOP);
    becomes_active("NeonvmTargetDown", ",job=\"neonvm-agent\"");
    kill(agent, Signal::CONT);
    until(|| !prometheus.alerts("NeonvmTargetDown", ""), || format!("{:?}", active(prometheus)));
}
