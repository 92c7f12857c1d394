//! Misuse of HTTP/2, frame by frame (RFC 9113).

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Scene;
use crate::kill::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// `END_STREAM | END_HEADERS`
const WHOLE: u8 = 5;
/// `:method GET`, `:scheme https`, `:path /`, `:authority localhost`, in HPACK (RFC 7541).
const REQUEST: &[u8] = b"\x82\x87\x84\x41\x09localhost";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut bytes = length.get(1..).unwrap_or_default().to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

async fn read(reader: &mut ReadHalf<TlsStream<TcpStream>>) -> std::io::Result<Frame> {
    let mut head = [0; 9];
    reader.read_exact(&mut head).await?;
    let [a, b, c, kind, ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    reader.read_exact(&mut payload).await?;
    Ok(Frame { kind, payload })
}

/// Streams that are opened and reset at once (CVE-2023-44487): the server sends `GOAWAY` with `ENHANCE_YOUR_CALM`, or closes
/// the connection.
pub(super) async fn rapid_reset(scene: &Scene<'_>) -> anyhow::Result<()> {
    for _ in 0..5 {
        let (mut reader, mut writer) = tokio::io::split(scene.access.http2().await?);
        let sending = tokio::spawn(async move {
            writer.write_all(PREFACE).await?;
            writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
            for stream in (1..200_000).step_by(2) {
                let mut both = frame(HEADERS, WHOLE, stream, REQUEST);
                both.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                writer.write_all(&both).await?;
            }
            std::io::Result::Ok(())
        });
        let mut calmed = false;
        let reading = async {
            while let Ok(frame) = read(&mut reader).await {
                // Last stream, then the error code: ENHANCE_YOUR_CALM is 11.
                calmed |= frame.kind == GOAWAY && frame.payload.get(4..8) == Some(&[0, 0, 0, 11]);
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.context("the server endures 100,000 resets")?;
        let sent = sending.await?;
        ensure!(calmed || sent.is_err(), "the server took 100,000 resets without a word");
    }
    Ok(())
}

/// A thousand requests at once where 250 streams are allowed: answered or refused each, and the connection lives.
pub(super) async fn too_many(scene: &Scene<'_>) -> anyhow::Result<()> {
    const STREAMS: u32 = 1_000;
    let (mut reader, mut writer) = tokio::io::split(scene.access.http2().await?);
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    for number in 0..STREAMS {
        bytes.extend(frame(HEADERS, WHOLE, 2 * number + 1, REQUEST));
    }
    writer.write_all(&bytes).await?;
    let (mut answered, mut refused) = (0, 0);
    while answered + refused < STREAMS {
        let frame = tokio::time::timeout(PATIENCE, read(&mut reader)).await.context("no answer")?;
        match frame {
            Ok(frame) if frame.kind == HEADERS => answered += 1,
            Ok(frame) if frame.kind == RST_STREAM => refused += 1,
            Ok(frame) if frame.kind == GOAWAY => return Ok(()),
            Ok(_) => {}
            Err(error) => bail!("closed after {answered} answers and {refused} refusals: {error}"),
        }
    }
    ensure!(answered >= 250, "{answered} answers, {refused} refusals");
    Ok(())
}
