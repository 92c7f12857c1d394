//! Bodies that are wrong in some way.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Scene;
use crate::raw::RawResponse;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// Larger than anything a server takes.
const HUGE: usize = 100 << 20;

fn expect(what: &str, answer: &RawResponse, code: u16) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(&answer.body);
    let start: String = text.chars().take(300).collect();
    ensure!(answer.code == code, "{what}: answered {} {start}", answer.code);
    let status: Value = serde_json::from_slice(&answer.body).with_context(|| format!("{what}: {start}"))?;
    if code >= 400 {
        ensure!(status.get("kind").and_then(Value::as_str) == Some("Status"), "{what}: {start}");
        ensure!(status.get("code").and_then(Value::as_u64) == Some(u64::from(code)), "{what}: {start}");
    }
    Ok(())
}

/// Bodies that cannot be read, each answered with a `Status`.
pub(super) async fn malformed(scene: &Scene<'_>) -> anyhow::Result<()> {
    let json = "application/json";
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
    let object = |rest: &str| {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"bad\"}},{rest}}}")
    };
    let cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("empty", json, Vec::new()),
        ("no JSON", json, b"hello".to_vec()),
        ("cut off", json, b"{\"apiVersion\":\"v1\",\"kind\":".to_vec()),
        ("bytes", json, (0..=255).collect()),
        ("no UTF-8 outside texts", json, b"{\xff\xfe:1}".to_vec()),
        ("a list", json, b"[]".to_vec()),
        ("null", json, b"null".to_vec()),
        ("10,000 lists", json, deep("[", "]").into_bytes()),
        ("10,000 objects", json, deep("{\"a\":", "}").into_bytes()),
        ("10,000 lists deep in a field", json, object(&format!("\"data\":{}", deep("[", "]"))).into_bytes()),
        ("10,000 open lists", json, "[".repeat(10_000).into_bytes()),
        ("number for text", json, object("\"data\":{\"a\":1}").into_bytes()),
        (
            "another kind",
            json,
            b"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"bad\"}}".to_vec(),
        ),
    ];
    for (what, content_type, body) in &cases {
        let answer = scene.access.post(PATH, content_type, body).await.context(*what)?;
        expect(what, &answer, 400)?;
    }
    let answer = scene.access.post(PATH, "application/x-nonsense", b"{}").await?;
    expect("unknown media type", &answer, 415)?;
    many_fields(scene).await
}

/// Thousands of known and unknown fields; invalid UTF-8 in a text.
async fn many_fields(scene: &Scene<'_>) -> anyhow::Result<()> {
    let data: Vec<String> = (0..5_000).map(|n| format!("\"k{n}\":\"v\"")).collect();
    let unknown: Vec<String> = (0..5_000).map(|n| format!("\"unknown{n}\":{n}")).collect();
    let body = |name: &str, rest: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\"}},{rest}}}"
        )
        .into_bytes()
    };
    let json = "application/json";
    let known = body("many", &format!("\"data\":{{{}}}", data.join(",")));
    expect("5,000 keys", &scene.access.post(PATH, json, &known).await?, 201)?;
    let answer = scene.access.post(PATH, json, &body("warned", &unknown.join(","))).await?;
    expect("5,000 unknown fields", &answer, 201)?;
    // A client that takes a hundred header lines, as most do, must be able to read the answer.
    let lines = answer.head.lines().count();
    ensure!(lines <= 100, "an answer of {lines} header lines");
    let strict = format!("{PATH}?fieldValidation=Strict");
    expect(
        "5,000 refused fields",
        &scene.access.post(&strict, json, &body("strict", &unknown.join(","))).await?,
        400,
    )?;
    let mut text = body("bytes", "\"data\":{\"a\":\"@\"}");
    for byte in text.iter_mut().filter(|byte| **byte == b'@') {
        *byte = 0xff;
    }
    let answer = scene.access.post(PATH, json, &text).await?;
    ensure!(matches!(answer.code, 201 | 400), "invalid UTF-8 in a text is answered {}", answer.code);
    String::from_utf8(answer.body).context("invalid UTF-8 comes back")?;
    Ok(())
}

/// Bodies above the limit, announced and not; just below it, many at once.
pub(super) async fn large(scene: &Scene<'_>) -> anyhow::Result<()> {
    for head in [format!("Content-Length: {HUGE}"), "Transfer-Encoding: chunked".to_owned()] {
        let mut stream = scene.access.http1(false).await?;
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{head}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let chunked = head.starts_with("Transfer");
        let sending = tokio::spawn(async move {
            let mut sent = 0;
            let filler = vec![b' '; 1 << 16];
            while sent < HUGE {
                if chunked && writer.write_all(b"10000\r\n").await.is_err() {
                    break;
                }
                if writer.write_all(&filler).await.is_err()
                    || (chunked && writer.write_all(b"\r\n").await.is_err())
                {
                    break;
                }
                sent += filler.len();
            }
            sent
        });
        let mut answer = vec![0; 4096];
        let read = tokio::time::timeout(crate::kill::PATIENCE, reader.read(&mut answer))
            .await
            .context("no answer")?;
        // The answer may be lost when the connection is closed under unread data; then closing is the answer.
        if let Ok(read) = read {
            let text = String::from_utf8_lossy(answer.get(..read).unwrap_or_default()).into_owned();
            ensure!(read == 0 || text.contains(" 413 "), "{head}: answered {text}");
        }
        drop(reader);
        let sent =
            tokio::time::timeout(crate::kill::PATIENCE, sending).await.context("the server reads on")??;
        ensure!(sent < HUGE, "the server read all of it");
    }
    near_limit(scene).await
}

/// Fifty bodies of almost 3 MiB at once; those that a ConfigMap cannot hold are refused as invalid.
async fn near_limit(scene: &Scene<'_>) -> anyhow::Result<()> {
    let mut posts = tokio::task::JoinSet::new();
    for number in 0..50 {
        let api = Api::<ConfigMap>::namespaced(scene.process.client().await?, "default");
        posts.spawn(async move {
            let mut body = ConfigMap::default();
            body.metadata.name = Some(format!("near-{number}"));
            body.data = Some([("a".to_owned(), "x".repeat((3 << 20) - 4096))].into());
            api.create(&PostParams::default(), &body).await
        });
    }
    while let Some(done) = posts.join_next().await {
        match done? {
            Err(kube::Error::Api(status)) => ensure!(status.code == 422, "refused as {status:?}"),
            other => anyhow::bail!("a ConfigMap of 3 MiB is answered with {other:?}"),
        }
    }
    Ok(())
}
