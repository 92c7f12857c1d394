//! A connection to PostgreSQL: start-up and simple queries. Messages are read and written by `postgres-protocol`; bounds of
//! their number and size, and the deadline, are ours.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{DataRowBody, ErrorResponseBody, Header, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::authenticate::Login;
use super::{Error, Host, Target};

/// Longest message that is read, in bytes: answers are one number, errors a few lines.
const LONGEST: usize = 64 * 1024;
/// Most messages of one answer.
const MOST_MESSAGES: usize = 200;

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

pub struct Connection {
    stream: Box<dyn Stream>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects and logs in.
    pub async fn open(target: &Target) -> Result<Self, Error> {
        let opening = async {
            let mut connection = Self { stream: connect(target).await? };
            connection.start(target).await?;
            Ok(connection)
        };
        timeout(target.connect_timeout, opening)
            .await
            .unwrap_or_else(|_| Err(Error::Io(io::ErrorKind::TimedOut.into())))
    }

    async fn start(&mut self, target: &Target) -> Result<(), Error> {
        let mut request = BytesMut::new();
        let parameters = [
            ("user", target.user.as_str()),
            ("database", &target.database),
            ("application_name", &target.application),
        ];
        frontend::startup_message(parameters, &mut request)?;
        self.stream.write_all(&request).await?;
        let mut login = Login::new(target);
        for _ in 0..MOST_MESSAGES {
            match self.message().await? {
                Message::ErrorResponse(body) => return Err(Error::Server(complaint(&body))),
                Message::ReadyForQuery(_) if login.is_done() => return Ok(()),
                Message::ReadyForQuery(_) => return Err(Error::Protocol("ready too soon")),
                Message::ParameterStatus(_) | Message::BackendKeyData(_) | Message::NoticeResponse(_) => {}
                message => {
                    request.clear();
                    login.answer(&message, &mut request)?;
                    self.stream.write_all(&request).await?;
                }
            }
        }
        Err(Error::Protocol("no end of messages"))
    }

    /// Runs one statement. Returns the first column of its first row, if there is one.
    ///
    /// # Errors
    /// The server's error; the connection can be used further unless the error is one of the connection.
    pub async fn value(&mut self, statement: &str) -> Result<Option<String>, Error> {
        let mut request = BytesMut::new();
        frontend::query(statement, &mut request)?;
        self.stream.write_all(&request).await?;
        let (mut value, mut failed) = (None, None);
        for _ in 0..MOST_MESSAGES {
            match self.message().await? {
                Message::DataRow(row) => value = value.or(first_column(&row)),
                Message::ErrorResponse(body) => failed = Some(complaint(&body)),
                Message::ReadyForQuery(_) => {
                    return failed.map_or(Ok(value), |failed| Err(Error::Server(failed)));
                }
                Message::RowDescription(_)
                | Message::CommandComplete(_)
                | Message::EmptyQueryResponse
                | Message::NoticeResponse(_)
                | Message::ParameterStatus(_)
                | Message::NotificationResponse(_) => {}
                _ => return Err(Error::Protocol("an unknown message in an answer")),
            }
        }
        Err(Error::Protocol("no end of messages"))
    }

    /// Ends the session in the protocol's way, then closes it.
    pub async fn close(mut self) {
        let mut request = BytesMut::new();
        frontend::terminate(&mut request);
        let _ = self.stream.write_all(&request).await;
        let _ = self.stream.shutdown().await;
    }

    async fn message(&mut self) -> Result<Message, Error> {
        // A kind and a length, which counts itself; the library would reserve whatever length is sent.
        let mut bytes = BytesMut::zeroed(5);
        self.stream.read_exact(&mut bytes).await?;
        let length = Header::parse(&bytes).ok().flatten().map(|header| usize::try_from(header.len()));
        let Some(Ok(length)) = length.filter(|length| matches!(length, Ok(length) if *length <= LONGEST))
        else {
            return Err(Error::Protocol("a message of impossible length"));
        };
        bytes.resize(length.saturating_add(1), 0);
        self.stream.read_exact(bytes.get_mut(5..).unwrap_or_default()).await?;
        let message = Message::parse(&mut bytes).ok().flatten();
        message.ok_or(Error::Protocol("a message that cannot be read"))
    }
}

async fn connect(target: &Target) -> io::Result<Box<dyn Stream>> {
    let tcp = async |address: IpAddr| TcpStream::connect((address, target.port)).await;
    Ok(match &target.host {
        Host::Socket(directory) => {
            Box::new(UnixStream::connect(directory.join(format!(".s.PGSQL.{}", target.port))).await?)
        }
        Host::Address(address) => Box::new(tcp(*address).await?),
        Host::Local => match tcp(Ipv4Addr::LOCALHOST.into()).await {
            Ok(stream) => Box::new(stream),
            Err(_) => Box::new(tcp(Ipv6Addr::LOCALHOST.into()).await?),
        },
    })
}

/// Severity-less text of an error: its message (`M`) and its code (`C`).
fn complaint(body: &ErrorResponseBody) -> String {
    let field = |code: u8| {
        let field = body.fields().find(|field| Ok(field.type_() == code)).ok().flatten()?;
        let text = String::from_utf8_lossy(field.value_bytes());
        Some(text.chars().filter(|character| !character.is_control()).take(300).collect::<String>())
    };
    let text = field(b'M').unwrap_or_else(|| "an error without text".to_owned());
    field(b'C').map_or(text.clone(), |code| format!("{text} ({code})"))
}

/// The first column of a row; None if it is NULL or no text.
fn first_column(row: &DataRowBody) -> Option<String> {
    let range = row.ranges().next().ok()???;
    String::from_utf8(row.buffer().get(range)?.to_vec()).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    pub(in super::super) fn message(kind: u8, body: &[u8]) -> Message {
        Message::parse(&mut BytesMut::from(&framed(kind, body)[..])).unwrap().unwrap()
    }

    /// What is made of the messages of a server that sends these bytes.
    async fn answer(bytes: &[u8]) -> Result<Option<String>, Error> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(bytes).await.unwrap();
        let mut connection = Connection { stream: Box::new(ours) };
        let answering = async {
            theirs.shutdown().await.unwrap();
            let mut request = Vec::new();
            theirs.read_to_end(&mut request).await.map(|_| request)
        };
        let asking = async {
            let result = connection.value("SELECT 1").await;
            connection.close().await;
            result
        };
        let (result, request) = tokio::join!(asking, answering);
        assert_eq!(request.unwrap(), [framed(b'Q', b"SELECT 1\0"), framed(b'X', b"")].concat());
        result
    }

    #[tokio::test]
    async fn rows_and_errors_are_read() {
        let first =
            async |row: &[u8]| answer(&[framed(b'D', row), framed(b'Z', b"I")].concat()).await.unwrap();
        assert_eq!(first(b"\0\x01\0\0\0\x0242").await, Some("42".into()));
        assert_eq!(first(b"\0\x01\xff\xff\xff\xff").await, None);
        assert_eq!(first(b"\0\x01\0\0\0\x0942").await, None);
        let failed = async |error: &[u8]| {
            let result = answer(&[framed(b'E', error), framed(b'Z', b"I")].concat()).await;
            result.unwrap_err().to_string()
        };
        assert_eq!(failed(b"SERROR\0C42704\0Munknown\0\0").await, "PostgreSQL: unknown (42704)");
        assert_eq!(failed(b"").await, "PostgreSQL: an error without text");
    }

    #[tokio::test]
    async fn what_has_no_bound_is_not_read() {
        let long =
            [&[b'D'][..], &u32::try_from(LONGEST + 1).unwrap().to_be_bytes(), &vec![0; LONGEST]].concat();
        for length in [
            long,
            vec![b'D', 0xff, 0xff, 0xff, 0xff],
            vec![b'D', 0x7f, 0xff, 0xff, 0xff],
            vec![b'D', 0, 0, 0, 3],
        ] {
            assert_eq!(
                answer(&length).await.unwrap_err().to_string(),
                "PostgreSQL: protocol: a message of impossible length"
            );
        }
        let notices = framed(b'N', b"\0").repeat(MOST_MESSAGES + 1);
        assert_eq!(
            answer(&notices).await.unwrap_err().to_string(),
            "PostgreSQL: protocol: no end of messages"
        );
    }

    proptest! {
        #[test]
        fn any_messages_are_read(kind in "[A-Za-z0-9]", body in proptest::collection::vec(any::<u8>(), 0..60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let messages = [framed(kind.as_bytes()[0], &body), framed(b'Z', b"I")].concat();
            let _ = runtime.block_on(answer(&messages));
            if let Ok(Some(message)) = Message::parse(&mut BytesMut::from(&messages[..])) {
                let target = Target::parse("password=p").unwrap();
                let _ = Login::new(&target).answer(&message, &mut BytesMut::new());
            }
        }
    }
}
