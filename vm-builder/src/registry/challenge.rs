//! `WWW-Authenticate`: which login a server wants (RFC 9110 §11.6.1).

/// The authentication that a server requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User and password with every request.
    Basic,
    /// A token of a token service.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// The best of the challenges in header lines: a token before a password. `None` if none of them is supported.
    pub(super) fn best<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut basic = None;
        for line in lines {
            for (scheme, parameters) in challenges(line) {
                let find = |name: &str| {
                    parameters
                        .iter()
                        .find(|(key, _)| key.eq_ignore_ascii_case(name))
                        .map(|(_, value)| value.clone())
                };
                if scheme.eq_ignore_ascii_case("bearer")
                    && let Some(realm) = find("realm")
                {
                    return Some(Self::Bearer { realm, service: find("service"), scope: find("scope") });
                }
                if scheme.eq_ignore_ascii_case("basic") {
                    basic = Some(Self::Basic);
                }
            }
        }
        basic
    }
}

type Parameters = Vec<(String, String)>;

/// Splits a line into schemes with their parameters. What cannot be understood is skipped.
fn challenges(line: &str) -> Vec<(String, Parameters)> {
    let mut found: Vec<(String, Parameters)> = Vec::new();
    let mut rest = line.trim_start_matches([' ', ',', '\t']);
    while !rest.is_empty() {
        let end = rest.find([' ', '=', ',', '\t']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let after = after.trim_start_matches([' ', '\t']);
        if let Some(value) = after.strip_prefix('=').filter(|_| !word.is_empty()) {
            let (value, after) = parameter_value(value.trim_start());
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((word.to_owned(), value));
            }
            rest = after;
        } else {
            if !word.is_empty() {
                found.push((word.to_owned(), Vec::new()));
            }
            rest = after.strip_prefix('=').unwrap_or(after);
        }
        rest = rest.trim_start_matches([' ', ',', '\t']);
    }
    found
}

/// A value, quoted or not, and what follows.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut escaped = false;
    for (index, character) in quoted.char_indices() {
        match character {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return (value, quoted.get(index + 1..).unwrap_or_default()),
            _ => {
                escaped = false;
                value.push(character);
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_preferred_and_quotes_may_hold_commas() {
        let line = r#"Basic realm="a, b", Bearer realm="https://auth.example/token",service="reg \"x\"" , scope="repository:a/b:pull,push""#;
        let Some(Challenge::Bearer { realm, service, scope }) = Challenge::best([line].into_iter()) else {
            panic!("no token");
        };
        assert_eq!(realm, "https://auth.example/token");
        assert_eq!(service.as_deref(), Some("reg \"x\""));
        assert_eq!(scope.as_deref(), Some("repository:a/b:pull,push"));
        assert_eq!(Challenge::best(["basic realm=x"].into_iter()), Some(Challenge::Basic));
        assert_eq!(Challenge::best(["Negotiate", "Bearer service=x"].into_iter()), None);
    }

    proptest! {
        #[test]
        fn any_header_ends(line in "[ -~]{0,60}") {
            let _ = Challenge::best([line.as_str()].into_iter());
        }
    }
}
