//! Answers to questions about access and identity: `SubjectAccessReview` and its relatives.

use serde_json::{Map, Value, json};

use super::{Attributes, Decision, Rule, RuleIndex};
use crate::builtin::selector;
use crate::context::User;
use crate::field::FieldError;
use crate::object::text_at;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, Subject};

/// Answers a review of `kind` posted by `user`: the body with its `status`.
///
/// # Errors
/// 422 for a question that is not one, 400 for a kind that is not answered here.
pub fn answer(kind: &str, body: &Value, user: &User, index: &RuleIndex) -> Result<Value, ApiError> {
    let status = match kind {
        "SelfSubjectAccessReview" => {
            let mut errors = check_question(body);
            check_metadata(body, &mut errors);
            access(body, user, index, &errors)?
        }
        "SubjectAccessReview" => {
            let other = subject(body);
            let mut errors = check_question(body);
            if other.name.is_empty() && other.groups.is_empty() {
                let detail = "at least one of user or group must be specified";
                errors.push(FieldError::invalid("spec.user", "", detail));
            }
            check_metadata(body, &mut errors);
            access(body, &other, index, &errors)?
        }
        "SelfSubjectRulesReview" => rules(body, user, index)?,
        "SelfSubjectReview" => json!({"userInfo": user_info(user)}),
        _ => return Err(ApiError::bad_request(format!("{kind} is not a review of access"))),
    };
    let mut answer = body.clone();
    drop_empty(&mut answer);
    if let Some(map) = answer.as_object_mut() {
        map.insert("metadata".to_owned(), json!({}));
        map.insert("status".to_owned(), status);
    }
    Ok(answer)
}

/// Empty strings of the spec are left out of the answer.
fn drop_empty(review: &mut Value) {
    for key in ["resourceAttributes", "nonResourceAttributes"] {
        let attributes = review.get_mut("spec").and_then(|spec| spec.get_mut(key)?.as_object_mut());
        if let Some(attributes) = attributes {
            attributes.retain(|_, value| value.as_str() != Some(""));
        }
    }
}

/// Answers a `TokenReview`: `found` is the token's user and its audiences, or why it is invalid.
pub fn token(body: &Value, found: Result<(&User, &[String]), &str>) -> Value {
    let status = match found {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user_info(user), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    };
    let mut answer = body.clone();
    if let Some(map) = answer.as_object_mut() {
        map.entry("metadata").or_insert_with(|| json!({}));
        map.insert("status".to_owned(), status);
    }
    answer
}

/// `username`, `uid`, `groups` and `extra`, in the form that reviews and webhooks receive.
pub fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> =
            user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        info.insert("extra".to_owned(), Value::Object(extra));
    }
    Value::Object(info)
}

fn spec<'a>(body: &'a Value, key: &str) -> Option<&'a Value> {
    body.get("spec")?.get(key).filter(|value| !value.is_null())
}

fn subject(body: &Value) -> User {
    let text = |key: &str| spec(body, key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let groups = spec(body, "groups").and_then(Value::as_array).into_iter().flatten();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        extra: Vec::new(),
    }
}

fn check_question(body: &Value) -> Vec<FieldError> {
    let resource = spec(body, "resourceAttributes");
    let path = spec(body, "nonResourceAttributes");
    let detail = match (resource, path) {
        (Some(_), Some(_)) => "cannot be specified in combination with resourceAttributes",
        (None, None) => "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        (Some(resource), None) => return check_selectors(resource),
        (None, Some(_)) => return Vec::new(),
    };
    match path {
        Some(path) => vec![FieldError::invalid("spec.nonResourceAttributes", path, detail)],
        None => vec![FieldError::invalid("spec.resourceAttributes", &Value::Null, detail)],
    }
}

const SELECTORS: [&str; 2] = ["fieldSelector", "labelSelector"];

/// The text and the requirements of a selector.
fn parts(selector: &Value) -> (&str, &[Value]) {
    let list = selector.get("requirements").and_then(Value::as_array);
    (text_at(selector, "rawSelector"), list.map_or(&[], Vec::as_slice))
}

/// A selector is given either as text or as requirements.
fn check_selectors(resource: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in SELECTORS {
        let Some(selector) = resource.get(key).filter(|selector| selector.is_object()) else { continue };
        let path = format!("spec.resourceAttributes.{key}");
        let (raw, requirements) = parts(selector);
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                let detail = "may not specified at the same time as requirements";
                errors.push(FieldError::invalid(format!("{path}.rawSelector"), &raw, detail));
            }
            (true, true) => {
                let detail = format!("when {path} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(format!("{path}.requirements"), &detail));
            }
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{index}]");
            selector::validate_requirement(requirement, &path, key == "fieldSelector", &mut errors);
        }
    }
    errors
}

/// What of the selectors of a question could not be used.
fn ignored(resource: &Value) -> String {
    let unused = SELECTORS.into_iter().filter_map(|key| {
        let (raw, requirements) = parts(resource.get(key)?);
        let is_field = key == "fieldSelector";
        let is_known = |requirement: &&Value| match text_at(requirement, "operator") {
            "In" | "NotIn" => {
                let values = requirement.get("values").and_then(Value::as_array).map_or(0, Vec::len);
                !is_field || values == 1
            }
            "Exists" | "DoesNotExist" => !is_field,
            _ => false,
        };
        let known = requirements.iter().filter(is_known).count();
        let reads = match is_field {
            true => FieldSelector::parse(raw).is_ok(),
            false => LabelSelector::parse(raw).is_ok(),
        };
        let how = if known > 0 { "partially ignored" } else { "ignored" };
        (known < requirements.len() || !reads)
            .then(|| format!("spec.resourceAttributes.{key} {how} due to parse error"))
    });
    unused.collect::<Vec<_>>().join("; ")
}

/// A question has no metadata.
fn check_metadata(body: &Value, errors: &mut Vec<FieldError>) {
    const DROPPED: [&str; 5] = ["namespace", "uid", "creationTimestamp", "managedFields", "resourceVersion"];
    let metadata = body.get("metadata").and_then(Value::as_object).into_iter().flatten();
    if metadata.into_iter().any(|(key, _)| !DROPPED.contains(&key.as_str())) {
        let value = body.get("metadata").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("metadata", value, "must be empty"));
    }
}

fn access(body: &Value, user: &User, index: &RuleIndex, errors: &[FieldError]) -> Result<Value, ApiError> {
    if !errors.is_empty() {
        // The real server names no kind here.
        let subject = Subject { group: "authorization.k8s.io", resource: "", name: "" };
        return Err(ApiError::invalid(subject, errors));
    }
    let resource = spec(body, "resourceAttributes");
    let path = spec(body, "nonResourceAttributes");
    let get = |key: &str| {
        resource.or(path).and_then(|attributes| attributes.get(key)?.as_str()).unwrap_or_default()
    };
    let Decision { allowed, reason } = index.decide(&Attributes {
        user,
        verb: get("verb"),
        group: get("group"),
        resource: get("resource"),
        subresource: get("subresource"),
        name: get("name"),
        namespace: get("namespace"),
        path: if path.is_some() { get("path") } else { "" },
    });
    let mut status = json!({"allowed": allowed});
    if let Some(map) = status.as_object_mut().filter(|_| !reason.is_empty()) {
        map.insert("reason".to_owned(), json!(reason));
    }
    let ignored = resource.map(ignored).unwrap_or_default();
    if let Some(map) = status.as_object_mut().filter(|_| !ignored.is_empty()) {
        map.insert("evaluationError".to_owned(), json!(ignored));
    }
    Ok(status)
}

fn rules(body: &Value, user: &User, index: &RuleIndex) -> Result<Value, ApiError> {
    let namespace = spec(body, "namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let rules = index.rules_for(user, namespace);
    let of_resources = |rule: &Rule| {
        let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
        if let Some(map) = shown.as_object_mut().filter(|_| !rule.names.is_empty()) {
            map.insert("resourceNames".to_owned(), json!(rule.names));
        }
        shown
    };
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = rules.iter().partition(|rule| !rule.paths.is_empty());
    let resources: Vec<Value> = resources.into_iter().map(of_resources).collect();
    let paths: Vec<Value> =
        paths.into_iter().map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths})).collect();
    Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
}
