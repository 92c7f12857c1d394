//! Connections to ports of pods.

use std::sync::Arc;

use http::StatusCode;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use tokio::sync::Mutex;

use super::body::{Query, Response, text};
use super::port::{Stream, connect};
use super::websocket::{self, Opening};
use crate::node::Node;
use crate::pod::Handle;

/// Most ports of a connection.
const MOST: usize = 64;

/// `/portForward/…`
pub(super) fn serve(
    node: &Arc<Node>,
    handle: &Arc<Handle>,
    query: &Query,
    request: hyper::Request<Incoming>,
) -> Response {
    const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
    let known = [TUNNEL, "v4.channel.k8s.io", "portforward.k8s.io"];
    let (opening, response) = match websocket::accept(request, &known) {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    let (node, handle) = (Arc::clone(node), Arc::clone(handle));
    if opening.protocol == TUNNEL {
        tokio::spawn(super::spdy::serve(node, handle, opening));
        return response;
    }
    let texts: Vec<String> =
        query.all("ports").iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
    let ports: Result<Vec<u16>, _> = texts.iter().map(|port| port.parse()).collect();
    match ports {
        Ok(ports) if !ports.is_empty() && ports.len() <= MOST => {
            tokio::spawn(channels(node, handle, opening, ports));
            response
        }
        _ => text(StatusCode::BAD_REQUEST, "query parameter \"ports\" must name 1 to 64 ports"),
    }
}

/// Two channels for each port: data, and errors. Each begins with the port.
async fn channels(node: Arc<Node>, handle: Arc<Handle>, opening: Opening, ports: Vec<u16>) {
    let Some((sender, mut receiver)) = opening.open().await else { return };
    let sender = Arc::new(Mutex::new(sender));
    let mut writers: Vec<Option<tokio::io::WriteHalf<Box<dyn Stream>>>> = Vec::new();
    let mut readers = tokio::task::JoinSet::new();
    for (index, port) in ports.iter().enumerate() {
        let data = u8::try_from(index * 2).unwrap_or(u8::MAX - 1);
        let mut out = sender.lock().await;
        let begun =
            out.send(data, &port.to_le_bytes()).await && out.send(data + 1, &port.to_le_bytes()).await;
        drop(out);
        if !begun {
            return;
        }
        match connect(&node, &handle, *port).await {
            Ok(stream) => {
                let (mut reader, writer) = tokio::io::split(stream);
                writers.push(Some(writer));
                let sender = Arc::clone(&sender);
                readers.spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
                        let bytes = buffer.get(..count).unwrap_or_default();
                        if !sender.lock().await.send(data, bytes).await {
                            return;
                        }
                    }
                });
            }
            Err(why) => {
                writers.push(None);
                sender.lock().await.send(data + 1, why.as_bytes()).await;
            }
        }
    }
    let incoming = async {
        while let Some(message) = receiver.next().await {
            let Some((channel, bytes)) = message.split_first() else { continue };
            let slot = writers.get_mut(usize::from(*channel) / 2).filter(|_| channel % 2 == 0);
            if let Some(Some(writer)) = slot
                && (writer.write_all(bytes).await.is_err() || writer.flush().await.is_err())
            {
                return;
            }
        }
    };
    let outgoing = async { while readers.join_next().await.is_some() {} };
    tokio::select! {
        () = incoming => {}
        () = outgoing => {}
    }
    readers.shutdown().await;
    if let Some(sender) = Arc::into_inner(sender) {
        websocket::end(sender.into_inner(), receiver).await;
    }
}
