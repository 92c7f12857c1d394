//! The text form of label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
//!
//! The parser is our own because no crate has one (`kube::core::Selector` is only printed), and because the embedded API
//! server answers with the error texts of a real one.

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
/// What a real API server writes after `unable to parse requirement: `.
pub fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { rest: text };
    let mut requirements = Vec::new();
    parser.space();
    while !parser.rest.is_empty() {
        requirements.push(parser.requirement()?);
        parser.space();
        if parser.rest.is_empty() {
            break;
        }
        if !parser.eat(",") {
            return Err(format!("found '{}', expected: ',' or 'end of string'", parser.token()));
        }
        parser.space();
        if parser.rest.is_empty() {
            return Err("found '', expected: identifier after ','".to_owned());
        }
    }
    Ok(requirements)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The next token as the error texts show it.
    fn token(&self) -> &'a str {
        let end = self.rest.find(|c: char| ",()=!<> \t".contains(c)).unwrap_or(self.rest.len());
        let end = if end == 0 { self.rest.chars().next().map_or(0, char::len_utf8) } else { end };
        self.rest.get(..end).unwrap_or("")
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| ",()=!<> \t\r\n".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.eat("!");
        self.space();
        let key = self.word();
        if key.is_empty() {
            let expected = if negated { "identifier" } else { "!, identifier, or 'end of string'" };
            return Err(format!("found '{}', expected: {expected}", self.token()));
        }
        check_key(key)?;
        let key = key.to_owned();
        self.space();
        if negated {
            return Ok(Requirement::Missing(key));
        }
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(Requirement::Exists(key));
        }
        self.operator(key)
    }

    fn operator(&mut self, key: String) -> Result<Requirement, String> {
        if self.eat("!=") {
            return Ok(Requirement::NotIn(key, vec![self.value()?]));
        }
        if self.eat("==") || self.eat("=") {
            return Ok(Requirement::In(key, vec![self.value()?]));
        }
        if self.eat(">") {
            return self.bound().map(|n| Requirement::Greater(key, n));
        }
        if self.eat("<") {
            return self.bound().map(|n| Requirement::Less(key, n));
        }
        let shown = self.token();
        match self.word() {
            "in" => self.set().map(|values| Requirement::In(key, values)),
            "notin" => self.set().map(|values| Requirement::NotIn(key, values)),
            _ => Err(format!("found '{shown}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    fn value(&mut self) -> Result<String, String> {
        self.space();
        let value = self.word();
        check_value(value)?;
        Ok(value.to_owned())
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        self.space();
        if !self.eat("(") {
            return Err(format!("found '{}' expected: '('", self.token()));
        }
        self.space();
        if self.eat(")") {
            return Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .to_owned());
        }
        if self.rest.is_empty() || self.rest.starts_with(['(', '=', '!', '<', '>']) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.token()));
        }
        let mut values = self.values()?;
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// What stands between the parentheses, and the closing one. Nothing before, between or after commas is an
    /// empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            self.space();
            if self.eat(",") {
                if values.is_empty() {
                    values.push(String::new());
                }
                self.space();
                if self.eat(")") {
                    values.push(String::new());
                    return Ok(values);
                }
                if self.rest.starts_with(',') {
                    values.push(String::new());
                }
                continue;
            }
            let value = self.value()?;
            if value.is_empty() {
                return Err(format!("found '{}', expected: ',', or identifier", self.token()));
            }
            values.push(value);
            self.space();
            if self.eat(")") {
                return Ok(values);
            }
            if !self.rest.starts_with(',') {
                return Err(format!("found '{}', expected: ',' or ')'", self.token()));
            }
        }
    }
}

const NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label_word(text: &str) -> bool {
    let inner = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    inner && ends(text.chars().next()) && ends(text.chars().next_back())
}

fn check_key(key: &str) -> Result<(), String> {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    if !is_label_word(name) {
        return Err(format!("<nil>: Invalid value: {key:?}: {NAME_RULE}"));
    }
    if name.len() > 63 {
        return Err(format!("<nil>: Invalid value: {key:?}: name part must be no more than 63 bytes"));
    }
    Ok(())
}

fn check_value(value: &str) -> Result<(), String> {
    if value.len() > 63 {
        return Err(format!("values[0]: Invalid value: {value:?}: must be no more than 63 bytes"));
    }
    if !value.is_empty() && !is_label_word(value) {
        return Err(format!("values[0]: Invalid value: {value:?}: {VALUE_RULE}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

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
        refused(
            "a in ()",
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[ab!=<>(), ]{0,20}|\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
