//! gRPC over Unix sockets. Of tonic only its codec: its own server and client would bring a router and a second connection pool.

use std::path::Path;

use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

/// A connection to a gRPC server.
#[derive(Debug)]
pub(crate) struct Client {
    sender: hyper::client::conn::http2::SendRequest<Body>,
}

impl Client {
    /// Connects to the socket at `path`.
    pub(crate) async fn connect(path: &Path) -> Result<Self, tonic::Status> {
        let unavailable = |error: &dyn std::fmt::Display| {
            tonic::Status::unavailable(format!("{}: {error}", path.display()))
        };
        let stream = UnixStream::connect(path).await.map_err(|error| unavailable(&error))?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|error| unavailable(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        Ok(Self { sender })
    }

    /// A caller, once the connection takes a request.
    async fn ready(
        &self,
    ) -> Result<
        Grpc<impl tonic::client::GrpcService<Body, ResponseBody = Incoming, Future: Send> + use<>>,
        tonic::Status,
    > {
        let sender = self.sender.clone();
        let service = tower::service_fn(move |request| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        });
        let mut grpc = Grpc::with_origin(service, http::Uri::from_static("http://localhost"));
        grpc.ready().await.map_err(|_| tonic::Status::unavailable("the connection is closed"))?;
        Ok(grpc)
    }

    pub(crate) async fn unary<Q, A>(&self, method: &'static str, request: Q) -> Result<A, tonic::Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(method);
        let response = grpc.unary(tonic::Request::new(request), path, ProstCodec::<Q, A>::default()).await?;
        Ok(response.into_inner())
    }

    /// One request, a stream of responses.
    #[cfg(test)]
    pub(crate) async fn stream<Q, A>(
        &self,
        method: &'static str,
        request: Q,
    ) -> Result<tonic::Streaming<A>, tonic::Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(method);
        let codec = ProstCodec::<Q, A>::default();
        Ok(grpc.server_streaming(tonic::Request::new(request), path, codec).await?.into_inner())
    }
}

/// Serves every connection with `answer`; returns when the socket fails. All connections end with this future.
pub(crate) async fn serve<F>(
    listener: UnixListener,
    answer: impl Fn(http::Request<Incoming>) -> F + Clone + Send + 'static,
) -> std::io::Error
where
    F: Future<Output = http::Response<Body>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => return error,
            },
            Some(_) = connections.join_next() => continue,
        };
        let answer = answer.clone();
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let response = answer(request);
                async move { Ok::<_, std::convert::Infallible>(response.await) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}
