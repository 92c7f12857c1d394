//! Which programs a line of shell starts, as far as checking needs it.

/// The simple commands of a text of shell, each as its words: those of pipes, lists, subshells and substitutions. Redirections
/// and comments are left out; variables stay as they are written.
#[must_use]
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let mut reader = Reader { chars: text.chars().collect(), at: 0, found: Vec::new() };
    reader.list(false);
    reader.found.retain(|words| !words.is_empty());
    reader.found
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    found: Vec<Vec<String>>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0);
        self.at += 1;
        next
    }

    /// Reads commands up to the end, or up to the parenthesis that closes them.
    fn list(&mut self, nested: bool) {
        let mut words: Vec<String> = Vec::new();
        loop {
            match self.peek(0) {
                None => break,
                Some(')') if nested => {
                    self.at += 1;
                    break;
                }
                Some('|' | '&' | ';' | '\n' | ')') => {
                    self.at += 1;
                    self.found.push(std::mem::take(&mut words));
                }
                Some('(') => {
                    self.at += 1;
                    self.list(true);
                }
                Some('\\') if self.peek(1) == Some('\n') => self.at += 2,
                Some(blank) if blank.is_whitespace() => self.at += 1,
                Some('#') => {
                    while self.peek(0).is_some_and(|next| next != '\n') {
                        self.at += 1;
                    }
                }
                Some('<' | '>') => self.redirection(),
                Some(_) => {
                    let word = self.word();
                    // The number of a descriptor.
                    if !(matches!(self.peek(0), Some('<' | '>'))
                        && word.chars().all(|char| char.is_ascii_digit()))
                    {
                        words.push(word);
                    }
                }
            }
        }
        self.found.push(words);
    }

    fn redirection(&mut self) {
        while matches!(self.peek(0), Some('<' | '>' | '&')) {
            self.at += 1;
        }
        if self.peek(0) == Some('(') {
            // A process substitution.
            self.at += 1;
            self.list(true);
            return;
        }
        while self.peek(0) == Some(' ') {
            self.at += 1;
        }
        self.word();
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(next) = self.peek(0) {
            match next {
                '\'' => {
                    self.at += 1;
                    while let Some(inner) = self.next().filter(|inner| *inner != '\'') {
                        word.push(inner);
                    }
                }
                '"' => self.double(&mut word),
                '\\' => {
                    self.at += 1;
                    word.extend(self.next().filter(|next| *next != '\n'));
                }
                '$' if self.peek(1) == Some('(') => self.substitution(&mut word),
                '|' | '&' | ';' | '(' | ')' | '<' | '>' => break,
                blank if blank.is_whitespace() => break,
                other => {
                    self.at += 1;
                    word.push(other);
                }
            }
        }
        word
    }

    fn double(&mut self, word: &mut String) {
        self.at += 1;
        while let Some(next) = self.peek(0) {
            match next {
                '"' => {
                    self.at += 1;
                    return;
                }
                '$' if self.peek(1) == Some('(') => self.substitution(word),
                '\\' => {
                    self.at += 1;
                    word.extend(self.next());
                }
                other => {
                    self.at += 1;
                    word.push(other);
                }
            }
        }
    }

    fn substitution(&mut self, word: &mut String) {
        self.at += 2;
        self.list(true);
        word.push_str("substituted");
    }
}

/// The arguments of each call of a program in a text of shell, also behind `sudo`, `env`, `time` and assignments.
#[must_use]
pub fn calls(text: &str, program: &str) -> Vec<Vec<String>> {
    let of = |words: Vec<String>| {
        let before = |word: &String| {
            word.contains('=')
                || ["sudo", "env", "time", "!", "eval", "until", "while", "if"].contains(&word.as_str())
        };
        let at = words.iter().position(|word| !before(word))?;
        let (first, rest) = words.get(at..)?.split_first()?;
        (first == program).then(|| rest.to_vec())
    };
    commands(text).into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_wherever_they_stand() {
        let of = |text: &str| calls(text, "neonctl").iter().map(|words| words.join(" ")).collect::<Vec<_>>();
        assert_eq!(of("neonctl a 'b c' | grep x && sudo neonctl d --e=1 &"), ["a b c", "d --e=1"]);
        assert_eq!(of("eval \"$(neonctl local up)\"; x=$(neonctl b)"), ["local up", "b"]);
        assert_eq!(of("A=1 neonctl a \\\n  --b > out 2>&1 # neonctl c"), ["a --b"]);
        assert_eq!(of("echo neonctl a; diff <(neonctl b) c"), ["b"]);
        assert_eq!(of("neonctl vm run -- sh -c 'a; neonctl b'"), ["vm run -- sh -c a; neonctl b"]);
        assert_eq!(of("( neonctl a )"), ["a"]);
        assert_eq!(of("\"unclosed $(neonctl a"), ["a"]);
    }
}
