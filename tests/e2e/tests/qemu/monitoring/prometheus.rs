//! A Prometheus of one test, with the configuration of `deploy/monitoring` for the addresses of a local cluster.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use neonvm_kit::port::Reserved;
use serde_json::{Value, json};

use crate::machine::repository;

/// How often is scraped and evaluated here, so that a test need not wait for what an installation does every 30 s.
const INTERVAL: &str = "2s";
/// Time for one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// A file of `deploy/monitoring`.
pub(crate) fn file(name: &str) -> Value {
    let path = repository().join("deploy/monitoring").join(name);
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What Kubernetes' discovery would report of a port of a pod: an address, and labels that begin with `__meta_kubernetes_`.
pub(crate) fn discovered(
    address: &str,
    (namespace, pod, node): (&str, &str, &str),
    port: &str,
    labels: &BTreeMap<String, String>,
) -> Value {
    let mut all = BTreeMap::from([
        ("namespace".to_owned(), namespace),
        ("pod_name".to_owned(), pod),
        ("pod_node_name".to_owned(), node),
        ("pod_container_port_name".to_owned(), port),
        ("pod_phase".to_owned(), "Running"),
    ]);
    for (label, value) in labels {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let label: String = label.chars().map(plain).collect();
        all.insert(format!("pod_label_{label}"), value);
    }
    let labels: BTreeMap<String, &str> =
        all.into_iter().map(|(label, value)| (format!("__meta_kubernetes_{label}"), value)).collect();
    json!({"targets": [address], "labels": labels})
}

/// Stops when it is dropped.
pub(crate) struct Prometheus {
    child: Child,
    port: Reserved,
}

impl Prometheus {
    /// Starts it with these targets in place of Kubernetes' discovery; all else is as in `deploy/monitoring`, but for intervals.
    pub(crate) fn start(program: &Path, directory: &Path, targets: &[Value]) -> Self {
        let mut config = file("scrape.prometheus.yaml");
        for job in config["scrape_configs"].as_array_mut().unwrap() {
            let job = job.as_object_mut().unwrap();
            job.remove("kubernetes_sd_configs").unwrap();
            job.insert("static_configs".to_owned(), json!(targets));
            job.insert("scrape_interval".to_owned(), json!(INTERVAL));
        }
        config["global"] =
            json!({"scrape_timeout": INTERVAL, "scrape_interval": INTERVAL, "evaluation_interval": INTERVAL});
        config["rule_files"] = json!(["rules.yaml"]);
        let mut rules = file("rules.prometheus.yaml");
        for group in rules["groups"].as_array_mut().unwrap() {
            group["interval"] = json!(INTERVAL);
        }
        std::fs::create_dir_all(directory).unwrap();
        // JSON is YAML.
        std::fs::write(directory.join("rules.yaml"), rules.to_string()).unwrap();
        std::fs::write(directory.join("prometheus.yaml"), config.to_string()).unwrap();
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let port = Reserved::loopback().unwrap();
        let child = Command::new(program)
            .arg("--config.file=prometheus.yaml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={}", port.address()))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self { child: child.unwrap(), port }
    }

    /// Value of `data` in the answer to a request of its API.
    pub(crate) fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let text = request(self.port.address(), &format!("/api/v1/{path}?{}", parameters.join("&")))
            .map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        if answer["status"] != "success" {
            return Err(answer["error"].to_string());
        }
        Ok(answer["data"].clone())
    }

    /// The samples that an expression has now.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let data = self.get("query", &[("query", expression)])?;
        data["result"].as_array().cloned().ok_or_else(|| data.to_string())
    }

    /// Whether an alert with these labels is pending or firing.
    pub(crate) fn alerts(&self, alert: &str, labels: &str) -> bool {
        let expression = format!("ALERTS{{alertname=\"{alert}\"{labels}}}");
        self.query(&expression).is_ok_and(|found| !found.is_empty())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Body of an answer. By HTTP/1.0, so that the connection ends with it.
fn request(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: prometheus\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(answer))
}

/// A value of a query string.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(byte).collect()
}
