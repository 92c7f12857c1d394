//! The configuration file, of every version ([`neonvm_api::service_config`]). All errors are reported at once.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use neonvm_api::service_config;
use neonvm_core_scheduling::permits::Pair;
use neonvm_types::{Resources, objects};
use serde::Deserialize;
use serde_json::Value;

use super::Config;

/// Everything that is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct FileErrors(pub Vec<String>);

/// Applies the file to a configuration. Returns the keys that have no effect, with the reason.
///
/// # Errors
/// All that is wrong: not JSON, unknown keys, values out of range.
pub fn apply(config: &mut Config, text: &str) -> Result<Vec<String>, FileErrors> {
    let file = service_config::scheduler(text).map_err(|error| FileErrors(vec![error.to_string()]))?;
    let mut reader = Reader { errors: file.faults.clone() };
    for (key, value) in file.document.as_object().into_iter().flatten() {
        reader.key(config, key, value);
    }
    reader.errors.extend(config.settings.validate().iter().map(ToString::to_string));
    if config.scheduler_name.is_empty() {
        reader.errors.push("schedulerName: must not be empty".to_owned());
    }
    if !reader.errors.is_empty() {
        return Err(FileErrors(reader.errors));
    }
    Ok(file.without_effect().map(|key| format!("{}: {}", key.key, key.text)).collect())
}

struct Reader {
    errors: Vec<String>,
}

impl Reader {
    fn wrong(&mut self, key: &str, what: &str) {
        self.errors.push(format!("{key}: {what}"));
    }

    fn key(&mut self, config: &mut Config, key: &str, value: &Value) {
        let settings = &mut config.settings;
        match key {
            "watermark" => {
                self.number(key, value, &mut settings.watermark.cpu);
                settings.watermark.mem = settings.watermark.cpu;
            }
            "scoring" => self.object(config, key, value, Self::scoring),
            "nodeConfig" => self.object(config, key, value, Self::node_config),
            "schedulerName" => self.text(key, value, &mut config.scheduler_name),
            "ignoredNamespaces" => match objects::from_value::<Option<Vec<String>>>(value.clone()) {
                Ok(list) => settings.ignored_namespaces.extend(list.unwrap_or_default()),
                Err(_) => self.wrong(key, "must be a list of namespaces"),
            },
            "nodeMetricLabels" => match objects::from_value(value.clone()) {
                Ok(labels) => config.node_metric_labels = labels,
                Err(_) => self.wrong(key, "must be an object of texts"),
            },
            "k8sNodeGroupLabel" | "k8sAvailabilityZoneLabel" => {
                let mut label = String::new();
                self.text(key, value, &mut label);
                let ours = if key == "k8sNodeGroupLabel" { "node_group" } else { "availability_zone" };
                if !label.is_empty() {
                    config.node_metric_labels.insert(ours.to_owned(), label);
                }
            }
            "k8sCRUDTimeoutSeconds" => match value.as_u64().filter(|seconds| (1..=600).contains(seconds)) {
                Some(seconds) => config.request_timeout = Duration::from_secs(seconds),
                None => self.wrong(key, "must be a whole number between 1 and 600"),
            },
            "nodeOverrides" => match overrides(value) {
                Ok(overrides) => settings.node_watermarks = overrides,
                Err(error) => self.wrong(key, &error),
            },
            "dumpState" => self.object(config, key, value, Self::dump_state),
            "doMigration" => self.flag(key, value, &mut settings.do_migration),
            "migrationsPerNode" => match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
                Some(count) => settings.migrations_per_node = count,
                None => self.wrong(key, "must be a whole number"),
            },
            "computeUnit" => match objects::from_value::<Resources>(value.clone()) {
                Ok(unit) => settings.compute_unit = unit,
                Err(error) => self.wrong(key, &error.to_string()),
            },
            _ => self.wrong(key, "unknown key"),
        }
    }

    fn object(
        &mut self,
        config: &mut Config,
        key: &str,
        value: &Value,
        each: fn(&mut Self, &mut Config, &str, &str, &Value),
    ) {
        let Some(map) = value.as_object() else { return self.wrong(key, "must be an object") };
        for (inner, value) in map {
            each(self, config, inner, &format!("{key}.{inner}"), value);
        }
    }

    fn scoring(&mut self, config: &mut Config, key: &str, path: &str, value: &Value) {
        let scoring = &mut config.settings.scoring;
        match key {
            "minUsageScore" => self.number(path, value, &mut scoring.min_usage),
            "maxUsageScore" => self.number(path, value, &mut scoring.max_usage),
            "scorePeak" => self.number(path, value, &mut scoring.peak),
            "randomize" => self.flag(path, value, &mut scoring.randomise),
            _ => self.wrong(path, "unknown key"),
        }
    }

    fn node_config(&mut self, config: &mut Config, key: &str, path: &str, value: &Value) {
        match key {
            "cpu" | "memory" => self.object(config, path, value, |reader, config, key, path, value| {
                let watermark = &mut config.settings.watermark;
                let place = if path.contains(".cpu.") { &mut watermark.cpu } else { &mut watermark.mem };
                match key {
                    "watermark" => reader.number(path, value, place),
                    _ => reader.wrong(path, "unknown key"),
                }
            }),
            _ => self.wrong(path, "unknown key"),
        }
    }

    fn dump_state(&mut self, config: &mut Config, key: &str, path: &str, value: &Value) {
        match value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
            Some(port) => config.dump_state = Some((Ipv4Addr::LOCALHOST, port).into()),
            None => self.wrong(path, &format!("{key} must be a TCP port, 1 to 65535")),
        }
    }

    fn number(&mut self, key: &str, value: &Value, place: &mut f64) {
        match value.as_f64() {
            Some(number) => *place = number,
            None => self.wrong(key, "must be a number"),
        }
    }

    fn flag(&mut self, key: &str, value: &Value, place: &mut bool) {
        match value.as_bool() {
            Some(flag) => *place = flag,
            None => self.wrong(key, "must be true or false"),
        }
    }

    fn text(&mut self, key: &str, value: &Value, place: &mut String) {
        match value.as_str() {
            Some(text) => text.clone_into(place),
            None => self.wrong(key, "must be a text"),
        }
    }
}

/// Watermarks of single nodes; as upstream, the first entry that names a node counts.
fn overrides(value: &Value) -> Result<BTreeMap<String, Pair<f64>>, String> {
    #[derive(Deserialize)]
    struct Entry {
        nodes: Vec<String>,
        config: NodeConfig,
    }
    #[derive(Deserialize)]
    struct NodeConfig {
        cpu: Part,
        memory: Part,
    }
    #[derive(Deserialize)]
    struct Part {
        watermark: f64,
    }
    let entries: Vec<Entry> = objects::from_value(value.clone()).map_err(|error| error.to_string())?;
    let mut all = BTreeMap::new();
    for Entry { nodes, config } in entries {
        for node in nodes {
            all.entry(node).or_insert(Pair::new(config.cpu.watermark, config.memory.watermark));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_both_generations_are_read() {
        let mut config = Config::default();
        let head = r#"{"scoring":{"minUsageScore":0.4,"maxUsageScore":0.1,"scorePeak":0.7,"Randomize":false},"watermark":0.8,
            "schedulerName":"s","reconcileWorkers":16,"logSuccessiveFailuresThreshold":10,"startupEventHandlingTimeoutSeconds":15,
            "k8sCRUDTimeoutSeconds":1,"patchRetryWaitSeconds":1,"nodeMetricLabels":{"az":"topology.kubernetes.io/zone"},
            "ignoredNamespaces":["overprovisioning"]}"#;
        assert_eq!(apply(&mut config, head).unwrap().len(), 4);
        let settings = &config.settings;
        assert_eq!((settings.watermark.cpu, settings.watermark.mem, settings.scoring.peak), (0.8, 0.8, 0.7));
        assert!(!settings.scoring.randomise && settings.ignored_namespaces.contains("overprovisioning"));
        assert_eq!(config.request_timeout, Duration::from_secs(1));

        let mut config = Config::default();
        let v31 = r#"{"nodeConfig":{"cpu":{"watermark":0.7},"memory":{"watermark":0.6},"minUsageScore":0.5,"maxUsageScore":0,
            "scorePeak":0.8},"schedulerName":"s","eventQueueWorkers":64,"startupEventHandlingTimeoutSeconds":15,
            "randomizeScores":true,"migrationDeletionRetrySeconds":5,"doMigration":null,"k8sNodeGroupLabel":"g",
            "k8sAvailabilityZoneLabel":"z","ignoreNamespaces":[],"dumpState":{"port":10298,"timeoutSeconds":5}}"#;
        apply(&mut config, v31).unwrap();
        assert_eq!((config.settings.watermark.cpu, config.settings.watermark.mem), (0.7, 0.6));
        assert!(config.settings.do_migration, "null is true there");
        assert_eq!(config.node_metric_labels.len(), 2);
    }

    #[test]
    fn a_list_is_no_object() {
        for (text, key) in [
            (r#"{"computeUnit":[0.25,"1Gi"]}"#, "computeUnit"),
            (r#"{"nodeOverrides":[[["n"]]]}"#, "nodeOverrides"),
            (r#"{"scoring":[0.5]}"#, "scoring"),
        ] {
            let errors = apply(&mut Config::default(), text).unwrap_err().0;
            assert!(errors.iter().any(|error| error.starts_with(key)), "{text}: {errors:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_named_at_once() {
        let text = r#"{"watermark":1.5,"schedulerName":"","scoring":{"peak":1,"scorePeak":"x"},"doMigration":1,"wotermark":1,
            "k8sCRUDTimeoutSeconds":0,"computeUnit":{"vCPUs":0,"mem":"1Gi"},"nodeConfig":{"cpu":{"system":1}}}"#;
        let errors = apply(&mut Config::default(), text).unwrap_err().to_string();
        for part in [
            "watermark.cpu: 1.5 must be above 0 and at most 1",
            "schedulerName: must not be empty",
            "scoring.peak: unknown key",
            "scoring.scorePeak: must be a number",
            "doMigration: must be true or false",
            "wotermark: unknown key; remove it",
            "k8sCRUDTimeoutSeconds: must be a whole number",
            "computeUnit: vCPUs must not be 0",
            "nodeConfig.cpu.system: unknown key",
        ] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
        assert!(apply(&mut Config::default(), "[]").is_err());
    }
}
