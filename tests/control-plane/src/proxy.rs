//! A way to the API server that can be cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::Cluster;
use crate::error::{Context as _, Result};

/// Passes connections on to the API server. Dropping it cuts all of them.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    connections: Arc<Mutex<JoinSet<()>>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let server: SocketAddr = cluster.url.trim_start_matches("https://").parse().doing(&cluster.url)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let all = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(server).await {
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                });
            }
        });
        Ok(Self { port, connections, task })
    }

    /// Cuts every connection in the middle of whatever is said. New ones are passed on.
    pub fn cut(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// The kubeconfig of a user who goes this way, written to a folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig(&self, cluster: &Cluster, user: &str, folder: &Path) -> Result<PathBuf> {
        let text = std::fs::read_to_string(cluster.kubeconfig(user)).doing(user)?;
        let mut config: Value = serde_json::from_str(&text)?;
        config["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{}", self.port).into();
        std::fs::create_dir_all(folder).doing(folder.display())?;
        let path = folder.join(format!("{user}-by-proxy.kubeconfig"));
        std::fs::write(&path, config.to_string()).doing(path.display())?;
        Ok(path)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}
