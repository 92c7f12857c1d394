//! What the services serve, as their sources have it.
//!
//! Each service has a test that compares its page with a list of `NAME TYPE LABEL…`, one for each family. These lists are read here, so
//! a name that is in them is one that is served. Families that are added when a page is requested are not in all of the lists: for
//! these the call that starts the family is read, with the labels that follow it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Directories of the services.
pub(super) const SERVICES: [&str; 6] =
    ["agent", "scheduler", "vm-controller", "pod-autoscaler", "vxlan-controller", "runner"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub(super) kind: String,
    pub(super) labels: Vec<String>,
}

/// Every family of every service, by name.
pub(super) fn families() -> BTreeMap<String, Family> {
    let sources: Vec<String> = SERVICES.into_iter().flat_map(sources).collect();
    of(&sources)
}

pub(super) fn sources(service: &str) -> Vec<String> {
    let controllers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../controllers");
    let mut sources = Vec::new();
    texts(&controllers.join(service).join("src"), &mut sources);
    sources
}

/// Every family of these sources, by name.
pub(super) fn of(sources: &[String]) -> BTreeMap<String, Family> {
    let mut found = BTreeMap::new();
    for source in sources {
        listed(source, &mut found);
    }
    for source in sources {
        exporters(source, &mut found);
        started(source, &mut found);
    }
    found
}

fn texts(directory: &Path, into: &mut Vec<String>) {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut entries: Vec<PathBuf> = entries.collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            texts(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Lists that a test compares with a page. A line may have labels of a variable: `{labels}`.
fn listed(source: &str, into: &mut BTreeMap<String, Family>) {
    let line = Regex::new(r#""([a-z][a-z0-9_]*) (counter|gauge|histogram)((?: [a-z0-9_{}]+)*)""#).unwrap();
    let variable = Regex::new(r#"let ([a-z_]+) = "([a-z0-9_ ]+)";"#).unwrap();
    for found in line.captures_iter(source) {
        let mut labels = found[3].to_owned();
        for value in variable.captures_iter(source) {
            labels = labels.replace(&format!("{{{}}}", &value[1]), &value[2]);
        }
        let labels = labels.split_whitespace().map(str::to_owned).collect();
        into.insert(found[1].to_owned(), Family { kind: found[2].to_owned(), labels });
    }
}

/// Families of each kind of exporter: the agent's list has them under names that begin with `x_`.
fn exporters(source: &str, into: &mut BTreeMap<String, Family>) {
    let name = Regex::new(r#"\b(queue|took|errors|dropped): "(autoscaling_[a-z_]+)""#).unwrap();
    for found in name.captures_iter(source) {
        let listed = match &found[1] {
            "queue" => "x_queue_size",
            "took" => "x_took",
            "errors" => "x_errors_total",
            _ => "x_dropped_total",
        };
        let family = into.get(listed).unwrap_or_else(|| panic!("the agent's list has no {listed}")).clone();
        into.insert(found[2].to_owned(), family);
    }
}

/// Families that are written into a page at the time of the request.
fn started(source: &str, into: &mut BTreeMap<String, Family>) {
    let start =
        Regex::new(r#"\b(family|single|counter)\(\s*"([a-z][a-z0-9_]*)",\s*(?:(?:\w+::)*Kind::(\w+))?"#)
            .unwrap();
    let end = Regex::new(r"\b(?:family|single|counter)\(|\n    \}\n|\n\}\n").unwrap();
    let label = Regex::new(r#"\("([a-z_]+)", "#).unwrap();
    for found in start.captures_iter(source) {
        let after = &source[found.get(0).unwrap().end()..];
        let own = &after[..end.find(after).map_or(after.len(), |end| end.start())];
        let kind = found.get(3).map_or("counter", |kind| kind.as_str()).to_lowercase();
        let labels = if &found[1] == "family" {
            label.captures_iter(own).map(|found| found[1].to_owned()).collect()
        } else {
            Vec::new()
        };
        into.entry(found[2].to_owned()).or_insert(Family { kind, labels });
    }
}
