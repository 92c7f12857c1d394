use std::net::SocketAddr;

use neonvm_types::guest::ATTACH_PATH;
use proptest::prelude::*;
use tokio::net::unix::pipe::pipe;
use tokio::task::{JoinHandle, LocalSet};

use super::*;

/// The workload's ends of its pipes, the reading ends of its log, and the daemon.
struct World {
    input: Receiver,
    output: Sender,
    errors: Sender,
    logs: (Receiver, Receiver),
    address: SocketAddr,
    copied: JoinHandle<()>,
}

impl World {
    fn start(with_input: bool) -> Self {
        let (to_input, input) = pipe().unwrap();
        let ((output, from_output), (errors, from_errors)) = (pipe().unwrap(), pipe().unwrap());
        let ((log, read_log), (log_errors, read_errors)) = (pipe().unwrap(), pipe().unwrap());
        let (sender, client) = oneshot::channel();
        let door = Door(Arc::new(Mutex::new(Some(sender))));
        let streams = Streams {
            input: with_input.then_some(to_input),
            output: (from_output, log),
            errors: (from_errors, log_errors),
            client: Some(client),
        };
        let listener = http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let handler = move |request| std::future::ready(door.open(request));
        tokio::task::spawn_local(http::serve(listener, 4, Vec::new(), handler));
        let copied = tokio::task::spawn_local(streams.copy());
        Self { input, output, errors, logs: (read_log, read_errors), address, copied }
    }

    /// A connection after the response's head, and the head.
    async fn connect(&self) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET {ATTACH_PATH} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: {ATTACH_PROTOCOL}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        (stream, String::from_utf8(head).unwrap())
    }
}

/// Runs a world to its end.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

async fn all(mut from: Receiver) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// What a client gets until the end: output and errors.
async fn received(stream: &mut (impl AsyncRead + Unpin)) -> (Vec<u8>, Vec<u8>) {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    loop {
        let mut header = [0; FRAME_HEADER];
        stream.read_exact(&mut header).await.unwrap();
        let (frame, length) = read_frame_header(header).unwrap();
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await.unwrap();
        match frame {
            Frame::Output => output.extend(bytes),
            Frame::Errors => errors.extend(bytes),
            Frame::End => return (output, errors),
            Frame::Input => panic!("input from the guest"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A workload that copies its input, and what it writes of its own: every byte, once, in order, in the log as well.
    #[test]
    fn every_byte_arrives(
        input in proptest::collection::vec(any::<u8>(), 0..200_000),
        errors in proptest::collection::vec(any::<u8>(), 0..100_000),
        cut in 1_usize..LONGEST_FRAME,
    ) {
        run(async {
            let world = World::start(true);
            let (stream, head) = world.connect().await;
            assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
            let (mut from, mut to) = stream.into_split();
            let World { input: mut read, output: mut write, errors: mut write_errors, logs, copied, .. } = world;
            let echo = async {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = read.read(&mut buffer).await {
                    write.write_all(&buffer[..count]).await.unwrap();
                }
                drop(write);
            };
            let complain = async {
                write_errors.write_all(&errors).await.unwrap();
                drop(write_errors);
            };
            let send = async {
                for piece in input.chunks(cut) {
                    to.write_all(&frame_header(Frame::Input, piece.len())).await.unwrap();
                    to.write_all(piece).await.unwrap();
                }
                to.write_all(&frame_header(Frame::End, 0)).await.unwrap();
            };
            let (_, _, _, got, log, log_errors) =
                tokio::join!(echo, complain, send, received(&mut from), all(logs.0), all(logs.1));
            assert_eq!((&got.0, &got.1), (&input, &errors));
            assert_eq!((&log, &log_errors), (&input, &errors));
            drop((from, to));
            copied.await.unwrap();
        });
    }
}

#[test]
fn the_end_waits_for_the_client_and_there_is_one() {
    run(async {
        let world = World::start(true);
        let (mut stream, _) = world.connect().await;
        let (_, head) = world.connect().await;
        assert!(head.starts_with("HTTP/1.1 409 "), "{head}");
        let World { input, mut output, errors, copied, .. } = world;
        output.write_all(b"half a line").await.unwrap();
        // The workload ends without having read its input.
        drop((input, output, errors));
        stream.write_all(&frame_header(Frame::Input, 3)).await.unwrap();
        stream.write_all(b"abc").await.unwrap();
        assert_eq!(received(&mut stream).await.0, b"half a line");
        stream.write_all(&frame_header(Frame::End, 0)).await.unwrap();
        assert!(!copied.is_finished());
        drop(stream);
        copied.await.unwrap();
    });
}

#[test]
fn a_client_that_is_gone_ends_the_input_and_not_the_output() {
    run(async {
        let world = World::start(true);
        let (stream, _) = world.connect().await;
        drop(stream);
        let World { input, mut output, errors, logs, copied, .. } = world;
        assert!(all(input).await.is_empty());
        let text = vec![b'x'; 300_000];
        let write = async {
            output.write_all(&text).await.unwrap();
            drop((output, errors));
        };
        let ((), log) = tokio::join!(write, all(logs.0));
        assert_eq!(log, text);
        copied.await.unwrap();
    });
}

#[test]
fn what_is_no_client_of_ours_is_refused() {
    run(async {
        let world = World::start(false);
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(b"GET /attach HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut head = [0; 13];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 426 ");
        // And the next one is taken. What it sends against the protocol is the end of its input.
        let (mut stream, head) = world.connect().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        stream.write_all(&[9; 64]).await.unwrap();
        drop((world.input, world.output, world.errors));
        world.copied.await.unwrap();
    });
}
