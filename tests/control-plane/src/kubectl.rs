//! The real kubectl.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::error::{Context as _, Error, Result};

/// kubectl as one user.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

/// What kubectl printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Whether it says that all went well.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The table's rows as words, without the heading.
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.stdout.lines().skip(1).map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
    }
}

impl Kubectl {
    /// kubectl for who this kubeconfig says.
    pub fn new(program: &Path, kubeconfig: &Path, cache: &Path) -> Self {
        Self { program: program.to_owned(), kubeconfig: kubeconfig.to_owned(), cache: cache.to_owned() }
    }

    /// Runs it and tells what it printed, in whatever way it ended.
    ///
    /// # Errors
    /// If it cannot be run or does not end within a minute.
    pub async fn try_run(&self, args: &[&str], input: &str) -> Result<Output> {
        let what = format!("kubectl {}", args.join(" "));
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .doing(&what)?;
        let mut stdin = child.stdin.take();
        let input = input.to_owned();
        let feed = async move {
            if let Some(mut stdin) = stdin.take() {
                // What does not read its input ends early: its own message is the better one.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let run = async { tokio::join!(feed, child.wait_with_output()).1 };
        let output = tokio::time::timeout(Duration::from_mins(1), run).await;
        let output = output.map_err(|_| Error::new(format!("{what}: did not end within a minute")))?.doing(&what)?;
        Ok(Output {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// If it says that something went wrong.
    pub async fn run(&self, args: &[&str]) -> Result<Output> {
        self.run_with(args, "").await
    }

    /// Runs it with this on standard input.
    ///
    /// # Errors
    /// If it says that something went wrong.
    pub async fn run_with(&self, args: &[&str], input: &str) -> Result<Output> {
        let output = self.try_run(args, input).await?;
        if output.success {
            Ok(output)
        } else {
            Err(Error::new(format!("kubectl {}: {}", args.join(" "), output.stderr.trim_end())))
        }
    }

    /// `kubectl apply` of a manifest.
    ///
    /// # Errors
    /// If it says that something went wrong.
    pub async fn apply(&self, manifest: &str) -> Result<Output> {
        self.run_with(&["apply", "-f", "-"], manifest).await
    }
}
