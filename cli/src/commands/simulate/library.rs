//! Scenarios: those with a name are in the program, others in files.

use std::path::Path;

use neonvm_sim::Scenario;

use crate::error::{Code, Error, Result};

macro_rules! named {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../../../examples/scenarios/", $name, ".yaml"))),)*]
    };
}

/// Name and text of each.
pub(crate) const NAMED: &[(&str, &str)] = named![
    "rush-hour",
    "noisy-neighbours",
    "scheduler-restarts",
    "stubborn-guests",
    "moving-day",
    "quiet-fleet",
    "big-day",
];

/// Longest file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The scenario of this name, else that of this file.
pub(super) fn open(written: &str) -> Result<Scenario> {
    if let Some((name, text)) = NAMED.iter().find(|(name, _)| *name == written) {
        return parse(name, text);
    }
    let path = Path::new(written);
    if !path.exists() {
        let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
        return Err(Error::new(
            Code::NotFound,
            format!("there is no scenario {written:?}, and no such file"),
        )
        .hint(format!("built-in scenarios: {}", names.join(", "))));
    }
    let read = || {
        if path.metadata()?.len() > LONGEST {
            return Err(std::io::Error::other("longer than 1 MiB: not a scenario"));
        }
        std::fs::read_to_string(path)
    };
    let text = read().map_err(|error| Error::file("read", path, &error))?;
    parse(written, &text)
}

pub(super) fn parse(name: &str, text: &str) -> Result<Scenario> {
    Scenario::parse(text).map_err(|error| {
        Error::new(Code::Usage, format!("scenario {name} is not valid")).cause(error.to_string()).hint(
            "list the built-in scenarios: neonctl simulate --list; their sources are in examples/scenarios",
        )
    })
}

/// The text of a scenario.
pub(super) fn text(scenario: &Scenario) -> Result<String> {
    serde_saphyr::to_string(scenario)
        .map_err(|error| Error::new(Code::Failed, "cannot write the scenario").cause(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_examples_has_its_name() {
        for (name, given) in NAMED {
            let scenario = parse(name, given).unwrap();
            assert_eq!(scenario.name, *name);
            assert_eq!(parse(name, &text(&scenario).unwrap()).unwrap(), scenario, "{name} reads back");
        }
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios");
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), NAMED.len());
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(open("rush-our").unwrap_err().code, Code::NotFound);
        let error = parse("x", "name: x\nduration: 1h\nnodes: []\nvms: []\n").unwrap_err();
        assert_eq!(error.code, Code::Usage);
    }
}
