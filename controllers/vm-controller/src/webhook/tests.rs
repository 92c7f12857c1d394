//! The certificate, as the API server sees it.

use neonvm_test_support::eventually;

use rustls::pki_types::ServerName;

use super::*;

/// The certificate that is served, checked as the API server checks it.
async fn served(address: SocketAddr, authority: &str) -> Vec<u8> {
    let tls = neonvm_kit::tls::client(None, authority.as_bytes()).unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(address.ip().to_string()).unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_is_replaced_while_it_is_served() {
    let server = neonvm_test_cluster::ApiServer::start().await;
    let client = server.client.clone();
    let authority = Arc::new(Authority::open(&client, "neonvm-system").await.unwrap());
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
    let (events, _) = neonvm_kit::event::channel(client.clone(), crate::context::MANAGER);
    let listener = TcpListener::bind(listen).await.unwrap();
    let address = listener.local_addr().unwrap();
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 1));
    let unusable = Webhooks::new(&client, &authority, (&webhook, &config), anywhere, events.clone());
    assert!(matches!(unusable, Err(Error::Url(_))));
    let mut hooks = Webhooks::new(&client, &authority, (&webhook, &config), address, events).unwrap();
    hooks.renewal = Duration::from_millis(100);
    let pending = hooks.pending();
    assert!(!pending.is_over());
    let serving = tokio::spawn(hooks.run(listener));
    let first = served(address, authority.certificate()).await;
    eventually("another certificate, and a registration", async || {
        served(address, authority.certificate()).await != first && pending.is_over()
    })
    .await;
    serving.abort();
}
