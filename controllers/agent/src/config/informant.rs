//! The section `informant`: guests that speak the informant's protocol (up to v0.17 of upstream) instead of the monitor's.
//!
//! With the section, a VM whose guest has no monitor is tried with the informant's protocol. The keys and their values are
//! those of upstream's v0.10 and v0.17; `selector` and `skipMonitor` choose VMs and are of our own.

use neonvm_types::informant_protocol::{CALLBACK_PORT, INFORMANT_PORT};
use neonvm_types::selector::{self, Requirement};
use serde::{Deserialize, Serialize};

/// How informants are reached, and which VMs have one. Absent keys have the values that upstream ships.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Informant {
    /// TCP port of the informant in the guest.
    pub server_port: u16,
    /// TCP port on which the agent serves informants, for all VMs. Upstream before v0.15 used a free port for each VM.
    pub callback_port: u16,
    /// Labels of VMs whose guest may have an informant, as in `a=b,c!=d`. Empty: all.
    pub selector: String,
    /// Whether these VMs are not tried with the monitor's protocol first.
    pub skip_monitor: bool,
    /// Least time from the beginning of one registration to that of the next.
    pub retry_server_min_wait_seconds: u64,
    /// Time after a registration that failed.
    pub retry_server_normal_wait_seconds: u64,
    /// Time after a `/register` that was not answered.
    pub register_retry_seconds: u64,
    /// Time for `/health-check`.
    pub request_timeout_seconds: u64,
    /// Time for `/register` and `/unregister`.
    pub register_timeout_seconds: u64,
    /// Time for `/downscale` and `/upscale`.
    pub downscale_timeout_seconds: u64,
    /// A running registration without any successful exchange for so long is made again.
    pub unhealthy_after_silence_duration_seconds: u64,
    /// Time for the first `/resume` after `/register`; then it is made again.
    pub unhealthy_startup_grace_period_seconds: u64,
}

impl Default for Informant {
    fn default() -> Self {
        Self {
            server_port: INFORMANT_PORT,
            callback_port: CALLBACK_PORT,
            selector: String::new(),
            skip_monitor: false,
            retry_server_min_wait_seconds: 5,
            retry_server_normal_wait_seconds: 5,
            register_retry_seconds: 5,
            request_timeout_seconds: 1,
            register_timeout_seconds: 2,
            downscale_timeout_seconds: 2,
            unhealthy_after_silence_duration_seconds: 20,
            unhealthy_startup_grace_period_seconds: 20,
        }
    }
}

impl Informant {
    pub(super) const fn ports(&self) -> [(&'static str, u16); 2] {
        [("serverPort", self.server_port), ("callbackPort", self.callback_port)]
    }

    /// Its times in seconds, by key.
    pub(super) const fn times(&self) -> [(&'static str, u64); 8] {
        [
            ("retryServerMinWaitSeconds", self.retry_server_min_wait_seconds),
            ("retryServerNormalWaitSeconds", self.retry_server_normal_wait_seconds),
            ("registerRetrySeconds", self.register_retry_seconds),
            ("requestTimeoutSeconds", self.request_timeout_seconds),
            ("registerTimeoutSeconds", self.register_timeout_seconds),
            ("downscaleTimeoutSeconds", self.downscale_timeout_seconds),
            ("unhealthyAfterSilenceDurationSeconds", self.unhealthy_after_silence_duration_seconds),
            ("unhealthyStartupGracePeriodSeconds", self.unhealthy_startup_grace_period_seconds),
        ]
    }

    /// What `selector` requires of labels.
    pub(super) fn labels(&self) -> Result<Vec<Requirement>, String> {
        selector::parse(&self.selector)
    }

    /// Whether the guest of a VM with these labels may have an informant.
    pub(crate) fn selects<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.labels().is_ok_and(|all| all.iter().all(|one| one.holds(&label)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::AgentConfig;
    use super::*;

    fn parse(section: serde_json::Value) -> Result<Option<Informant>, String> {
        let mut all = serde_json::to_value(AgentConfig::default()).unwrap();
        all["informant"] = section;
        let read = AgentConfig::parse(&all.to_string(), "c");
        read.map(|config| config.informant).map_err(|error| error.to_string())
    }

    /// The section of the file that upstream's v0.10 ships, and that of v0.17 with its callback port.
    #[test]
    fn upstreams_sections_are_accepted() {
        let mut section = serde_json::json!({
            "serverPort": 10301, "retryServerMinWaitSeconds": 5, "retryServerNormalWaitSeconds": 5,
            "registerRetrySeconds": 5, "requestTimeoutSeconds": 1, "registerTimeoutSeconds": 2,
            "downscaleTimeoutSeconds": 2, "unhealthyAfterSilenceDurationSeconds": 20,
            "unhealthyStartupGracePeriodSeconds": 20,
        });
        assert_eq!(parse(section.clone()).unwrap(), Some(Informant::default()));
        section["callbackPort"] = 10302.into();
        assert_eq!(parse(section).unwrap(), Some(Informant::default()));
        assert_eq!(parse(serde_json::Value::Null).unwrap(), None, "absent by default");
    }

    #[test]
    fn every_wrong_value_is_named() {
        for (key, value, part) in [
            ("serverPort", serde_json::json!(0), "informant.serverPort is 0"),
            ("callbackPort", 0.into(), "informant.callbackPort is 0"),
            (
                "registerRetrySeconds",
                0.into(),
                "informant.registerRetrySeconds is 0; it must be between 1 and",
            ),
            ("requestTimeoutSeconds", 90_000.into(), "informant.requestTimeoutSeconds is 90000"),
            ("selector", "a=b=".into(), "informant.selector: "),
            ("colour", 1.into(), "informant.colour: unknown key"),
        ] {
            let error = parse(serde_json::json!({ key: value })).unwrap_err();
            assert!(error.contains(part), "{key}: {error}");
        }
    }

    #[test]
    fn vms_are_chosen_by_their_labels() {
        let informant = Informant { selector: "age=old,!new".into(), ..Informant::default() };
        let with = |labels: &'static [(&str, &str)]| {
            informant.selects(|key| labels.iter().find(|(own, _)| *own == key).map(|(_, value)| *value))
        };
        assert!(with(&[("age", "old")]));
        assert!(!with(&[("age", "old"), ("new", "")]));
        assert!(!with(&[]));
        assert!(Informant::default().selects(|_| None));
    }
}
