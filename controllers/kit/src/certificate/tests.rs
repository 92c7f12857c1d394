use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
    let trust = || Arc::new(Trust::new(authority.certificate()).unwrap());
    let clients = crate::tls::client_with(Arc::clone(&shown[0]), trust()).unwrap();
    let servers = crate::tls::server_with(Arc::clone(&shown[1]), trust()).unwrap();
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

/// A client and a server of a service, each with its certificate and trusted authorities.
struct Sides {
    shown: [Arc<Shown>; 2],
    trust: [Arc<Trust>; 2],
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Sides {
    fn new(authority: &Authority) -> Self {
        let shown = identities(authority).map(|identity| Arc::new(Shown::new(&identity).unwrap()));
        let trust = [(); 2].map(|()| Arc::new(Trust::new(authority.certificate()).unwrap()));
        let client = crate::tls::client_with(Arc::clone(&shown[0]), Arc::clone(&trust[0])).unwrap();
        let server = crate::tls::server_with(Arc::clone(&shown[1]), Arc::clone(&trust[1])).unwrap();
        Self { shown, trust, client: Arc::new(client), server: Arc::new(server) }
    }

    /// A connection on which data was exchanged.
    async fn connect(&self) -> Connection {
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("server.example").unwrap();
        let accepting = TlsAcceptor::from(Arc::clone(&self.server)).accept(far);
        let connecting = TlsConnector::from(Arc::clone(&self.client)).connect(name, near);
        let (accepted, connected) = tokio::join!(accepting, connecting);
        let mut both = Connection(connected.unwrap(), accepted.unwrap());
        both.talk().await;
        both
    }
}

fn identities(authority: &Authority) -> [Identity; 2] {
    [
        authority.client("c", &["people"]).unwrap(),
        authority.server("s", &["server.example".to_owned()]).unwrap(),
    ]
}

type Pipe = tokio::io::DuplexStream;

struct Connection(tokio_rustls::client::TlsStream<Pipe>, tokio_rustls::server::TlsStream<Pipe>);

impl Connection {
    async fn talk(&mut self) {
        self.0.write_all(b"?").await.unwrap();
        self.0.flush().await.unwrap();
        assert_eq!(self.1.read_u8().await.unwrap(), b'?');
        self.1.write_all(b"!").await.unwrap();
        self.1.flush().await.unwrap();
        assert_eq!(self.0.read_u8().await.unwrap(), b'!');
    }
}

/// An authority is handed over: in whatever order clients and servers receive each step, they can connect, and no
/// connection is lost.
#[tokio::test]
async fn an_authority_is_handed_over_under_configurations_in_use() {
    let [(old, _), (new, _)] = [(); 2].map(|()| Authority::generate().unwrap());
    let both = format!("{}{}", old.certificate(), new.certificate());
    for client_first in [true, false] {
        let sides = Sides::new(&old);
        let order = if client_first { [0, 1] } else { [1, 0] };
        let mut open = vec![sides.connect().await];
        for side in order {
            assert!(sides.trust[side].replace(&both).unwrap());
            assert!(!sides.trust[side].replace(&both).unwrap());
            open.push(sides.connect().await);
        }
        for side in order {
            sides.shown[side].replace(&identities(&new)[side]).unwrap();
            open.push(sides.connect().await);
        }
        for side in order {
            sides.trust[side].replace(new.certificate()).unwrap();
            open.push(sides.connect().await);
        }
        for connection in &mut open {
            connection.talk().await;
        }
        // What is no bundle changes nothing.
        assert!(sides.trust[0].replace("nothing").is_err());
        assert_eq!(sides.trust[0].bundle(), new.certificate());
        sides.connect().await;
    }
}

/// One that is signed in the same process is renewed as well.
#[tokio::test(start_paused = true)]
async fn who_holds_the_key_of_its_authority_renews_by_itself() {
    let (authority, _) = Authority::generate().unwrap();
    let authority = Arc::new(authority);
    let signs = Arc::clone(&authority);
    let mut own = Own::new(move || signs.server_for("s", &["server.example".to_owned()], 60)).unwrap();
    own.validity.until = own.validity.from;
    let shown = [Arc::new(Shown::new(&identities(&authority)[0]).unwrap()), own.shown()];
    let trust = || Arc::new(Trust::new(authority.certificate()).unwrap());
    let client = crate::tls::client_with(Arc::clone(&shown[0]), trust()).unwrap();
    let server = crate::tls::server_with(Arc::clone(&shown[1]), trust()).unwrap();
    let before = shake_hands(&client, &server).await;
    let keeping = tokio::spawn(own.keep());
    let mut after = before.clone();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        after = shake_hands(&client, &server).await;
        if after.1 != before.1 {
            break;
        }
    }
    assert_ne!(after.1, before.1);
    assert_eq!(after.0, before.0);
    keeping.abort();
}
