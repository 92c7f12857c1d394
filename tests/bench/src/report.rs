//! Numbers beside their goals.

use std::io::Write as _;

use serde::Serialize;

/// Verdict on a row that misses its goal.
const MISS: &str = "miss";

/// Which side of the goal is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The number must reach the goal.
    AtLeast,
    /// The number must not exceed the goal.
    AtMost,
    /// There is no goal; the number explains another one.
    None,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Measurement it belongs to, as given to `--only`.
    pub measurement: &'static str,
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// What it should be, in the same unit.
    pub goal: f64,
    pub bound: Bound,
    pub note: String,
}

impl Row {
    /// A number that has to reach `goal`.
    pub fn at_least(
        measurement: &'static str,
        what: &str,
        value: f64,
        unit: &'static str,
        goal: f64,
    ) -> Self {
        let (what, note) = (what.to_owned(), String::new());
        Self { measurement, what, value, unit, goal, bound: Bound::AtLeast, note }
    }

    /// A number that must stay below `goal`.
    pub fn at_most(measurement: &'static str, what: &str, value: f64, unit: &'static str, goal: f64) -> Self {
        Self { bound: Bound::AtMost, ..Self::at_least(measurement, what, value, unit, goal) }
    }

    /// A number without a goal.
    pub fn plain(measurement: &'static str, what: &str, value: f64, unit: &'static str) -> Self {
        Self { bound: Bound::None, ..Self::at_least(measurement, what, value, unit, 0.0) }
    }

    /// Adds circumstances.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Adds further circumstances.
    #[must_use]
    pub fn note_more(mut self, note: impl AsRef<str>) -> Self {
        self.note = format!("{}; {}", self.note, note.as_ref());
        self
    }

    /// Whether it has a goal and misses it.
    pub fn is_missed(&self) -> bool {
        self.verdict() == MISS
    }

    /// `ok`, `miss`, or nothing.
    pub fn verdict(&self) -> &'static str {
        let ok = match self.bound {
            Bound::AtLeast => self.value >= self.goal,
            Bound::AtMost => self.value <= self.goal,
            Bound::None => return "",
        };
        if ok { "ok" } else { MISS }
    }

    fn text(&self) -> String {
        let measured = format!("{} {}", number(self.value), self.unit);
        let (verdict, goal) = (self.verdict(), self.goal_text());
        let (measurement, what, note) = (self.measurement, &self.what, &self.note);
        format!("{measurement:<9}  {verdict:<4}  {measured:>14}  {goal:<9}  {what}: {note}")
            .trim_end_matches([':', ' '])
            .to_owned()
    }

    fn json(&self) -> anyhow::Result<String> {
        let mut value = serde_json::to_value(self)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("verdict".into(), self.verdict().into());
        }
        Ok(value.to_string())
    }

    fn goal_text(&self) -> String {
        match self.bound {
            Bound::AtLeast => format!("≥ {}", number(self.goal)),
            Bound::AtMost => format!("≤ {}", number(self.goal)),
            Bound::None => String::new(),
        }
    }
}

/// Three significant digits where the number is small, whole ones where it is not.
fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 || value == value.trunc() {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    } else {
        format!("{value:.2}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

/// The rows of a run. Each is printed as soon as it is measured, so that an interrupted run has printed what it measured.
#[derive(Debug)]
pub struct Rows {
    form: Form,
    rows: Vec<Row>,
}

impl Rows {
    /// No rows yet.
    pub fn new(form: Form) -> Self {
        Self { form, rows: Vec::new() }
    }

    /// Adds and prints a row.
    pub fn push(&mut self, row: Row) -> anyhow::Result<()> {
        let line = match self.form {
            Form::Text => row.text(),
            Form::Json => row.json()?,
        };
        let mut out = std::io::stdout();
        writeln!(out, "{line}")?;
        self.rows.push(row);
        Ok(out.flush()?)
    }

    /// Adds and prints several rows.
    pub fn extend(&mut self, rows: Vec<Row>) -> anyhow::Result<()> {
        rows.into_iter().try_for_each(|row| self.push(row))
    }

    /// Whether a row has missed its goal.
    pub fn has_missed(&self) -> bool {
        self.rows.iter().any(Row::is_missed)
    }
}

/// The value below which the share `q` (0 to 1) of the samples lies; 0 without samples. Sorts them.
pub fn quantile(samples: &mut [f64], q: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    let at = (last as f64 * q).ceil() as usize;
    samples.get(at.min(last)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_bound() {
        assert_eq!(Row::at_least("a", "b", 5.0, "/s", 5.0).verdict(), "ok");
        assert_eq!(Row::at_least("a", "b", 4.9, "/s", 5.0).verdict(), "miss");
        assert_eq!(Row::at_most("a", "b", 5.1, "ms", 5.0).verdict(), "miss");
        assert_eq!(Row::plain("a", "b", 5.1, "ms").verdict(), "");
    }

    #[test]
    fn quantiles_take_the_sample_at_or_above() {
        let mut samples = vec![3.0, 1.0, 2.0, 4.0];
        assert_eq!(quantile(&mut samples, 0.5), 3.0);
        assert_eq!(quantile(&mut samples, 0.99), 4.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }

    #[test]
    fn both_forms_carry_the_verdict() {
        let row = Row::at_most("start", "empty", 0.25, "s", 1.0).note("median");
        assert_eq!(row.text(), "start      ok            0.25 s  ≤ 1        empty: median");
        assert!(row.json().unwrap().contains("\"verdict\":\"ok\""));
    }
}
