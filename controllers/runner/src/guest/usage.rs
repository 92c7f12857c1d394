//! What the guest uses, from its metrics: names of our guest, or of the node exporter.

use neonvm_types::Bytes;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Memory without caches.
    pub(crate) used: Option<Bytes>,
    /// Memory that is available without swapping.
    pub(crate) available: Option<Bytes>,
    /// Load average of one minute, in thousandths.
    pub(crate) load1_milli: Option<u64>,
    /// Time stolen from all CPUs, in microseconds.
    pub(crate) steal_us: Option<u64>,
}

/// Reads the text format of Prometheus.
pub(crate) fn parse(text: &str) -> Usage {
    let (mut total, mut available, mut load1, mut steal) = (None, None, None, None::<f64>);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        match series.split('{').next().unwrap_or_default() {
            "host_memory_total_bytes" | "node_memory_MemTotal_bytes" => total = Some(value),
            "host_memory_available_bytes" | "node_memory_MemAvailable_bytes" => available = Some(value),
            "host_load1" | "node_load1" => load1 = Some(value),
            "host_cpu_seconds_total" | "node_cpu_seconds_total" if series.contains("mode=\"steal\"") => {
                steal = Some(steal.unwrap_or(0.0) + value);
            }
            _ => {}
        }
    }
    let used = total.zip(available).map(|(total, available)| Bytes::new(whole(total - available)));
    Usage {
        used,
        available: available.map(|available| Bytes::new(whole(available))),
        load1_milli: load1.map(|load| whole(load * 1000.0)),
        steal_us: steal.map(|seconds| whole(seconds * 1e6)),
    }
}

/// Bounds of what is left to a guest that gives memory back, and its share of the size that is wanted.
const RESERVE: (Bytes, Bytes, u64) = (Bytes::mib(32), Bytes::mib(256), 8);
/// Memory comes and goes in multiples of this.
const GRANULARITY: u64 = 8 << 20;

/// The size nearest to `wanted` that leaves the guest enough to live. A guest that loses all its spare memory runs out
/// of memory in the next moment, and its kernel panics: so no more is requested back than it has available, less a
/// reserve.
pub(crate) fn least_safe(now: Bytes, available: Bytes, wanted: Bytes) -> Bytes {
    let (least, most, share) = RESERVE;
    let reserve = Bytes::new(wanted.get() / share).clamp(least, most);
    let floor = now.saturating_sub(available.saturating_sub(reserve));
    let floor = Bytes::new(floor.get().div_ceil(GRANULARITY).saturating_mul(GRANULARITY));
    wanted.max(floor.min(now))
}

/// Nearest whole number that is not negative; not-a-number is 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_spellings_are_read() {
        for text in [
            "# HELP x\nhost_memory_total_bytes 1000\nhost_memory_available_bytes 400\nhost_load1 0.25\n\
             host_cpu_seconds_total{cpu=\"0\",mode=\"steal\"} 1.5\nhost_cpu_seconds_total{cpu=\"1\",mode=\"steal\"} 1\n",
            "node_memory_MemTotal_bytes 1000\nnode_memory_MemAvailable_bytes 4e2\nnode_load1 0.25\n\
             node_cpu_seconds_total{mode=\"steal\"} 2.5\nnode_cpu_seconds_total{mode=\"user\"} 9\n",
        ] {
            let usage = parse(text);
            assert_eq!(usage.used, Some(Bytes::new(600)));
            assert_eq!((usage.load1_milli, usage.steal_us), (Some(250), Some(2_500_000)));
        }
    }

    #[test]
    fn a_guest_keeps_what_it_needs_and_a_reserve() {
        let mib = |n| Bytes::mib(n);
        assert_eq!(least_safe(mib(1024), mib(900), mib(256)), mib(256), "there is plenty");
        assert_eq!(
            least_safe(mib(1024), mib(300), mib(256)),
            mib(760),
            "all but the reserve of what is available"
        );
        assert_eq!(least_safe(mib(1024), mib(10), mib(256)), mib(1024), "nothing to spare");
    }

    proptest! {
        #[test]
        fn a_safe_size_is_between_what_is_wanted_and_what_is_there(now in 1_u32..100_000, part in 0_u32..100, wanted in 0_u32..100) {
            let (available, goal) = (Bytes::mib(now / 100 * part), Bytes::mib(now / 100 * wanted));
            let now = Bytes::mib(now);
            let safe = least_safe(now, available, goal);
            prop_assert!(safe >= goal && safe <= now);
            prop_assert!(safe == goal || now.saturating_sub(safe) <= available);
        }

        #[test]
        fn any_text_is_read(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
