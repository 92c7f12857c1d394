//! What the values of a configuration must be.

use super::{AgentConfig, Clients, FailedRate, Informant, MetricsSource, Push};

struct Faults(Vec<String>);

impl Faults {
    fn number(&mut self, key: &str, value: u64) {
        // A day: more is a mistake of units.
        if value == 0 || value > 86_400 {
            self.0.push(format!("{key} is {value}; it must be between 1 and 86400"));
        }
    }

    /// A time that may be none.
    fn time(&mut self, key: &str, value: u64) {
        if value > 86_400 {
            self.0.push(format!("{key} is {value}; it must be between 0 and 86400"));
        }
    }

    fn count(&mut self, key: &str, value: u64) {
        if value == 0 || value > 1_000_000 {
            self.0.push(format!("{key} is {value}; it must be between 1 and 1000000"));
        }
    }

    fn port(&mut self, key: &str, value: u16) {
        if value == 0 {
            self.0.push(format!("{key} is 0; it must be a TCP port, 1 to 65535"));
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.0.push(format!("{key} is empty; it must be set"));
        }
    }

    fn url(&mut self, key: &str, value: &str) {
        let http = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.query().is_none();
        if !reqwest::Url::parse(value).is_ok_and(|url| http(&url)) {
            self.0.push(format!("{key} is {value:?}; write http://… or https://…"));
        }
    }

    fn informant(&mut self, informant: &Informant) {
        for (key, port) in informant.ports() {
            self.port(&format!("informant.{key}"), port);
        }
        for (key, value) in informant.times() {
            self.number(&format!("informant.{key}"), value);
        }
        if let Err(reason) = informant.labels() {
            self.0.push(format!("informant.selector: {reason}; write labels as in a=b,c!=d"));
        }
    }

    fn rate(&mut self, key: &str, rate: FailedRate) {
        self.number(&format!("{key}.maxFailedRequestRate.intervalSeconds"), rate.interval_seconds);
    }

    fn source(&mut self, key: &str, source: MetricsSource) {
        self.port(&format!("{key}.port"), source.port);
        self.number(&format!("{key}.requestTimeoutSeconds"), source.request_timeout_seconds);
        self.number(&format!("{key}.secondsBetweenRequests"), source.seconds_between_requests);
    }

    fn push(&mut self, key: &str, push: Push) {
        self.number(&format!("{key}.pushEverySeconds"), push.push_every_seconds);
        self.number(&format!("{key}.pushRequestTimeoutSeconds"), push.push_request_timeout_seconds);
        self.count(&format!("{key}.maxBatchSize"), push.max_batch_size);
    }

    fn clients(&mut self, key: &str, clients: &Clients) {
        if let Some(http) = &clients.http {
            let key = format!("{key}.http");
            self.url(&format!("{key}.url"), &http.url);
            self.push(&key, http.push());
        }
        if let Some(s3) = &clients.s3 {
            let key = format!("{key}.s3");
            self.text(&format!("{key}.bucket"), &s3.bucket);
            self.text(&format!("{key}.region"), &s3.region);
            if !s3.endpoint.is_empty() {
                self.url(&format!("{key}.endpoint"), &s3.endpoint);
            }
            self.push(&key, s3.push());
        }
        if let Some(file) = &clients.file {
            let key = format!("{key}.file");
            self.text(&format!("{key}.directory"), &file.directory.display().to_string());
            self.push(&key, file.push());
        }
        if clients.azure_blob.is_some() {
            self.0.push(format!(
                "{key}.azureBlob is not supported; use {key}.s3 with a gateway, {key}.http or {key}.file"
            ));
        }
    }
}

/// All that is wrong.
pub(super) fn faults(config: &AgentConfig) -> Vec<String> {
    let mut faults = Faults(Vec::new());
    let unit = config.scaling.compute_unit;
    if let Err(error) = unit.validate_non_zero() {
        faults.0.push(format!("scaling.computeUnit.{error}"));
    }
    for fault in config.scaling.default_config.validate_complete() {
        faults.0.push(format!("scaling.defaultConfig.{fault}"));
    }
    let monitor = config.monitor;
    faults.port("monitor.serverPort", monitor.server_port);
    for (key, value) in [
        ("responseTimeoutSeconds", monitor.response_timeout_seconds),
        ("connectionTimeoutSeconds", monitor.connection_timeout_seconds),
        ("connectionRetryMinWaitSeconds", monitor.connection_retry_min_wait_seconds),
        ("unhealthyAfterSilenceDurationSeconds", monitor.unhealthy_after_silence_duration_seconds),
        ("maxHealthCheckSequentialFailuresSeconds", monitor.max_health_check_sequential_failures_seconds),
        ("retryDeniedDownscaleSeconds", monitor.retry_denied_downscale_seconds),
        ("requestedUpscaleValidSeconds", monitor.requested_upscale_valid_seconds),
        ("retryFailedRequestSeconds", monitor.retry_failed_request_seconds),
    ] {
        faults.number(&format!("monitor.{key}"), value);
    }
    faults.time("monitor.unhealthyStartupGracePeriodSeconds", monitor.unhealthy_startup_grace_period_seconds);
    faults.rate("monitor", monitor.max_failed_request_rate);
    config.informant.iter().for_each(|informant| faults.informant(informant));
    faults.source("metrics.system", config.metrics.system);
    faults.source("metrics.lfc", config.metrics.lfc);
    let scheduler = &config.scheduler;
    faults.text("scheduler.schedulerName", &scheduler.scheduler_name);
    faults.port("scheduler.requestPort", scheduler.request_port);
    for (key, value) in [
        ("requestTimeoutSeconds", scheduler.request_timeout_seconds),
        ("requestAtLeastEverySeconds", scheduler.request_at_least_every_seconds),
        ("retryFailedRequestSeconds", scheduler.retry_failed_request_seconds),
        ("retryDeniedUpscaleSeconds", scheduler.retry_denied_upscale_seconds),
    ] {
        faults.number(&format!("scheduler.{key}"), value);
    }
    faults.rate("scheduler", scheduler.max_failed_request_rate);
    faults.number("neonvm.requestTimeoutSeconds", config.neonvm.request_timeout_seconds);
    faults.number("neonvm.retryFailedRequestSeconds", config.neonvm.retry_failed_request_seconds);
    faults.rate("neonvm", config.neonvm.max_failed_request_rate);
    if let Some(billing) = &config.billing {
        faults.text("billing.cpuMetricName", &billing.cpu_metric_name);
        faults.text("billing.activeTimeMetricName", &billing.active_time_metric_name);
        faults.number("billing.collectEverySeconds", billing.collect_every_seconds);
        faults.number("billing.accumulateEverySeconds", billing.accumulate_every_seconds);
        faults.clients("billing.clients", &billing.clients);
    }
    if let Some(events) = &config.scaling_events {
        let good = |value: f64| value.is_finite() && value > 0.0;
        for (key, value) in
            [("cuMultiplier", events.cu_multiplier), ("rereportThreshold", events.rereport_threshold)]
        {
            if !good(value) {
                faults.0.push(format!("scalingEvents.{key} is {value}; it must be above 0"));
            }
        }
        faults.text("scalingEvents.regionName", &events.region_name);
        if events.clients.http.is_some() {
            faults.0.push("scalingEvents.clients.http is not supported; use s3 or file".into());
        }
        faults.clients("scalingEvents.clients", &events.clients);
    }
    if let Some(dump) = config.dump_state {
        faults.port("dumpState.port", dump.port);
        faults.number("dumpState.timeoutSeconds", dump.timeout_seconds);
    }
    faults.0
}
