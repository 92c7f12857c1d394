//! Label selectors in their text form, as the scale of a workload has them.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector};

/// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k`; the grammar of `labelSelector` in requests to the Kubernetes API.
///
/// # Errors
/// What cannot be read; an empty text, which would take every pod.
pub(crate) fn parse(text: &str) -> Result<Selector, String> {
    let parts = split(text)?;
    if parts.is_empty() {
        return Err("the selector is empty".to_owned());
    }
    parts.into_iter().map(one).collect::<Result<Vec<_>, _>>().map(Selector::from_iter)
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or_else(|| unreadable(text))?,
            ',' if depth == 0 => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(unreadable(text));
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect())
}

fn unreadable(part: &str) -> String {
    format!("{part:?} is not a label selector")
}

fn one(part: &str) -> Result<Expression, String> {
    let named = |name: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let name = name.trim();
        if name.is_empty() || !name.chars().all(good) { Err(unreadable(part)) } else { Ok(name.to_owned()) }
    };
    if let Some(name) = part.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(named(name)?));
    }
    if let Some((head, rest)) = part.split_once('(') {
        let values = rest.trim_end().strip_suffix(')').ok_or_else(|| unreadable(part))?;
        let values: BTreeSet<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.trim().rsplit_once(char::is_whitespace) {
            Some((name, "in")) => Ok(Expression::In(named(name)?, values)),
            Some((name, "notin")) => Ok(Expression::NotIn(named(name)?, values)),
            _ => Err(unreadable(part)),
        };
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Ok(Expression::NotEqual(named(name)?, value.trim().to_owned()));
    }
    match part.split_once('=') {
        Some((name, value)) => {
            let value = value.strip_prefix('=').unwrap_or(value).trim();
            Ok(Expression::Equal(named(name)?, value.to_owned()))
        }
        None => Ok(Expression::Exists(named(part)?)),
    }
}

/// All of these labels.
pub(crate) fn equal<const N: usize>(labels: [(&str, &str); N]) -> Selector {
    let owned = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Selector::from_iter(BTreeMap::from(owned))
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;

    use super::*;

    fn matches(text: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        parse(text).unwrap().matches(&labels)
    }

    #[test]
    fn every_operator_is_read() {
        let labels = [("app", "web"), ("tier", "front"), ("example.com/part", "a-b_c.d")];
        for text in [
            "app=web",
            "app == web, tier!=back",
            "app in (web,api),tier notin (back)",
            "app,!gone",
            "example.com/part=a-b_c.d",
        ] {
            assert!(matches(text, &labels), "{text}");
        }
        for text in ["app=api", "app!=web", "app notin (web)", "!app", "gone", "app in (api)"] {
            assert!(!matches(text, &labels), "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in ["", " , ", "=x", "a in b", "a in (b", "a b)", "a in (b))", "a on (b)", "a b=c", "!"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
