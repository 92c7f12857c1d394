//! Kernel configuration: fragments that ask, and the check of what came out. Pure.

mod fragments;

use std::collections::BTreeMap;

pub use fragments::FRAGMENTS;

use crate::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    No,
    Yes,
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

/// A requested option: its value, and the fragment that requests it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    pub value: Value,
    pub from: String,
}

/// Options by name, `CONFIG_` included.
pub type RequestedOptions = BTreeMap<String, Requested>;

/// Reads a fragment into `options`.
pub fn read_fragment(options: &mut RequestedOptions, name: &str, text: &str) -> Result<(), Error> {
    for (number, line) in text.lines().enumerate() {
        let bad = || Error::Fragment { file: name.to_owned(), line: number + 1, text: line.to_owned() };
        let line = line.trim();
        let (option, value) = match setting(line) {
            Some(found) => found,
            None if line.is_empty() || line.starts_with('#') => continue,
            None => return Err(bad()),
        };
        let requested = Requested { value, from: name.to_owned() };
        match options.get(option) {
            Some(earlier) if earlier.value != requested.value => {
                return Err(Error::Contradiction {
                    option: option.to_owned(),
                    first: format!("{} ({})", earlier.value, earlier.from),
                    second: format!("{} ({})", requested.value, requested.from),
                });
            }
            _ => options.insert(option.to_owned(), requested),
        };
    }
    Ok(())
}

/// All fragments that come with this program.
///
/// # Errors
/// Never for the fragments as they are; a test reads them.
pub fn own_options() -> Result<RequestedOptions, Error> {
    let mut options = RequestedOptions::new();
    for (name, text) in FRAGMENTS {
        read_fragment(&mut options, name, text)?;
    }
    Ok(options)
}

/// An option that did not come out as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub option: String,
    pub requested: Requested,
    /// What came out. `No` also if the source knows no such option.
    pub got: Value,
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={} (wanted {}, {})", self.option, self.got, self.requested.value, self.requested.from)
    }
}

/// Compares the requested options with a `.config` that the kernel's own rules have completed. A module is as good as
/// built in only if `modules` is set (a kernel that loads them from an initramfs).
pub fn dropped(options: &RequestedOptions, config: &str, modules: bool) -> Vec<Dropped> {
    let result: BTreeMap<&str, Value> = config.lines().filter_map(|line| setting(line.trim())).collect();
    let kept =
        |want: &Value, got: &Value| want == got || (modules && *want == Value::Yes && *got == Value::Module);
    options
        .iter()
        .map(|(option, want)| (option, want, result.get(option.as_str()).cloned().unwrap_or(Value::No)))
        .filter(|(_, want, got)| !kept(&want.value, got))
        .map(|(option, want, got)| Dropped { option: option.clone(), requested: want.clone(), got })
        .collect()
}

pub fn render(options: &RequestedOptions) -> String {
    options
        .iter()
        .map(|(option, requested)| match &requested.value {
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
        let options = own_options().unwrap();
        assert!(options.len() > 250, "{}", options.len());
        for option in
            ["CONFIG_VIRTIO_MEM", "CONFIG_HOTPLUG_CPU", "CONFIG_PSI", "CONFIG_EXT4_FS", "CONFIG_PVH"]
        {
            assert_eq!(options[option].value, Value::Yes, "{option}");
        }
        assert_eq!(options["CONFIG_USB_SUPPORT"].value, Value::No);
    }

    #[test]
    fn a_dropped_option_is_named_with_its_fragment() {
        let mut options = RequestedOptions::new();
        read_fragment(&mut options, "a", "# words\nCONFIG_X=y\nCONFIG_N=64\n# CONFIG_OFF is not set\n")
            .unwrap();
        let all = dropped(&options, "CONFIG_X=m\nCONFIG_N=8\nCONFIG_OFF=y\n", false);
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["CONFIG_N=8 (wanted 64, a)", "CONFIG_OFF=y (wanted n, a)", "CONFIG_X=m (wanted y, a)"]
        );
        assert_eq!(dropped(&options, "CONFIG_X=m\nCONFIG_N=64\n", true), []);
        assert_eq!(dropped(&options, "CONFIG_N=64\n", true).len(), 1);
    }

    #[test]
    fn mistakes_in_fragments_are_named() {
        let mut options = RequestedOptions::new();
        let error = read_fragment(&mut options, "mine", "\nCONFG_X=y\n").unwrap_err();
        assert_eq!(error.to_string(), "mine:2: not a kernel option: CONFG_X=y");
        read_fragment(&mut options, "one", "CONFIG_X=y").unwrap();
        let error = read_fragment(&mut options, "two", "CONFIG_X=n").unwrap_err().to_string();
        assert_eq!(error, "CONFIG_X is asked for twice with different values: y (one) and n (two)");
    }

    proptest! {
        #[test]
        fn rendered_options_are_all_kept(names in proptest::collection::btree_set("[A-Z0-9_]{1,8}", 0..20)) {
            let mut options = RequestedOptions::new();
            for (index, name) in names.iter().enumerate() {
                let value = [Value::No, Value::Yes, Value::Module, Value::Other("\"a b\"".into())][index % 4].clone();
                options.insert(format!("CONFIG_{name}"), Requested { value, from: "x".into() });
            }
            prop_assert_eq!(dropped(&options, &render(&options), false), []);
            let mut again = RequestedOptions::new();
            read_fragment(&mut again, "x", &render(&options)).unwrap();
            prop_assert_eq!(again, options);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = read_fragment(&mut RequestedOptions::new(), "x", &text);
            let _ = dropped(&own_options().unwrap(), &text, true);
        }
    }
}
