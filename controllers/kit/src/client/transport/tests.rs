use neonvm_test_support::{Missing, Need, need, needs};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::AsyncReadExt as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

use super::*;

/// A separate network, with loopback; it ends with its input.
struct Network(Child);

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Network {
    fn new() -> Need<Self> {
        needs::network_namespaces()?;
        let script = "ip link set lo up && nft add table inet cut && echo up && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut network = Self(command.stderr(Stdio::null()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(network.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let up = (line.trim() == "up").then_some(network);
        up.ok_or_else(|| Missing::unavailable("no network namespace with nftables can be made"))
    }

    /// This thread, and what it starts, from now on.
    fn enter(&self) {
        let namespace = std::fs::File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
            .unwrap();
    }
}

/// From now on every packet is lost, without a word.
fn cut() {
    let chain = "add chain inet cut everything { type filter hook input priority 0; policy drop; }";
    assert!(Command::new("nft").arg(chain).status().unwrap().success());
}

/// Answers one request with a piece at once and a piece on demand; then it sends nothing.
async fn serve(listener: TcpListener, more: oneshot::Receiver<()>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.unwrap() > 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n").await.unwrap();
    more.await.unwrap();
    stream.write_all(b"3\r\ntwo\r\n").await.unwrap();
    std::future::pending::<()>().await;
}

async fn watch(taken_within: Option<Duration>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (ask, more) = oneshot::channel();
    tokio::spawn(serve(listener, more));
    let mut config = Config::new(url.parse().unwrap());
    config.read_timeout = None;
    let second = Duration::from_secs(1);
    let silence = Silence { ask_after: second, ask_every: second, taken_within };
    let client = client(config, None, silence).unwrap();
    let request = http::Request::get("/watch").body(Vec::new()).unwrap();
    let stream = client.request_stream(request).await.unwrap();
    let mut stream = std::pin::pin!(stream);
    let mut piece = [0; 3];
    stream.read_exact(&mut piece).await.unwrap();
    assert_eq!(&piece, b"one");
    // A server that sends nothing is still there.
    tokio::time::sleep(second * 4).await;
    ask.send(()).unwrap();
    stream.read_exact(&mut piece).await.unwrap();
    assert_eq!(&piece, b"two");
    cut();
    stream.read_exact(&mut piece).await.unwrap_err();
}

/// Its host has lost power, or a firewall has forgotten the connection: what waits for bytes comes to an end.
fn notices(taken_within: Option<Duration>) {
    let network = need!(Network::new());
    let thread = std::thread::spawn(move || {
        network.enter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(watch(taken_within));
    });
    thread.join().unwrap();
}

#[test]
fn a_server_that_is_gone_without_a_word_is_noticed() {
    notices(Some(Duration::from_secs(1)));
}

#[test]
fn a_stream_whose_server_is_gone_is_noticed_too() {
    notices(None);
}

/// A program that does not read for longer than requests wait still gets all.
#[tokio::test]
async fn a_stream_waits_for_who_does_not_read() {
    let silence = |taken_within| Silence { taken_within, ..REQUESTS };
    let second = Some(Duration::from_secs(1));
    let requests = upload(silence(second), std::future::pending());
    let streams = upload(silence(STREAMS.taken_within), tokio::time::sleep(Duration::from_secs(4)));
    let (requests, streams) = tokio::join!(requests, streams);
    assert!(!requests && streams);
}

/// Sends more than sockets hold to a server that reads nothing before `reads` ends. Whether all of it came.
async fn upload(silence: Silence, reads: impl Future<Output = ()> + Send + 'static) -> bool {
    const BYTES: usize = 64_000_000;
    let socket = TcpSocket::new_v4().unwrap();
    // Else the kernel would hold more for the server the more it has.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        reads.await;
        let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
        while total < BYTES {
            match tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await {
                Ok(count @ 1..) => total += count,
                _ => return false,
            }
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_ok()
    });
    let client = client(Config::new(url.parse().unwrap()), None, silence).unwrap();
    let request = http::Request::post("/").body(vec![0; BYTES]).unwrap();
    let answer = client.request_text(request).await;
    if answer.is_err() {
        server.abort();
    }
    answer.is_ok() && server.await.unwrap()
}

async fn head(stream: &mut tokio::net::TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::io::AsyncReadExt::read_u8(stream).await.unwrap());
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel_to_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new("http://k8s.test:8001".parse().unwrap());
    let proxy = format!("http://user:pass@{}", listener.local_addr().unwrap());
    config.proxy_url = Some(proxy.parse().unwrap());
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let request = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        (asked, request)
    });
    let client = super::super::from_config(config).unwrap();
    let request = http::Request::get("/livez").body(Vec::new()).unwrap();
    assert_eq!(client.request_text(request).await.unwrap(), "ok");
    let (asked, request) = asked.await.unwrap();
    assert!(asked.starts_with("connect k8s.test:8001 "), "{asked}");
    // base64 of user:pass, in small letters.
    assert!(asked.contains("proxy-authorization: basic dxnlcjpwyxnz"), "{asked}");
    assert!(request.starts_with("get /livez "), "{request}");
}
