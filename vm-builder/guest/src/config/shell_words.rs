//! Shell-quoted words and exports, as older runners write them. Read without a shell: images may have none.

/// Why a file of words was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    #[error("line {0}: a quote has no end")]
    OpenQuote(usize),
    #[error("line {0}: expected export NAME=value")]
    NotAnExport(usize),
}

/// The words of a command.
pub fn words(text: &str) -> Result<Vec<String>, WordsError> {
    shlex::split(text).ok_or(WordsError::OpenQuote(text.lines().count().max(1)))
}

/// `NAME=value` of each `export NAME=<quoted value>`. Values may hold line breaks inside their quotes.
pub fn exports(text: &str) -> Result<Vec<String>, WordsError> {
    let mut result = Vec::new();
    let mut pending = String::new();
    let mut first = 1;
    for (number, line) in text.lines().enumerate() {
        if pending.is_empty() {
            first = number.saturating_add(1);
        } else {
            pending.push('\n');
        }
        pending.push_str(line);
        let Some(words) = shlex::split(&pending) else { continue };
        match words.as_slice() {
            [] => {}
            [export, assignment] if export == "export" && is_assignment(assignment) => {
                result.push(assignment.clone());
            }
            _ => return Err(WordsError::NotAnExport(first)),
        }
        pending.clear();
    }
    if pending.is_empty() { Ok(result) } else { Err(WordsError::OpenQuote(first)) }
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exports_span_lines_and_errors_name_the_first() {
        let text = "export A='x y'\nexport B='two\n\nlines'\n\nexport C=''\n";
        assert_eq!(exports(text).unwrap(), ["A=x y", "B=two\n\nlines", "C="]);
        assert_eq!(exports("export A=1\nrm -rf /"), Err(WordsError::NotAnExport(2)));
        assert_eq!(exports("export A='1"), Err(WordsError::OpenQuote(1)));
        assert_eq!(words("'a b"), Err(WordsError::OpenQuote(1)));
    }

    fn quote(text: &str) -> String {
        format!("'{}'", text.replace('\'', r#"'"'"'"#))
    }

    proptest! {
        #[test]
        fn what_was_quoted_comes_back(list in proptest::collection::vec("[^\0]{0,20}", 0..6)) {
            let quoted: Vec<String> = list.iter().map(|word| quote(word)).collect();
            prop_assert_eq!(words(&quoted.join(" ")).unwrap(), list);
        }

        #[test]
        fn values_come_back_whatever_they_hold(value in "[^\0\r]{0,40}") {
            let text = format!("export NAME={}\n", quote(&value));
            prop_assert_eq!(exports(&text).unwrap(), vec![format!("NAME={value}")]);
        }
    }
}
