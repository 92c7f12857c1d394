//! Which series are wanted, and what they must look like.

use std::{collections::BTreeMap, fmt};

use neonvm_types::exposition::line::{Kind, Sample};

use super::{
    LfcMetrics, MEMORY_MARGIN_BYTES, SystemMetrics,
    text::{Family, families},
};

/// Longest body that is read, in bytes. A shell reads no more than one byte beyond it.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// Names of one quantity, the guest's own exporter first, then node exporter's.
type Names = [&'static str; 2];
const LOAD1: Names = ["host_load1", "node_load1"];
const LOAD5: Names = ["host_load5", "node_load5"];
const TOTAL: Names = ["host_memory_total_bytes", "node_memory_MemTotal_bytes"];
const AVAILABLE: Names = ["host_memory_available_bytes", "node_memory_MemAvailable_bytes"];
const CACHED: Names = ["host_memory_cached_bytes", "node_memory_Cached_bytes"];
const CPU_SECONDS: Names = ["host_cpu_seconds_total", "node_cpu_seconds_total"];
/// Modes of [`CPU_SECONDS`] in which a processor does no work of the guest; time for guests of its own is in `user` as well.
const NOT_BUSY: [&str; 6] = ["idle", "io_wait", "iowait", "steal", "guest", "guest_nice"];
/// Optional: only our own guest exports them.
const CPU_PRESSURE: &str = "host_pressure_cpu_some_avg10";
const MEMORY_PRESSURE: &str = "host_pressure_memory_some_avg10";
const WINDOWS: &str = "lfc_approximate_working_set_size_windows";

/// Everything that is wrong with a scrape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct MetricsError {
    /// One sentence per fault.
    pub problems: Vec<String>,
}

impl fmt::Display for MetricsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

/// Collects faults while values are taken out.
struct Reader<'a> {
    found: BTreeMap<&'a str, Family<'a>>,
    problems: Vec<String>,
}

fn good(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

impl<'a> Reader<'a> {
    fn new(body: &'a [u8], wanted: &[&str]) -> Result<Self, MetricsError> {
        let refuse = |problem: String| MetricsError { problems: vec![problem] };
        if body.len() > MAX_BODY_BYTES {
            return Err(refuse(format!("longer than {MAX_BODY_BYTES} bytes")));
        }
        let text = str::from_utf8(body).map_err(|error| refuse(format!("not UTF-8: {error}")))?;
        Ok(Self { found: families(text, wanted), problems: Vec::new() })
    }

    fn finish<T>(self, value: T) -> Result<T, MetricsError> {
        if self.problems.is_empty() { Ok(value) } else { Err(MetricsError { problems: self.problems }) }
    }

    /// Notes why a gauge cannot be used; `false` if it can.
    fn wrong(&mut self, name: &str) -> bool {
        let problem = match self.found.get(name) {
            None => format!("{name} is missing"),
            Some(Family { broken: Some(line), .. }) => format!("{name}: line {line} cannot be read"),
            Some(Family { kind, .. }) if *kind != Some(Kind::Gauge) => {
                format!("{name} is declared {}, not gauge", kind.map_or("nothing", Kind::word))
            }
            Some(family) if family.samples.is_empty() => format!("{name} has no sample"),
            Some(_) => return false,
        };
        self.problems.push(problem);
        true
    }

    /// A gauge with exactly one sample. Something wrong is noted and reads as 0.
    fn gauge(&mut self, name: &str) -> f64 {
        if self.wrong(name) {
            return 0.0;
        }
        let samples = self.found.get(name).map_or(&[][..], |family| &family.samples);
        match samples {
            [Sample { value, .. }] if good(*value) => return *value,
            [Sample { value, .. }] => self.problems.push(format!("{name} is {value}")),
            many => {
                let count = many.len();
                self.problems.push(format!("{name} has {count} samples, not one"));
            }
        }
        0.0
    }

    /// A gauge under the first of its names that is there.
    fn either(&mut self, names: Names) -> f64 {
        let [first, second] = names;
        let name =
            if !self.found.contains_key(first) && self.found.contains_key(second) { second } else { first };
        self.gauge(name)
    }

    /// A sum over samples; `None` if there are none or the sum is invalid.
    fn sum(&self, name: &str, counts: impl Fn(&Sample<'_>) -> bool) -> Option<f64> {
        let family = self.found.get(name).filter(|family| family.broken.is_none())?;
        let mut values =
            family.samples.iter().filter(|sample| counts(sample)).map(|sample| sample.value).peekable();
        values.peek()?;
        Some(values.sum()).filter(|sum| good(*sum))
    }

    /// A gauge that may be missing.
    fn optional(&self, name: &str) -> Option<f64> {
        let family = self.found.get(name)?;
        match family.samples.as_slice() {
            [sample] if family.kind == Some(Kind::Gauge) => Some(sample.value).filter(|v| good(*v)),
            _ => None,
        }
    }
}

/// Reads load and memory, and the user's own metric if it has one.
///
/// # Errors
/// Names every series that is missing, of the wrong type, or has not exactly one sensible sample. Pressure, steal and the
/// user's metric never make a scrape fail.
pub fn parse_system(body: &[u8], user: Option<&str>) -> Result<SystemMetrics, MetricsError> {
    let mut wanted = vec![CPU_PRESSURE, MEMORY_PRESSURE];
    for names in [LOAD1, LOAD5, TOTAL, AVAILABLE, CACHED, CPU_SECONDS] {
        wanted.extend(names);
    }
    wanted.extend(user);
    let mut reader = Reader::new(body, &wanted)?;
    let total = reader.either(TOTAL);
    let available = reader.either(AVAILABLE);
    let stolen = |sample: &Sample<'_>| sample.label("mode").is_some_and(|mode| mode == "steal");
    let busy =
        |sample: &Sample<'_>| sample.label("mode").is_some_and(|mode| !NOT_BUSY.contains(&mode.as_ref()));
    let [host_seconds, node_seconds] = CPU_SECONDS;
    let metrics = SystemMetrics {
        load1: reader.either(LOAD1),
        load5: reader.either(LOAD5),
        memory_usage_bytes: (total - available).max(0.0) + MEMORY_MARGIN_BYTES,
        memory_cached_bytes: reader.either(CACHED),
        cpu_pressure: reader.optional(CPU_PRESSURE),
        memory_pressure: reader.optional(MEMORY_PRESSURE),
        steal_seconds: reader.sum(host_seconds, stolen).or_else(|| reader.sum(node_seconds, stolen)),
        busy_seconds: reader.sum(host_seconds, busy).or_else(|| reader.sum(node_seconds, busy)),
        user: user.and_then(|name| reader.sum(name, |_| true)),
    };
    reader.finish(metrics)
}

/// Reads the file cache's metrics.
///
/// Upstream accepts windows of exactly 60, 120, 180, … seconds alone. Here any whole seconds will do: the series is laid
/// on the minute by straight lines between the windows, from nothing at 0 s on.
///
/// # Errors
/// Like [`parse_system`]; also fails for windows whose `duration_seconds` is not a whole number from 1 to
/// 86400, or is repeated.
pub fn parse_lfc(body: &[u8]) -> Result<LfcMetrics, MetricsError> {
    let mut reader = Reader::new(body, &["lfc_hits", "lfc_misses", "lfc_writes", WINDOWS])?;
    let (hits, misses, writes) =
        (reader.gauge("lfc_hits"), reader.gauge("lfc_misses"), reader.gauge("lfc_writes"));
    let windows = if reader.wrong(WINDOWS) { Vec::new() } else { windows(&mut reader) };
    reader.finish(LfcMetrics { hits, misses, writes, windows })
}

fn windows(reader: &mut Reader<'_>) -> Vec<f64> {
    let mut by_duration = BTreeMap::new();
    let samples = reader.found.remove(WINDOWS).map(|family| family.samples).unwrap_or_default();
    for sample in samples {
        let label = sample.label("duration_seconds").unwrap_or_default();
        let duration = label.parse::<u32>().ok().filter(|seconds| (1..=86_400).contains(seconds));
        let shown: String = label.chars().take(20).collect();
        let problem = match duration {
            None => format!("duration_seconds {shown:?} is not a whole number of 1 to 86400"),
            Some(_) if !good(sample.value) => {
                format!("duration_seconds {shown:?} has the value {}", sample.value)
            }
            Some(seconds) if by_duration.insert(seconds, sample.value).is_some() => {
                format!("duration_seconds {shown:?} comes twice")
            }
            Some(_) => continue,
        };
        reader.problems.push(format!("{WINDOWS}: {problem}"));
        if reader.problems.len() >= 10 {
            break;
        }
    }
    on_the_minute(&by_duration)
}

/// The series at 60, 120, 180, … seconds, up to the longest window.
fn on_the_minute(by_duration: &BTreeMap<u32, f64>) -> Vec<f64> {
    let last = by_duration.keys().next_back().copied().unwrap_or(0);
    let minutes = 1..=last / 60;
    minutes.map(|minute| at(by_duration, minute.saturating_mul(60))).collect()
}

fn at(by_duration: &BTreeMap<u32, f64>, seconds: u32) -> f64 {
    let below = by_duration.range(..=seconds).next_back().map_or((0, 0.0), |(s, v)| (*s, *v));
    let above = by_duration.range(seconds..).next().map_or(below, |(s, v)| (*s, *v));
    if above.0 <= below.0 {
        return below.1;
    }
    let share = f64::from(seconds - below.0) / f64::from(above.0 - below.0);
    below.1 + (above.1 - below.1) * share
}
