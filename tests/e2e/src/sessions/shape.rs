//! Sizes and bounds, and how people write them.

use serde_json::Value;

/// Most slots of memory that a VM may have.
pub(super) const MOST_SLOTS: u32 = 512;
/// CPU of a compute unit, in thousandths.
const UNIT_CPU: u32 = 250;
/// Memory of a compute unit, in MiB.
const UNIT_MEMORY: u32 = 1024;
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lower one.
    pub min: u32,
    /// The upper one.
    pub max: u32,
}

impl Range {
    /// Bounds in either order.
    #[must_use]
    pub fn of(one: u32, other: u32) -> Self {
        Self { min: one.min(other), max: one.max(other) }
    }

    /// The value, or the bound that it lies beyond.
    #[must_use]
    pub fn fit(self, value: u32) -> u32 {
        value.min(self.max).max(self.min)
    }

    /// Whether the value lies within.
    #[must_use]
    pub fn has(self, value: u32) -> bool {
        self.fit(value) == value
    }
}

/// CPU in thousandths, and memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// In thousandths.
    pub cpu: u32,
    /// In MiB.
    pub memory: u32,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", cpu(self.cpu), memory(self.memory))
    }
}

/// Bounds of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// In thousandths.
    pub cpu: Range,
    /// In MiB, multiples of the step.
    pub memory: Range,
    /// In MiB, a multiple of 8.
    pub step: u32,
}

impl Shape {
    /// The size, or what of it lies within.
    #[must_use]
    pub fn fit(&self, size: Size) -> Size {
        Size { cpu: self.cpu.fit(size.cpu), memory: self.memory.fit(size.memory) }
    }

    /// Whether the size lies within.
    #[must_use]
    pub fn has(&self, size: Size) -> bool {
        self.fit(size) == size
    }

    /// The smallest size.
    #[must_use]
    pub const fn least(&self) -> Size {
        Size { cpu: self.cpu.min, memory: self.memory.min }
    }

    /// The largest size.
    #[must_use]
    pub const fn most(&self) -> Size {
        Size { cpu: self.cpu.max, memory: self.memory.max }
    }

    /// Whether the size can change at all.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.least() != self.most()
    }

    /// The bounds in compute units, if they are whole ones.
    pub(super) fn units(&self) -> Option<Range> {
        let of = |size: Size| {
            let units = size.cpu / UNIT_CPU;
            (units > 0 && size.cpu == units * UNIT_CPU && size.memory == units * UNIT_MEMORY).then_some(units)
        };
        Some(Range { min: of(self.least())?, max: of(self.most())? })
    }
}

/// The step that is taken for bounds of which none is named: the largest of 1Gi, 512Mi, … 8Mi that fits.
#[must_use]
pub(super) fn step_for(sizes: &[u32]) -> Option<u32> {
    let fits = |step: u32| sizes.iter().all(|size| size % step == 0 && size / step <= MOST_SLOTS);
    [1024, 512, 256, 128, 64, 32, 16, 8].into_iter().find(|step| fits(*step))
}

/// CPU as people write it.
pub(super) fn cpu(milli: u32) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        rest if rest % 10 == 0 => format!("{}.{:02}", milli / 1000, rest / 10),
        _ => format!("{milli}m"),
    }
}

/// Memory as people write it.
pub(super) fn memory(mebibytes: u32) -> String {
    match mebibytes % 1024 {
        0 => format!("{}Gi", mebibytes / 1024),
        512 => format!("{}.5Gi", mebibytes / 1024),
        _ if mebibytes.is_multiple_of(24) => format!("{}Ki", u64::from(mebibytes) * 1024),
        _ if mebibytes.is_multiple_of(56) => (u64::from(mebibytes) * MIB).to_string(),
        _ => format!("{mebibytes}Mi"),
    }
}

/// Bounds as people write them.
pub(super) fn range(bounds: Range, one: impl Fn(u32) -> String) -> String {
    if bounds.min == bounds.max {
        one(bounds.min)
    } else {
        format!("{}..{}", one(bounds.min), one(bounds.max))
    }
}

/// CPU in an object, in thousandths.
pub(super) fn read_cpu(value: &Value) -> Option<u32> {
    let thousandths = |cpus: f64| (cpus * 1000.0).round();
    let milli = match value {
        Value::String(text) => match text.strip_suffix('m') {
            Some(milli) => milli.parse::<f64>().ok()?,
            None => thousandths(text.parse().ok()?),
        },
        other => thousandths(other.as_f64()?),
    };
    format!("{milli}").parse().ok()
}

/// Memory in an object, in MiB; none if it is no whole number of them.
pub(super) fn read_memory(value: &Value) -> Option<u32> {
    let bytes = match value {
        Value::String(text) => {
            let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let (number, unit) = text.split_at(at);
            let unit = match unit {
                "" => 1,
                "Ki" => 1 << 10,
                "Mi" => MIB,
                "Gi" => 1 << 30,
                "Ti" => 1 << 40,
                _ => return None,
            };
            number.parse::<u64>().ok()?.checked_mul(unit)?
        }
        other => other.as_u64()?,
    };
    (bytes % MIB == 0).then_some(())?;
    u32::try_from(bytes / MIB).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for milli in [1, 10, 201, 250, 1000, 1234, 1500, 16_000] {
            assert_eq!(read_cpu(&json!(cpu(milli))), Some(milli));
        }
        assert_eq!(
            (read_cpu(&json!(2)), read_cpu(&json!("1.5")), read_cpu(&json!("x"))),
            (Some(2000), Some(1500), None)
        );
        let written = [8, 24, 56, 1000, 1536, 2920, 4096].map(memory);
        assert_eq!(written, ["8Mi", "24576Ki", "58720256", "1000Mi", "1.5Gi", "2920Mi", "4Gi"]);
        let read = |text: &str| read_memory(&json!(text));
        assert_eq!((read("2920Mi"), read("24576Ki"), read("4Gi")), (Some(2920), Some(24), Some(4096)));
        assert_eq!((read("1Ki"), read("1X"), read_memory(&json!(1 << 20))), (None, None, Some(1)));
    }

    #[test]
    fn the_largest_step_that_fits_is_taken() {
        assert_eq!(step_for(&[1024, 4096]), Some(1024));
        assert_eq!(step_for(&[1000, 3000]), Some(8));
        assert_eq!((step_for(&[8, 8192]), step_for(&[7])), (None, None));
    }

    #[test]
    fn bounds_of_whole_units_are_units() {
        let shape = |cpu, memory| Shape { cpu, memory, step: 1024 };
        let units = shape(Range::of(1000, 250), Range::of(1024, 4096)).units();
        assert_eq!(units, Some(Range { min: 1, max: 4 }));
        assert_eq!(shape(Range::of(250, 1001), Range::of(1024, 4096)).units(), None);
    }
}
