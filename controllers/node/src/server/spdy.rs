//! SPDY/3.1 inside a WebSocket, as newer clients forward ports.

use std::sync::Arc;

use super::websocket::Opening;
use crate::node::Node;
use crate::pod::Handle;

/// Serves a tunnel until the client is gone.
pub(super) async fn serve(_node: Arc<Node>, _handle: Arc<Handle>, opening: Opening) {
    let _ = opening.open().await;
}
