use rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::ca::Authority;

async fn shake_hands(client: &ClientConfig, server: &ServerConfig) -> (Vec<u8>, Vec<u8>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let name = ServerName::try_from("server.example").unwrap();
    let accepting = TlsAcceptor::from(Arc::new(server.clone())).accept(far);
    let connecting = TlsConnector::from(Arc::new(client.clone())).connect(name, near);
    let (accepted, connected) = tokio::join!(accepting, connecting);
    let (accepted, connected) = (accepted.unwrap(), connected.unwrap());
    let of_client = accepted.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let of_server = connected.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    (of_client, of_server)
}

/// Configurations stay, certificates change: also for clients that have been there before.
#[tokio::test]
async fn what_is_shown_changes_under_configurations_in_use() {
    let (authority, _) = Authority::generate().unwrap();
    let server = || authority.server("s", &["server.example".to_owned()]).unwrap();
    let client = || authority.client("c", &["people"]).unwrap();
    let shown = [Arc::new(Shown::new(&client()).unwrap()), Arc::new(Shown::new(&server()).unwrap())];
    let clients = crate::tls::client_with(Arc::clone(&shown[0]), authority.certificate().as_bytes()).unwrap();
    let servers = crate::tls::server_with(Arc::clone(&shown[1]), authority.certificate()).unwrap();
    let before = shake_hands(&clients, &servers).await;
    assert_eq!(before, shake_hands(&clients, &servers).await);
    shown[0].replace(&client()).unwrap();
    shown[1].replace(&server()).unwrap();
    let after = shake_hands(&clients, &servers).await;
    assert_ne!(before.0, after.0);
    assert_ne!(before.1, after.1);
    let mixed = Identity { certificate: client().certificate, key: client().key };
    assert!(shown[0].replace(&mixed).is_err());
    assert_eq!(after, shake_hands(&clients, &servers).await);
}
