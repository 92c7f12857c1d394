//! Traces: CSV or JSON lines.

use std::path::Path;

use anyhow::{Context as _, ensure};
use neonvm_core_pod_autoscaler::Finite;
use neonvm_sim::replay::{MOST_POINTS, Point, Trace};
use serde::Deserialize;

/// Longest trace that is read, in bytes.
const LONGEST: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    seconds: u32,
    load: Loads,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Loads {
    One(Option<f64>),
    Many(Vec<Option<f64>>),
}

pub(super) fn open(path: &Path) -> anyhow::Result<Trace> {
    let shown = path.display();
    let about = path.metadata().with_context(|| format!("cannot read {shown}"))?;
    ensure!(about.len() <= LONGEST, "{shown} is longer than {} MiB", LONGEST >> 20);
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let trace = parse(&text).map_err(anyhow::Error::msg);
    trace.with_context(|| format!("{shown} is not a trace; neonsim replicas --help shows the format"))
}

fn parse(text: &str) -> Result<Trace, String> {
    let mut points = Vec::new();
    let lines = text.lines().map(str::trim).enumerate();
    let mut is_first = true;
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let point = if line.starts_with('{') { json(line) } else { csv(line) };
        // The first line of a table may name its columns.
        let is_head = is_first && line.starts_with(|c: char| c.is_ascii_alphabetic());
        is_first = false;
        if is_head {
            continue;
        }
        if points.len() >= MOST_POINTS {
            break;
        }
        points.push(point.map_err(|error| format!("line {}: {error}", index + 1))?);
    }
    Trace::new(points).map_err(|error| error.to_string())
}

fn json(line: &str) -> Result<Point, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let loads = match line.load {
        Loads::One(load) => vec![load],
        Loads::Many(loads) => loads,
    };
    // JSON has no other numbers than finite ones.
    Ok(Point {
        second: line.seconds,
        loads: loads.into_iter().map(|load| load.and_then(Finite::new)).collect(),
    })
}

fn csv(line: &str) -> Result<Point, String> {
    let (second, loads) = line.split_once(',').ok_or_else(|| format!("{line:?} has no load"))?;
    let second = second.trim();
    let second = second.parse().map_err(|_| format!("{second:?} is not a whole number of seconds"))?;
    let load = |text: &str| match text.trim() {
        "" => Ok(None),
        text => {
            let load = text.parse().ok().and_then(Finite::new);
            load.map(Some).ok_or_else(|| format!("{text:?} is not a number"))
        }
    };
    Ok(Point { second, loads: loads.split(',').map(load).collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_equal() {
        let table = parse("# a remark\nseconds,load\n0,120\n\n60,\n120, 95.5\n").unwrap();
        let lines = "{\"seconds\": 0, \"load\": 120}\n{\"seconds\": 60, \"load\": null}\n{\"load\": [95.5], \"seconds\": 120}";
        assert_eq!(parse(lines).unwrap(), table);
        assert_eq!(table.points().iter().map(|point| point.loads.len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!((table.points()[1].loads[0], table.seconds()), (None, 120));
        assert_eq!(parse("0,1,2\n5,,3").unwrap().width(), 2);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("", "at least two points"),
            ("0,1\nx,2", "line 2: \"x\""),
            ("0,1\n5,NaN", "line 2: \"NaN\""),
            ("0,1\n5", "no load"),
            ("0,1\n1.5,1", "whole number"),
            ("{\"seconds\": 0, \"load\": 1}\n{\"seconds\": 1, \"lod\": 1}", "line 2"),
            ("0,1\n0,1", "point 2"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
