//! Names of the tests in a file, read from its formatted text: modules and macros are known by their indentation.

/// Paths of the tests in a file that is the module `module`, such as `a::tests::it_works`.
pub(super) fn tests(module: &str, text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut inline: Vec<(usize, &str)> = Vec::new();
    // Where a macro that makes tests of functions begins.
    let mut macros: Option<usize> = None;
    let mut marked = false;
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code.starts_with('}') {
            inline.retain(|(at, _)| *at < indent);
            macros = macros.filter(|at| *at < indent);
        }
        if let Some(name) = after(code, "mod ").and_then(|rest| rest.strip_suffix(" {")) {
            inline.push((indent, name));
        } else if code == "proptest! {" {
            macros = Some(indent);
        } else if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(rest) = after(code, "fn ") {
            let inside = macros.is_some_and(|at| indent == at + 4);
            if marked || inside {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                let modules = inline.iter().map(|(_, module)| *module);
                let path = std::iter::once(module).chain(modules).chain([name]);
                let path: Vec<&str> = path.filter(|part| !part.is_empty()).collect();
                names.push(path.join("::"));
            }
            marked = false;
        }
    }
    names
}

/// What follows a keyword, also after `pub`, `async` and the like.
fn after<'a>(code: &'a str, keyword: &str) -> Option<&'a str> {
    let mut rest = code;
    for prefix in ["pub(crate) ", "pub(super) ", "pub ", "async ", "unsafe "] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    rest.strip_prefix(keyword)
}

#[cfg(test)]
mod tests {
    #[test]
    fn modules_functions_and_macros_are_known() {
        let text = "fn helper() {}\n\n#[test]\nfn one() {\n}\n\nproptest! {\n    /// Words.\n    fn law(a in 0..1) {\n        fn no() {}\n    \
                    }\n}\n\nfn other() {}\n\n#[cfg(test)]\nmod tests {\n    #[tokio::test(flavor = \"multi_thread\")]\n    #[ignore]\n    \
                    async fn two() {\n    }\n}\n";
        assert_eq!(super::tests("a::b", text), ["a::b::one", "a::b::law", "a::b::tests::two"]);
        assert_eq!(super::tests("", "#[test]\nfn one() {}\n"), ["one"]);
    }
}
