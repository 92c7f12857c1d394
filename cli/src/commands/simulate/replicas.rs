//! `simulate replicas`

mod trace;
mod view;

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use neonvm_api::{FieldError, PodAutoscaler};
use neonvm_core_pod_autoscaler::Settings;
use neonvm_core_pod_autoscaler::replay::{Plan, replay};
use serde_json::Value;

use crate::args::simulate::Replicas as Args;
use crate::commands::input;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings;

/// Replays a trace.
pub(super) fn run(args: &Args) -> Result<Report> {
    let object = object(&args.file)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let (wanted, _) = Settings::from_object(&object).map_err(|faults| invalid(&name, &faults))?;
    let trace = trace::open(&args.trace)?;
    let plan = plan(args, &wanted)?;
    let outcome = replay(&wanted, &trace, &plan).map_err(|error| {
        Error::new(Code::Usage, format!("{} cannot be replayed for {name}", args.trace.display()))
            .cause(error.to_string())
    })?;
    let mut report = view::report(&name, &outcome, args.all);
    if args.check && !outcome.broken.is_empty() {
        report.code = Code::Unhealthy.number();
    }
    Ok(report)
}

fn plan(args: &Args, wanted: &Settings) -> Result<Plan> {
    let usage = |flag: &str, text: &str, hint: &str| {
        Error::new(Code::Usage, format!("--{flag}: {text:?} is not valid")).hint(hint.to_owned())
    };
    let start: jiff::Timestamp = args
        .start
        .parse()
        .map_err(|_| usage("start", &args.start, "use a time such as 2026-01-05T07:30:00Z"))?;
    let startup = seconds(&args.startup)
        .ok_or_else(|| usage("startup", &args.startup, "use a duration such as 5s, 90s or 2m"))?;
    let outage = |text: &String| {
        outage(text)
            .ok_or_else(|| usage("outage", text, "use two times such as 10m-15m, the earlier one first"))
    };
    let outages = args.outage.iter().map(outage).collect::<Result<Vec<Range<u32>>>>()?;
    let replicas = args.replicas.unwrap_or_else(|| wanted.bounds(start).min.max(1));
    Ok(Plan { start, replicas, startup, outages })
}

/// Seconds as a number, or a duration such as `2m`, or a sum of them such as `1h30m`.
fn seconds(text: &str) -> Option<u32> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let mut sum = 0_u32;
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit())?;
        let next = rest.get(unit..)?.find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit + at);
        let (part, after) = rest.split_at_checked(next)?;
        let part = settings::duration(part)?.as_secs();
        (sum, rest) = (sum.checked_add(u32::try_from(part).ok()?)?, after);
    }
    (!text.is_empty()).then_some(sum)
}

fn outage(text: &str) -> Option<Range<u32>> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (seconds(from)?, seconds(to)?);
    (from < to).then_some(from..to)
}

/// Text of a file, not longer than that.
fn text(path: &Path, longest: u64) -> Result<String> {
    let read = || {
        let mut text = String::new();
        std::fs::File::open(path)?.take(longest + 1).read_to_string(&mut text)?;
        if text.len() as u64 > longest {
            return Err(std::io::Error::other(format!("longer than {} MiB", longest >> 20)));
        }
        Ok(text)
    };
    read().map_err(|error| Error::file("read", path, &error))
}

/// The one autoscaler of a manifest; what else is in it is left alone.
fn object(file: &str) -> Result<PodAutoscaler> {
    let (documents, source) = input::read_objects(file)?;
    let is_one = |object: &Value| object.get("kind").is_some_and(|kind| kind == "PodAutoscaler");
    let mut found: Vec<Value> = documents.into_iter().filter(is_one).collect();
    let (Some(mut object), true) = (found.pop(), found.is_empty()) else {
        return Err(Error::new(Code::Usage, format!("{source} does not contain exactly one PodAutoscaler")));
    };
    let faults = neonvm_api::admit("PodAutoscaler", &mut object, None).errors;
    if !faults.is_empty() {
        return Err(invalid(&source, &faults));
    }
    neonvm_types::objects::from_value(object).map_err(|error| {
        Error::new(Code::Usage, format!("{source} is not a PodAutoscaler")).cause(error.to_string())
    })
}

fn invalid(name: &str, faults: &[FieldError]) -> Error {
    let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Error::new(Code::Usage, format!("PodAutoscaler {name} is not valid")).cause(all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_durations() {
        let read = ["0", "90", "90s", "2m", "1h30m", "", "m", "1x", "-1", "1h-2h"].map(seconds);
        assert_eq!(read, [Some(0), Some(90), Some(90), Some(120), Some(5400), None, None, None, None, None]);
        assert_eq!(
            ["10m-15m", "600-900", "8h-8h30m"].map(outage).map(Option::unwrap),
            [600..900, 600..900, 28800..30600]
        );
        assert_eq!([outage("5m-5m"), outage("5m"), outage("a-b")], [None, None, None]);
    }

    #[test]
    fn every_trace_of_the_examples_is_replayed() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/podautoscaler");
        let object = object(&examples.join("kpa.yaml").display().to_string()).unwrap();
        let (wanted, _) = Settings::from_object(&object).unwrap();
        let start = "2026-01-05T00:00:00Z".parse().unwrap();
        let mut count = 0;
        for file in std::fs::read_dir(examples.join("traces")).unwrap() {
            let trace = trace::open(&file.unwrap().path()).unwrap();
            let plan = Plan { start, replicas: 2, startup: 30, outages: Vec::new() };
            let outcome = replay(&wanted, &trace, &plan).unwrap();
            assert!(outcome.broken.is_empty() && outcome.summary.changes > 1, "{:?}", outcome.summary);
            count += 1;
        }
        assert_eq!(count, 3);
    }
}
