//! A fake monitor with a behaviour that the test determines.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::{JoinHandle, JoinSet};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// What it does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// All is well.
    Good,
    /// Downscaling is denied.
    Deny,
    /// The connection is accepted, and nothing follows.
    NoHandshake,
    /// These bytes instead of an upgrade, and no end.
    Http(&'static str),
    /// A head without end instead of an upgrade.
    EndlessHead,
    Version(&'static str),
    /// No version.
    NoVersion,
    /// Frames without end instead of a version.
    PingsBeforeVersion,
    /// Requests are taken and not answered.
    Silence,
    /// Requests are answered with another kind of message.
    WrongKind,
    /// Requests are answered under another number.
    WrongNumber,
    /// Requests are answered twice.
    Twice,
    /// Requests are answered when the next one of their kind comes: the agent has abandoned them by then.
    Late,
    /// Whatever comes is sent back.
    Echo,
    /// Requests are answered with this text.
    Text(&'static str),
    /// Requests fail, as they do in a monitor that does not reach its database.
    Fail,
    /// Downscaling is agreed to without a status.
    NoStatus,
    /// The first request ends the connection.
    Close,
    /// The first request cuts the connection in the middle of a frame.
    Cut,
    /// A request is answered with a frame that is too large.
    Huge,
    /// This message without end, as fast as it can be sent.
    Flood(&'static str),
    /// Pings without end.
    Pings,
}

#[derive(Debug, Default)]
struct Book {
    connections: usize,
    messages: Vec<Value>,
}

#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    book: Arc<Mutex<Book>>,
    outbox: broadcast::Sender<String>,
    cut: broadcast::Sender<()>,
    task: JoinHandle<()>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Connection {
    mode: Arc<Mutex<Mode>>,
    book: Arc<Mutex<Book>>,
    outbox: broadcast::Receiver<String>,
    /// The answer to the request before, of each kind.
    before: BTreeMap<String, Value>,
}

impl Monitor {
    pub(crate) async fn start(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, book) = (Arc::new(Mutex::new(Mode::Good)), Arc::<Mutex<Book>>::default());
        let (outbox, cut) = (broadcast::channel(64).0, broadcast::channel(4).0);
        let task = tokio::spawn({
            let (mode, book, outbox, cut) =
                (Arc::clone(&mode), Arc::clone(&book), outbox.clone(), cut.clone());
            async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    while connections.try_join_next().is_some() {}
                    book.lock().unwrap().connections += 1;
                    let connection = Connection {
                        mode: Arc::clone(&mode),
                        book: Arc::clone(&book),
                        outbox: outbox.subscribe(),
                        before: BTreeMap::new(),
                    };
                    let mut cut = cut.subscribe();
                    connections.spawn(async move {
                        tokio::select! {
                            _ = connection.serve(stream) => {}
                            _ = cut.recv() => {}
                        }
                    });
                }
            }
        });
        Self { address, mode, book, outbox, cut, task }
    }

    /// What it does from now on, on connections that are open too.
    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Sends a message without a request.
    pub(crate) fn send(&self, message: &Value) {
        let _ = self.outbox.send(message.to_string());
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Connections that were made.
    pub(crate) fn connections(&self) -> usize {
        self.book().connections
    }

    /// Messages of this kind that came.
    pub(crate) fn messages(&self, kind: &str) -> Vec<Value> {
        self.book().messages.iter().filter(|message| message["type"] == kind).cloned().collect()
    }

    /// All messages that came.
    pub(crate) fn count(&self) -> usize {
        self.book().messages.len()
    }
}

type Socket = WebSocketStream<TcpStream>;
type Done = Option<()>;

impl Connection {
    fn mode(&self) -> Mode {
        self.mode.lock().unwrap().clone()
    }

    async fn serve(mut self, mut stream: TcpStream) -> Done {
        match self.mode() {
            Mode::NoHandshake => return rest(&mut stream).await,
            Mode::Http(bytes) => {
                stream.write_all(bytes.as_bytes()).await.ok()?;
                return rest(&mut stream).await;
            }
            Mode::EndlessHead => {
                stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n").await.ok()?;
                loop {
                    stream.write_all(b"X-More: and more and more\r\n").await.ok()?;
                }
            }
            _ => {}
        }
        let mut socket = tokio_tungstenite::accept_async(stream).await.ok()?;
        text(&mut socket).await?;
        match self.mode() {
            Mode::Version(reply) => send(&mut socket, reply.to_owned()).await?,
            Mode::NoVersion => {}
            Mode::PingsBeforeVersion => return pings(&mut socket).await,
            _ => send(&mut socket, json!({ "version": 2 }).to_string()).await?,
        }
        loop {
            match self.mode() {
                Mode::Flood(message) => loop {
                    send(&mut socket, message.to_owned()).await?;
                },
                Mode::Pings => return pings(&mut socket).await,
                _ => {}
            }
            tokio::select! {
                received = text(&mut socket) => {
                    let received: Value = serde_json::from_str(&received?).ok()?;
                    self.book.lock().unwrap().messages.push(received.clone());
                    self.answer(&mut socket, &received).await?;
                }
                message = self.outbox.recv() => send(&mut socket, message.ok()?).await?,
            }
        }
    }

    async fn answer(&mut self, socket: &mut Socket, request: &Value) -> Done {
        let mode = self.mode();
        if mode == Mode::Echo {
            return send(socket, request.to_string()).await;
        }
        let Some(good) = proper(request, mode == Mode::Deny) else { return Some(()) };
        let number = |to: Value| {
            let mut changed = good.clone();
            changed["id"] = to;
            changed.to_string()
        };
        match mode {
            Mode::Silence => Some(()),
            Mode::WrongKind => {
                let other = if request["type"] == "DownscaleRequest" {
                    "UpscaleConfirmation"
                } else {
                    "DownscaleResult"
                };
                let wrong = json!({ "type": other, "Ok": true, "Status": "", "id": request["id"] });
                send(socket, wrong.to_string()).await
            }
            Mode::WrongNumber => send(socket, number(json!(999_999))).await,
            Mode::Twice => {
                send(socket, good.to_string()).await?;
                send(socket, good.to_string()).await
            }
            Mode::Late => match self.before.insert(request["type"].to_string(), good.clone()) {
                Some(before) => send(socket, before.to_string()).await,
                None => Some(()),
            },
            Mode::Text(instead) => send(socket, instead.to_owned()).await,
            Mode::Fail => {
                let failed = json!({ "type": "InternalError", "error": "no database", "id": request["id"] });
                send(socket, failed.to_string()).await
            }
            Mode::NoStatus if request["type"] == "DownscaleRequest" => {
                send(socket, format!(r#"{{"type":"DownscaleResult","Ok":true,"id":{}}}"#, request["id"]))
                    .await
            }
            Mode::Close => socket.close(None).await.ok(),
            Mode::Cut => {
                socket.get_mut().write_all(&[0x81, 0x7d, b'{']).await.ok()?;
                None
            }
            Mode::Huge => send(socket, "x".repeat(1 << 20)).await,
            _ => send(socket, good.to_string()).await,
        }
    }
}

/// The answer that a request wants, if it wants one.
fn proper(request: &Value, deny: bool) -> Option<Value> {
    let id = &request["id"];
    match request["type"].as_str()? {
        "HealthCheck" => Some(json!({ "type": "HealthCheck", "id": id })),
        "UpscaleNotification" => Some(json!({ "type": "UpscaleConfirmation", "id": id })),
        "DownscaleRequest" => {
            let status = if deny { "memory is in use" } else { "fine" };
            Some(json!({ "type": "DownscaleResult", "Ok": !deny, "Status": status, "id": id }))
        }
        _ => None,
    }
}

async fn rest(stream: &mut TcpStream) -> Done {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await.ok()? > 0 {}
    None
}

async fn text(socket: &mut Socket) -> Option<String> {
    loop {
        match socket.next().await?.ok()? {
            Message::Text(text) => return Some(text.to_string()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}

async fn send(socket: &mut Socket, text: String) -> Done {
    socket.send(Message::Text(text.into())).await.ok()
}

async fn pings(socket: &mut Socket) -> Done {
    loop {
        socket.send(Message::Binary(vec![0; 16].into())).await.ok()?;
    }
}
