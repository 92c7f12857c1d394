//! Validation of scenarios.

use std::time::Duration;

use neonvm_types::{Bytes, MilliCpu};

use super::{Demand, Scenario};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Error {
    /// Where, such as `vms[0].max`.
    pub field: String,
    pub reason: String,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Error {
    pub(super) fn syntax(error: &serde_saphyr::Error) -> Self {
        Self { field: "scenario".to_owned(), reason: error.to_string() }
    }
}

/// `Err` unless `good`.
fn need(good: bool, field: impl Into<String>, reason: impl Into<String>) -> Result<(), Error> {
    if good { Ok(()) } else { Err(Error { field: field.into(), reason: reason.into() }) }
}

fn count(field: String, value: u64, low: u64, high: u64) -> Result<(), Error> {
    need((low..=high).contains(&value), field, format!("{value} must be between {low} and {high}"))
}

fn span(field: impl Into<String>, value: Duration, low: Duration, high: Duration) -> Result<(), Error> {
    need(
        (low..=high).contains(&value),
        field,
        format!(
            "{}s must be between {}s and {}s",
            value.as_secs_f64(),
            low.as_secs_f64(),
            high.as_secs_f64()
        ),
    )
}

fn name(field: String, value: &str) -> Result<(), Error> {
    let good = !value.is_empty()
        && value.len() <= 40
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    need(good, field, "write 1 to 40 lower-case letters, digits and dashes")
}

fn demand(field: &str, demand: &Demand) -> Result<(), Error> {
    let (levels, spans) = demand.parts();
    need((1..=1000).contains(&levels.len()), format!("{field}.levels"), "write 1 to 1000 levels")?;
    for (key, level) in levels {
        let good = (0.0..=10_000.0).contains(&level);
        need(good, format!("{field}.{key}"), format!("{level} must be between 0 and 10000 compute units"))?;
    }
    for (key, length) in spans {
        span(format!("{field}.{key}"), length, Duration::from_secs(1), DAY * 31)?;
    }
    need(!demand.is_crossed(), format!("{field}.low"), "must not be above high")
}

impl Scenario {
    /// Checks what a file can get wrong.
    ///
    /// # Errors
    /// Names the first field that is wrong, and what to write.
    pub fn check(&self) -> Result<(), Error> {
        name("name".into(), &self.name)?;
        span("duration", self.duration, Duration::from_secs(1), DAY * 31)?;
        // Load averages need a quarter of an hour; then every agent must have looked a few times.
        let least = Duration::from_secs(15 * 60) + self.settings.idle_scrape.min(DAY) * 3;
        span("quiet", self.quiet, least, DAY)?;
        self.check_settings()?;
        self.check_nodes()?;
        self.check_vms()?;
        let people = &self.people;
        for (key, rate) in [
            ("creates", people.creates),
            ("deletes", people.deletes),
            ("bounds", people.bounds),
            ("holds", people.holds),
            ("cordons", people.cordons),
            ("drains", people.drains),
            ("moves", people.moves),
            ("cancels", people.cancels),
        ] {
            let good = (0.0..=36_000.0).contains(&rate);
            need(good, format!("people.{key}"), format!("{rate} must be between 0 and 36000 an hour"))?;
        }
        Ok(())
    }

    fn check_settings(&self) -> Result<(), Error> {
        let settings = &self.settings;
        let second = Duration::from_secs(1);
        span("settings.scrape", settings.scrape, second, Duration::from_secs(60))?;
        span("settings.idleScrape", settings.idle_scrape, settings.scrape, Duration::from_secs(3600))?;
        span("settings.tick", settings.tick, second, Duration::from_secs(3600))?;
        span("settings.migrationTakes", settings.migration_takes, second, Duration::from_secs(3600))?;
        let share = settings.watermark > 0.0 && settings.watermark <= 1.0;
        need(share, "settings.watermark", "must be above 0 and at most 1")?;
        let cpu = (MilliCpu::new(50)..=MilliCpu::from_cpus(64)).contains(&settings.unit_cpu);
        need(cpu, "settings.unitCpu", "must be between 50m and 64")?;
        let slot = (Bytes::mib(64)..=Bytes::gib(64)).contains(&settings.slot);
        need(slot, "settings.slot", "must be between 64Mi and 64Gi")?;
        let unit = settings.unit_memory <= Bytes::gib(256)
            && settings.unit_memory != Bytes::ZERO
            && settings.unit_memory.is_multiple_of(settings.slot);
        need(unit, "settings.unitMemory", "must be a multiple of settings.slot, at most 256Gi")
    }

    fn check_nodes(&self) -> Result<(), Error> {
        need(!self.nodes.is_empty(), "nodes", "write at least one group of nodes")?;
        for (index, group) in self.nodes.iter().enumerate() {
            let at = |key: &str| format!("nodes[{index}].{key}");
            name(at("name"), &group.name)?;
            count(at("count"), group.count.into(), 1, 5_000)?;
            need(group.cpu >= MilliCpu::new(1000), at("cpu"), "must be at least 1")?;
            need(group.memory >= Bytes::gib(1), at("memory"), "must be at least 1Gi")?;
            let mut sum = (0_u64, 0_u64);
            for (other, pods) in group.pods.iter().enumerate() {
                let at = |key: &str| format!("nodes[{index}].pods[{other}].{key}");
                count(at("count"), pods.count.into(), 1, 100)?;
                if let Some(lasts) = pods.lasts {
                    span(at("lasts"), lasts, Duration::from_secs(10), DAY * 31)?;
                }
                let all = u64::from(pods.count);
                sum.0 = sum.0.saturating_add(u64::from(pods.cpu.milli()).saturating_mul(all));
                sum.1 = sum.1.saturating_add(pods.memory.get().saturating_mul(all));
            }
            let fits = sum.0 <= u64::from(group.cpu.milli()) && sum.1 <= group.memory.get();
            need(fits, at("pods"), "request more than a node offers; make them fewer or the node larger")?;
        }
        count("nodes".into(), self.node_count(), 1, 5_000)?;
        let pods = self.nodes.iter().map(|group| {
            u64::from(group.count) * group.pods.iter().map(|pods| u64::from(pods.count)).sum::<u64>()
        });
        count("nodes.pods".into(), pods.sum(), 0, 100_000)
    }

    fn check_vms(&self) -> Result<(), Error> {
        need(!self.vms.is_empty(), "vms", "write at least one group of VMs")?;
        for (index, group) in self.vms.iter().enumerate() {
            let at = |key: &str| format!("vms[{index}].{key}");
            name(at("name"), &group.name)?;
            count(at("count"), group.count.into(), 1, 100_000)?;
            count(at("max"), group.max.into(), 1, 1_000)?;
            count(at("min"), group.min.into(), 1, group.max.into())?;
            if let Some(start) = group.start {
                count(at("start"), start.into(), group.min.into(), group.max.into())?;
            }
            let unit = self.settings.unit();
            let cpu = u64::from(unit.vcpus.milli()) * u64::from(group.max);
            need(cpu <= 512_000, at("max"), "is above 512 CPUs; make it smaller, or settings.unitCpu")?;
            let slots = unit.mem.get() / self.settings.slot.get().max(1) * u64::from(group.max);
            need(
                slots <= u64::from(u16::MAX),
                at("max"),
                "needs more than 65535 slots; make settings.slot larger",
            )?;
            let overcommit = (1.0..=10.0).contains(&group.overcommit);
            need(overcommit, at("overcommit"), format!("{} must be between 1 and 10", group.overcommit))?;
            demand(&at("demand"), &group.demand)?;
            if let Some(memory) = &group.memory {
                demand(&at("memory"), memory)?;
            }
        }
        count("vms".into(), self.vm_count(), 1, 100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
name: small
description: A test.
duration: 10m
nodes: [{count: 2, cpu: 8, memory: 32Gi, pods: [{count: 2, cpu: 100m, memory: 64Mi}]}]
vms:
  - {name: db, count: 3, min: 1, max: 8, demand: {daily: {low: 1, high: 6}}}
";

    #[test]
    fn what_is_written_reads_back() {
        let scenario = Scenario::parse(GOOD).unwrap();
        assert_eq!((scenario.node_count(), scenario.vm_count()), (2, 3));
        let text = serde_saphyr::to_string(&scenario).unwrap();
        assert_eq!(Scenario::parse(&text).unwrap(), scenario, "{text}");
    }

    #[test]
    fn errors_name_the_field() {
        for (from, to, field) in [
            ("max: 8", "max: 0", "vms[0].max"),
            ("min: 1", "min: 9", "vms[0].min"),
            ("low: 1", "low: 7", "vms[0].demand.low"),
            ("low: 1", "low: -1", "vms[0].demand.low"),
            ("low: 1", "low: .nan", "vms[0].demand.low"),
            ("count: 3", "count: 200000", "vms[0].count"),
            ("cpu: 100m", "cpu: 5", "nodes[0].pods"),
            ("10m", "0s", "duration"),
            ("name: small", "name: Small", "name"),
            ("count: 2, cpu: 8", "count: 2, cup: 8", "scenario"),
            ("10m", "-10m", "scenario"),
            ("name: db", "name: db, guest: sleepy", "scenario"),
        ] {
            let error = Scenario::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
        let unknown = Scenario::parse(&format!("{GOOD}faults: crsh\n")).unwrap_err();
        assert!(unknown.to_string().contains("there is no fault \"crsh\""), "{unknown}");
    }
}
