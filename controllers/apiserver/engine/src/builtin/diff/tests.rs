use serde_json::json;

use crate::builtin::internal::held;

/// The difference of two texts whose lines are the letters of two words.
fn of_words(old: &str, new: &str) -> String {
    let lines = |word: &str| word.chars().map(|letter| format!("{letter}\n")).collect::<String>();
    super::of_texts(&lines(old), &lines(new))
}

/// What `unified_diff` of Python answers.
#[test]
fn lines_are_matched_as_by_difflib() {
    let cases = [
        ("cbcbcc", "cbcba", "@@ -2,5 +2,4 @@\n b\n c\n b\n-c\n-c\n+a\n"),
        ("acaaab", "acacaa", "@@ -1,6 +1,6 @@\n+a\n+c\n a\n c\n a\n a\n-a\n-b\n"),
        (
            "ababdcbdbabd",
            "abababdcbdbabbd",
            "@@ -1,3 +1,5 @@\n+a\n+b\n a\n b\n a\n@@ -9,4 +11,5 @@\n b\n a\n b\n+b\n d\n",
        ),
        ("ccbbbbdcacdb", "ccbbbbdcaadb", "@@ -7,6 +7,6 @@\n d\n c\n a\n-c\n+a\n d\n b\n"),
        (
            "fbefehfchhcaeafgagfg",
            "hbefedhfchhcaeafgagfg",
            "@@ -1,8 +1,9 @@\n-f\n+h\n b\n e\n f\n e\n+d\n h\n f\n c\n",
        ),
        (
            "bdhffehbfeagbdffcfeb",
            "bdhffhbfegbdffcfeb",
            "@@ -3,12 +3,10 @@\n h\n f\n f\n-e\n h\n b\n f\n e\n-a\n g\n b\n d\n",
        ),
        (
            "cejpfbcmbhlionebbpkgeendfnlebn",
            "cejpbcmbhlionebbpkgeendfnlef",
            "@@ -2,7 +2,6 @@\n e\n j\n p\n-f\n b\n c\n m\n@@ -26,5 +25,4 @@\n n\n l\n e\n-b\n-n\n+f\n",
        ),
        (
            "opkpijpmedmfpkfcpilclbjlipijkf",
            "opkpijpmedfpkfcplclbjlipiakf",
            "@@ -8,14 +8,12 @@\n m\n e\n d\n-m\n f\n p\n k\n f\n c\n p\n-i\n l\n c\n l\n@@ -25,6 +23,6 @@\n i\n p\n i\n-j\n+a\n k\n f\n",
        ),
        (
            "bbbbbbbbbabbbaaabbbababbb",
            "abbbbbbbbabbbaaabbbbabababb",
            "@@ -1,4 +1,4 @@\n-b\n+a\n b\n b\n b\n@@ -17,9 +17,11 @@\n b\n b\n b\n+b\n+a\n+b\n a\n b\n a\n b\n b\n-b\n",
        ),
        (
            "abaaaaababaabbbbaaababbbb",
            "abaaaaababbaabbbbabaababbbbb",
            "@@ -8,6 +8,7 @@\n b\n a\n b\n+b\n a\n a\n b\n@@ -15,6 +16,7 @@\n b\n b\n a\n+b\n a\n a\n b\n@@ -23,3 +25,4 @@\n b\n b\n b\n+b\n",
        ),
        (
            "bddeecdbbededbbe",
            "bddedbecdaedbe",
            "@@ -2,15 +2,13 @@\n d\n d\n e\n+d\n+b\n e\n c\n d\n-b\n-b\n-e\n-d\n+a\n e\n d\n b\n-b\n e\n",
        ),
        (
            "dddbeeccdcdaccdc",
            "ddbeeccdbdacacbda",
            "@@ -1,4 +1,3 @@\n-d\n d\n d\n b\n@@ -7,10 +6,12 @@\n c\n c\n d\n-c\n+b\n d\n a\n c\n+a\n c\n+b\n d\n-c\n+a\n",
        ),
    ];
    for (old, new, want) in cases {
        assert_eq!(of_words(old, new), want, "{old} {new}");
        assert_eq!(of_words(old, old), "");
    }
    assert_eq!(of_words("", "a"), "@@ -0,0 +1 @@\n+a\n");
}

#[test]
fn a_change_is_shown_with_three_lines_beside_it() {
    let of = |image: &str| held("Container", Some(&json!({ "name": "c", "image": image })));
    let want = "@@ -1,6 +1,6 @@\n {\n  \"Name\": \"c\",\n- \"Image\": \"<a>\",\n+ \"Image\": \"b\",\n  \"Command\": null,\n  \"Args\": null,\n  \"WorkingDir\": \"\",\n";
    assert_eq!(super::between(&of("<a>"), &of("b")), want.replace("<a>", "\\u003ca\\u003e"));
}

#[test]
fn large_texts_are_compared_at_their_ends() {
    let text = |middle: &str| format!("{}{middle}{}", "a\n".repeat(super::MOST), "b\n".repeat(4));
    let want = format!("@@ -{0},8 +{0},7 @@\n a\n a\n a\n-x\n-b\n-y\n+b\n b\n b\n b\n", super::MOST - 2);
    let found = super::of_texts(&text("x\nb\ny\n"), &text("b\n"));
    assert_eq!(found.lines().count(), want.lines().count(), "{found}");
}
