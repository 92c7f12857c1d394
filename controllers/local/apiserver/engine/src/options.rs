//! Query options of reads and writes, checked and worded as the real server does.

use serde_json::{Value, json};

use crate::field::{FieldError, FieldReason};
use crate::request::Query;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, Subject};

#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    /// Page size; 0 for none.
    pub limit: usize,
    pub token: String,
    pub revision: String,
    pub matching: String,
    pub watch: bool,
    pub bookmarks: bool,
    pub initial: Option<bool>,
    pub timeout: Option<u64>,
}

impl ListOptions {
    /// Reads and checks; `watch`: for a watch.
    ///
    /// # Errors
    /// 400 for values that cannot be read, 422 for invalid combinations.
    pub fn parse(query: &Query<'_>, watch: bool) -> Result<Self, ApiError> {
        let limit = query.number("limit")?.unwrap_or(0);
        let timeout = query.number("timeoutSeconds")?;
        let options = Self {
            labels: LabelSelector::parse(query.text("labelSelector"))?,
            fields: FieldSelector::parse(query.text("fieldSelector"))?,
            limit: usize::try_from(limit).unwrap_or(0),
            token: query.text("continue").to_owned(),
            revision: query.text("resourceVersion").to_owned(),
            matching: query.text("resourceVersionMatch").to_owned(),
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial: query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents")),
            timeout: timeout.and_then(|t| u64::try_from(t).ok()),
        };
        let errors = if options.watch { options.watch_errors() } else { options.list_errors() };
        if errors.is_empty() { Ok(options) } else { Err(invalid_options("ListOptions", &errors)) }
    }

    fn list_errors(&self) -> Vec<FieldError> {
        let forbid = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
        let mut errors = Vec::new();
        if !self.matching.is_empty() {
            if self.revision.is_empty() {
                errors.push(forbid("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.token.is_empty() {
                errors.push(forbid("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(self.matching.as_str(), "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(
                    "resourceVersionMatch",
                    &self.matching,
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if self.matching == "Exact" && self.revision == "0" {
                errors.push(forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
        }
        if self.initial.is_some() {
            errors
                .push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let forbid = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
        let mut errors = Vec::new();
        if self.initial.is_some() {
            if self.matching != "NotOlderThan" {
                errors
                    .push(forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
            }
        } else if !self.matching.is_empty() {
            errors.push(forbid(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !self.matching.is_empty() && self.matching != "NotOlderThan" {
            errors.push(FieldError::not_supported("resourceVersionMatch", &self.matching, &["NotOlderThan"]));
        }
        errors
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// Field manager, derived from the user agent where not given.
    pub manager: String,
    pub manager_given: bool,
    pub validation: FieldValidation,
    pub force: bool,
}

impl WriteOptions {
    /// Reads and checks; `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`; `apply`: a server-side apply.
    ///
    /// # Errors
    /// 422 naming the option.
    pub fn parse(query: &Query<'_>, kind: &str, apply: bool, user_agent: &str) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let dry_run = dry_run(&query.all("dryRun"), &mut errors);
        let given = query.text("fieldManager");
        manager_errors(given, &mut errors);
        let validation = match query.text("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        if query.flag("force") && !apply && kind == "PatchOptions" {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if !errors.is_empty() {
            return Err(invalid_options(kind, &errors));
        }
        let agent = user_agent.split('/').next().unwrap_or("");
        let manager = if given.is_empty() { cut(agent, 128) } else { given };
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Ok(Self {
            dry_run,
            manager: manager.to_owned(),
            manager_given: !given.is_empty(),
            validation,
            force: query.flag("force"),
        })
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}

fn dry_run(values: &[&str], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.push(FieldError::not_supported("dryRun", &values, &["All"]));
    }
    !values.is_empty()
}

fn manager_errors(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > 128 {
        errors.push(FieldError::bare(FieldReason::TooLong, "fieldManager", "may not be more than 128 bytes"));
    }
    if let Some((at, odd)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(odd));
        errors.push(FieldError::invalid("fieldManager", &manager, &why));
    }
}

/// Options of a delete, from the body where there is one, else from the query.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace: Option<i64>,
    /// `propagationPolicy`: `Foreground`, `Background` or `Orphan`; empty for the kind's default.
    pub policy: String,
    pub uid: Option<String>,
    pub revision: Option<String>,
}

impl DeleteOptions {
    /// Reads and checks.
    ///
    /// # Errors
    /// 400 for a body of another kind or of wrong types, 422 for values that are not supported.
    pub fn parse(query: &Query<'_>, body: Option<&Value>) -> Result<Self, ApiError> {
        let given = match body {
            Some(body) => typed_options(body)?,
            None => options_of(query)?,
        };
        let text = |path: &str| crate::object::at(&given, path).and_then(Value::as_str).map(str::to_owned);
        let mut errors = Vec::new();
        let orphan = given.get("orphanDependents").and_then(Value::as_bool);
        let policy = text("propagationPolicy");
        if let (Some(policy), Some(_)) = (&policy, orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", &policy, why));
        }
        if let Some(policy) = &policy
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            errors.push(FieldError::not_supported(
                "propagationPolicy",
                &policy,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        let dry_run = dry_run(&crate::object::strings(given.get("dryRun")), &mut errors);
        if !errors.is_empty() {
            return Err(invalid_options("DeleteOptions", &errors));
        }
        Ok(Self {
            dry_run,
            grace: given.get("gracePeriodSeconds").and_then(Value::as_i64),
            policy: policy.unwrap_or_else(|| match orphan {
                Some(true) => "Orphan".to_owned(),
                Some(false) => "Background".to_owned(),
                None => String::new(),
            }),
            uid: text("preconditions.uid"),
            revision: text("preconditions.resourceVersion"),
        })
    }
}

fn typed_options(body: &Value) -> Result<Value, ApiError> {
    let bad = |why: String| ApiError::bad_request(format!("unable to decode as DeleteOptions: {why}"));
    match crate::object::text_at(body, "kind") {
        "" | "DeleteOptions" if body.is_object() => {}
        kind => return Err(bad(format!("an object of kind {kind:?} was sent"))),
    }
    let mut options = body.clone();
    let schema =
        crate::schema::builtin::builtin::<k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions>();
    crate::schema::decode::decode_builtin(&mut options, &schema).map_err(bad)?;
    Ok(options)
}

fn options_of(query: &Query<'_>) -> Result<Value, ApiError> {
    let mut options = json!({ "dryRun": query.all("dryRun") });
    let mut set = |key: &str, value: Value| crate::object::set(&mut options, key, value);
    if query.has("gracePeriodSeconds") {
        let seconds = query.number("gracePeriodSeconds")?;
        let why = || ApiError::bad_request("strconv.ParseInt: parsing \"\": invalid syntax");
        set("gracePeriodSeconds", json!(seconds.ok_or_else(why)?));
    }
    if query.has("propagationPolicy") {
        set("propagationPolicy", json!(query.text("propagationPolicy")));
    }
    if query.has("orphanDependents") {
        set("orphanDependents", json!(query.flag("orphanDependents")));
    }
    if query.has("uid") {
        set("preconditions", json!({ "uid": query.text("uid") }));
    }
    Ok(options)
}

pub(crate) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

fn invalid_options(kind: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid(Subject { group: "meta.k8s.io", resource: kind, name: "" }, errors)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::DeleteOptions;
    use crate::request::Query;

    #[test]
    fn deletions_with_contradicting_or_mistyped_options_are_refused() {
        let code = |query: &str, body: Option<Value>| {
            DeleteOptions::parse(&Query::parse(query), body.as_ref()).err().map_or(200, |error| error.code)
        };
        for (query, want) in [
            ("", 200),
            ("propagationPolicy=Orphan&gracePeriodSeconds=-1&dryRun=All", 200),
            ("orphanDependents=true&propagationPolicy=Orphan", 422),
            ("propagationPolicy=", 422),
            ("dryRun=", 422),
            ("dryRun=All&dryRun=Some", 422),
            ("gracePeriodSeconds=", 400),
            ("gracePeriodSeconds=1.5", 400),
        ] {
            assert_eq!(code(query, None), want, "{query}");
        }
        for (body, want) in [
            (json!({"orphanDependents": false}), 200),
            (json!({"orphanDependents": false, "propagationPolicy": "Background"}), 422),
            (json!({"propagationPolicy": "Sideways"}), 422),
            (json!({"dryRun": ["Some"]}), 422),
            (json!({"dryRun": "All"}), 400),
            (json!({"gracePeriodSeconds": "5"}), 400),
            (json!({"orphanDependents": "yes"}), 400),
            (json!({"preconditions": "x"}), 400),
            (json!({"kind": "Pod"}), 400),
            (json!([]), 400),
        ] {
            assert_eq!(code("", Some(body.clone())), want, "{body}");
        }
        let query = Query::parse("orphanDependents=maybe&uid=u");
        let options = DeleteOptions::parse(&query, None).unwrap();
        assert_eq!((options.policy.as_str(), options.uid.as_deref()), ("Orphan", Some("u")));
    }
}
