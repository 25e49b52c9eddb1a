//! Small HTTP servers: health, metrics, webhooks.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a body may take to come; the API server waits no longer for an answer.
const BODY: Duration = Duration::from_secs(30);
/// The most connections at once; others wait.
const MOST_CONNECTIONS: usize = 512;
/// Memory is counted in such blocks.
const BLOCK: usize = 1 << 10;

/// How much a server reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// The longest body, in bytes.
    pub(crate) body: usize,
    /// All bodies together that are read or answered at one time, in bytes.
    pub(crate) together: usize,
}

impl Limits {
    /// For requests that say all with their path.
    pub(crate) const SMALL: Self = Self { body: 64 << 10, together: 4 << 20 };
    /// For objects.
    pub(crate) const OBJECTS: Self = Self { body: 16 << 20, together: 64 << 20 };
}

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
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<watch::Receiver<TlsAcceptor>>,
    limits: Limits,
    handler: Handler,
) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let server = Server { handler, limits, memory: Arc::new(Semaphore::new(limits.together / BLOCK)) };
    // A connection that cannot be accepted now may be later; only the first of a row is told.
    let mut failing = false;
    while let Ok(held) = connections.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => {
                failing = false;
                stream
            }
            Err(error) => {
                // Too many open files, say: it passes.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "connections cannot be accepted; trying again");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let tls = tls.as_ref().map(|tls| tls.borrow().clone());
        let server = server.clone();
        tokio::spawn(async move {
            let _held = held;
            match tls {
                None => connection(stream, server).await,
                Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, server).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                },
            }
        });
    }
}

/// What all connections share.
#[derive(Clone)]
struct Server {
    handler: Handler,
    limits: Limits,
    /// The memory that bodies may still take, in blocks.
    memory: Arc<Semaphore>,
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, server: Server) {
    let service = service_fn(move |request: Request<Incoming>| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let server = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = server.await {
        tracing::debug!(%error, "a connection broke");
    }
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let read = tokio::time::timeout(BODY, self.read(body)).await;
        let read = read.unwrap_or_else(|_| {
            Err(Answer::text(StatusCode::REQUEST_TIMEOUT, format!("no whole request within {} s\n", BODY.as_secs())))
        });
        let answer = match read {
            // What was read counts until it is answered.
            Ok((body, _held)) => {
                (self.handler)(Asked { method: parts.method, path: parts.uri.path().to_owned(), body }).await
            }
            Err(answer) => answer,
        };
        let mut response = Response::new(Full::new(Bytes::from(answer.body)));
        *response.status_mut() = answer.status;
        let content_type = http::HeaderValue::from_static(answer.content_type);
        response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        response
    }

    async fn read(&self, mut body: Incoming) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Answer> {
        let longest = self.limits.body;
        let too_long =
            || Answer::text(StatusCode::PAYLOAD_TOO_LARGE, format!("a request may have {longest} bytes, no more\n"));
        if usize::try_from(body.size_hint().lower()).map_or(true, |length| length > longest) {
            return Err(too_long());
        }
        let mut read = Vec::new();
        let mut held: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Answer::text(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}\n"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if read.len().saturating_add(data.len()) > longest {
                return Err(too_long());
            }
            read.extend_from_slice(&data);
            let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = u32::try_from(read.len().div_ceil(BLOCK).saturating_sub(has)).unwrap_or(u32::MAX);
            let more = self.memory.clone().try_acquire_many_owned(more).map_err(|_| {
                Answer::text(StatusCode::SERVICE_UNAVAILABLE, "too much is asked for at once; ask again later\n")
            })?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
        }
        Ok((read.into(), held))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    /// A server that says how long a body was.
    async fn start(limits: Limits) -> SocketAddr {
        let (listener, local) = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let handler: Handler = Arc::new(|asked| {
            let text = format!("{} {}", asked.path, asked.body.len());
            std::future::ready(Answer::text(StatusCode::OK, text)).boxed()
        });
        tokio::spawn(serve(listener, None, limits, handler));
        local
    }

    async fn begin(server: SocketAddr, announced: usize, sent: usize) -> TcpStream {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let head = format!("POST /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {announced}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; sent]).await.unwrap();
        stream
    }

    async fn ask(server: SocketAddr, announced: usize, sent: usize) -> String {
        let mut stream = begin(server, announced, sent).await;
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    #[tokio::test]
    async fn what_is_too_much_is_refused() {
        let server = start(Limits { body: 10_000, together: 15 << 10 }).await;
        assert!(ask(server, 0, 0).await.ends_with("/a 0"));
        assert!(ask(server, 10_000, 10_000).await.ends_with("/a 10000"));
        assert!(ask(server, 10_001, 0).await.starts_with("HTTP/1.1 413"));
        assert!(ask(server, usize::MAX, 0).await.starts_with("HTTP/1.1 4"));
        // Half of one that never comes whole takes the memory of another, until its connection ends.
        let half = begin(server, 10_000, 9_000).await;
        let mut answers = Vec::new();
        for _ in 0..200 {
            answers.push(ask(server, 10_000, 10_000).await.split_whitespace().nth(1).map(str::to_owned));
            if answers.last() == Some(&Some("503".to_owned())) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(answers.last(), Some(&Some("503".to_owned())));
        drop(half);
        for _ in 0..200 {
            if ask(server, 10_000, 10_000).await.starts_with("HTTP/1.1 200") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the memory is not given back");
    }
}
