use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const MIB: usize = 1 << 20;

fn reader(allowed: &[&str], change: impl FnOnce(&mut Config)) -> Reader {
    let scrape_allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
    let mut config = Config { scrape_allowed, ..Config::default() };
    change(&mut config);
    Reader::new(&config).unwrap()
}

fn endpoint(host: &str, port: u16) -> Endpoint {
    Endpoint { named: true, tls: false, host: host.to_owned(), port, path: "/metrics".to_owned() }
}

/// A listener that gives each connection to `serve`, and what counts them.
async fn listen<F, S>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (u16, Arc<AtomicUsize>)
where
    F: Future<Output = S> + Send + 'static,
    S: Send + 'static,
{
    let socket = TcpSocket::new_v4().unwrap();
    // A small send buffer, so that what was sent was read.
    socket.set_send_buffer_size(RECEIVE_BUFFER).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener: TcpListener = socket.listen(64).unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(stream));
        }
    });
    (port, count)
}

async fn answer(mut stream: TcpStream, answer: String) -> std::io::Result<TcpStream> {
    let _ = stream.read(&mut [0; 1024]).await?;
    stream.write_all(answer.as_bytes()).await?;
    Ok(stream)
}

#[tokio::test]
async fn what_listens_at_a_refused_address_cannot_be_found_out() {
    let (open, count) = listen(|stream| answer(stream, "HTTP/1.1 200 OK\r\n\r\nm 1\n".to_owned())).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let reader = reader(&["127.64.0.0/10"], |_| {});
    let share = reader.share();
    for host in ["127.0.0.1", "::ffff:127.0.0.1", "localhost", "0.0.0.0", "::1", "169.254.169.254", "::"] {
        let texts = [open, closed].map(|port| {
            let (reader, share) = (&reader, &share);
            async move {
                let missing = reader.read(&endpoint(host, port), share).await.unwrap_err();
                assert_eq!(missing.reason, MissingReason::Forbidden, "{host}: {missing}");
                assert!(missing.message.contains("--scrape-allow"), "{missing}");
                missing.message.replace(&port.to_string(), "PORT")
            }
        });
        let texts = join_all(texts).await;
        assert_eq!(texts[0], texts[1]);
    }
    assert_eq!(count.load(Ordering::Relaxed), 0, "nothing is connected to");
}

#[tokio::test]
async fn networks_of_services_are_refused_when_they_are_known() {
    let (port, count) = listen(|stream| answer(stream, "HTTP/1.1 200 OK\r\n\r\nm 1\n".to_owned())).await;
    let reader = reader(&["127.0.0.1"], |_| {});
    reader.refuse(&["127.0.0.0/8".parse().unwrap()]);
    let share = reader.share();
    assert_eq!(&reader.read(&endpoint("127.0.0.1", port), &share).await.unwrap().bytes[..], b"m 1\n");
    assert!(reader.read(&endpoint("127.0.0.2", port), &share).await.is_err());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn connections_that_fail_look_alike() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let reader = reader(&["127.0.0.0/8"], |_| {});
    let share = reader.share();
    let missing = reader.read(&endpoint("127.0.0.1", closed), &share).await.unwrap_err();
    assert!(missing.message.ends_with(": no connection"), "{missing}");
    // About a pod the whole reason is reported.
    let pod = Endpoint { named: false, ..endpoint("127.0.0.1", closed) };
    assert!(reader.read(&pod, &share).await.unwrap_err().message.contains("refused"));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (elsewhere, count) = listen(|stream| answer(stream, "HTTP/1.1 200 OK\r\n\r\nm 1\n".to_owned())).await;
    let to =
        format!("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{elsewhere}/\r\ncontent-length: 0\r\n\r\n");
    let (port, _) = listen(move |stream| answer(stream, to.clone())).await;
    let reader = reader(&["127.0.0.0/8"], |_| {});
    let missing = reader.read(&endpoint("127.0.0.1", port), &reader.share()).await.unwrap_err();
    assert_eq!(missing.reason, MissingReason::BadStatus, "{missing}");
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

/// Sends as much as is taken, and counts it.
async fn flood(mut stream: TcpStream, sent: Arc<AtomicUsize>) -> std::io::Result<()> {
    let _ = stream.read(&mut [0; 1024]).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 16777216\r\n\r\n").await?;
    // All but the last byte, and then nothing.
    let mut left = 16 * MIB - 1;
    let block = vec![b'#'; 16 << 10];
    while left > 0 {
        let count = stream.write(block.get(..left.min(block.len())).unwrap()).await?;
        left -= count;
        sent.fetch_add(count, Ordering::Relaxed);
    }
    std::future::pending().await
}

#[tokio::test]
async fn endpoints_that_flood_and_stall_get_little_memory() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let (port, count) = listen(move |stream| flood(stream, Arc::clone(&counted))).await;
    let reader = reader(&["127.0.0.0/8"], |config| config.scrape_timeout = Duration::from_secs(3));
    let share = reader.share();
    let at = endpoint("127.0.0.1", port);
    let all = join_all((0..32).map(|_| reader.read(&at, &share))).await;
    let texts: Vec<String> = all.into_iter().map(|done| done.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| text.starts_with("TimedOut")), "{texts:?}");
    let held_up =
        |bytes| texts.iter().filter(|text| text.contains(&format!("more than {bytes} bytes"))).count();
    // 24 and 7, unless the VM is so busy that they wait for less than half of their time.
    assert!(held_up(32 << 10) > 0 && held_up(32 << 10) <= 24 && held_up(1 << 20) <= 7, "{texts:?}");
    neonvm_test_support::eventually("32 connections", async || count.load(Ordering::Relaxed) == 32).await;
    // One large room, seven medium ones, 24 small ones; and what the kernel keeps on both sides. Without rooms it is 512 MiB.
    let mib = sent.load(Ordering::Relaxed) / MIB;
    assert!(mib <= 48, "{mib} MiB");
    // The next reconcile has all the room again.
    let large = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "#".repeat(15 * MIB));
    let (port, _) = listen(move |stream| answer(stream, large.clone())).await;
    let share = reader.share();
    let page = reader.read(&endpoint("127.0.0.1", port), &share).await;
    assert_eq!(page.unwrap().bytes.len(), 15 * MIB);
}

#[tokio::test(start_paused = true)]
async fn all_endpoints_of_one_object_have_one_time() {
    let (port, _) = listen(|stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let reader = reader(&["127.0.0.0/8"], |config| {
        config.scrapes_of_one = 2;
        config.scrape_turn = Duration::from_secs(5);
    });
    let (share, begun) = (reader.share(), tokio::time::Instant::now());
    let at = endpoint("127.0.0.1", port);
    let all = join_all((0..1000).map(|_| reader.read(&at, &share))).await;
    let late = |what: &str| all.iter().filter(|one| one.as_ref().unwrap_err().message.contains(what)).count();
    assert_eq!((late("did not answer within 2000 ms"), late("took all its time")), (6, 994));
    assert!(begun.elapsed() <= Duration::from_secs(7));
}
