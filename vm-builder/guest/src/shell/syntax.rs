//! Lines of the shell: words, quotes, variables, joints and redirections.

/// When a statement runs, by the status of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Join {
    #[default]
    Always,
    IfOk,
    IfFailed,
}

/// A word: texts and variables, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(String),
}

impl Word {
    /// The text of the word; `variable` gives the values of names. A value stays one word, whatever is in it.
    pub(super) fn expand(&self, variable: impl Fn(&str) -> Option<String>) -> String {
        let expand = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Variable(name) => variable(name).unwrap_or_default(),
        };
        self.0.iter().map(expand).collect()
    }

    fn push(&mut self, character: char) {
        if let Some(Part::Text(text)) = self.0.last_mut() {
            text.push(character);
        } else {
            self.0.push(Part::Text(character.into()));
        }
    }
}

/// Where input comes from or output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Input(Word),
    Output(Word, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) join: Join,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    Joint(Join),
    In,
    Out,
    Append,
}

/// The statements of a line.
///
/// # Errors
/// What cannot be understood.
pub(super) fn parse(line: &str) -> Result<Vec<Statement>, &'static str> {
    let mut statements = vec![Statement::default()];
    let mut tokens = tokens(line)?.into_iter();
    while let Some(token) = tokens.next() {
        let mut file = || match tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            _ => Err("a redirection without a file"),
        };
        let redirect = match token {
            Token::Joint(join) => {
                let empty = statements.last().is_none_or(|statement| statement.words.is_empty());
                if empty && join != Join::Always {
                    return Err("nothing before && or ||");
                }
                statements.push(Statement { join, ..Statement::default() });
                continue;
            }
            Token::Word(word) => {
                if let Some(statement) = statements.last_mut() {
                    statement.words.push(word);
                }
                continue;
            }
            Token::In => Redirect::Input(file()?),
            Token::Out => Redirect::Output(file()?, false),
            Token::Append => Redirect::Output(file()?, true),
        };
        if let Some(statement) = statements.last_mut() {
            statement.redirects.push(redirect);
        }
    }
    if statements.last().is_some_and(|last| last.words.is_empty() && last.join != Join::Always) {
        return Err("nothing after && or ||");
    }
    Ok(statements)
}

fn tokens(line: &str) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    let mut word: Option<Word> = None;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let token = match character {
            '#' if word.is_none() => break,
            ' ' | '\t' | '\r' => None,
            ';' => Some(Token::Joint(Join::Always)),
            '<' => Some(Token::In),
            '>' if characters.next_if_eq(&'>').is_some() => Some(Token::Append),
            '>' => Some(Token::Out),
            '&' if characters.next_if_eq(&'&').is_some() => Some(Token::Joint(Join::IfOk)),
            '|' if characters.next_if_eq(&'|').is_some() => Some(Token::Joint(Join::IfFailed)),
            '&' => return Err("nothing runs in the background here"),
            '|' => return Err("there are no pipes here"),
            _ => {
                let word = word.get_or_insert_default();
                quoted(character, &mut characters, word)?;
                continue;
            }
        };
        tokens.extend(word.take().map(Token::Word));
        tokens.extend(token);
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Adds to a word what a character, a quoted text or a variable stands for.
fn quoted(character: char, characters: &mut Characters<'_>, word: &mut Word) -> Result<(), &'static str> {
    match character {
        '\'' => loop {
            match characters.next() {
                Some('\'') => return Ok(()),
                Some(other) => word.push(other),
                None => return Err("a quote is not closed"),
            }
        },
        '"' => loop {
            match characters.next() {
                Some('"') => return Ok(()),
                Some('\\') => match characters.next() {
                    Some(escaped @ ('"' | '\\' | '$' | '`')) => word.push(escaped),
                    Some(other) => {
                        word.push('\\');
                        word.push(other);
                    }
                    None => return Err("a quote is not closed"),
                },
                Some('$') => expand(characters, word)?,
                Some(other) => word.push(other),
                None => return Err("a quote is not closed"),
            }
        },
        '\\' => {
            if let Some(other) = characters.next() {
                word.push(other);
            }
        }
        '$' => expand(characters, word)?,
        other => word.push(other),
    }
    Ok(())
}

fn expand(characters: &mut Characters<'_>, word: &mut Word) -> Result<(), &'static str> {
    let braces = characters.next_if_eq(&'{').is_some();
    let mut name = String::new();
    if characters.next_if_eq(&'?').is_some() {
        name.push('?');
    } else {
        while let Some(letter) = characters.next_if(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
        {
            name.push(letter);
        }
    }
    if braces && characters.next() != Some('}') {
        return Err("only ${NAME} is known");
    }
    if name.is_empty() {
        word.push('$');
    } else {
        word.0.push(Part::Variable(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        let value = |name: &str| (name == "A").then(|| "x y".to_owned());
        let words = |statement: Statement| statement.words.iter().map(|word| word.expand(value)).collect();
        parse(line).unwrap().into_iter().map(words).collect()
    }

    #[test]
    fn lines_become_words() {
        assert_eq!(
            words(r#"echo 'a  $A' "b $A" c\ d ${A}e # no"#),
            [["echo", "a  $A", "b x y", "c d", "x ye"]]
        );
        assert_eq!(words("a;b && c"), [["a"], ["b"], ["c"]]);
        assert_eq!(words("echo '' $B$"), [["echo", "", "$"]]);
        let word = |text: &str| Word(vec![Part::Text(text.into())]);
        let parsed = parse("a <b >c >> d").unwrap();
        assert_eq!(
            parsed[0].redirects,
            [
                Redirect::Input(word("b")),
                Redirect::Output(word("c"), false),
                Redirect::Output(word("d"), true)
            ]
        );
    }

    #[test]
    fn unsupported_syntax_is_reported() {
        for line in ["a | b", "a &", "a &&", "&& a", "a >", "a > ;", "'", "\"\\", "${A"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "[a-z $'\"\\\\;&|<>{}?#é]{0,40}") {
            let _ = parse(&line);
        }

        #[test]
        fn single_quotes_keep_everything(text in "[^'\n]{0,20}") {
            prop_assert_eq!(words(&format!("x '{text}'")), vec![vec!["x".to_owned(), text]]);
        }
    }
}
