//! Sizes as texts: compute units where they are whole ones, else CPU and memory.

use neonvm_types::{Bytes, MilliCpu, Resources};

/// The compute unit of VMs whose agent names none.
pub(crate) const UNIT: Resources = Resources::new(MilliCpu::new(250), Bytes::gib(1));

pub(crate) fn known(size: Resources) -> bool {
    size.vcpus > MilliCpu::ZERO
}

/// A size in whole compute units such as `4`, else as `0.50/1Gi`; `-` if it is not known.
pub(crate) fn units(size: Resources, unit: Resources) -> String {
    if !known(size) {
        return "-".to_owned();
    }
    match size.exact_quotient(unit) {
        Some(units) => units.to_string(),
        None => format!("{}/{}", cores(size.vcpus), size.mem),
    }
}

/// Bounds in whole compute units such as `1..12`, else in CPU.
pub(crate) fn range(min: Resources, max: Resources, unit: Resources) -> String {
    match (min.exact_quotient(unit), max.exact_quotient(unit)) {
        (Some(min), Some(max)) => format!("{min}..{max}"),
        _ => format!("{}..{}cpu", short(min.vcpus.as_f64()), short(max.vcpus.as_f64())),
    }
}

pub(crate) fn cores(cpu: MilliCpu) -> String {
    format!("{}.{:02}", cpu.milli() / 1000, cpu.milli() % 1000 / 10)
}

/// A number in few characters: `0.25`, `1.5`, `12`.
pub(crate) fn short(number: f64) -> String {
    let text = if number >= 9.95 { format!("{number:.0}") } else { format!("{number:.2}") };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// For what is drawn: a few digits count.
#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

/// Bytes in GiB.
pub(crate) fn gib(bytes: u64) -> f64 {
    float(bytes) / float(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(milli: u32, mem: Bytes) -> Resources {
        Resources::new(MilliCpu::new(milli), mem)
    }

    #[test]
    fn sizes_in_few_characters() {
        assert_eq!(units(size(1000, Bytes::gib(4)), UNIT), "4");
        assert_eq!(units(size(1000, Bytes::gib(3)), UNIT), "1.00/3Gi");
        assert_eq!(units(Resources::default(), UNIT), "-");
        assert_eq!(range(size(250, Bytes::gib(1)), size(3000, Bytes::gib(12)), UNIT), "1..12");
        assert_eq!(range(size(100, Bytes::gib(1)), size(1500, Bytes::gib(1)), UNIT), "0.1..1.5cpu");
        assert_eq!([0.0, 0.25, 1.5, 9.99, 12.0].map(short), ["0", "0.25", "1.5", "10", "12"]);
    }
}
