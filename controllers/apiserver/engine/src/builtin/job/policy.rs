//! When a Job fails, when it succeeds, and when its pods are replaced.

use serde_json::{Value, json};

use crate::builtin::{internal, items, name, not_negative, number};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATES: [&str; 3] = ["False", "True", "Unknown"];
/// Most rules, and most patterns of a rule.
const MOST_RULES: usize = 20;
const MOST_CODES: usize = 255;
/// Bytes of a list of indexes.
const LONGEST_LIST: usize = 64 << 10;

/// The policies of the spec of a Job at `prefix`.
pub(super) fn validate(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    if let Some(policy) = spec.get("podFailurePolicy") {
        let path = format!("{prefix}podFailurePolicy.rules");
        let rules = items(policy, "rules");
        if rules.len() > MOST_RULES {
            errors.push(FieldError::too_many(path.clone(), rules.len(), MOST_RULES as u64));
        }
        for (index, rule) in rules.iter().enumerate() {
            validate_failure(spec, rule, &format!("{path}[{index}]"), errors);
        }
    }
    if let Some(policy) = spec.get("successPolicy") {
        let path = format!("{prefix}successPolicy");
        if text_at(spec, "completionMode") == "Indexed" {
            validate_success(spec, policy, &format!("{path}.rules"), errors);
        } else {
            let shown = internal::held("SuccessPolicy", Some(policy)).shown();
            errors.push(FieldError::invalid_shown(path, &shown, "requires indexed completion mode"));
        }
    }
    let (field, policy) = (format!("{prefix}podReplacementPolicy"), spec.get("podReplacementPolicy"));
    let known: &[&str] =
        if spec.get("podFailurePolicy").is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if let Some(policy) = policy.filter(|policy| !known.iter().any(|known| policy == known)) {
        errors.push(FieldError::not_supported(field, policy, known));
    }
}

/// A text that is one of some; an empty one is missing.
fn choose(holder: &Value, path: &str, key: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    let (text, field) = (text_at(holder, key), format!("{path}.{key}"));
    if text.is_empty() {
        let all: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
        errors.push(FieldError::required(field, &format!("valid values: [{}]", all.join(" "))));
    } else if !known.contains(&text) {
        errors.push(FieldError::not_supported(field, &json!(text), known));
    }
}

fn validate_failure(spec: &Value, rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if text_at(rule, "action") == "FailIndex" {
        if spec.get("backoffLimitPerIndex").is_none() {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(format!("{path}.action"), &json!("FailIndex"), detail));
        }
    } else {
        choose(rule, path, "action", &ACTIONS, errors);
    }
    let codes = rule.get("onExitCodes");
    if let Some(codes) = codes {
        validate_codes(spec, codes, &format!("{path}.onExitCodes"), errors);
    }
    let patterns = items(rule, "onPodConditions");
    if patterns.len() > MOST_RULES {
        let field = format!("{path}.onPodConditions");
        errors.push(FieldError::too_many(field, patterns.len(), MOST_RULES as u64));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = format!("{path}.onPodConditions[{index}]");
        let kind = text_at(pattern, "type");
        name::check(kind, &format!("{path}.type"), name::qualified, errors);
        choose(pattern, &path, "status", &STATES, errors);
    }
    let detail = match (codes.is_some(), patterns.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(FieldError::bare(FieldReason::Invalid, path, detail));
}

fn validate_codes(spec: &Value, codes: &Value, path: &str, errors: &mut Vec<FieldError>) {
    choose(codes, path, "operator", &OPERATORS, errors);
    if let Some(container) = codes.get("containerName") {
        let mut known = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| items(spec, &format!("template.spec.{list}")));
        if !known.any(|own| own.get("name") == Some(container)) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(format!("{path}.containerName"), container, detail));
        }
    }
    let field = format!("{path}.values");
    let values = items(codes, "values");
    let shown = codes.get("values").unwrap_or(&Value::Null);
    if values.is_empty() {
        errors.push(FieldError::invalid(field.clone(), shown, "at least one value is required"));
    } else if values.len() > MOST_CODES {
        errors.push(FieldError::too_many(field.clone(), values.len(), MOST_CODES as u64));
    }
    let with_zero = text_at(codes, "operator") == "In";
    for (index, value) in values.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if with_zero && value.as_i64() == Some(0) {
            errors.push(FieldError::invalid(field.clone(), value, "must not be 0 for the In operator"));
        }
        if values.iter().take(index).any(|earlier| earlier == value) {
            errors.push(FieldError::duplicate(field, value));
        }
    }
    if !values.is_sorted_by_key(Value::as_i64) {
        errors.push(FieldError::invalid(field, shown, "must be ordered"));
    }
}

fn validate_success(spec: &Value, policy: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let rules = items(policy, "rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path, detail));
    }
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(path, rules.len(), MOST_RULES as u64));
    }
    let completions = number(spec, "completions").unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(rule, completions, &format!("{path}[{index}]"), errors);
    }
}

fn validate_rule(rule: &Value, completions: i64, path: &str, errors: &mut Vec<FieldError>) {
    let indexes = at(rule, "succeededIndexes").and_then(Value::as_str);
    let count = number(rule, "succeededCount");
    if indexes.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let field = format!("{path}.succeededIndexes");
        if indexes.len() > LONGEST_LIST {
            errors.push(FieldError::too_long(field.clone(), LONGEST_LIST as u64));
        }
        match count_indexes(indexes, completions) {
            Ok(found) => total = found,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(FieldError::invalid(field, &json!(indexes), &detail));
            }
        }
    }
    let Some(count) = count else { return };
    not_negative(rule, &format!("{path}."), "succeededCount", errors);
    let mut most = |most: i64, what: &str| {
        if count > most {
            let detail = format!("must be less than or equal to {most} (the number of {what})");
            errors.push(FieldError::invalid(format!("{path}.succeededCount"), &json!(count), &detail));
        }
    };
    most(completions, "specified completions");
    if indexes.is_some() {
        most(total, "indexes in the specified succeededIndexes field");
    }
}

/// How many indexes a list such as `0,3-5` names.
fn count_indexes(list: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut total) = (None, 0);
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (from, to) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let mut ends = part.split('-');
    match (ends.next(), ends.next(), ends.next()) {
        (Some(only), None, _) => index(only).map(|index| (index, index)),
        (Some(from), Some(to), None) => {
            let (from, to) = (index(from)?, index(to)?);
            if from >= to {
                return Err(format!("non-increasing order, previous: {from}, current: {to}"));
            }
            Ok((from, to))
        }
        _ => Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        )),
    }
}
