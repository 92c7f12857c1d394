//! Comparing one step's outcome with its expectation.

use anyhow::Context as _;
use regex::RegexBuilder;
use serde_json::{Map, Value, json};

use super::{Scenario, Step, flag};
use crate::output;
use crate::path::{lookup, remove};
use crate::value::{ABSENT, blend, contains, difference, equal};

/// Codes of refusals, whose messages show values and types as Go prints them. Code, reason and fields are compared.
const REFUSED: [u64; 2] = [400, 422];

/// Removes the messages of a refusal, and what then is there twice.
fn without_wording(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| !key.ends_with("message") || !value.is_string());
            fields.values_mut().for_each(without_wording);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(without_wording);
            items.sort_by_cached_key(Value::to_string);
            items.dedup();
        }
        _ => {}
    }
}

fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

impl Scenario<'_> {
    /// The difference between what was seen and what was recorded; empty if there is none.
    pub(super) fn check(&self, step: &Step, got: &Value) -> anyhow::Result<String> {
        let seen = self.observe(step, got)?;
        let mut expect = step.get("expect").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut problems = Vec::new();
        if let Some(subset) = expect.remove("subset") {
            let body = got.get("body").unwrap_or(&Value::Null);
            if !contains(body, &self.scope.fill(&subset)?) {
                problems.push(format!("body does not contain {subset}\nbody: {body:#}"));
            }
        }
        if expect.contains_key("stdout") && !expect.contains_key("stderr") {
            expect.insert("stderr".into(), json!(ABSENT));
        }
        let absent = json!(ABSENT);
        let refused =
            expect.get("status").and_then(Value::as_u64).is_some_and(|code| REFUSED.contains(&code));
        for (key, want) in &expect {
            let (mut want, mut have) = (want.clone(), seen.get(key).unwrap_or(&absent).clone());
            for headers in [&mut want, &mut have] {
                if let Some(Value::Array(warnings)) = headers.get_mut("Warning") {
                    warnings.sort_by_cached_key(Value::to_string);
                }
            }
            if refused {
                without_wording(&mut want);
                without_wording(&mut have);
            }
            let have = blend(&want, &have);
            if !equal(&want, &have) {
                problems.push(format!("{key}:\n{}", difference(&want, &have)));
            }
        }
        Ok(problems.join("\n"))
    }

    /// What was seen, in the form in which expectations were recorded.
    fn observe(&self, step: &Step, got: &Value) -> anyhow::Result<Map<String, Value>> {
        let mut seen = Map::new();
        if let Some(exit) = got.get("exit") {
            seen.insert("exit".into(), exit.clone());
            if flag(step, "json") {
                let body = got.get("body").map(|body| self.plain(step, body)).transpose()?;
                seen.insert(
                    "body".into(),
                    body.unwrap_or_else(|| got.get("stdout").cloned().unwrap_or_default()),
                );
            } else {
                seen.insert("stdout".into(), self.lines(step, got.get("stdout"))?);
            }
            if got.get("stderr").is_some_and(|stderr| stderr != "") {
                seen.insert("stderr".into(), self.lines(step, got.get("stderr"))?);
            }
            return Ok(seen);
        }
        if let Some(events) = got.get("events").and_then(Value::as_array) {
            let mut plain = Vec::new();
            for event in events {
                let event = self.plain(step, event)?;
                if !(flag(step, "distinct") && plain.contains(&event)) {
                    plain.push(event);
                }
            }
            seen.extend(got.as_object().cloned().unwrap_or_default());
            seen.insert("events".into(), Value::Array(plain));
            return Ok(seen);
        }
        seen.insert("status".into(), got.get("status").cloned().unwrap_or_default());
        seen.insert("headers".into(), self.scope.normal(got.get("headers").unwrap_or(&Value::Null), false));
        if let Some(body) = got.get("body") {
            let key = if step.contains_key("pick") { "fields" } else { "body" };
            seen.insert(key.into(), self.plain(step, body)?);
        } else if let Some(raw) = got.get("raw") {
            let lines = self.lines(step, Some(raw))?;
            let text: Vec<&str> = texts(Some(&lines)).collect();
            seen.insert("text".into(), Value::String(text.join("\n")));
        }
        Ok(seen)
    }

    /// An object without what is volatile or ignored, or only the fields that are picked from it.
    fn plain(&self, step: &Step, value: &Value) -> anyhow::Result<Value> {
        let managed = step
            .get("managed")
            .or_else(|| self.data.get("managed"))
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let mut value = self.scope.normal(value, managed);
        for path in texts(self.data.get("ignore")).chain(texts(step.get("ignore"))) {
            remove(&mut value, path)?;
        }
        let Some(pick) = step.get("pick").filter(|pick| pick.as_array().is_some_and(|pick| !pick.is_empty()))
        else {
            return Ok(value);
        };
        let picked: anyhow::Result<Map<String, Value>> =
            texts(Some(pick)).map(|path| Ok((path.to_owned(), lookup(&value, path)?))).collect();
        Ok(Value::Object(picked?))
    }

    /// Output as lines, with the replacements of the scenario and of the step made.
    fn lines(&self, step: &Step, text: Option<&Value>) -> anyhow::Result<Value> {
        let mut text = text.and_then(Value::as_str).unwrap_or_default().to_owned();
        let rules = [self.data.get("replace"), step.get("replace")];
        for rule in rules.into_iter().flatten().filter_map(Value::as_array).flatten() {
            let mut parts = texts(Some(rule));
            let (pattern, new) = parts.next().zip(parts.next()).context("a replacement is a pair")?;
            let pattern = RegexBuilder::new(pattern).multi_line(true).build()?;
            text = pattern.replace_all(&text, group_references(new).as_str()).into_owned();
        }
        let mut lines: Vec<String> = output::plain(&text).iter().map(|line| self.scope.fold(line)).collect();
        if flag(step, "sort") {
            lines.sort();
        }
        Ok(json!(lines))
    }
}

/// `\1` as the expression library writes it; a dollar stands for itself.
fn group_references(new: &str) -> String {
    let mut out = String::new();
    let mut rest = new.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                out.push_str(&format!("${{{digit}}}"));
                rest.next();
            }
            ('$', _) => out.push_str("$$"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_references_are_translated() {
        assert_eq!(group_references(r"\1<age>\2 $x"), "${1}<age>${2} $$x");
    }
}
