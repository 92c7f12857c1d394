//! `WWW-Authenticate`: which login a server wants (RFC 9110 §11.6.1).

use http_auth::parser::ChallengeParser;

/// The authentication that a server requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    // User and password with every request.
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// The best of the challenges in header lines: a token before a password. `None` if none of them is supported.
    pub(super) fn best<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut basic = None;
        for line in lines {
            // What follows a mistake is skipped.
            for challenge in ChallengeParser::new(line).map_while(Result::ok) {
                let find = |name: &str| {
                    let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.map(|(_, value)| value.to_unescaped())
                };
                if challenge.scheme.eq_ignore_ascii_case("bearer")
                    && let Some(realm) = find("realm")
                {
                    return Some(Self::Bearer { realm, service: find("service"), scope: find("scope") });
                }
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    basic = Some(Self::Basic);
                }
            }
        }
        basic
    }
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
