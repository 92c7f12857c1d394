//! The text form of label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
//!
//! The parser is our own because no crate has one (`kube::core::Selector` is only printed), and because the embedded API
//! server answers with the error texts of a real one.

use std::collections::BTreeSet;

/// What a selector demands of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// It is one of these.
    In(String, Vec<String>),
    /// It is none of these, or absent.
    NotIn(String, Vec<String>),
    /// It is there.
    Exists(String),
    /// It is absent.
    Missing(String),
    /// It is a number above this.
    Greater(String, i64),
    /// It is a number below this.
    Less(String, i64),
}

impl Requirement {
    /// The label it is about.
    pub fn key(&self) -> &str {
        let (Self::In(key, _)
        | Self::NotIn(key, _)
        | Self::Exists(key)
        | Self::Missing(key)
        | Self::Greater(key, _)
        | Self::Less(key, _)) = self;
        key
    }

    /// Whether it holds, given the value of each label.
    pub fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let number = |key: &str| label(key).and_then(|text| text.parse::<i64>().ok());
        match self {
            Self::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Self::Exists(key) => label(key).is_some(),
            Self::Missing(key) => label(key).is_none(),
            Self::Greater(key, bound) => number(key).is_some_and(|n| n > *bound),
            Self::Less(key, bound) => number(key).is_some_and(|n| n < *bound),
        }
    }
}

/// The requirements of a text, all of which must hold; none for an empty text, which takes everything.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    parse_request(text).map_err(|why| why.strip_prefix(UNREADABLE).map_or_else(|| why.clone(), str::to_owned))
}

/// As [`parse`], with the whole error text of a real API server.
///
/// # Errors
/// What a real API server answers.
pub fn parse_request(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {}
            Token::End => break,
            other => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.shown()
                ));
            }
        }
        requirements.push(parser.requirement().map_err(|why| format!("{UNREADABLE}{why}"))?);
        match parser.take() {
            Token::End => break,
            Token::Symbol(",") => match parser.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                other => return Err(format!("found '{}', expected: identifier after ','", other.shown())),
            },
            other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.shown())),
        }
    }
    requirements.sort_by(|a, b| a.key().cmp(b.key()));
    Ok(requirements)
}

/// What precedes the fault of one requirement.
const UNREADABLE: &str = "unable to parse requirement: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'static str),
    End,
}

impl Token<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Word(text) => (*text).to_owned(),
            Self::Symbol(text) => (*text).to_owned(),
            Self::End => String::new(),
        }
    }
}

const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];
/// Longer ones first.
const SYMBOLS: [&str; 9] = ["==", "!=", ")", ",", "!", "=", ">", "<", "("];

fn tokens(text: &str) -> Vec<Token<'_>> {
    // A zero byte ends a text, and the one that ends a word is part of neither side.
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(SPACE);
        if rest.is_empty() || rest.starts_with('\0') {
            return tokens;
        }
        let (token, left) = match SYMBOLS.iter().find_map(|s| Some((*s, rest.strip_prefix(*s)?))) {
            Some((symbol, left)) => (Token::Symbol(symbol), left),
            None => {
                let end = rest.find(|c| SPACE.contains(&c) || SPECIAL.contains(&c) || c == '\0');
                let (word, left) = rest.split_at(end.unwrap_or(rest.len()));
                (Token::Word(word), left.strip_prefix('\0').unwrap_or(left))
            }
        };
        tokens.push(token);
        rest = left;
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.take();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.take();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.shown()));
        };
        check_key(key)?;
        let key = key.to_owned();
        if negated {
            return Ok(Requirement::Missing(key));
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Requirement::Exists(key));
        }
        self.operator(key)
    }

    fn operator(&mut self, key: String) -> Result<Requirement, String> {
        let token = self.take();
        let values = match token {
            Token::Word("in" | "notin") => self.set()?,
            Token::Symbol("=" | "==" | "!=" | ">" | "<") => vec![self.value()?],
            _ => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", token.shown()));
            }
        };
        let mut faults = Vec::new();
        let mut bound = 0;
        for value in &values {
            if matches!(token, Token::Symbol(">" | "<")) {
                match value.parse() {
                    Ok(number) => bound = number,
                    Err(_) => faults.push(format!(
                        "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    )),
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            faults.extend(check_value(&key, index, value));
        }
        match faults.as_slice() {
            [] => {}
            [only] => return Err(only.clone()),
            all => return Err(format!("[{}]", all.join(", "))),
        }
        Ok(match token {
            Token::Symbol(">") => Requirement::Greater(key, bound),
            Token::Symbol("<") => Requirement::Less(key, bound),
            Token::Symbol("!=") | Token::Word("notin") => Requirement::NotIn(key, values),
            _ => Requirement::In(key, values),
        })
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.take() {
            Token::Word(value) => Ok(value.to_owned()),
            other => Err(format!("found '{}', expected: identifier", other.shown())),
        }
    }

    /// A set in parentheses, sorted. Nothing between them is the empty value.
    fn set(&mut self) -> Result<Vec<String>, String> {
        match self.take() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.shown())),
        }
        let values = match self.peek() {
            Token::Word(_) | Token::Symbol(",") => self.values()?,
            Token::Symbol(")") => BTreeSet::from([""]),
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.shown())),
        };
        self.at += 1;
        Ok(values.into_iter().map(str::to_owned).collect())
    }

    /// What stands between the parentheses, up to the closing one. Nothing before, between or after commas is an
    /// empty value.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.take() {
                Token::Word(value) => {
                    values.insert(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.shown())),
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), Token::Symbol("," | ")")) {
                        values.insert("");
                    }
                    if self.peek() == Token::Symbol(")") {
                        return Ok(values);
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.shown())),
            }
        }
    }
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const PREFIX_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_label_word(text: &str) -> bool {
    let inner = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    inner && ends(text.chars().next()) && ends(text.chars().next_back())
}

/// The faults of a key: an optional subdomain, and a name.
fn check_key(key: &str) -> Result<(), String> {
    let mut faults = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            return Err(format!(
                "<nil>: Invalid value: {key:?}: a valid label key {NAME_RULE} with an optional DNS subdomain prefix \
                 and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some(("", name)) => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            if prefix.len() > 253 {
                faults.push("prefix part must be no more than 253 bytes".to_owned());
            }
            if !prefix.split('.').all(is_host_word) {
                faults.push(format!("prefix part {PREFIX_RULE}"));
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_word(name) {
        faults.push(format!("name part {NAME_RULE}"));
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("<nil>: Invalid value: {key:?}: {}", faults.join("; ")))
}

fn is_host_word(text: &str) -> bool {
    let inner = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    inner && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

fn check_value(key: &str, index: usize, value: &str) -> Option<String> {
    let mut faults = Vec::new();
    if value.len() > 63 {
        faults.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_label_word(value) {
        faults.push(VALUE_RULE);
    }
    let all = faults.join("; ");
    (!faults.is_empty()).then(|| format!("values[{index}][{key}]: Invalid value: {value:?}: {all}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Requirement, parse, parse_request};

    #[track_caller]
    fn refused(text: &str, why: &str) {
        assert_eq!(parse(text).unwrap_err(), why);
    }

    #[test]
    fn faults_of_sets_are_worded_as_by_a_real_server() {
        refused("a in (", "found '', expected: ',', ')' or identifier");
        refused("a in x", "found 'x' expected: '('");
        refused("a in (x", "found '', expected: ',' or ')'");
        refused("a in (x y)", "found 'y', expected: ',' or ')'");
        refused("a in (x,", "found '', expected: ',', or identifier");
        refused("a in (x=", "found '=', expected: ',' or ')'");
        refused("a in (x,=", "found '=', expected: ',', or identifier");
        refused("a in (=)", "found '=', expected: ',', ')' or identifier");
    }

    #[test]
    fn whole_faults_are_worded_as_by_a_real_server() {
        const VALUE: &str = super::VALUE_RULE;
        for (text, why) in [
            ("a in", "unable to parse requirement: found '' expected: '('".to_owned()),
            (",a", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
            ("a,", "found '', expected: identifier after ','".to_owned()),
            ("a,,b", "found ',', expected: identifier after ','".to_owned()),
            ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("a=b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
            ("a=b=c", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned(),
            ),
            ("a=(", "unable to parse requirement: found '(', expected: identifier".to_owned()),
            ("a=-b", format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {VALUE}")),
            (
                "a in (b,-c)",
                format!("unable to parse requirement: values[0][a]: Invalid value: \"-c\": {VALUE}"),
            ),
            (
                "a>-b",
                format!(
                    "unable to parse requirement: [values[0]: Invalid value: \"-b\": for 'Gt', 'Lt' operators, the \
                     value must be an integer, values[0][a]: Invalid value: \"-b\": {VALUE}]"
                ),
            ),
            (
                "/a",
                "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty"
                    .to_owned(),
            ),
        ] {
            assert_eq!(parse_request(text).unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn an_empty_set_is_the_empty_value() {
        let of = |values: &[&str]| {
            vec![Requirement::In("a".to_owned(), values.iter().map(|&value| value.to_owned()).collect())]
        };
        for (text, values) in [
            ("a in ()", &[""][..]),
            ("a in (,)", &[""]),
            ("a in (,,)", &[""]),
            ("a in (x,,y)", &["", "x", "y"]),
            ("a in (in,notin)", &["in", "notin"]),
            ("a=", &[""]),
            ("a == in", &["in"]),
        ] {
            assert_eq!(parse(text).unwrap(), of(values), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[ab!=<>(), ]{0,20}|\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
