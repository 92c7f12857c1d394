//! A fake scheduler with a behaviour that the test determines, per pod.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use neonvm_kit::authority::{self, SCHEDULER_NAME};
use neonvm_kit::port::Reserved;
use neonvm_kit::service::Endpoint;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::web::{Reply, Request, Web};

/// How requests of a pod are answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// With the requested size.
    Permit,
    /// With no more than so many units.
    AtMost(u64),
    /// With one unit more than requested.
    Above,
    /// With a field of zero.
    Zero,
    /// With one unit less than the smallest VM has.
    Below,
    /// With the requested size, after longer than this project's scheduler may take (1 s in these tests).
    Slow,
    /// With a permit and the notice that the VM is to be migrated.
    Migrate,
    /// In this way.
    Reply(Reply),
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) web: Web,
    modes: Arc<Mutex<BTreeMap<String, Mode>>>,
    place: Reserved,
}

impl Scheduler {
    pub(crate) async fn start(cluster: &Cluster) -> Self {
        Self::at(cluster, Reserved::loopback().unwrap()).await
    }

    pub(crate) async fn at(cluster: &Cluster, place: Reserved) -> Self {
        let authority = authority::read(&cluster.client, NAMESPACE).await.unwrap();
        let identity = authority.server("scheduler", &[SCHEDULER_NAME.to_owned()]).unwrap();
        let mut tls = neonvm_kit::tls::server(&identity, authority.certificate()).unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self::with(place, Some(tls)).await
    }

    /// Without TLS, as upstream's.
    pub(crate) async fn plain() -> Self {
        Self::with(Reserved::loopback().unwrap(), None).await
    }

    async fn with(place: Reserved, tls: Option<rustls::ServerConfig>) -> Self {
        let modes: Arc<Mutex<BTreeMap<String, Mode>>> = Arc::default();
        let web = Web::start_with(place.address(), tls, {
            let modes = Arc::clone(&modes);
            move |request| {
                let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let pod = asked["pod"]["name"].as_str().unwrap_or_default();
                answer(&modes.lock().unwrap().get(pod).cloned().unwrap_or(Mode::Permit), &asked)
            }
        })
        .await;
        Self { web, modes, place }
    }

    /// Kills it; its address stays reserved.
    pub(crate) fn kill(self) -> Reserved {
        self.place
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.web.address, plain: false }
    }

    /// From now on requests of the pod are answered like this.
    pub(crate) fn set(&self, pod: &str, mode: Mode) {
        self.modes.lock().unwrap().insert(pod.to_owned(), mode);
    }

    /// The requests of a pod so far: units, and units of the last permit.
    pub(crate) fn asked(&self, pod: &str) -> Vec<(u64, Option<u64>)> {
        let read = |request: &Request| -> Value { serde_json::from_slice(&request.body).unwrap() };
        let all = self.web.requests();
        let own = all.iter().map(read).filter(|asked| asked["pod"]["name"] == pod);
        own.map(|asked| (units(&asked["resources"]), Some(units(&asked["lastPermit"])).filter(|u| *u > 0)))
            .collect()
    }
}

fn cpu(amount: &Value) -> f64 {
    match &amount["vCPUs"] {
        Value::Number(number) => number.as_f64().unwrap(),
        Value::String(text) => match text.strip_suffix('m') {
            Some(milli) => milli.parse::<f64>().unwrap() / 1000.0,
            None => text.parse().unwrap(),
        },
        _ => 0.0,
    }
}

/// Units of a quarter of a CPU, rounded down.
fn units(amount: &Value) -> u64 {
    format!("{:.0}", (cpu(amount) * 4.0).floor()).parse().unwrap()
}

fn amount(units: u64) -> Value {
    json!({ "vCPUs": format!("{}m", units * 250), "mem": format!("{units}Gi") })
}

fn answer(mode: &Mode, asked: &Value) -> Reply {
    let requested = units(&asked["resources"]);
    let permit = |permit: Value| Reply::Text(200, json!({ "permit": permit }).to_string());
    match mode {
        Mode::Permit => permit(asked["resources"].clone()),
        Mode::AtMost(most) => permit(amount(requested.min(*most))),
        Mode::Above => permit(amount(requested + 1)),
        Mode::Zero => permit(json!({ "vCPUs": 0, "mem": "1Gi" })),
        Mode::Below => permit(json!({ "vCPUs": "125m", "mem": "512Mi" })),
        Mode::Slow => {
            let permit = json!({ "permit": asked["resources"] });
            Reply::After(std::time::Duration::from_millis(1500), permit.to_string())
        }
        Mode::Migrate => Reply::Text(200, json!({ "permit": asked["resources"], "migrate": {} }).to_string()),
        Mode::Reply(reply) => reply.clone(),
    }
}
