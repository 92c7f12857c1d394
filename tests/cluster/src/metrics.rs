//! Checks of a page of metrics.

use std::collections::{BTreeMap, BTreeSet};

use prometheus_parse::Scrape;

/// The families of a page in their order, each as `NAME TYPE LABEL…`, after everything that Prometheus asks of a page was
/// found: each family comes once, with help and type, before its samples; no series comes twice; all values are numbers.
/// A family's labels are those of its first sample, without `le`.
#[must_use]
pub fn families(page: &str) -> Vec<String> {
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let mut families: Vec<(String, String, Option<String>)> = Vec::new();
    let mut help: BTreeMap<&str, &str> = BTreeMap::new();
    let mut series = BTreeSet::new();
    for line in page.lines() {
        if let Some((name, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            assert!(help.insert(name, text).is_none(), "{name} has help twice");
            assert!(!text.is_empty(), "{name} has no help");
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            assert!(help.contains_key(name), "{name} has no help");
            assert!(families.iter().all(|(own, ..)| own != name), "{name} twice");
            families.push((name.to_owned(), kind.to_owned(), None));
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(value.trim_start_matches('+').parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(sample), "{sample} twice");
            let (family, kind, labels) = families.last_mut().unwrap();
            let name = sample.split('{').next().unwrap();
            let is_own = match name.strip_prefix(family.as_str()).unwrap_or("another") {
                "" => kind != "histogram",
                "_bucket" | "_sum" | "_count" => kind == "histogram",
                _ => false,
            };
            assert!(is_own, "{line} among samples of {family}");
            labels.get_or_insert_with(|| names(sample));
        }
    }
    families
        .into_iter()
        .map(|(name, kind, labels)| format!("{name} {kind}{}", labels.unwrap_or_default()))
        .collect()
}

/// The names of the labels of a sample, each after a space. What is between quotes is a value.
fn names(sample: &str) -> String {
    let mut names = String::new();
    let mut rest = sample.split_once('{').map_or("", |(_, labels)| labels);
    while let Some((name, value)) = rest.split_once("=\"") {
        let name = name.trim_start_matches(',');
        if name != "le" {
            names = format!("{names} {name}");
        }
        let mut is_escaped = false;
        let end = value.find(|character| {
            let is_end = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            is_end
        });
        rest = &value[end.unwrap() + 1..];
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiServer;

    #[tokio::test]
    async fn names_of_the_api_server_stay() {
        let server = ApiServer::start().await;
        server.client.apiserver_version().await.unwrap();
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = server.client.request_text(request).await.unwrap();
        let expected = [
            "apiserver_request_total counter verb code",
            "apiserver_request_duration_seconds histogram verb",
            "apiserver_longrunning_requests gauge verb",
            "apiserver_storage_objects gauge resource",
            "neonvm_apiserver_revision counter",
        ];
        assert_eq!(families(&text), expected);
    }

    #[test]
    fn labels_are_found_between_values() {
        assert_eq!(names("a_bucket{x=\"=\\\"{,y=\",z=\"\\\\\",le=\"1\"}"), " x z");
        assert_eq!(names("a"), "");
    }

    #[test]
    #[should_panic(expected = "b_total has no help")]
    fn help_is_asked_for() {
        let _ = families("# HELP a A.\n# TYPE a gauge\na 1\n# TYPE b_total counter\nb_total 1\n");
    }

    #[test]
    #[should_panic(expected = "among samples of b")]
    fn samples_stay_together() {
        let _ = families("# HELP a A.\n# TYPE a gauge\n# HELP b B.\n# TYPE b gauge\nb 1\na 1\n");
    }
}
