//! Sizes as people write them: `0.25..4`, `1Gi..8Gi`, compute units. Pure.

use neonvm_types::{Bytes, MilliCpu, Quantity};

use crate::error::{Code, Error, Result};

/// CPU of a compute unit.
pub(crate) const UNIT_CPU: MilliCpu = MilliCpu::new(250);
/// Memory of a compute unit.
pub(crate) const UNIT_MEMORY: Bytes = Bytes::gib(1);
/// Memory is plugged in multiples of this.
const GRANULARITY: Bytes = Bytes::mib(8);
/// Most slots a VM can have.
const MOST_SLOTS: u32 = 512;

fn bad(flag: &str, text: &str, hint: &str) -> Error {
    Error::new(Code::Usage, format!("--{flag}: {text:?} is not valid")).hint(hint.to_owned())
}

/// `MIN..MAX`, or one value for both.
pub(super) fn bounds<T: Copy + PartialOrd>(
    flag: &str,
    text: &str,
    one: impl Fn(&str, &str) -> Result<T>,
) -> Result<(T, T)> {
    let (least, most) = match text.split_once("..") {
        Some((least, most)) => (one(flag, least)?, one(flag, most)?),
        None => (one(flag, text)?, one(flag, text)?),
    };
    if least > most {
        return Err(bad(flag, text, "the first bound must not be above the second"));
    }
    Ok((least, most))
}

/// CPU, such as `0.25`, `250m` or `2`.
pub(crate) fn cpu(flag: &str, text: &str) -> Result<MilliCpu> {
    let parsed = text
        .trim()
        .parse::<Quantity>()
        .ok()
        // Nothing keeps smaller parts than thousandths.
        .filter(|quantity| quantity.nanos() % 1_000_000 == 0)
        .and_then(|quantity| u32::try_from(quantity.milli_rounded_up()).ok().map(MilliCpu::new));
    parsed.filter(|cpu| cpu.milli() > 0).ok_or_else(|| bad(flag, text, "write CPU as 0.25, 250m or 2"))
}

/// Memory, such as `512Mi`.
pub(crate) fn memory(flag: &str, text: &str) -> Result<Bytes> {
    let parsed = text.trim().parse::<Quantity>().ok().and_then(|quantity| Bytes::try_from(quantity).ok());
    parsed
        .filter(|size| *size > Bytes::ZERO)
        .ok_or_else(|| bad(flag, text, "write sizes as 512Mi, 4Gi or 10G"))
}

pub(crate) fn units(flag: &str, text: &str) -> Result<u16> {
    let parsed = text.trim().parse::<u16>().ok();
    parsed
        .filter(|units| *units > 0)
        .ok_or_else(|| bad(flag, text, "write compute units as whole numbers, such as 1..12"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) size: Bytes,
    pub(super) min: u16,
    pub(super) max: u16,
    pub(super) start: u16,
}

/// Slots for bounds. Without a wanted size the largest step is taken that the bounds are multiples of: 1Gi, or what is needed.
pub(super) fn slots(min: Bytes, max: Bytes, start: Bytes, wanted: Option<Bytes>) -> Result<Slots> {
    let all = [("memory", min), ("memory", max), ("start-memory", start)];
    let fits = |size: Bytes| {
        all.iter().all(|(_, value)| value.is_multiple_of(size))
            && max.slots(size).is_some_and(|slots| slots <= MOST_SLOTS)
    };
    let size = match wanted {
        Some(size) if !size.is_multiple_of(GRANULARITY) => {
            return Err(bad("memory-step", &with_unit(size), "use a multiple of 8Mi, such as 128Mi"));
        }
        Some(size) => size,
        None => {
            let steps = [1024, 512, 256, 128, 64, 32, 16, 8].map(Bytes::mib);
            let found = steps.into_iter().find(|step| fits(*step));
            found.ok_or_else(|| no_step(&all, max))?
        }
    };
    let count = |(flag, value): (&str, Bytes)| {
        let slots =
            value.slots(size).filter(|_| value.is_multiple_of(size)).and_then(|n| u16::try_from(n).ok());
        slots.filter(|slots| u32::from(*slots) <= MOST_SLOTS).ok_or_else(|| {
            bad(
                flag,
                &with_unit(value),
                &format!("it must be a multiple of the step {size} and at most {MOST_SLOTS} steps"),
            )
        })
    };
    let [min, max, start] = all.map(count);
    Ok(Slots { size, min: min?, max: max?, start: start? })
}

/// Why no step fits these sizes, and the valid ones beside the first that does not fit.
fn no_step(all: &[(&str, Bytes)], max: Bytes) -> Error {
    let steps = [8, 16, 32, 64, 128, 256, 512, 1024].map(Bytes::mib);
    let enough = |step: &Bytes| max.get().div_ceil(step.get()) <= u64::from(MOST_SLOTS);
    let misfit =
        |step: Bytes| all.iter().find(|(_, value)| !value.is_multiple_of(step)).map(|one| (step, one));
    match steps.into_iter().find(enough).and_then(misfit) {
        Some((step, (flag, value))) => {
            let below = value.get() / step.get() * step.get();
            let above = Bytes::new(below.saturating_add(step.get()));
            let reason = if step > GRANULARITY {
                format!(", the smallest step that reaches {} in {MOST_SLOTS} steps", with_unit(max))
            } else {
                String::new()
            };
            let text = format!("--{flag}: {} is not a multiple of {step}{reason}", with_unit(*value));
            Error::new(Code::Usage, text).hint(match below {
                0 => format!("use {above}"),
                below => format!("use {} or {above}", Bytes::new(below)),
            })
        }
        None => Error::new(
            Code::Usage,
            format!("--memory: {} is more than {MOST_SLOTS} steps of 1Gi", with_unit(max)),
        )
        .hint("give a larger step with --memory-step, such as 2Gi"),
    }
}

/// Bytes with a unit, also those that are no whole Ki: `1G (953.7Mi)`.
pub(super) fn with_unit(size: Bytes) -> String {
    let shown = size.to_string();
    if size.get() < 1024 || !shown.ends_with(|c: char| c.is_ascii_digit()) {
        return shown;
    }
    let decimal = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000)];
    let found = decimal.iter().find(|(_, unit)| size.get().is_multiple_of(*unit));
    let shown =
        found.map_or_else(|| format!("{shown} bytes"), |(name, unit)| format!("{}{name}", size.get() / unit));
    format!("{shown} ({})", crate::render::bytes(size.get()))
}

/// Whole compute units that a size is, if it is.
pub(crate) fn in_units(cpu: MilliCpu, memory: Bytes) -> Option<u32> {
    let units = cpu.milli() / UNIT_CPU.milli();
    (cpu.milli() == units * UNIT_CPU.milli() && memory == UNIT_MEMORY.saturating_mul(units) && units > 0)
        .then_some(units)
}

/// CPU as decimal cores with two places, as `2.75`.
pub(crate) fn cores(cpu: MilliCpu) -> String {
    format!("{}.{:02}", cpu.milli() / 1000, cpu.milli() % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_written() {
        assert_eq!(bounds("cpu", "0.25..4", cpu).unwrap(), (MilliCpu::new(250), MilliCpu::new(4000)));
        assert_eq!(bounds("cpu", "250m", cpu).unwrap(), (MilliCpu::new(250), MilliCpu::new(250)));
        assert_eq!(bounds("memory", "1Gi..8Gi", memory).unwrap(), (Bytes::gib(1), Bytes::gib(8)));
        for text in ["", "..", "1..", "4..1", "x", "-1", "0", "1..2..3"] {
            let error = bounds("cpu", text, cpu).unwrap_err();
            assert_eq!(error.code, Code::Usage);
            assert!(error.message.starts_with("--cpu: ") && error.hint.is_some(), "{error:?}");
        }
    }

    #[test]
    fn the_step_is_the_largest_that_fits() {
        let slots = |min, max, start| slots(Bytes::mib(min), Bytes::mib(max), Bytes::mib(start), None);
        assert_eq!(slots(1024, 4096, 2048).unwrap(), Slots { size: Bytes::gib(1), min: 1, max: 4, start: 2 });
        assert_eq!(slots(256, 1024, 256).unwrap().size, Bytes::mib(256));
        assert_eq!(slots(200, 200, 200).unwrap(), Slots { size: Bytes::mib(8), min: 25, max: 25, start: 25 });
        assert!(slots(7, 7, 7).is_err() && slots(8, 8 * 1024, 8).is_err());
    }

    #[test]
    fn the_valid_sizes_beside_an_invalid_one_are_named() {
        let error =
            |min: u64, max: u64| slots(Bytes::new(min), Bytes::new(max), Bytes::new(min), None).unwrap_err();
        let both = |error: Error| (error.message, error.hint.unwrap());
        let (message, hint) = both(error(1_000_000_000, 1_000_000_000));
        assert_eq!(message, "--memory: 1G (953.6Mi) is not a multiple of 8Mi");
        assert_eq!(hint, "use 952Mi or 960Mi");
        let (message, hint) = both(error(8 << 20, 8 << 30));
        assert_eq!(
            message,
            "--memory: 8Mi is not a multiple of 16Mi, the smallest step that reaches 8Gi in 512 steps"
        );
        assert_eq!(hint, "use 16Mi");
        let (message, hint) = both(error(1 << 30, 1 << 40));
        assert!(message.contains("1Ti") && hint.contains("--memory-step"), "{message}");
        assert_eq!(with_unit(Bytes::new(1025)), "1025 bytes (1Ki)");
    }

    #[test]
    fn a_wanted_step_must_divide_the_bounds() {
        let error = super::slots(Bytes::mib(100), Bytes::mib(100), Bytes::mib(100), Some(Bytes::mib(64)))
            .unwrap_err();
        assert!(error.hint.unwrap().contains("multiple of the step 64Mi"));
    }

    #[test]
    fn units_are_whole_or_none() {
        assert_eq!(in_units(MilliCpu::new(2750), Bytes::gib(11)), Some(11));
        assert_eq!(in_units(MilliCpu::new(2750), Bytes::gib(10)), None);
        assert_eq!(in_units(MilliCpu::ZERO, Bytes::ZERO), None);
        assert_eq!(cores(MilliCpu::new(2755)), "2.75");
    }
}
