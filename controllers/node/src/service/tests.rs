use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream as Stream;

use kube::client::Body;
use neonvm_test_support::{lab, need};
use serde_json::{Value, json};

use super::*;

const VM: &str = "/apis/vm.neon.tech/v1/namespaces/shop/virtualmachines/db";

/// Every process belongs to this pod, or to none.
struct OnePod(Option<Pod>);

impl Pods for OnePod {
    fn uid(&self, pid: i32) -> Option<String> {
        assert_eq!(pid, std::process::id().cast_signed());
        self.0.as_ref().map(|_| "the-pod".to_owned())
    }

    fn cgroup(&self, uid: &str, own: &str) -> Option<String> {
        assert_eq!(uid, "the-pod");
        // The test is in no cgroup of a pod.
        cgroup::is_of(own, uid).then(|| own.to_owned())
    }

    async fn pod(&self, uid: &str) -> Result<Option<Pod>, kube::Error> {
        assert_eq!(uid, "the-pod");
        Ok(self.0.clone())
    }
}

fn pod() -> Pod {
    Pod {
        namespace: "shop".into(),
        name: "db-1".into(),
        vm: Some(("db".into(), "u".into())),
        deleting: false,
    }
}

fn vm() -> Value {
    json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop", "uid": "u"},
        "spec": {"enableNetworkMonitoring": true, "guest": {"cpus": {"min": 1, "max": 2, "use": 1},
            "memorySlots": {"min": 1, "max": 2, "use": 1}, "rootDisk": {"image": "i"}}},
        "status": {"podName": "db-1"}})
}

/// An API server with one VM and its namespace.
fn api(vm: Value) -> Client {
    let answer = move |request: http::Request<Body>| {
        let body = match request.uri().path() {
            VM => vm.clone(),
            _ => {
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "shop"}})
            }
        };
        async move {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(body.to_string().into_bytes())))
        }
    };
    Client::new(tower::service_fn(answer), "shop")
}

/// A service, until this is dropped.
struct Running {
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

fn start(pod: Option<Pod>, vm: Value) -> Running {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let _inside = runtime.enter();
    let listener = listen(directory.path()).unwrap();
    // The test has the network of its node.
    let paths = Paths { own_namespace: Some("/proc/self/ns/net".into()), ..Paths::default() };
    let service = Service { pods: OnePod(pod), client: api(vm), policy: Policy::default(), paths };
    runtime.spawn(serve(Arc::new(service), listener));
    Running { directory, runtime }
}

impl Running {
    fn connect(&self) -> Stream {
        let stream = Stream::connect(self.directory.path().join("node.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// The answer to these bytes.
    fn ask(&self, bytes: &[u8]) -> Value {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn refusal(&self, bytes: &[u8]) -> String {
        let answer = self.ask(bytes);
        answer["refused"]["reason"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

const NETWORK: &[u8] = b"{\"version\":1,\"wants\":\"network\"}\n";

#[test]
fn what_is_no_request_is_refused_with_the_reason() {
    let service = start(Some(pod()), vm());
    let long = [vec![b' '; 5000], NETWORK.to_vec()].concat();
    for (bytes, reason) in [
        (&b"{}\n"[..], "the request is not understood"),
        (b"\n", "the request is not understood"),
        (b"{\"version\":1,\"wants\":\"disks\"}\n", "unknown variant"),
        (
            b"{\"version\":2,\"wants\":\"network\"}\n",
            "version 2 of the protocol is unknown here, which has 1",
        ),
        (&long, "a request is one line of at most 4096 bytes"),
        (&[0xff, 0xfe, b'\n'], "the request is not understood"),
    ] {
        let found = service.refusal(bytes);
        assert!(found.contains(reason), "{found}");
    }
    let mut stream = service.connect();
    stream.write_all(b"{\"version\"").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("a request is one line"), "{text}");
    service.runtime.shutdown_background();
}

#[test]
fn a_process_of_no_pod_and_a_pod_of_no_vm_get_nothing() {
    let none = start(None, vm());
    assert!(none.refusal(NETWORK).contains("belongs to no pod of this node"));
    let other = start(Some(Pod { name: "db-2".into(), ..pod() }), vm());
    assert!(other.refusal(NETWORK).contains("pod db-2 is not the pod of its VM, which is \"db-1\""));
    let own = start(Some(pod()), vm());
    let refusal = own.refusal(NETWORK);
    assert!(refusal.contains("hostNetwork"), "{refusal}");
}

/// Connections that send nothing are bounded for each pod, and end.
#[test]
fn a_pod_cannot_keep_connections() {
    let service = start(Some(pod()), vm());
    let idle: Vec<Stream> = (0..OF_A_POD).map(|_| service.connect()).collect();
    let seen = neonvm_test_support::eventually_blocking(
        || "the limit of a pod".to_owned(),
        || {
            let answer = service.ask(NETWORK);
            let is_bounded =
                answer["refused"]["reason"].as_str().unwrap().contains("has other requests open");
            is_bounded.then_some(answer).ok_or("not yet")
        },
    );
    assert_eq!(seen["refused"]["later"], true);
    for stream in idle {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("no request arrived in time"), "{line}");
    }
}

/// In a network namespace, as a runner of a pod: what it gets, and that it gets it once.
#[test]
fn a_runner_gets_its_network_once() {
    need!(lab::inside("service", || {
        let ip = |words: &str| {
            let done = std::process::Command::new("ip").args(words.split(' ')).status().expect("ip");
            assert!(done.success(), "{words}");
        };
        ip("link add eth0 mtu 1400 type veth peer name far");
        ip("address add 10.7.0.2/24 dev eth0");
        ip("link set eth0 up");
        ip("link set far up");
        ip("route add default via 10.7.0.1");
        // A process of its own is the caller, whose first thread is in the namespace: a thread alone is none.
        let paths = Paths::default();
        let order = decision::order(&pod(), &serde_json::from_value(vm()).expect("a VM"), &Policy::default());
        let order = order.expect("its VM");
        let make = |order: Order| {
            let place =
                Namespace::of(rustix::thread::gettid().as_raw_nonzero().get(), None).expect("a namespace");
            network::make(place, order, paths.clone())
        };
        let (link, files) = make(order.clone()).expect("made");
        assert_eq!((link.files.len(), link.mtu, link.overlay_mtu), (files.len(), 1400, None));
        let again = make(order.clone()).expect_err("the device is there").to_string();
        assert!(again.contains("cannot make the device tap-def") && again.contains("busy"), "{again}");
        let place =
            Namespace::of(rustix::thread::gettid().as_raw_nonzero().get(), None).expect("a namespace");
        let traffic = network::traffic(place).expect("counted");
        assert_eq!((traffic.ingress, traffic.egress), (0, 0));
        drop(files);
        assert!(make(order).is_ok(), "the devices ended with their files");
    }));
}
