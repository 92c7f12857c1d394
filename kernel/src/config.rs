//! Kernel configuration: fragments that ask, and the check of what came out. Pure.

mod fragments;

use std::collections::BTreeMap;

pub use fragments::FRAGMENTS;

use crate::Error;

/// What an option is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Left out.
    No,
    /// Built in.
    Yes,
    /// Built as a module.
    Module,
    /// A number or a quoted text, as written.
    Other(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "n",
            Self::Yes => "y",
            Self::Module => "m",
            Self::Other(text) => text,
        })
    }
}

/// A wish: an option, its value, and the fragment that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Value.
    pub value: Value,
    /// Name of the fragment.
    pub from: String,
}

/// Options by name, `CONFIG_` included.
pub type Wishes = BTreeMap<String, Wish>;

/// Reads a fragment into `wishes`.
///
/// # Errors
/// If a line is neither an option, a comment nor empty, or contradicts an earlier fragment.
pub fn read_fragment(wishes: &mut Wishes, name: &str, text: &str) -> Result<(), Error> {
    for (number, line) in text.lines().enumerate() {
        let bad = || Error::Fragment { file: name.to_owned(), line: number + 1, text: line.to_owned() };
        let line = line.trim();
        let (option, value) = match setting(line) {
            Some(found) => found,
            None if line.is_empty() || line.starts_with('#') => continue,
            None => return Err(bad()),
        };
        let wish = Wish { value, from: name.to_owned() };
        match wishes.get(option) {
            Some(earlier) if earlier.value != wish.value => {
                return Err(Error::Contradiction {
                    option: option.to_owned(),
                    first: format!("{} ({})", earlier.value, earlier.from),
                    second: format!("{} ({})", wish.value, wish.from),
                });
            }
            _ => wishes.insert(option.to_owned(), wish),
        };
    }
    Ok(())
}

/// All fragments that come with this program.
///
/// # Errors
/// Never for the fragments as they are; a test reads them.
pub fn own_wishes() -> Result<Wishes, Error> {
    let mut wishes = Wishes::new();
    for (name, text) in FRAGMENTS {
        read_fragment(&mut wishes, name, text)?;
    }
    Ok(wishes)
}

/// An option that did not come out as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its name.
    pub option: String,
    /// What was asked for, and by whom.
    pub wish: Wish,
    /// What came out. `No` also if the source knows no such option.
    pub got: Value,
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={} (wanted {}, {})", self.option, self.got, self.wish.value, self.wish.from)
    }
}

/// Compares wishes with a `.config` that the kernel's own rules have completed. A module is as good as built in only
/// if `modules` says so (a kernel that loads them from an initramfs).
#[must_use]
pub fn dropped(wishes: &Wishes, config: &str, modules: bool) -> Vec<Dropped> {
    let result: BTreeMap<&str, Value> = config.lines().filter_map(|line| setting(line.trim())).collect();
    let kept =
        |wish: &Value, got: &Value| wish == got || (modules && *wish == Value::Yes && *got == Value::Module);
    wishes
        .iter()
        .map(|(option, wish)| (option, wish, result.get(option.as_str()).cloned().unwrap_or(Value::No)))
        .filter(|(_, wish, got)| !kept(&wish.value, got))
        .map(|(option, wish, got)| Dropped { option: option.clone(), wish: wish.clone(), got })
        .collect()
}

/// The lines that ask for `wishes`.
#[must_use]
pub fn render(wishes: &Wishes) -> String {
    wishes
        .iter()
        .map(|(option, wish)| match &wish.value {
            Value::No => format!("# {option} is not set\n"),
            value => format!("{option}={value}\n"),
        })
        .collect()
}

/// `CONFIG_X=value` or `# CONFIG_X is not set`.
fn setting(line: &str) -> Option<(&str, Value)> {
    if let Some(option) = line.strip_prefix("# ").and_then(|rest| rest.strip_suffix(" is not set")) {
        return is_option(option).then_some((option, Value::No));
    }
    let (option, value) = line.split_once('=')?;
    let value = match value {
        "" => return None,
        "n" => Value::No,
        "y" => Value::Yes,
        "m" => Value::Module,
        other => Value::Other(other.to_owned()),
    };
    is_option(option).then_some((option, value))
}

fn is_option(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.strip_prefix("CONFIG_").is_some_and(|rest| !rest.is_empty() && rest.chars().all(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn own_fragments_are_sound_and_ask_for_what_scaling_needs() {
        let wishes = own_wishes().unwrap();
        assert!(wishes.len() > 250, "{}", wishes.len());
        for option in
            ["CONFIG_VIRTIO_MEM", "CONFIG_HOTPLUG_CPU", "CONFIG_PSI", "CONFIG_EXT4_FS", "CONFIG_PVH"]
        {
            assert_eq!(wishes[option].value, Value::Yes, "{option}");
        }
        assert_eq!(wishes["CONFIG_USB_SUPPORT"].value, Value::No);
    }

    #[test]
    fn a_dropped_option_is_named_with_its_fragment() {
        let mut wishes = Wishes::new();
        read_fragment(&mut wishes, "a", "# words\nCONFIG_X=y\nCONFIG_N=64\n# CONFIG_OFF is not set\n")
            .unwrap();
        let all = dropped(&wishes, "CONFIG_X=m\nCONFIG_N=8\nCONFIG_OFF=y\n", false);
        let said: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["CONFIG_N=8 (wanted 64, a)", "CONFIG_OFF=y (wanted n, a)", "CONFIG_X=m (wanted y, a)"]
        );
        assert_eq!(dropped(&wishes, "CONFIG_X=m\nCONFIG_N=64\n", true), []);
        assert_eq!(dropped(&wishes, "CONFIG_N=64\n", true).len(), 1);
    }

    #[test]
    fn mistakes_in_fragments_are_named() {
        let mut wishes = Wishes::new();
        let error = read_fragment(&mut wishes, "mine", "\nCONFG_X=y\n").unwrap_err();
        assert_eq!(error.to_string(), "mine:2: not a kernel option: CONFG_X=y");
        read_fragment(&mut wishes, "one", "CONFIG_X=y").unwrap();
        let error = read_fragment(&mut wishes, "two", "CONFIG_X=n").unwrap_err().to_string();
        assert_eq!(error, "CONFIG_X is asked for twice with different values: y (one) and n (two)");
    }

    proptest! {
        #[test]
        fn rendered_wishes_are_kept_wishes(names in proptest::collection::btree_set("[A-Z0-9_]{1,8}", 0..20)) {
            let mut wishes = Wishes::new();
            for (index, name) in names.iter().enumerate() {
                let value = [Value::No, Value::Yes, Value::Module, Value::Other("\"a b\"".into())][index % 4].clone();
                wishes.insert(format!("CONFIG_{name}"), Wish { value, from: "x".into() });
            }
            prop_assert_eq!(dropped(&wishes, &render(&wishes), false), []);
            let mut again = Wishes::new();
            read_fragment(&mut again, "x", &render(&wishes)).unwrap();
            prop_assert_eq!(again, wishes);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = read_fragment(&mut Wishes::new(), "x", &text);
            let _ = dropped(&own_wishes().unwrap(), &text, true);
        }
    }
}
