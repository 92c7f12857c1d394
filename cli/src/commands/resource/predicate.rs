//! The parts of `--for` that every resource has. Pure.

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
