//! Replicas that follow a load: the real service, real processes that serve and are scraped, real failures.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use neonvm_e2e::client::Resource;
use neonvm_test_support::{eventually_blocking, need};
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, kill, possible, until};
use crate::machine;

/// The two strategies that decide by themselves, and the names of what they scale here.
const NAMES: [&str; 2] = ["apa", "kpa"];
/// Requests in flight that each pod should have, in the examples.
const TARGET: f64 = 4.0;

/// `simulated-pods`: runs the replicas of Deployments as processes.
struct Player(Child);

impl Player {
    fn start(cluster: &Cluster) -> Self {
        let log = std::fs::File::create(cluster.path("workload.log")).unwrap();
        let mut command = Command::new(machine::programs().join("simulated-pods"));
        command.env("KUBECONFIG", cluster.directory().join("kubeconfig"));
        Self(command.stdin(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn end(&mut self) -> bool {
        kill(i32::try_from(self.0.id()).unwrap(), Signal::TERM);
        let ended = || self.0.try_wait().unwrap();
        eventually_blocking(|| "the simulated workloads end".into(), ended).success()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Its processes end with it only if it is asked to; a test that fails does not wait for that any more.
            kill(i32::try_from(self.0.id()).unwrap_or_default(), Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// The example under another name, by another strategy.
fn apply(cluster: &Cluster, name: &str) {
    let examples = machine::repository().join("examples/replicas");
    for file in ["deployment.yaml", "podautoscaler.yaml"] {
        let text = std::fs::read_to_string(examples.join(file)).unwrap();
        let mut text = text.replace("web", name);
        if name == "kpa" {
            text = text.replace("scalingStrategy: APA", "scalingStrategy: KPA");
        }
        cluster.write(&format!("{name}-{file}"), &text);
        cluster.apply(text);
    }
}

fn annotate(cluster: &Cluster, what: &[(&str, &str)]) {
    let prefixed = |&(key, value): &(&str, &str)| (format!("workload.vm.neon.tech/{key}"), value.to_owned());
    let annotations: Vec<(String, String)> = what.iter().map(prefixed).collect();
    let annotations: Vec<(&str, &str)> = annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
    for name in NAMES {
        cluster.client().annotate(Resource::DEPLOYMENT, name, &annotations).unwrap();
    }
}

/// A workload and its autoscaler.
struct Seen {
    name: String,
    replicas: i64,
    ready: i64,
    status: Value,
}

impl Seen {
    fn condition(&self, kind: &str) -> (&str, &str) {
        let all = self.status["conditions"].as_array();
        let found = all.into_iter().flatten().find(|condition| condition["type"] == kind);
        found.map_or(("", ""), |found| {
            (found["status"].as_str().unwrap_or_default(), found["message"].as_str().unwrap_or_default())
        })
    }

    /// Whether the explanation matches the decision, and its numbers add up.
    fn agrees(&self) {
        let steps = self.status["explanation"].as_array().cloned().unwrap_or_default();
        let Some(result) = steps.last() else { return };
        let text = serde_json::to_string_pretty(&self.status).unwrap();
        assert_eq!(
            (&result["step"], &result["replicas"]),
            (&"Result".into(), &self.status["desiredScale"]),
            "{text}"
        );
        let Some(metric) = steps.iter().find(|step| step["step"] == "Metric") else { panic!("{text}") };
        let message = metric["message"].as_str().unwrap();
        let actual = self.status["actualScale"].as_i64().unwrap_or(0);
        if message.starts_with("no value") {
            assert_eq!(metric["replicas"], actual, "nothing is taken for what is not known: {text}");
            return;
        }
        let number = |before: &str| -> f64 {
            let rest = message.split_once(before).unwrap_or_else(|| panic!("no {before:?}: {text}")).1;
            let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].trim_end_matches('.').parse().unwrap_or_else(|_| panic!("{before:?}: {text}"))
        };
        assert!((number("target ") - TARGET).abs() < 1e-9, "{text}");
        // What the load of the stable window asks for, or what is there if it is close enough. It is shown with two decimals.
        let (asked, shown) = (number("asks for "), number("over 4 s "));
        let [least, most] = [-0.005, 0.005].map(|rounding| ((shown + rounding) / TARGET).ceil());
        #[expect(clippy::cast_precision_loss, reason = "a few pods")]
        let is_same = (asked - actual as f64).abs() < 0.5;
        assert!((least..=most).contains(&asked) || is_same, "{asked}, not {least} to {most}: {text}");
    }
}

/// All of it as it is now.
fn look(cluster: &Cluster) -> Vec<Seen> {
    let (deployments, autoscalers) =
        (cluster.list(Resource::DEPLOYMENT), cluster.list(Resource::POD_AUTOSCALER));
    let of = |items: &[Value], name: &str| {
        items.iter().find(|item| item["metadata"]["name"] == name).cloned().unwrap_or_default()
    };
    let seen = |name: &&str| {
        let deployment = of(&deployments, name);
        let seen = Seen {
            name: (*name).to_owned(),
            replicas: deployment["spec"]["replicas"].as_i64().unwrap_or(-1),
            ready: deployment["status"]["readyReplicas"].as_i64().unwrap_or(0),
            status: of(&autoscalers, name)["status"].clone(),
        };
        seen.agrees();
        seen
    };
    NAMES.iter().map(seen).collect()
}

fn until_all(cluster: &Cluster, what: &str, is: impl Fn(&Seen) -> bool) -> Vec<Seen> {
    let last = std::cell::RefCell::new(Vec::new());
    until(
        || {
            *last.borrow_mut() = look(cluster);
            last.borrow().iter().all(&is)
        },
        || {
            let status = |seen: &Seen| serde_json::to_string_pretty(&seen.status).unwrap();
            let all: Vec<String> = last
                .borrow()
                .iter()
                .map(|seen| {
                    format!("{}: {} of {} ready {}", seen.name, seen.ready, seen.replicas, status(seen))
                })
                .collect();
            let workload_log = std::fs::read_to_string(cluster.path("workload.log")).unwrap_or_default();
            format!("not {what}: {}\n{workload_log}\n{}", all.join("\n"), cluster.logs())
        },
    );
    last.into_inner()
}

fn reach(cluster: &Cluster, replicas: i64) -> Vec<Seen> {
    until_all(cluster, &format!("{replicas} replicas"), |seen| {
        let reported = seen.status["actualScale"] == replicas && seen.status["desiredScale"] == replicas;
        seen.replicas == replicas && seen.ready == replicas && reported
    })
}

/// How often the metrics of each workload were asked for, over its pods.
fn scrapes(cluster: &Cluster, name: &str) -> u64 {
    let pods = cluster.client().list_labelled(Resource::POD, &format!("app={name}")).unwrap();
    let addresses = pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str());
    let ask = |address: &str| -> Option<u64> {
        let mut stream = TcpStream::connect((address, 18080)).ok()?;
        stream.write_all(b"GET /count HTTP/1.1\r\nhost: pod\r\nconnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.split_once("\r\n\r\n")?.1.trim().parse().ok()
    };
    addresses.filter_map(ask).sum()
}

/// Nothing is scaled while each workload is looked at so many times.
fn keeps(cluster: &Cluster, replicas: i64, turns: u64) {
    let begun: Vec<u64> = NAMES.iter().map(|name| scrapes(cluster, name)).collect();
    let more = turns * u64::try_from(replicas).unwrap();
    until(
        || {
            for seen in look(cluster) {
                let status = serde_json::to_string_pretty(&seen.status).unwrap();
                assert_eq!(seen.replicas, replicas, "{}: {status}\n{}", seen.name, cluster.logs());
            }
            NAMES.iter().zip(&begun).all(|(name, begun)| scrapes(cluster, name) >= begun + more)
        },
        || format!("no scrape of the metrics\n{}", cluster.logs()),
    );
}

/// The service dies and is started again by the supervisor.
fn kill_service(cluster: &Cluster) {
    let pid = cluster.service("pod-autoscaler").unwrap();
    kill(pid, Signal::KILL);
    let again = || cluster.service("pod-autoscaler").is_some_and(|now| now != pid);
    until(again, || format!("the service stays away\n{}", cluster.logs()));
}

/// A pod whose process is killed is replaced by another.
fn kill_pod(cluster: &Cluster) {
    let pods = cluster.client().list_labelled(Resource::POD, "app=apa").unwrap();
    let name = pods[0]["metadata"]["name"].as_str().unwrap();
    kill(name.rsplit_once('-').unwrap().1.parse().unwrap(), Signal::KILL);
    cluster.is_gone(Resource::POD, name);
}

/// The history is complete: each change begins where the one before ended.
fn history_is_complete(seen: &Seen, last: i64) {
    let history = seen.status["scalingHistory"].as_array().unwrap();
    for (before, after) in history.iter().zip(history.iter().skip(1)) {
        assert_eq!(before["newScale"], after["previousScale"], "{}: {history:?}", seen.name);
    }
    assert!(history.iter().all(|entry| entry["success"] == true), "{history:?}");
    assert_eq!(history.last().unwrap()["newScale"], last, "{history:?}");
}

fn is_blind(seen: &Seen) -> bool {
    seen.condition("MetricsAvailable").0 == "False"
}

#[test]
fn replicas_follow_the_load_through_an_outage_and_restarts() {
    need!(possible());
    let cluster = Cluster::start();
    let mut player = Player::start(&cluster);
    for name in NAMES {
        apply(&cluster, name);
    }
    reach(&cluster, 1);
    until_all(&cluster, "seen", |seen| seen.condition("MetricsAvailable").0 == "True");
    annotate(&cluster, &[("clients", "22")]);
    for seen in reach(&cluster, 6) {
        history_is_complete(&seen, 6);
    }
    // No node and no scheduler meddles with these pods.
    let statuses = || -> Vec<Value> {
        cluster.list(Resource::POD).into_iter().map(|pod| pod["status"].clone()).collect()
    };
    let runs =
        |status: &&Value| status["phase"] == "Running" && status["containerStatuses"][0]["ready"] == true;
    until(|| statuses().iter().filter(runs).count() == 12, || format!("{:?}", statuses()));
    // Whatever is killed, nothing is taken away.
    kill_pod(&cluster);
    kill_service(&cluster);
    keeps(&cluster, 6, 8);
    reach(&cluster, 6);
    // The load goes, and no metric shows it.
    annotate(&cluster, &[("metrics", "down"), ("clients", "2")]);
    for seen in until_all(&cluster, "blind", is_blind) {
        let error = seen.status["currentMetrics"][0]["error"].as_str().unwrap_or_default();
        assert!(error.contains("503"), "{}: {error}", seen.name);
    }
    keeps(&cluster, 6, 6);
    kill_service(&cluster);
    keeps(&cluster, 6, 12);
    annotate(&cluster, &[("metrics", "answer")]);
    for seen in reach(&cluster, 1) {
        history_is_complete(&seen, 1);
    }
    // A second one that wants the same workload gets it when the first is gone, and not before.
    let first = std::fs::read_to_string(cluster.path("apa-podautoscaler.yaml")).unwrap();
    let second = first.replacen("name: apa", "name: a-second", 1).replace("minReplicas: 1", "minReplicas: 3");
    cluster.apply(second);
    let seen = || cluster.get(Resource::POD_AUTOSCALER, "a-second");
    let has_no_conflict = || condition(&seen(), "MultiPodAutoscalerConflict") == "False";
    until(has_no_conflict, || seen().to_string());
    keeps(&cluster, 1, 3);
    cluster.delete(Resource::POD_AUTOSCALER, "apa");
    let deployment = || cluster.get(Resource::DEPLOYMENT, "apa");
    until(|| deployment()["status"]["readyReplicas"] == 3, || deployment().to_string());
    // Nothing is left of the processes.
    assert!(player.end(), "it ends as asked");
    assert_eq!(cluster.list(Resource::POD), [] as [Value; 0]);
    assert!(cluster.processes("simulated-pods").is_empty(), "processes are left");
    cluster.down();
}

#[test]
fn sample_objects_are_taken_as_they_are() {
    need!(possible());
    let cluster = Cluster::start();
    // A local cluster runs no controller for the autoscalers of Kubernetes.
    let (samples, by_hpa) = (samples("examples/podautoscaler"), samples("examples/podautoscaler/hpa"));
    for text in &by_hpa {
        let refusal = cluster.client().create_or_merge(text).unwrap_err().to_string();
        assert!(refusal.contains("spec.scalingStrategy") && refusal.contains("use KPA or APA"), "{refusal}");
    }
    assert!(by_hpa.len() >= 2, "{} samples of strategy HPA", by_hpa.len());
    let count: usize = apply_all(&cluster, &samples);
    assert!(count > 5, "{count} samples");
    // The same once more is no change, however numbers are spelled.
    apply_all(&cluster, &samples);
    let all = || cluster.list(Resource::POD_AUTOSCALER);
    assert!(all().iter().all(|object| object["metadata"]["generation"] == 1), "{:?}", all());
    let conditions = |kind: &str| -> Vec<String> {
        all()
            .iter()
            .map(|object| condition(object, kind).to_owned())
            .filter(|status| !status.is_empty())
            .collect()
    };
    let are_valid = || {
        let valid = conditions("ValidSpec");
        valid.len() == count && valid.iter().all(|status| status == "True")
    };
    until(are_valid, || format!("{:?}\n{}", all(), cluster.logs()));
    // Two of the samples want the same workload: one has it.
    let conflicts = || conditions("MultiPodAutoscalerConflict").join(" ");
    until(|| conflicts() == "False", || format!("{:?}\n{}", all(), cluster.logs()));
    for object in all() {
        cluster.delete(Resource::POD_AUTOSCALER, object["metadata"]["name"].as_str().unwrap());
    }
    cluster.down();
}

/// The files of a folder.
fn samples(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(machine::repository().join(folder)).unwrap().flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn apply_all(cluster: &Cluster, samples: &[String]) -> usize {
    samples.iter().map(|text| cluster.client().create_or_merge(text).unwrap().len()).sum()
}

/// Status of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.and_then(|found| found["status"].as_str()).unwrap_or_default()
}
