//! A simulated autoscaler-agent: the other end of the monitor's websocket.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use super::guest::Guest;

/// Port of the monitor in the guest.
pub(crate) const PORT: u16 = 10301;
const MIB: u64 = 1 << 20;

/// A connection of protocol v1.0.
pub(crate) struct Agent {
    socket: WebSocket<TcpStream>,
    id: u64,
}

impl Agent {
    /// Connects as soon as the monitor serves.
    pub(crate) fn connect(guest: &Guest) -> Self {
        let connect = || -> Result<_, String> {
            let address = (Ipv4Addr::LOCALHOST, guest.port(PORT));
            let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
            stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|error| error.to_string())?;
            let (mut socket, _) = client("ws://vm/monitor", stream).map_err(|error| error.to_string())?;
            socket.send(Message::text(r#"{"min":1,"max":1}"#)).map_err(|error| error.to_string())?;
            let answer = socket.read().map_err(|error| error.to_string())?;
            let text = answer.to_text().map_err(|error| error.to_string())?;
            if text == r#"{"version":1}"# { Ok(socket) } else { Err(text.to_owned()) }
        };
        Self { socket: guest.until("the monitor", connect), id: 0 }
    }

    /// The answer to the request for a smaller size.
    pub(crate) fn shrink(&mut self, mebibytes: u64) -> String {
        let target = mebibytes * MIB;
        self.request("DownscaleRequest", &format!(r#"{{"target":{{"cpu":1,"mem":{target}}}}}"#))
    }

    /// The answer to the notification of a larger size.
    pub(crate) fn grow(&mut self, mebibytes: u64) -> String {
        let granted = mebibytes * MIB;
        self.request("UpscaleNotification", &format!(r#"{{"granted":{{"cpu":1,"mem":{granted}}}}}"#))
    }

    fn request(&mut self, kind: &str, content: &str) -> String {
        self.id += 2;
        let text = format!(r#"{{"content":{content},"type":"{kind}","id":{}}}"#, self.id);
        self.socket.send(Message::text(text)).unwrap();
        let end = format!(r#""id":{}}}"#, self.id);
        loop {
            // Requests of the monitor come in between.
            if let Message::Text(text) = self.socket.read().expect("an answer of the monitor")
                && text.ends_with(&end)
                && !text.contains("UpscaleRequest")
            {
                return text.to_string();
            }
        }
    }
}
