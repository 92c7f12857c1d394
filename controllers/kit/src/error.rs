//! Errors as texts.

/// An error with what caused it, as `a: b: c`; many errors of libraries name only what was attempted.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    let mut shown: Vec<String> = Vec::new();
    for text in all.map(ToString::to_string) {
        // Some errors repeat their cause.
        if !shown.iter().any(|known| known.contains(&text)) {
            shown.push(text);
        }
    }
    shown.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn an_error_is_shown_with_its_causes_once() {
        let refused = Layer("connection refused", None);
        let connect = Layer("client error (Connect): connection refused", Some(Box::new(refused)));
        let list = Layer("initial list failed", Some(Box::new(connect)));
        assert_eq!(causes(&list), "initial list failed: client error (Connect): connection refused");
    }
}
