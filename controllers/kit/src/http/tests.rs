use std::net::SocketAddr;

use futures_util::future::join_all;
use neonvm_test_support::eventually;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::*;
use crate::ca::Authority;
use crate::tls;

const SMALL: Places = Places { arriving: 8, strangers: 4, per_address: 4, known: 2 };

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends a text, and returns everything that comes back until the connection is closed.
async fn exchange(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is the server's right: it has not read everything.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
}

fn only_known(head: &Parts) -> Admitted {
    if Peer::from_extensions(&head.extensions).known {
        return Ok(MAX_BODY);
    }
    refuse(StatusCode::FORBIDDEN, "text/plain", "who are you?\n")
}

async fn echo(request: FullRequest) -> FullResponse {
    text(StatusCode::OK, "text/plain", format!("{} bytes\n", request.body().len()))
}

#[tokio::test]
async fn no_body_is_read_from_a_client_without_the_right_to_send_one() {
    let (listener, address) = listener().await;
    let budget = Arc::new(Budget::default());
    let gate = Gate::open(Places { strangers: 128, per_address: 128, ..PRIVATE }, &budget);
    let server = tokio::spawn(serve(listener, None, gate, only_known, echo));
    let length = MAX_BODY;
    let request =
        format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n");
    let answers = join_all((0..90).map(|_| exchange(address, &request))).await;
    for answer in answers {
        // Not "100 Continue" first: that would have begun the body.
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    assert_eq!(budget.most(false), 0);
    server.abort();
}

#[tokio::test]
async fn a_body_is_read_as_far_as_it_was_admitted() {
    let (listener, address) = listener().await;
    let gate = Gate::open(OPEN, &Arc::default());
    let server = tokio::spawn(serve(listener, None, gate, |_: &Parts| Ok(10), echo));
    let post = |length: usize| {
        let body = "x".repeat(length);
        format!("POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    assert!(exchange(address, &post(10)).await.ends_with("10 bytes\n"));
    let long = exchange(address, &post(11)).await;
    assert!(long.starts_with("HTTP/1.1 413 ") && long.ends_with("at most 10 bytes\n"), "{long}");
    server.abort();
}

/// A server with TLS that treats operators as known, and answers strangers only when `go` is notified; and a known
/// client.
async fn guarded(
    go: Arc<Notify>,
) -> (SocketAddr, tokio::task::JoinHandle<()>, [Arc<rustls::ClientConfig>; 2]) {
    let (authority, _) = Authority::generate().unwrap();
    let server = authority.server("s", &["s.test".to_owned()]).unwrap();
    let server = Arc::new(tls::server(&server, authority.certificate()).unwrap());
    let known = authority.client("me", &[crate::authority::OPERATORS]).unwrap();
    let client = |identity| Arc::new(tls::client(identity, authority.certificate().as_bytes()).unwrap());
    let clients = [client(None), client(Some(&known))];
    let (listener, address) = listener().await;
    let gate = Gate::new(SMALL, &Arc::default(), |peer| peer.is_one_of(&[crate::authority::OPERATORS]));
    let handler = move |request: FullRequest| {
        let go = Arc::clone(&go);
        async move {
            if !Peer::from_extensions(request.extensions()).known {
                go.notified().await;
            }
            echo(request).await
        }
    };
    let tls = Arc::new(RwLock::new(server));
    (address, tokio::spawn(serve(listener, Some(tls), gate, no_body, handler)), clients)
}

async fn connect(
    address: SocketAddr,
    config: &Arc<rustls::ClientConfig>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from("s.test").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
    connector.connect(name, TcpStream::connect(address).await?).await
}

#[tokio::test]
async fn strangers_with_requests_and_handshakes_do_not_keep_known_peers_out() {
    let go = Arc::new(Notify::new());
    let (address, server, [stranger, known]) = guarded(Arc::clone(&go)).await;
    // More than there are places, of each kind.
    let mut open = Vec::new();
    for _ in 0..20 {
        if let Ok(mut stream) = connect(address, &stranger).await {
            let _ = stream.write_all(get("/").as_bytes()).await;
            open.push(stream);
        }
    }
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut stream = connect(address, &known).await.unwrap();
    stream.write_all(get("/").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    server.abort();
}

#[tokio::test]
async fn idle_connections_give_way() {
    let (listener, address) = listener().await;
    let gate = Gate::open(SMALL, &Arc::default());
    let server = tokio::spawn(serve(listener, None, gate, no_body, echo));
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(exchange(address, &get("/")).await.starts_with("HTTP/1.1 200 "));
    server.abort();
}

#[tokio::test]
async fn probes_are_answered_whatever_else_is_connected() {
    let (listener, address) = listener().await;
    let answer = |path: &str| text(StatusCode::OK, "text/plain", format!("{path} ok\n"));
    let server = tokio::spawn(probes(listener, answer));
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    for path in PROBES {
        let keep = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
        let answer = exchange(address, &keep).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("{path} ok\n")), "{answer}");
    }
    let post = "POST /healthz HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx";
    assert!(exchange(address, post).await.starts_with("HTTP/1.1 405 "));
    assert!(exchange(address, &get("/metrics")).await.starts_with("HTTP/1.1 404 "));
    let body = "GET /healthz HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx";
    assert!(exchange(address, body).await.starts_with("HTTP/1.1 413 "));
    eventually("the end of the idle ones", async || {
        let mut buffer = [0];
        idle.iter_mut().filter_map(|stream| stream.try_read(&mut buffer).ok()).next().map(|_| ())
    })
    .await;
    server.abort();
}

/// A server whose handler of `/slow` notifies `begun` and waits for `go`, and its [`Ending`].
async fn ending_server(
    begun: &Arc<Notify>,
    go: &Arc<Notify>,
) -> (SocketAddr, Ending, tokio::task::JoinHandle<()>) {
    let (listener, address) = listener().await;
    let ending = Ending::default();
    let gate = Gate::open(OPEN, &Arc::default()).ending(ending.watched());
    let (begun, go) = (Arc::clone(begun), Arc::clone(go));
    let handler = move |request: FullRequest| {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        async move {
            if request.uri().path() == "/slow" {
                begun.notify_one();
                go.notified().await;
            }
            echo(request).await
        }
    };
    (address, ending, tokio::spawn(serve(listener, None, gate, no_body, handler)))
}

const SLOW: &str = "GET /slow HTTP/1.1\r\nhost: h\r\n\r\n";

#[tokio::test]
async fn a_request_that_is_being_answered_survives_the_end() {
    let (begun, go) = (Arc::default(), Arc::default());
    let (address, ending, server) = ending_server(&begun, &go).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut used = TcpStream::connect(address).await.unwrap();
    used.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    used.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let request = tokio::spawn(exchange(address, SLOW));
    begun.notified().await;
    let ended = tokio::spawn(async move { ending.end(Duration::ZERO).await });
    eventually("nothing is accepted", || async { TcpStream::connect(address).await.is_err() }).await;
    let mut rest = String::new();
    used.read_to_string(&mut rest).await.unwrap();
    assert_eq!(idle.read_to_string(&mut rest).await.unwrap(), 0);
    assert!(!ended.is_finished(), "the end waits for the request");
    go.notify_one();
    let answer = request.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("0 bytes\n"), "{answer}");
    ended.await.unwrap();
    assert!(!server.is_finished(), "a supervised task must not return");
    server.abort();
}

#[tokio::test]
async fn a_server_that_leaves_answers_and_closes() {
    let (begun, go) = (Arc::default(), Arc::default());
    let (address, ending, server) = ending_server(&begun, &go).await;
    let before = tokio::spawn(exchange(address, SLOW));
    begun.notified().await;
    let ended = tokio::spawn(async move { ending.end(Duration::from_secs(3600)).await });
    // Without `connection: close` of the client: it is the server that closes.
    let open = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    eventually("answers close their connections", || async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(open.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).to_lowercase();
        assert!(answer.starts_with("http/1.1 200 "), "{answer}");
        answer.contains("connection: close")
    })
    .await;
    go.notify_one();
    assert!(before.await.unwrap().to_lowercase().contains("connection: close"));
    assert!(!ended.is_finished());
    ended.abort();
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn an_end_without_a_server_takes_no_time() {
    let start = tokio::time::Instant::now();
    Ending::default().end(Duration::from_secs(5)).await;
    let ending = Ending::default();
    drop(ending.watched());
    ending.end(Duration::from_secs(5)).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}
