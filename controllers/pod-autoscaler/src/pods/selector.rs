//! Label selectors in their text form, as the scale of a workload has them.

use std::collections::BTreeMap;

use kube::core::{Expression, Selector};
use neonvm_types::selector::{Requirement, parse as requirements};

/// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k`; the grammar of `labelSelector` in requests to the Kubernetes API.
///
/// # Errors
/// What cannot be read; an empty text, which would take every pod; comparisons of numbers.
pub(crate) fn parse(text: &str) -> Result<Selector, String> {
    let unreadable = |why| format!("{text:?} is not a label selector: {why}");
    let requirements = requirements(text).map_err(unreadable)?;
    if requirements.is_empty() {
        return Err("the selector is empty".to_owned());
    }
    let expressions = requirements.into_iter().map(|requirement| match requirement {
        Requirement::In(name, values) => Ok(match <[String; 1]>::try_from(values) {
            Ok([value]) => Expression::Equal(name, value),
            Err(values) => Expression::In(name, values.into_iter().collect()),
        }),
        Requirement::NotIn(name, values) => Ok(match <[String; 1]>::try_from(values) {
            Ok([value]) => Expression::NotEqual(name, value),
            Err(values) => Expression::NotIn(name, values.into_iter().collect()),
        }),
        Requirement::Exists(name) => Ok(Expression::Exists(name)),
        Requirement::Missing(name) => Ok(Expression::DoesNotExist(name)),
        Requirement::Greater(..) | Requirement::Less(..) => {
            Err(unreadable("labels are not compared as numbers".to_owned()))
        }
    });
    expressions.collect()
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
