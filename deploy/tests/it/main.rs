//! Values to objects, their order, and what is generated of them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod generated;
mod helm;
mod monitoring;
mod objects;
mod values;

use neonvm_deploy::{Choice, Facts};
use serde_json::Value;

/// The objects of `KEY=VALUE` choices on Kubernetes 1.36.2.
fn made(set: &[&str]) -> Vec<Value> {
    let facts = Facts { kubernetes: Some("v1.36.2+distribution".to_owned()), ..Facts::default() };
    neonvm_deploy::objects(&chosen(set), &facts).unwrap()
}

fn chosen(set: &[&str]) -> Choice {
    let mut choice = Choice::default();
    for one in set {
        choice.set(one).unwrap();
    }
    choice
}

/// An object by kind and name.
fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    all.iter().find(is).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn container<'a>(workload: &'a Value, name: &str) -> &'a Value {
    let all = workload["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap()
}
