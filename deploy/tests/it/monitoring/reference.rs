//! The page of the book with every metric, made of the services' sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use regex::Regex;

use super::served::{self, Family, SERVICES};
use crate::generated::golden;

/// Registrations whose names are fields of a struct: in which source, and which field has which ending of a name.
const WATCHES: (&str, [(&str, &str); 6]) = (
    "../controllers/kit/src/watch_metrics.rs",
    [
        ("client_calls", "_watchers_client_calls_total"),
        ("relists", "_watchers_relist_requests_total"),
        ("events", "_watchers_events_total"),
        ("errors", "_watchers_errors_total"),
        ("alive", "_watchers_alive_current"),
        ("failing", "_watchers_failing_current"),
    ],
);
const EXPORTERS: (&str, [(&str, &str); 4]) = (
    "../controllers/agent/src/metrics.rs",
    [
        ("queue", "_queue_size"),
        ("took", "_last_send_duration_seconds"),
        ("errors", "_send_errors_total"),
        ("dropped", "_dropped_events_total"),
    ],
);

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Help of a family that is registered by a field of a struct of names.
fn by_field(name: &str, (path, fields): (&str, &[(&str, &str)])) -> Option<String> {
    let (field, _) = fields.iter().find(|(_, ending)| name.ends_with(ending))?;
    let source = read(path);
    let call = Regex::new(&format!(r#"names\.{field},\s*(?:"([^"]+)"|(\w+))"#)).unwrap();
    let found = call.captures(&source)?;
    if let Some(help) = found.get(1) {
        return Some(help.as_str().to_owned());
    }
    let variable = Regex::new(&format!(r#"let {} = "([^"]+)""#, &found[2])).unwrap();
    variable.captures(&source).map(|found| found[1].to_owned())
}

/// Help of a family in a source that has its name.
fn in_source(name: &str, source: &str) -> Option<String> {
    let direct = Regex::new(&format!(r#""{name}",\s*(?:(?:\w+::)*Kind::\w+,\s*)?"([^"]+\.)""#)).unwrap();
    if let Some(found) = direct.captures(source) {
        return Some(found[1].to_owned());
    }
    // A variable of the lines before.
    let call = Regex::new(&format!(r#"family\(\s*"{name}",\s*(?:\w+::)*Kind::\w+,\s*help\)"#)).unwrap();
    if let Some(found) = call.find(source) {
        let variable = Regex::new(r#"let help\s*=\s*"([^"]+)";"#).unwrap();
        return variable.captures_iter(&source[..found.start()]).last().map(|found| found[1].to_owned());
    }
    // Two names, then two helps.
    let pair = Regex::new(r#"\[\s*"(\w+)",\s*"(\w+)",?\s*\],\s*\[\s*"([^"]+)",\s*"([^"]+)",?\s*\]"#).unwrap();
    pair.captures_iter(source).find_map(|found| {
        let index = [1, 2].into_iter().find(|index| &found[*index] == name)?;
        Some(found[index + 2].to_owned())
    })
}

fn help(name: &str, sources: &[String]) -> Option<String> {
    let named = sources.iter().find_map(|source| in_source(name, source));
    named
        .or_else(|| by_field(name, (WATCHES.0, &WATCHES.1)))
        .or_else(|| by_field(name, (EXPORTERS.0, &EXPORTERS.1)))
}

fn rows(families: &BTreeMap<String, Family>, sources: &[String], without: &mut Vec<String>) -> String {
    let mut rows = String::new();
    for (name, Family { kind, labels }) in families.iter().filter(|(name, _)| !name.starts_with("x_")) {
        let Some(help) = help(name, sources) else {
            without.push(name.clone());
            continue;
        };
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(rows, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    rows
}

#[test]
fn the_reference_of_metrics_is_generated() {
    let mut text = "<!-- run: none -->\n# Metrics\n\nGenerated from the sources of the services: `UPDATE_GOLDEN=1 cargo test -p neonvm-deploy`. \
        Where they are served: [Ports](../../../SECURITY.md#ports).\nWhich of them differ from upstream's: the READMEs of \
        [agent](../../../controllers/agent/README.md#state-and-metrics) and \
        [scheduler](../../../controllers/scheduler/README.md#state-and-metrics).\n"
        .to_owned();
    let mut without = Vec::new();
    let kit = read("../controllers/kit/src/expiry.rs");
    for service in SERVICES {
        let mut sources = served::sources(service);
        let families = served::of(&sources);
        sources.push(kit.clone());
        let rows = rows(&families, &sources, &mut without);
        let _ =
            write!(text, "\n## {service}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n{rows}");
    }
    assert!(without.is_empty(), "no help is found for {without:?}");
    golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/metrics.md"), &text);
}
