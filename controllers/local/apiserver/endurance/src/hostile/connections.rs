//! Connections that are opened and then misused.

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use super::Scene;
use super::witness::Witness;
use crate::kill::PATIENCE;

const HALF_OPEN: usize = 500;
const SLOW: usize = 50;
const DEAF: usize = 200;
const WRITES: usize = 5_000;
const SIZE: usize = 10 << 10;

/// Handshakes that stop after the first bytes; the server closes them after its 10 s.
pub(super) async fn half_open(scene: &Scene<'_>) -> anyhow::Result<()> {
    let mut open = JoinSet::new();
    for number in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(scene.access.address).await?;
        // Nothing; a record header of a ClientHello and no more; no TLS at all.
        let start: &[u8] = match number % 3 {
            0 => b"",
            1 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            _ => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        stream.write_all(start).await?;
        open.spawn(async move {
            let mut rest = Vec::new();
            // Reset or ended: closed is closed.
            stream.read_to_end(&mut rest).await.unwrap_or(0)
        });
    }
    let closed = tokio::time::timeout(PATIENCE, open.join_all()).await;
    closed.context("half-open handshakes stay open")?;
    Ok(())
}

/// Requests that arrive byte by byte, in their headers or in a body of the large kind.
pub(super) async fn slow(scene: &Scene<'_>, witness: &Witness) -> anyhow::Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..SLOW {
        let mut stream = scene.access.http1(false).await?;
        clients.spawn(async move {
            let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n";
            if number % 2 == 0 {
                let whole =
                    format!("{head}Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
                stream.write_all(whole.as_bytes()).await?;
            }
            for byte in head.as_bytes().iter().cycle() {
                stream.write_all(&[*byte]).await?;
                stream.flush().await?;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        });
    }
    // They are at it while the well-behaved client works, and while a large body of another client is taken.
    witness.rounds(3).await?;
    let api = Api::<ConfigMap>::namespaced(scene.process.client().await?, "default");
    let change = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "large": "x".repeat(600 << 10) } });
    let parameters = PatchParams::apply("hostile").force();
    let change = Patch::Apply(&change);
    let write = api.patch("large", &parameters, &change);
    tokio::time::timeout(PATIENCE / 2, write).await.context("a large body waits for slow ones")??;
    clients.shutdown().await;
    Ok(())
}

/// Opens watches of config maps and does not read them.
async fn deaf(scene: &Scene<'_>, query: &str) -> anyhow::Result<Vec<TlsStream<TcpStream>>> {
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        let mut stream = scene.access.http1(true).await?;
        let path = format!("/api/v1/namespaces/default/configmaps?watch=1&{query}");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        stream.flush().await?;
        deaf.push(stream);
    }
    Ok(deaf)
}

/// Watchers that ask for the state there is, tens of mebibytes each, and never read it.
pub(super) async fn deaf_to_state(scene: &Scene<'_>) -> anyhow::Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..20 {
        let api = Api::<ConfigMap>::namespaced(scene.process.client().await?, "default");
        writers.spawn(async move {
            for number in 0..WRITES / 20 {
                let mut object = ConfigMap::default();
                object.metadata.name = Some(format!("state-{writer}-{number}"));
                object.data = Some([("text".to_owned(), "x".repeat(SIZE))].into());
                api.create(&PostParams::default(), &object).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    let whole = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true";
    let open = (deaf(scene, "resourceVersion=0").await?, deaf(scene, whole).await?);
    // One that reads gets all of it meanwhile.
    let api = Api::<ConfigMap>::namespaced(scene.process.client().await?, "default");
    // The longest there is: how fast it reads is not what is asked.
    let mut events = api.watch(&WatchParams::default().timeout(290), "0").await?.boxed();
    for _ in 0..WRITES {
        let event =
            tokio::time::timeout(PATIENCE, events.try_next()).await.context("the state never comes")??;
        ensure!(matches!(event, Some(WatchEvent::Added(_))), "the state is {event:?}");
    }
    ensure!(open.0.len() + open.1.len() == 2 * DEAF, "all of them are still there");
    Ok(())
}

/// Watchers that ask and never read, while much is written.
pub(super) async fn deaf_watchers(scene: &Scene<'_>) -> anyhow::Result<()> {
    let deaf = deaf(scene, "resourceVersion=0").await?;
    let mut writers = JoinSet::new();
    for writer in 0..20 {
        let api = Api::<ConfigMap>::namespaced(scene.process.client().await?, "default");
        writers.spawn(async move {
            for turn in 0..WRITES / 20 {
                let text = format!("{turn:08}").repeat(SIZE / 8);
                let change =
                    serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text } });
                let name = format!("loud-{writer}");
                api.patch(&name, &PatchParams::apply("hostile").force(), &Patch::Apply(&change)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done?.context("a writer among watchers that never read")?;
    }
    ensure!(deaf.len() == DEAF, "all of them are still there");
    Ok(())
}
