//! Small HTTP servers: health, metrics, webhooks.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// The longest request that is read.
const LONGEST_BODY: usize = 16 << 20;

/// How long a TLS handshake may take.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);

/// A request with its body.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: http::Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// Answers requests.
pub(crate) type Handler = Arc<dyn Fn(Asked) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Listens. Port 0 takes any that is free. All of a machine's addresses are those of version 4 alone where there is no version 6.
pub(crate) async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), std::io::Error> {
    let all = address.is_ipv6() && address.ip().is_unspecified();
    let listener = match TcpListener::bind(address).await {
        Err(error) if all && error.kind() != std::io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await?
        }
        bound => bound?,
    };
    let local = listener.local_addr()?;
    Ok((listener, local))
}

/// Serves until the task is aborted; with TLS if there is an acceptor, which may change.
pub(crate) async fn serve(listener: TcpListener, tls: Option<watch::Receiver<TlsAcceptor>>, handler: Handler) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, say: it passes.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let tls = tls.as_ref().map(|tls| tls.borrow().clone());
        let handler = handler.clone();
        tokio::spawn(async move {
            match tls {
                None => connection(stream, handler).await,
                Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, handler).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                },
            }
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, handler: Handler) {
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(answer(request, &handler).await) }
    });
    let server = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = server.await {
        tracing::debug!(%error, "a connection broke");
    }
}

async fn answer(request: Request<Incoming>, handler: &Handler) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let answer = match Limited::new(body, LONGEST_BODY).collect().await {
        Ok(body) => {
            let asked = Asked { method: parts.method, path: parts.uri.path().to_owned(), body: body.to_bytes() };
            handler(asked).await
        }
        Err(error) => Answer::text(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}\n")),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status;
    let content_type = http::HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}
