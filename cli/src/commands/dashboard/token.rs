//! The token in the URL: other users of this host, and pages of other sites, do not know it.

use std::fmt::Write as _;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::{Code, Error, Result};

/// Random bytes of a token.
const BYTES: usize = 24;

/// A random token.
pub(super) struct Token(String);

impl Token {
    /// A new one.
    pub(super) fn random() -> Result<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Error::new(Code::Failed, "no random numbers"))?;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// As it is written.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether a text is this token. How long it takes does not depend on how many characters are right.
    pub(super) fn is(&self, text: &str) -> bool {
        let pairs = self.0.bytes().zip(text.bytes());
        let differing = pairs.fold(0, |differing, (one, other)| differing | (one ^ other));
        self.0.len() == text.len() && differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.text().len(), 2 * BYTES);
        assert!(one.is(one.text()) && !one.is(other.text()));
        assert!(!one.is("") && !one.is(&one.text()[1..]) && !one.is(&format!("{}0", one.text())));
    }
}
