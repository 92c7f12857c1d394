//! Lists of processor numbers as Linux writes them: `0-3,5`.

use std::collections::BTreeSet;

/// Highest processor number read; above what Linux can be built for on any VM (8,192).
const HIGHEST: u32 = 65_535;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something else than a number where one belongs.
    #[error("not a list of processors")]
    Syntax,
    /// A range that ends before it starts.
    #[error("a range ends before it starts")]
    Reversed,
    /// A number beyond what Linux supports.
    #[error("processor number above {HIGHEST}")]
    TooHigh,
}

/// Reads a list; an empty line is the empty list.
///
/// # Errors
/// Names the fault in the text.
pub fn parse(text: &str) -> Result<BTreeSet<u32>, Error> {
    let text = text.trim_end_matches('\n');
    let mut numbers = BTreeSet::new();
    if text.is_empty() {
        return Ok(numbers);
    }
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(Error::Reversed);
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

fn number(text: &str) -> Result<u32, Error> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Syntax);
    }
    text.parse().ok().filter(|number| *number <= HIGHEST).ok_or(Error::TooHigh)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kernel_lists_are_read() {
        assert_eq!(parse("0-3,5\n").unwrap(), BTreeSet::from([0, 1, 2, 3, 5]));
        assert_eq!(parse("\n").unwrap(), BTreeSet::new());
        for (text, error) in [
            ("3-1", Error::Reversed),
            ("1,,2", Error::Syntax),
            ("+1", Error::Syntax),
            ("1- 2", Error::Syntax),
            ("99999999999", Error::TooHigh),
            ("0-4294967295", Error::TooHigh),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(numbers in proptest::collection::btree_set(0u32..1000, 0..50)) {
            let text = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse(&text).unwrap(), numbers);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
