//! The window of usage that is open, from its beginning to its events.

use std::time::Duration;

use k8s_openapi::jiff;
use neonvm_api::names::{TRUE, annotation, label};
use neonvm_types::MilliCpu;

use super::{Account, Ledger, Names, Usage};
use crate::config::{AgentConfig, Billing, seconds};
use crate::exporter::Exporter;
use crate::fleet::Fleet;

/// Bills for as long as it is not dropped; the last window is closed when it is.
pub(crate) async fn bill(config: &AgentConfig, fleet: &Fleet, exporters: &[Exporter]) {
    let Some(billing) = config.billing.as_ref().filter(|_| !exporters.is_empty()) else {
        return std::future::pending().await;
    };
    let mut window = Window::new(billing, exporters, || usages(fleet));
    let mut look = tokio::time::interval(seconds(billing.collect_every_seconds));
    let every = seconds(billing.accumulate_every_seconds);
    let mut close = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    loop {
        tokio::select! {
            _ = look.tick() => window.look(),
            _ = close.tick() => {
                for line in window.close() {
                    for exporter in exporters {
                        exporter.send(line.clone()).await;
                    }
                }
            }
        }
    }
}

struct Window<'a, F: Fn() -> Vec<Usage>> {
    ledger: Ledger,
    started: tokio::time::Instant,
    exporters: &'a [Exporter],
    usages: F,
}

impl<'a, F: Fn() -> Vec<Usage>> Window<'a, F> {
    fn new(billing: &Billing, exporters: &'a [Exporter], usages: F) -> Self {
        let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        let names = Names {
            cpu: billing.cpu_metric_name.clone(),
            active: billing.active_time_metric_name.clone(),
            host: host.unwrap_or_else(|| "agent".to_owned()),
        };
        let ledger = Ledger::new(names, Duration::ZERO, jiff::Timestamp::now());
        Self { ledger, started: tokio::time::Instant::now(), exporters, usages }
    }

    fn look(&mut self) {
        self.ledger.look(self.started.elapsed(), (self.usages)());
    }

    fn close(&mut self) -> Vec<String> {
        let events = self.ledger.close(jiff::Timestamp::now());
        events.iter().filter_map(|event| serde_json::to_string(event).ok()).collect()
    }
}

impl<F: Fn() -> Vec<Usage>> Drop for Window<'_, F> {
    fn drop(&mut self) {
        // What was used since the last events, and since the last look, is not given away.
        self.look();
        for line in self.close() {
            for exporter in self.exporters {
                if !exporter.try_send(line.clone()) {
                    tracing::error!(line, "a billing event is lost: its queue is full");
                }
            }
        }
    }
}

fn usages(fleet: &Fleet) -> Vec<Usage> {
    let objects = fleet.objects();
    fleet.metrics().sampled(objects.iter().map(|vm| {
        let has = |all: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
            all.as_ref().and_then(|all| all.get(key)).cloned()
        };
        let phase = vm.status.as_ref().and_then(|status| status.phase);
        (
            has(&vm.metadata.annotations, annotation::BILLING_ENDPOINT_ID).is_some(),
            has(&vm.metadata.labels, label::SCALING_ENABLED).is_some_and(|value| value == TRUE),
            phase.map(|phase| format!("{phase:?}")).unwrap_or_default(),
        )
    }));
    let billed = |vm: neonvm_api::VirtualMachine| {
        let endpoint = vm.metadata.annotations.as_ref()?.get(annotation::BILLING_ENDPOINT_ID)?.clone();
        let status =
            vm.status.as_ref().filter(|status| status.phase.is_some_and(|phase| phase.is_alive()))?;
        let cpu_milli = status.cpus.map(MilliCpu::milli)?;
        Some(Usage { account: Account { uid: vm.metadata.uid?, endpoint }, cpu_milli })
    };
    objects.into_iter().filter_map(billed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream gives away what was used since the last events; and since the last look there may be seconds more.
    #[tokio::test(start_paused = true)]
    async fn the_last_window_reaches_to_its_end() {
        let billing = Billing {
            cpu_metric_name: "cpu".into(),
            active_time_metric_name: "active".into(),
            collect_every_seconds: 60,
            accumulate_every_seconds: 600,
            clients: crate::config::Clients::default(),
        };
        let (exporter, mut sent) = Exporter::for_tests(8);
        let usage = || {
            let account = Account { uid: "u".into(), endpoint: "ep-x".into() };
            vec![Usage { account, cpu_milli: 500 }]
        };
        let exporters = [exporter];
        let mut window = Window::new(&billing, &exporters, usage);
        window.look();
        tokio::time::advance(Duration::from_secs(20)).await;
        drop(window);
        for (metric, value) in [("cpu", 10), ("active", 20)] {
            let event: serde_json::Value = serde_json::from_str(&sent.try_recv().unwrap()).unwrap();
            assert_eq!((event["metric"].as_str(), event["value"].as_u64()), (Some(metric), Some(value)));
        }
    }
}
