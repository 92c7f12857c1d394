//! Output of a command in the form that is compared.

/// Lines with ages masked and runs of spaces narrowed to two.
pub(crate) fn plain(text: &str) -> Vec<String> {
    let mut age = None;
    text.lines()
        .map(|line| {
            let mut line: Vec<char> = line.chars().collect();
            if let Some(at) = heading(&line) {
                age = Some(at);
            } else if line.iter().all(|c| c.is_whitespace()) {
                age = None;
            } else if let Some(at) = age {
                mask(&mut line, at);
            }
            narrow(&line)
        })
        .collect()
}

/// Where the AGE column of a heading begins.
fn heading(line: &[char]) -> Option<usize> {
    if line.iter().any(|c| c.is_lowercase()) {
        return None;
    }
    let edge = |c: Option<&char>| c.is_none_or(|c| c.is_whitespace());
    (0..line.len()).find(|&at| {
        line.get(at..at + 3) == Some(&['A', 'G', 'E'])
            && edge(at.checked_sub(1).and_then(|before| line.get(before)))
            && edge(line.get(at + 3))
    })
}

/// Replaces the word that begins at `at`, if the line has something there.
fn mask(line: &mut Vec<char>, at: usize) {
    let near = at.checked_sub(1).and_then(|before| line.get(before..line.len().min(at + 1)));
    if near.is_none_or(|near| near.iter().all(|c| c.is_whitespace())) {
        return;
    }
    let word = line.get(at..).unwrap_or_default().iter().take_while(|c| !c.is_whitespace()).count();
    if word > 0 {
        line.splice(at..at + word, "<age>".chars());
    }
}

/// Runs of two spaces and more after something become two; none at the end.
fn narrow(line: &[char]) -> String {
    let mut out = String::new();
    let mut spaces = 0;
    for &c in line {
        if c == ' ' {
            spaces += 1;
            continue;
        }
        let leading = out.is_empty();
        out.extend(std::iter::repeat_n(' ', if leading { spaces } else { spaces.min(2) }));
        spaces = 0;
        out.push(c);
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_masked_and_columns_narrowed() {
        let text =
            "NAME     READY   AGE\np1       0/1     12s   x\n\nno age   here    12s\n    indented   more  \n";
        assert_eq!(
            plain(text),
            ["NAME  READY  AGE", "p1  0/1  <age>  x", "", "no age  here  12s", "    indented  more"]
        );
    }
}
