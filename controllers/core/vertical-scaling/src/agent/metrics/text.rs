//! The requested series of a text in the Prometheus format.

use std::collections::BTreeMap;

use neonvm_types::exposition::line::{Kind, Line, Lines, Sample};

/// One series by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Family<'a> {
    /// The metric's type from `# TYPE`.
    pub kind: Option<Kind>,
    /// Samples of the family, in the order of the text.
    pub samples: Vec<Sample<'a>>,
    /// Lines that have its name and cannot be read; the first one's number.
    pub broken: Option<usize>,
}

/// Most samples that are kept of one series.
const MOST_SAMPLES: usize = 4096;

/// The families whose names are in `wanted`; all others are skipped.
pub(super) fn families<'a>(text: &'a str, wanted: &[&str]) -> BTreeMap<&'a str, Family<'a>> {
    let mut found: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for (number, line) in Lines::new(text) {
        match line {
            Line::Kind { name, kind } if wanted.contains(&name) => {
                found.entry(name).or_default().kind = Some(kind);
            }
            Line::Sample { name, rest } if wanted.contains(&name) => {
                let family = found.entry(name).or_default();
                match Sample::read(rest) {
                    Some(_) if family.samples.len() >= MOST_SAMPLES => {}
                    Some(sample) => family.samples.push(sample),
                    None => family.broken = family.broken.or(Some(number)),
                }
            }
            _ => {}
        }
    }
    found
}
