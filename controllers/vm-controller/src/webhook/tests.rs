//! The certificate, as the API server sees it.

use neonvm_test_support::eventually;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

type Stream = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

/// A connection, checked as the API server checks it.
async fn connect(address: SocketAddr, authority: &str) -> Stream {
    let tls = neonvm_kit::tls::client(None, authority.as_bytes()).unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(address.ip().to_string()).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap()
}

/// The certificate that is served.
async fn served(address: SocketAddr, authority: &str) -> Vec<u8> {
    connect(address, authority).await.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Whether a connection is answered.
async fn is_answered(stream: &mut Stream) -> bool {
    let request = b"POST /nothing HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n";
    let mut answer = [0; 12];
    stream.write_all(request).await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && &answer == b"HTTP/1.1 404"
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_is_replaced_while_it_is_served() {
    let server = neonvm_test_cluster::ApiServer::start().await;
    let client = server.client.clone();
    let expiry = neonvm_kit::expiry::Expiry::new(&neonvm_kit::metrics::Registry::new());
    let (place, lifetimes) = ("neonvm-system", neonvm_api::lifetimes::Lifetimes::DEFAULT);
    let authority = Arc::new(Authority::open(&client, (place, lifetimes), &expiry).await.unwrap());
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let register = Some(Registration::Listener);
    let webhook = WebhookConfig {
        listen,
        names: Vec::new(),
        register,
        scope: WebhookScope::Evictions,
        autoscaler: false,
        client: None,
    };
    let config = Config::default();
    let (events, _) = neonvm_kit::event::channel(client.clone(), crate::request::MANAGER);
    let listener = TcpListener::bind(listen).await.unwrap();
    let address = listener.local_addr().unwrap();
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 1));
    let unusable = Webhooks::new(&client, &authority, (&webhook, &config), anywhere, events.clone());
    assert!(matches!(unusable, Err(Error::Url(_))));
    let mut hooks = Webhooks::new(&client, &authority, (&webhook, &config), address, events).unwrap();
    // It is due at once.
    hooks.validity.until = Validity::now();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&hooks.tls.read().unwrap()));
    let accepting = async { acceptor.accept(listener.accept().await.unwrap().0).await.unwrap() };
    let bundle = authority.bundle();
    let (first, _) = tokio::join!(served(address, &bundle), accepting);
    let pending = hooks.pending();
    assert!(!pending.is_over());
    let serving = tokio::spawn(hooks.run(listener, Ended::default()));
    let mut kept = connect(address, &authority.bundle()).await;
    eventually("another certificate, and a registration", async || {
        served(address, &authority.bundle()).await != first && pending.is_over()
    })
    .await;
    assert!(is_answered(&mut kept).await, "a connection that was open stays open");
    serving.abort();
}
