//! What is generated for Prometheus and Grafana: the committed files, the names in its queries, its runbooks.

mod promql;
mod promtool;
mod reference;
mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use neonvm_deploy::monitoring::{self, Source};
use serde_json::Value;

use crate::generated::golden;
use served::Family;

/// Labels that Prometheus, its operator or our relabelling give each series of a target.
const TARGET: [&str; 5] = ["job", "instance", "namespace", "pod", "node"];
/// What our relabelling gives series of runners besides.
const OF_RUNNERS: [&str; 2] = ["vm_namespace", "vm_name"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("../docs/src").join(name)).unwrap()
}

#[test]
fn what_is_committed_is_generated() {
    let files = monitoring::files().unwrap();
    for (name, text) in &files {
        golden(&root().join("monitoring").join(name), text);
    }
    // No dashboard is left that is gone from the source.
    let kept = std::fs::read_dir(root().join("monitoring/dashboards")).unwrap().count();
    assert_eq!(kept, files.keys().filter(|name| name.starts_with("dashboards/")).count());
}

/// Names and labels that expressions may use.
struct Known {
    families: BTreeMap<String, Family>,
    /// Labels of recorded series.
    records: BTreeMap<String, Vec<String>>,
}

impl Known {
    fn new(source: &Source) -> Self {
        let families = served::families();
        let mut records = BTreeMap::new();
        for record in &source.records {
            let kept = promql::names(&record.expr).kept;
            assert!(!kept.is_empty(), "{} has no labels", record.record);
            records.insert(record.record.clone(), kept);
        }
        Self { families, records }
    }

    /// Labels of a metric in an expression, or why there is none.
    fn labels(&self, metric: &str) -> Result<Vec<String>, String> {
        let target = || TARGET.map(str::to_owned).to_vec();
        if metric == "up" {
            return Ok(target());
        }
        if let Some(labels) = self.records.get(metric) {
            return Ok(labels.clone());
        }
        let (base, of_histogram) = ["_bucket", "_sum", "_count"]
            .into_iter()
            .filter_map(|suffix| Some((metric.strip_suffix(suffix)?, suffix)))
            .find(|(base, _)| self.families.get(*base).is_some_and(|family| family.kind == "histogram"))
            .map_or((metric, None), |(base, suffix)| (base, Some(suffix)));
        let family = self.families.get(base).ok_or_else(|| format!("no service serves {metric}"))?;
        if family.kind == "histogram" && of_histogram.is_none() {
            return Err(format!("{metric} is a histogram: it has _bucket, _sum and _count only"));
        }
        let mut labels = target();
        labels.extend(family.labels.iter().cloned());
        if of_histogram == Some("_bucket") {
            labels.push("le".to_owned());
        }
        if metric.starts_with("runner_") {
            labels.extend(OF_RUNNERS.map(str::to_owned));
        }
        Ok(labels)
    }

    /// What an expression names that does not exist.
    fn faults(&self, expression: &str) -> Vec<String> {
        let names = promql::names(expression);
        let mut faults = Vec::new();
        let mut all = BTreeSet::new();
        for selector in &names.selectors {
            let is_gauge = self.families.get(&selector.metric).is_some_and(|family| family.kind == "gauge");
            if selector.is_range && is_gauge {
                faults.push(format!("{} is a gauge: it has no rate", selector.metric));
            }
            match self.labels(&selector.metric) {
                Err(fault) => faults.push(fault),
                Ok(labels) => {
                    let unknown = selector.labels.iter().filter(|label| !labels.contains(label));
                    faults.extend(unknown.map(|label| format!("{} has no label {label}", selector.metric)));
                    all.extend(labels);
                }
            }
        }
        let unknown = names.grouping.iter().filter(|label| !all.contains(*label));
        faults.extend(unknown.map(|label| format!("nothing in it has the label {label}")));
        if names.selectors.is_empty() {
            faults.push("it names no metric".to_owned());
        }
        faults
    }
}

/// Every expression of the source, with where it is.
pub(crate) fn expressions(source: &Source) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        source.records.iter().map(|one| (one.record.clone(), one.expr.clone())).collect();
    for alert in source.alerts.iter().flat_map(|group| &group.alerts) {
        all.push((alert.alert.clone(), alert.expr.clone()));
    }
    for dashboard in &source.dashboards {
        for panel in dashboard.rows.iter().flat_map(|row| &row.panels) {
            let place = format!("{}: {}", dashboard.name, panel.title);
            all.extend(panel.queries.iter().map(|query| (place.clone(), query.expr.clone())));
        }
    }
    for (name, query) in &source.variables {
        let (expression, label) = query
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(')')?.rsplit_once(", "))
            .unwrap_or_else(|| panic!("variable {name}: label_values(QUERY, LABEL)"));
        all.push((format!("variable {name}"), format!("group by ({label}) ({expression})")));
    }
    all
}

#[test]
fn each_metric_and_label_of_a_query_is_served() {
    let source = monitoring::source().unwrap();
    let known = Known::new(&source);
    assert!(known.families.len() > 90, "{:?}", known.families.keys());
    let mut faults = Vec::new();
    for (place, expression) in expressions(&source) {
        faults.extend(known.faults(&expression).into_iter().map(|fault| format!("{place}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn names_that_do_not_exist_are_found() {
    let known = Known::new(&monitoring::source().unwrap());
    for (expression, fault) in [
        ("sum(kube_pod_info)", "no service serves kube_pod_info"),
        ("vm_restarts_count{vm=\"a\"}", "vm_restarts_count has no label vm"),
        ("rate(vm_restarts_count_count[5m])", "no service serves vm_restarts_count_count"),
        (
            "reconcile_duration_seconds > 1",
            "reconcile_duration_seconds is a histogram: it has _bucket, _sum and _count only",
        ),
        ("sum by (phase) (vm_restarts_count)", "nothing in it has the label phase"),
        ("neonvm:node_cpu_cores{vm_name=\"a\"}", "neonvm:node_cpu_cores has no label vm_name"),
        ("vector(1)", "it names no metric"),
        ("rate(neonvm_scheduler_leading[5m])", "neonvm_scheduler_leading is a gauge: it has no rate"),
    ] {
        assert_eq!(known.faults(expression), [fault], "{expression}");
    }
    for (name, kind, labels) in [
        ("neonvm_scheduler_leading", "gauge", &[][..]),
        ("autoscaling_agent_runners_current", "gauge", &["is_endpoint", "state"]),
        ("autoscaling_agent_billing_send_errors_total", "counter", &["client", "cause"]),
        ("runner_vm_egress_bytes_total", "counter", &[]),
        ("autoscaling_vm_extra_ip", "gauge", &["vm_namespace", "vm_name", "endpoint_id", "project_id"]),
    ] {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        assert_eq!(known.families[name], Family { kind: kind.to_owned(), labels }, "{name}");
    }
}

/// The anchor that mdBook and GitHub give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.trim().replace(' ', "-")
}

#[test]
fn each_alert_has_a_runbook_and_labels_of_its_expression() {
    let source = monitoring::source().unwrap();
    let known = Known::new(&source);
    let text = page("troubleshooting.md");
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<String> =
        headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
    let label = regex::Regex::new(r"\$labels\.([a-z_]+)").unwrap();
    let mut named = BTreeSet::new();
    for alert in source.alerts.iter().flat_map(|group| &group.alerts) {
        let name = &alert.alert;
        assert!(named.insert(name), "{name} twice");
        assert!(anchors.contains(&alert.runbook), "{name}: troubleshooting.md has no #{}", alert.runbook);
        assert!(["critical", "warning", "info"].contains(&alert.severity.as_str()), "{name}");
        let names = promql::names(&alert.expr);
        let records = names.selectors.iter().filter_map(|selector| known.records.get(&selector.metric));
        let there: Vec<&String> = records.flatten().chain(&names.kept).collect();
        for text in [&alert.summary, &alert.description] {
            for found in label.captures_iter(text) {
                assert!(there.iter().any(|label| **label == found[1]), "{name} has no label {}", &found[1]);
            }
        }
    }
}

/// The page of the book has a table that is made of the source.
#[test]
fn the_table_of_alerts_in_the_book_is_generated() {
    const START: &str = "<!-- alerts: generated from deploy/monitoring/source.yaml -->\n";
    const END: &str = "<!-- end of alerts -->\n";
    let path = root().join("../docs/src/howto/monitoring.md");
    let text = page("howto/monitoring.md");
    let (before, rest) = text.split_once(START).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut table =
        "\n| Alert | Severity | After | What to do | Runbook |\n|---|---|---|---|---|\n".to_owned();
    let headings = page("troubleshooting.md");
    for alert in monitoring::source().unwrap().alerts.iter().flat_map(|group| &group.alerts) {
        let heading =
            headings.lines().filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
        let heading = heading.clone().find(|heading| anchor(heading) == alert.runbook).unwrap();
        table += &format!(
            "| `{}` | {} | {} | {} | [{heading}](../troubleshooting.md#{}) |\n",
            alert.alert, alert.severity, alert.lasts, alert.action, alert.runbook
        );
    }
    golden(&path, &format!("{before}{START}{table}\n{END}{after}"));
}

#[test]
fn dashboards_define_what_they_use() {
    let variable = regex::Regex::new(r#""\$([a-z]+)""#).unwrap();
    let dashboards = monitoring::files().unwrap();
    let dashboards = dashboards.iter().filter(|(name, _)| name.starts_with("dashboards/"));
    for (name, text) in dashboards {
        let dashboard: Value = serde_json::from_str(text).unwrap();
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let defined: BTreeSet<&str> = variables.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert!(defined.contains("datasource"), "{name}");
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {title}");
            let place = &panel["gridPos"];
            assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{name}: {title}");
            if panel["type"] == "row" {
                continue;
            }
            assert!(panel["description"].as_str().unwrap().ends_with('.'), "{name}: {title}");
            for target in panel["targets"].as_array().unwrap() {
                assert_ne!(target["legendFormat"], "", "{name}: {title}");
                for found in variable.captures_iter(target["expr"].as_str().unwrap()) {
                    assert!(defined.contains(&found[1]), "{name}: {title}: ${}", &found[1]);
                }
            }
        }
    }
}

/// Each monitor finds pods of an installation by the label and the port that the manifests have.
#[test]
fn what_is_scraped_is_installed() {
    let all = crate::made(&["overlay.network=multus"]);
    let workloads = all.iter().filter(|object| object["spec"]["template"]["spec"].is_object());
    let workloads: Vec<&Value> = workloads.collect();
    for target in monitoring::source().unwrap().scrape.iter().filter(|target| !target.runners) {
        let of = |object: &&&Value| {
            object["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == *target.app
        };
        let workload = workloads.iter().find(of).unwrap_or_else(|| panic!("no pods of {}", target.name));
        let containers = workload["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let ports = containers.iter().filter_map(|container| container["ports"].as_array()).flatten();
        let port = ports.clone().find(|port| port["name"] == *target.port);
        let number =
            port.unwrap_or_else(|| panic!("{} has no port {}", target.name, target.port))["containerPort"]
                .clone();
        let is_served = |argument: &&Value| {
            let place = argument.as_str().and_then(|text| text.split_once("metrics-bind-address="));
            place.is_some_and(|(_, address)| address.ends_with(&format!(":{number}")))
        };
        let arguments = containers.iter().filter_map(|container| container["args"].as_array()).flatten();
        assert!(arguments.into_iter().any(|argument| is_served(&argument)), "{}: {number}", target.name);
    }
}
