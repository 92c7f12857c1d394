//! `neonsim replicas`

mod trace;
mod view;

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use neonvm_api::{FieldError, PodAutoscaler};
use neonvm_core_pod_autoscaler::Settings;
use neonvm_sim::replay::{Plan, replay};
use serde_json::Value;

use crate::args::Replicas as Args;
use crate::report::Report;

/// Replays a trace.
pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    let object = object(&args.file)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let (settings, _) = Settings::from_object(&object).map_err(|faults| invalid(&name, &faults))?;
    let trace = trace::open(&args.trace)?;
    let plan = Plan {
        start: args.start,
        replicas: args.replicas.unwrap_or_else(|| settings.bounds(args.start).min.max(1)),
        startup: args.startup,
        outages: args.outage.clone(),
    };
    let outcome = replay(&settings, &trace, &plan)
        .with_context(|| format!("cannot replay {} for {name}", args.trace.display()))?;
    let mut report = view::report(&name, &outcome, args.all);
    report.broken = args.check && !outcome.broken.is_empty();
    Ok(report)
}

/// The one autoscaler of a manifest, which may have other objects.
fn object(file: &Path) -> anyhow::Result<PodAutoscaler> {
    let shown = file.display();
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.with_context(|| format!("cannot read {shown}"))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{shown} is neither YAML nor JSON"))?;
    let is_autoscaler = |object: &Value| object.get("kind").is_some_and(|kind| kind == "PodAutoscaler");
    let mut found: Vec<Value> = documents.into_iter().filter(is_autoscaler).collect();
    let (Some(mut object), true) = (found.pop(), found.is_empty()) else {
        bail!("{shown} does not contain exactly one PodAutoscaler");
    };
    let faults = neonvm_api::admit("PodAutoscaler", &mut object, None).errors;
    if !faults.is_empty() {
        return Err(invalid(&shown.to_string(), &faults));
    }
    neonvm_types::objects::from_value(object).with_context(|| format!("{shown} is not a PodAutoscaler"))
}

fn invalid(name: &str, faults: &[FieldError]) -> anyhow::Error {
    let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
    anyhow!("PodAutoscaler {name} is not valid: {}", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_of_the_examples_is_replayed() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/podautoscaler");
        let (settings, _) = Settings::from_object(&object(&examples.join("kpa.yaml")).unwrap()).unwrap();
        let start = "2026-01-05T00:00:00Z".parse().unwrap();
        let mut count = 0;
        for file in std::fs::read_dir(examples.join("traces")).unwrap() {
            let trace = trace::open(&file.unwrap().path()).unwrap();
            let plan = Plan { start, replicas: 2, startup: 30, outages: Vec::new() };
            let outcome = replay(&settings, &trace, &plan).unwrap();
            assert!(outcome.broken.is_empty() && outcome.summary.changes > 1, "{:?}", outcome.summary);
            count += 1;
        }
        assert_eq!(count, 3);
    }
}
