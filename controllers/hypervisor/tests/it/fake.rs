//! A fake QEMU with output that the test determines.

use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, split,
};

pub(crate) struct Fake {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: Option<WriteHalf<DuplexStream>>,
}

pub(crate) const GREETING: &str =
    r#"{"QMP":{"version":{"qemu":{"micro":1,"minor":2,"major":7}},"capabilities":[]}}"#;

/// A stream for the session, and the other end.
pub(crate) fn pair() -> (DuplexStream, Fake) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = split(theirs);
    (ours, Fake { read: BufReader::new(read), write: Some(write) })
}

impl Fake {
    pub(crate) async fn send(&mut self, text: &str) {
        let write = self.write.as_mut().unwrap();
        write.write_all(text.as_bytes()).await.unwrap();
        write.flush().await.unwrap();
    }

    pub(crate) async fn line(&mut self, text: &str) {
        self.send(&format!("{text}\r\n")).await;
    }

    /// The next command: its number and name.
    pub(crate) async fn command(&mut self) -> (u64, String) {
        let mut line = String::new();
        assert_ne!(self.read.read_line(&mut line).await.unwrap(), 0, "the session has closed the stream");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        (value["id"].as_u64().unwrap(), value["execute"].as_str().unwrap().to_owned())
    }

    pub(crate) async fn answer(&mut self, id: u64, value: &str) {
        self.line(&format!(r#"{{"return": {value}, "id": {id}}}"#)).await;
    }

    /// Greets and takes the capabilities.
    pub(crate) async fn greet(&mut self) {
        self.line(GREETING).await;
        let (id, name) = self.command().await;
        assert_eq!(name, "qmp_capabilities");
        self.answer(id, "{}").await;
    }
}
