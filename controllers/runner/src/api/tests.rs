use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http1;
use neonvm_kit::ca::{Authority, Identity};
use neonvm_types::runner_protocol::{
    CLIENT_ORGANISATION, CpuStatus, GUEST_PORT_PATH, STREAM_PROTOCOL, VOLUME_PATH,
};
use neonvm_types::{Bytes as Size, MilliCpu};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;
use crate::guest::daemon::Daemon;
use crate::logs::{self, Format};

/// The interface of a VM that takes every size up to 4 CPUs.
struct Stand {
    directory: tempfile::TempDir,
    status: watch::Sender<Arc<RunnerStatus>>,
    running: watch::Sender<Option<Running>>,
    shared: Arc<Shared>,
}

fn stand() -> Stand {
    let directory = tempfile::tempdir().unwrap();
    let (status, status_seen) = watch::channel(Arc::new(RunnerStatus::default()));
    let (running, running_seen) = watch::channel(None);
    let (commands, mut received) = mpsc::channel(4);
    let own = Own { machine: "x.vm.neon.tech".to_owned(), agent: Some("neonvm-agent:n1".to_owned()) };
    let bodies = Arc::default();
    let shared = Arc::new(Shared {
        own,
        counts_traffic: false,
        status: status_seen,
        commands,
        running: running_seen,
        bodies,
    });
    listen_locally(&shared, &directory.path().join("s")).unwrap();
    tokio::spawn(async move {
        while let Some(command) = received.recv().await {
            let _ = match command {
                Command::Resize(size, answer) if size.cpu <= MilliCpu::new(4000) => answer.send(Ok(())),
                Command::Resize(_, answer) => answer.send(Err(Refusal::Wrong("cpu: too many".into()))),
                Command::GrowDisk(request, answer) if request.disk == "data" => answer.send(Ok(())),
                Command::GrowDisk(_, answer) => answer.send(Err(Refusal::Wrong("no such disk".into()))),
                Command::LimitDisks(request, answer) if request.limits.contains_key("data") => {
                    answer.send(Ok(()))
                }
                Command::LimitDisks(_, answer) => {
                    answer.send(Err(Refusal::Conflict("the VM is suspended".into())))
                }
                Command::Pause(false, answer) => answer.send(Ok(())),
                Command::Pause(true, answer) => answer.send(Err(Refusal::Conflict("the VM moves".into()))),
                _ => Ok(()),
            };
        }
    });
    Stand { directory, status, running, shared }
}

impl Stand {
    async fn send(&self, method: &str, path: &str, body: &str, upgrade: bool) -> Response<Incoming> {
        let stream = UnixStream::connect(self.directory.path().join("s")).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(method).uri(path).header("host", "x");
        if upgrade {
            request = request.header("connection", "upgrade").header("upgrade", STREAM_PROTOCOL);
        }
        sender.send_request(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let response = self.send(method, path, body, false).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    fn publish(&self, change: impl FnOnce(&mut RunnerStatus)) {
        self.status.send_modify(|status| {
            let status = Arc::make_mut(status);
            status.sequence += 1;
            change(status);
        });
    }
}

#[tokio::test]
async fn the_paths_of_older_controllers() {
    let stand = stand();
    assert_eq!(stand.ask("GET", "/ready", "").await.0, 503);
    assert_eq!(stand.ask("GET", "/cpu_current", "").await.0, 504);
    stand.publish(|status| {
        status.ready = true;
        status.cpu = CpuStatus { asked: MilliCpu::new(250), applied: MilliCpu::new(250), online: 1 };
    });
    assert_eq!(stand.ask("HEAD", "/ready", "").await.0, 200);
    assert_eq!(stand.ask("GET", "/cpu_current", "").await, (200, r#"{"VCPUs":"250m"}"#.into()));
    assert_eq!(stand.ask("POST", "/cpu_change", r#"{"VCPUs":2}"#).await, (200, String::new()));
    let (code, text) = stand.ask("POST", "/cpu_change", r#"{"VCPUs":[]}"#).await;
    assert!(code == 400 && text.contains("VCPUs"), "{text}");
    assert_eq!(stand.ask("GET", "/cpu_change", "").await, (405, "use POST\n".into()));
    assert_eq!(stand.ask("GET", "/nothing", "").await.0, 404);
}

#[tokio::test]
async fn sizes_are_accepted_or_refused_with_the_reason() {
    let stand = stand();
    let (code, text) = stand.ask("PUT", "/v1/size", r#"{"cpu":"500m","memory":"2Gi"}"#).await;
    assert_eq!(code, 202);
    assert!(serde_json::from_str::<RunnerStatus>(&text).is_ok());
    assert_eq!(
        stand.ask("PUT", "/v1/size", r#"{"cpu":9,"memory":"2Gi"}"#).await,
        (400, "cpu: too many\n".into())
    );
    for bad in ["", "{}", "[]", r#"{"cpu":1}"#, r#"{"cpu":"x","memory":"2Gi"}"#] {
        assert_eq!(stand.ask("PUT", "/v1/size", bad).await.0, 400, "{bad}");
    }
    assert_eq!(stand.ask("PUT", "/v1/size", &"x".repeat(LARGEST + 1)).await.0, 413);
}

#[tokio::test]
async fn a_pause_is_accepted_or_refused_with_the_reason() {
    let stand = stand();
    let (code, text) = stand.ask("PUT", "/v1/pause", r#"{"paused":false}"#).await;
    assert!(code == 202 && serde_json::from_str::<RunnerStatus>(&text).is_ok(), "{code} {text}");
    assert_eq!(stand.ask("PUT", "/v1/pause", r#"{"paused":true}"#).await, (409, "the VM moves\n".into()));
    for bad in ["", "{}", "[]", r#"{"paused":"yes"}"#, r#"{"paused":1}"#] {
        assert_eq!(stand.ask("PUT", "/v1/pause", bad).await.0, 400, "{bad}");
    }
    assert_eq!(stand.ask("POST", "/v1/pause", r#"{"paused":true}"#).await, (405, "use PUT\n".into()));
}

#[tokio::test]
async fn a_disk_that_is_to_grow_is_accepted_or_refused_with_the_reason() {
    let stand = stand();
    let (code, text) = stand.ask("PUT", "/v1/disks", r#"{"disk":"data","size":2147483648}"#).await;
    assert!(code == 202 && serde_json::from_str::<RunnerStatus>(&text).is_ok(), "{code} {text}");
    let unknown = stand.ask("PUT", "/v1/disks", r#"{"disk":"root","size":1}"#).await;
    assert_eq!(unknown, (400, "no such disk\n".into()));
    for bad in
        ["", "{}", "[]", r#"{"disk":"data"}"#, r#"{"disk":"data","size":-1}"#, r#"{"disk":1,"size":1}"#]
    {
        assert_eq!(stand.ask("PUT", "/v1/disks", bad).await.0, 400, "{bad}");
    }
    assert_eq!(stand.ask("POST", "/v1/disks", "").await, (405, "use PUT\n".into()));
}

#[tokio::test]
async fn limits_of_disks_are_accepted_or_refused_with_the_reason() {
    let stand = stand();
    let (code, text) = stand.ask("PUT", "/v1/disks/limits", r#"{"limits":{"data":{"iops":50}}}"#).await;
    assert!(code == 202 && serde_json::from_str::<RunnerStatus>(&text).is_ok(), "{code} {text}");
    let refused = stand.ask("PUT", "/v1/disks/limits", r#"{"limits":{}}"#).await;
    assert_eq!(refused, (409, "the VM is suspended\n".into()));
    for bad in ["", "[]", r#"{"limits":1}"#, r#"{"limits":{"data":{"iops":-1}}}"#] {
        assert_eq!(stand.ask("PUT", "/v1/disks/limits", bad).await.0, 400, "{bad}");
    }
    assert_eq!(stand.ask("GET", "/v1/disks/limits", "").await, (405, "use PUT\n".into()));
}

#[tokio::test]
async fn watchers_get_each_document_and_the_end() {
    let stand = stand();
    let mut body = stand.send("GET", "/v1/status?watch=true", "", false).await.into_body();
    let mut next = async || {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        assert!(frame.ends_with(b"\n"));
        Some(serde_json::from_slice::<RunnerStatus>(&frame).unwrap())
    };
    assert_eq!(next().await.unwrap().sequence, 0);
    stand.publish(|status| status.memory.actual = Size::gib(1));
    assert_eq!(next().await.unwrap().memory.actual, Size::gib(1));
    stand.publish(|status| status.state = RunnerState::Ended);
    assert_eq!(next().await.unwrap().state, RunnerState::Ended);
    assert_eq!(next().await, None);
}

#[tokio::test]
async fn strangers_may_only_ask_for_readiness() {
    let stand = stand();
    let socket = stand.directory.path().join("strangers");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let shared = Arc::clone(&stand.shared);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            let service = hyper::service::service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, std::convert::Infallible>(handle(shared, Peer::Stranger, request).await) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    for (path, expected) in
        [("/ready", 503), ("/metrics", 404), ("/v1/status", 403), ("/cpu_current", 403), ("/nothing", 403)]
    {
        let stream = UnixStream::connect(&socket).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().uri(path).header("host", "x").body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), expected, "{path}");
    }
}

/// A connection over TLS with a certificate of the authority, or without one.
async fn connect(
    address: std::net::SocketAddr,
    authority: &Authority,
    shown: Option<&Identity>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let config = neonvm_kit::tls::client(shown, authority.certificate().as_bytes()).unwrap();
    let name = rustls::pki_types::ServerName::try_from("x.vm.neon.tech").unwrap();
    let stream = TcpStream::connect(address).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// H6: 80 strangers that poll for readiness, and 100 that never finish their handshake.
#[tokio::test]
async fn strangers_take_no_place_of_the_controller() {
    let stand = stand();
    let (authority, _) = Authority::generate().unwrap();
    let own =
        authority.peer_for("neonvm-runner", std::slice::from_ref(&stand.shared.own.machine), 3600).unwrap();
    let mut tls = neonvm_kit::tls::server(&own, authority.certificate()).unwrap();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let here = [std::net::IpAddr::from([127, 0, 0, 1])];
    let address = listen_with_tls(&stand.shared, &here, 0, tls).await.unwrap()[0];
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..80 {
        if let Ok(mut stream) = connect(address, &authority, None).await {
            strangers.spawn(async move {
                let mut buffer = [0; 4096];
                while stream.write_all(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok()
                    && stream.read(&mut buffer).await.is_ok_and(|count| count > 0)
                {}
                // It keeps its end, whatever becomes of ours.
                std::future::pending::<()>().await;
            });
        }
    }
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let controller = authority.client("c", &[neonvm_types::runner_protocol::CLIENT_ORGANISATION]).unwrap();
    let stream = connect(address, &authority, Some(&controller)).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = Full::new(Bytes::from_static(br#"{"cpu":"500m","memory":"2Gi"}"#));
    let request = Request::put("/v1/size").header("host", "x").body(body).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 202);
}

#[test]
fn who_may_use_which_path() {
    let own = Own { machine: "u.vm.neon.tech".to_owned(), agent: Some("neonvm-agent:n1".to_owned()) };
    let named = |organisation: &str, common_name: &str, name: &str| {
        let shown = neonvm_kit::http::Peer {
            common_name: common_name.to_owned(),
            organisations: vec![organisation.to_owned()],
            dns_names: vec![name.to_owned()],
            ..Default::default()
        };
        Peer::from_peer(&shown, &own)
    };
    let of = |organisation: &str, name: &str| named(organisation, "", name);
    let agent = named("neonvm:agents", "neonvm-agent:n1", "");
    // An agent of another node, and a client with an agent's name but not its organisation.
    assert_eq!(named("neonvm:agents", "neonvm-agent:n2", ""), Peer::Stranger);
    assert_eq!(of("neonvm:agents", ""), Peer::Stranger);
    assert_eq!(named("neonvm:operators", "neonvm-agent:n1", ""), Peer::Stranger);
    assert_eq!(agent, Peer::Agent);
    for (path, controller, agents, twin) in [
        ("/ready", true, true, true),
        ("/metrics", true, true, true),
        ("/v1/status", true, false, false),
        ("/v1/console", true, false, false),
        ("/v1/size", true, false, false),
        (&format!("{GUEST_PORT_PATH}9100"), true, true, false),
        (&format!("{GUEST_PORT_PATH}10301"), true, true, false),
        (&format!("{GUEST_PORT_PATH}25183"), true, false, false),
        (&format!("{GUEST_PORT_PATH}+25183"), true, false, false),
        (&format!("{GUEST_PORT_PATH}{GUEST_PORT_PATH}25183"), true, false, false),
        (&format!("{VOLUME_PATH}root"), true, false, true),
    ] {
        assert_eq!(of(CLIENT_ORGANISATION, "").may(path), controller, "{path}");
        assert_eq!(agent.may(path), agents, "{path}");
        assert_eq!(of("", "u.vm.neon.tech").may(path), twin, "{path}");
        assert_eq!(
            of("neonvm:operators", "other.vm.neon.tech").may(path),
            matches!(path, "/ready" | "/metrics"),
            "{path}"
        );
    }
}

/// A VM with a disk on a claim, whose guest is there; and its console.
fn running(reach: Reach) -> (Running, tokio::io::DuplexStream) {
    let log = logs::start(Format::Plain, std::io::sink()).unwrap();
    let (machine, line) = tokio::io::duplex(64);
    let statistics = Arc::new(Statistics::new(Box::new(Default::default), Daemon::new(reach.clone())));
    let config: neonvm_api::runner_pod::RunnerConfig = serde_json::from_value(serde_json::json!({
        "namespace": "d", "name": "vm", "uid": "u", "pod": "p", "cpuScalingMode": "SysfsScaling",
        "spec": {"guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1},
            "rootDisk": {"image": "i"}},
            "disks": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "c"}}]}}))
    .unwrap();
    let disks = Arc::new(Disks::new(Daemon::new(reach.clone()), &config));
    let console = Console::attach(line, log).0;
    let (volumes, streams) = Default::default();
    (Running { console, reach, statistics, disks, volumes, meter: None, streams }, machine)
}

/// A daemon that answers each request with this, and the requests that it got.
async fn daemon(answer: &'static str) -> (Reach, mpsc::UnboundedReceiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut seen, mut buffer) = (String::new(), [0; 4096]);
            // The body comes with the head or after it.
            while !seen.contains("\r\n\r\n")
                || (seen.contains("/freeze") && seen.starts_with("POST") && !seen.contains('}'))
            {
                let count = stream.read(&mut buffer).await.unwrap();
                seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            }
            let _ = sender.send(seen);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (Reach::Forwards(Arc::new([(DAEMON_PORT, address)].into())), requests)
}

#[tokio::test]
async fn a_freeze_reaches_the_guest_or_is_refused_with_the_reason() {
    let stand = stand();
    let request = r#"{"seconds":30}"#;
    assert_eq!(stand.ask("POST", "/v1/freeze", request).await.0, 503, "there is no VM yet");
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\n{\"disks\":[\"data\"],\"seconds\":30}";
    let (reach, mut requests) = daemon(answer).await;
    stand.running.send_replace(Some(running(reach).0));
    for bad in ["", "{}", "[]", r#"{"seconds":0}"#, r#"{"seconds":301}"#, r#"{"seconds":"x"}"#] {
        assert_eq!(stand.ask("POST", "/v1/freeze", bad).await.0, 400, "{bad}");
    }
    let (code, text) = stand.ask("POST", "/v1/freeze", request).await;
    assert_eq!((code, text.as_str()), (200, r#"{"disks":["data"],"seconds":30}"#));
    let sent = requests.recv().await.unwrap();
    assert!(
        sent.starts_with("POST /disks/freeze ")
            && sent.contains(r#"{"disks":["data"],"root":false,"seconds":30}"#),
        "{sent}"
    );
    assert_eq!(stand.ask("GET", "/v1/freeze", "").await, (405, "use POST\n".into()));

    // A guest program of an earlier version, one that refuses, and one that stands still.
    for (answer, code, part) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 501, "build its image again"),
        ("HTTP/1.1 409 Conflict\r\ncontent-length: 10\r\n\r\nthaw first", 409, "thaw first"),
        ("HTTP/1.1 500 Error\r\ncontent-length: 4\r\n\r\nfull", 502, "the guest: full"),
    ] {
        let (reach, _requests) = daemon(answer).await;
        stand.running.send_replace(Some(running(reach).0));
        let (found, text) = stand.ask("POST", "/v1/freeze", request).await;
        assert!(found == code && text.contains(part), "{found} {text}");
    }
    stand.publish(|status| status.pause.applied = true);
    for path in ["/v1/freeze", "/v1/thaw"] {
        let (code, text) = stand.ask("POST", path, request).await;
        assert!(code == 409 && text.contains("neonctl vm resume"), "{code} {text}");
    }
}

#[tokio::test]
async fn console_and_ports_of_the_guest_are_streams() {
    let stand = stand();
    assert_eq!(stand.ask("GET", "/v1/console", "").await.0, 503);
    let guest = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = guest.local_addr().unwrap().port();
    let reach = Reach::Address([127, 0, 0, 1].into());
    let (running, machine) = running(reach);
    stand.running.send_replace(Some(running));
    assert_eq!(stand.ask("GET", "/v1/console", "").await.0, 426);
    assert_eq!(stand.ask("GET", "/v1/guest/0", "").await.0, 400);
    assert_eq!(stand.ask("GET", "/v1/statistics", "").await.0, 200);

    let mut response = stand.send("GET", "/v1/console", "", true).await;
    assert_eq!(response.status(), 101);
    let mut client = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let (mut from_console, mut to_console) = tokio::io::split(machine);
    to_console.write_all(b"login: ").await.unwrap();
    let mut seen = [0; 7];
    client.read_exact(&mut seen).await.unwrap();
    client.write_all(b"me").await.unwrap();
    let mut typed = [0; 2];
    from_console.read_exact(&mut typed).await.unwrap();
    assert_eq!((&seen, &typed), (b"login: ", b"me"));

    let mut response = stand.send("GET", &format!("/v1/guest/{port}"), "", true).await;
    assert_eq!(response.status(), 101);
    let mut client = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let (mut server, _) = guest.accept().await.unwrap();
    client.write_all(b"hi").await.unwrap();
    let mut got = [0; 2];
    server.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hi");
}
