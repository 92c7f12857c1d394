//! The parts of `--for` that every resource has. Pure.

use serde::Serialize;

use crate::error::Result;

/// How numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Comparison {
    AtLeast,
    AtMost,
    Equal,
}

impl Comparison {
    pub(in crate::commands) fn holds<T: PartialOrd>(self, one: &T, other: &T) -> bool {
        match self {
            Self::AtLeast => one >= other,
            Self::AtMost => one <= other,
            Self::Equal => one == other,
        }
    }
}

/// `KEY>=VALUE`, `KEY<=VALUE` or `KEY=VALUE`; `None` for every other text, and without a value.
pub(in crate::commands) fn split(text: &str) -> Option<(&str, Comparison, &str)> {
    let operators = [(">=", Comparison::AtLeast), ("<=", Comparison::AtMost), ("=", Comparison::Equal)];
    let (key, rest) = text.split_at_checked(text.find(['<', '>', '='])?)?;
    let mut found = operators.iter().filter_map(|(sign, own)| Some((*own, rest.strip_prefix(sign)?)));
    let (comparison, value) = found.next().filter(|(_, value)| !value.is_empty())?;
    Some((key, comparison, value))
}

/// `TYPE[=STATUS]` of a condition; the status is `True` unless given.
pub(in crate::commands) fn condition(text: &str) -> (String, String) {
    let (name, status) = text.split_once('=').unwrap_or((text, "True"));
    (name.to_owned(), status.to_owned())
}

/// An expression, and the text that it must select; any text if there is none.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands) struct Selection(String, Option<String>);

impl Selection {
    /// `EXPR[=VALUE]`, with or without braces as with kubectl.
    ///
    /// # Errors
    ///
    /// Those of the expression.
    pub(in crate::commands) fn parse(text: &str) -> Result<Self> {
        let (path, value) = match text.rsplit_once("}=") {
            Some((path, value)) => (format!("{path}}}"), Some(value.to_owned())),
            None if text.contains('{') => (text.to_owned(), None),
            None => match text.split_once('=') {
                Some((path, value)) => (format!("{{{path}}}"), Some(value.to_owned())),
                None => (format!("{{{text}}}"), None),
            },
        };
        crate::render::select(&path, &serde_json::Value::Null)?;
        Ok(Self(path, value))
    }

    pub(in crate::commands) fn holds(&self, object: &impl Serialize) -> bool {
        let value = serde_json::to_value(object).unwrap_or_default();
        let text = crate::render::select(&self.0, &value).unwrap_or_default();
        self.1.as_ref().map_or(!text.is_empty(), |expected| text == *expected)
    }
}
