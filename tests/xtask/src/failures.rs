//! Failures, printed again at the end: a run prints thousands of lines after it.

/// Most lines of one message: some print the whole log of a server.
const LONGEST: usize = 30;

/// The messages of tests that panicked, from the lines of their runner: where, and what.
pub(crate) fn messages(lines: &[String]) -> Vec<String> {
    let begins = |line: &str| line.trim_start().starts_with("thread '") && line.contains("panicked at ");
    let mut found: Vec<String> = Vec::new();
    let mut rest = lines.iter().peekable();
    while let Some(line) = rest.next() {
        if !begins(line) {
            continue;
        }
        found.push(line.trim().to_owned());
        for _ in 0..LONGEST {
            match rest.next_if(|line| !ends(line) && !begins(line)) {
                Some(line) => found.push(format!("  {}", line.trim_end())),
                None => break,
            }
        }
    }
    found
}

/// The first errors of a compiler, with the lines below each: later ones mostly follow from them.
pub(crate) fn errors(lines: &[String]) -> Vec<String> {
    const MOST: usize = 3;
    const BELOW: usize = 6;
    let begins = |line: &String| line.starts_with("error");
    let mut found = Vec::new();
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| begins(line)).take(MOST) {
        let below = lines.iter().skip(index + 1).take_while(|line| !begins(line) && !line.is_empty());
        found.extend(
            lines.iter().skip(index).take(1).chain(below.take(BELOW)).map(|line| format!("  {line}")),
        );
    }
    found
}

/// The last lines, of a program that ended without a message.
pub(crate) fn tail(lines: &[String]) -> Vec<String> {
    let rest = lines.get(lines.len().saturating_sub(LONGEST)..).unwrap_or_default();
    rest.iter().map(|line| format!("  {}", line.trim_end())).collect()
}

/// What runners and the panic handler print after a message.
fn ends(line: &str) -> bool {
    let line = line.trim();
    let words = ["stack backtrace:", "note: ", "test result:", "FAILED", "failures:", "────"];
    words.iter().any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_errors_of_a_compiler_are_found() {
        let text = "   Compiling a v1\nerror: failed to write `a.rmeta`: No space left on device (os error 28)\n\n\
            error: could not compile `a` (lib) due to 1 previous error\nwarning: build failed\n\nDone";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let expected = [
            "  error: failed to write `a.rmeta`: No space left on device (os error 28)",
            "  error: could not compile `a` (lib) due to 1 previous error",
            "  warning: build failed",
        ];
        assert_eq!(errors(&lines), expected);
    }

    #[test]
    fn messages_are_found_in_the_output_of_runners() {
        let long = vec!["a line"; LONGEST + 5].join("\n");
        let text = format!(
            "running 2 tests\n\
             \n    thread 'a::b' (12) panicked at src/a.rs:1:2:\n    assertion `left == right` failed\n      left: 1\n     right: 0\n\
             \x20   stack backtrace:\n   0: main\n\
             thread 'c' (13) panicked at src/c.rs:3:4:\nnot within 30 s\nnote: run with `RUST_BACKTRACE=1`\nFAILED\n\
             thread 'd' (14) panicked at src/d.rs:5:6:\n{long}\n"
        );
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let found = messages(&lines);
        let expected = [
            "thread 'a::b' (12) panicked at src/a.rs:1:2:",
            "      assertion `left == right` failed",
            "        left: 1",
            "       right: 0",
            "thread 'c' (13) panicked at src/c.rs:3:4:",
            "  not within 30 s",
            "thread 'd' (14) panicked at src/d.rs:5:6:",
        ];
        assert_eq!(found[..expected.len()], expected);
        assert_eq!(found.len(), expected.len() + LONGEST);
        assert!(messages(&["all is well".to_owned()]).is_empty());
    }
}
