//! The scenarios of `tests/e2e/scenarios`, on a local cluster.

use std::path::Path;
use std::process::{Command, Output};

use neonvm_e2e::client::{Error, Resource};
use neonvm_e2e::kuttl::{self, Step, difference};
use neonvm_test_support::{eventually_blocking_within, need};
use serde_json::Value;

use crate::cluster::{Cluster, possible};
use crate::machine;

#[test]
fn short_scenarios_run() {
    need!(possible());
    run(&["default-values", "swap", "disk-quota", "swap-migration"]);
}

#[test]
fn scaling_scenarios_run() {
    need!(possible());
    run(&["autoscaling", "autoscaling.cpu-sys-fs-state-scaling"]);
}

fn run(names: &[&str]) {
    let cluster = Cluster::with(&["--nodes", "2", "--cpus", "4"]);
    cluster.idle();
    let folder = machine::repository().join("tests/e2e/scenarios");
    for name in names {
        let steps = kuttl::read(&folder.join(name)).unwrap();
        assert!(!steps.is_empty(), "{name} has no steps");
        let work = tempfile::tempdir().unwrap();
        for step in &steps {
            println!("{name}: {}", step.name);
            take(&cluster, work.path(), step, &format!("{name}/{}", step.name));
        }
        for object in steps.iter().flat_map(|step| &step.apply) {
            delete(&cluster, object);
        }
    }
    cluster.down();
}

fn take(cluster: &Cluster, work: &Path, step: &Step, what: &str) {
    step.delete.iter().for_each(|object| delete(cluster, object));
    for object in &step.apply {
        cluster
            .client()
            .create_or_merge(&object.to_string())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    for script in &step.scripts {
        let output = shell(cluster, work, script);
        assert!(output.status.success(), "{what}: {script}: {}", text(&output));
    }
    let last = std::cell::RefCell::new(String::new());
    eventually_blocking_within(
        step.timeout,
        || format!("{what}: {}\n{}", last.borrow(), cluster.logs()),
        || unmet(cluster, work, step).map_err(|why| *last.borrow_mut() = why).ok(),
    );
}

/// Why an assertion does not hold yet.
fn unmet(cluster: &Cluster, work: &Path, step: &Step) -> Result<(), String> {
    for expected in &step.asserts {
        let actual = there(cluster, expected).map_err(|error| error.to_string())?;
        if let Some(difference) = difference(expected, &actual) {
            return Err(format!("{} {}{difference}", expected["kind"], expected["metadata"]["name"]));
        }
    }
    for unexpected in &step.errors {
        match there(cluster, unexpected) {
            Ok(actual) if difference(unexpected, &actual).is_none() => {
                return Err(format!("{unexpected} is there"));
            }
            Err(error) if !error.is(404) => return Err(error.to_string()),
            _ => {}
        }
    }
    for script in &step.assert_scripts {
        let output = shell(cluster, work, script);
        if !output.status.success() {
            return Err(format!("{script}: {}", text(&output)));
        }
    }
    Ok(())
}

fn there(cluster: &Cluster, object: &Value) -> Result<Value, Error> {
    let (resource, name) = Resource::from_object(object)?;
    cluster.client().get(resource, name)
}

fn delete(cluster: &Cluster, object: &Value) {
    let (resource, name) = Resource::from_object(object).unwrap();
    match cluster.client().delete(resource, name, None) {
        Err(error) if !error.is(404) => panic!("{name}: {error}"),
        _ => cluster.is_gone(resource, name),
    }
}

fn shell(cluster: &Cluster, work: &Path, script: &str) -> Output {
    // The client's own settings, and its home.
    let client = cluster.neonctl(&[]);
    let variables = client.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut command = Command::new("sh");
    command.args(["-ec", script]).env_clear().envs(variables).current_dir(work);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", machine::programs().display()));
    command.env("NAMESPACE", "default").output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
