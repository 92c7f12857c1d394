//! The configuration file: the keys of both generations of upstream's schedulers, and ours. All errors are reported at once.

use std::time::Duration;

use neonvm_types::Resources;
use serde_json::{Map, Value};

use super::Config;

/// Everything that is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct FileErrors(pub Vec<String>);

/// Keys that are understood and have no effect here: queues, workers and ports that we do not have.
const WITHOUT_EFFECT: [&str; 8] = [
    "reconcileWorkers",
    "logSuccessiveFailuresThreshold",
    "startupEventHandlingTimeoutSeconds",
    "patchRetryWaitSeconds",
    "eventQueueWorkers",
    "migrationDeletionRetrySeconds",
    "dumpState",
    "$schema",
];

/// Applies the file to a configuration. Returns the keys that have no effect.
///
/// # Errors
/// All that is wrong: not JSON, unknown keys, values out of range.
pub fn apply(config: &mut Config, text: &str) -> Result<Vec<&'static str>, FileErrors> {
    let all: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| FileErrors(vec![format!("not a JSON object: {error}")]))?;
    let mut reader = Reader { errors: Vec::new() };
    let mut idle = Vec::new();
    for (key, value) in &all {
        if let Some(key) = WITHOUT_EFFECT.iter().find(|known| *known == key) {
            idle.push(*key);
            continue;
        }
        reader.key(config, key, value);
    }
    reader.errors.extend(config.settings.validate().iter().map(ToString::to_string));
    if config.scheduler_name.is_empty() {
        reader.errors.push("schedulerName: must not be empty".to_owned());
    }
    if reader.errors.is_empty() { Ok(idle) } else { Err(FileErrors(reader.errors)) }
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
            "ignoredNamespaces" | "ignoreNamespaces" => {
                match serde_json::from_value::<Option<Vec<String>>>(value.clone()) {
                    Ok(list) => settings.ignored_namespaces.extend(list.unwrap_or_default()),
                    Err(_) => self.wrong(key, "must be a list of namespaces"),
                }
            }
            "nodeMetricLabels" => match serde_json::from_value(value.clone()) {
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
            "randomizeScores" => self.flag(key, value, &mut settings.scoring.randomise),
            // Absent or null is off: planned migrations are only shown until the option is set.
            "doMigration" if value.is_null() => {}
            "doMigration" => self.flag(key, value, &mut settings.do_migration),
            "migrationsPerNode" => match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
                Some(count) => settings.migrations_per_node = count,
                None => self.wrong(key, "must be a whole number"),
            },
            "computeUnit" => match serde_json::from_value::<Resources>(value.clone()) {
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
            key if key.eq_ignore_ascii_case("randomize") => self.flag(path, value, &mut scoring.randomise),
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
            "minUsageScore" | "maxUsageScore" | "scorePeak" => self.scoring(config, key, path, value),
            _ => self.wrong(path, "unknown key"),
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
        assert!(!config.settings.do_migration);
        assert_eq!(config.node_metric_labels.len(), 2);
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
            "wotermark: unknown key",
            "k8sCRUDTimeoutSeconds: must be a whole number",
            "computeUnit: vCPUs must not be 0",
            "nodeConfig.cpu.system: unknown key",
        ] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
        assert!(apply(&mut Config::default(), "[]").is_err());
    }
}
