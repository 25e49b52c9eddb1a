//! A program on loopback: started, watched, killed, started again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::error::{Context as _, Error, Result};
use crate::guard;

/// How to start a program.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What it is called in messages; its log is `NAME.log`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its environment beside the inherited one.
    pub env: Vec<(String, OsString)>,
    /// The folder in which its log is kept, and in which it runs.
    pub folder: PathBuf,
}

impl Spec {
    /// A program with arguments.
    pub fn new(name: &str, program: &Path, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    /// Adds a flag and its value: `--flag=value`.
    #[must_use]
    pub fn flag(mut self, flag: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        let mut argument = OsString::from(format!("--{flag}="));
        argument.push(value);
        self.args.push(argument);
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.args.push(argument.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Where its output goes.
    pub fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }
}

/// A program that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    child: Option<Child>,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(spec: Spec) -> Result<Self> {
        let mut process = Self { spec, child: None };
        process.launch()?;
        Ok(process)
    }

    fn launch(&mut self) -> Result<()> {
        let Spec { name, program, args, env, folder } = &self.spec;
        fs::create_dir_all(folder).doing(folder.display())?;
        let log =
            fs::File::options().create(true).append(true).open(self.spec.log()).doing(self.spec.log().display())?;
        let mut command = Command::new(program);
        // Everything is on loopback.
        for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(variable);
        }
        let child = command
            .args(args)
            .envs(env.iter().map(|(n, v)| (n, v)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .doing(format!("{name} ({})", program.display()))?;
        if let Some(pid) = child.id() {
            guard::started(pid);
        }
        self.child = Some(child);
        Ok(())
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// How it was started.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How it will be started the next time.
    pub fn spec_mut(&mut self) -> &mut Spec {
        &mut self.spec
    }

    /// Where its output goes.
    pub fn log(&self) -> PathBuf {
        self.spec.log()
    }

    /// All it has said so far.
    pub fn output(&self) -> String {
        fs::read(self.log()).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// Its number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        let pid = child.id();
        let status = child.try_wait()?;
        if let (Some(_), Some(pid)) = (status, pid) {
            guard::ended(pid);
        }
        Ok(status)
    }

    /// Fails if it has ended, with its last words.
    ///
    /// # Errors
    /// If it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.ended()? {
            None if self.child.is_some() => Ok(()),
            status => {
                let how = status.map_or("was stopped".to_owned(), |s| format!("ended with {s}"));
                let output = self.output();
                let lines: Vec<&str> = output.lines().rev().take(12).collect();
                let tail: Vec<&str> = lines.into_iter().rev().collect();
                Err(Error::new(format!(
                    "{} {how}; its log ({}):\n{}",
                    self.spec.name,
                    self.log().display(),
                    tail.join("\n")
                )))
            }
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().and_then(|p| Pid::from_raw(i32::try_from(p).ok()?));
        let pid = pid.doing(format!("a process of {} to send {signal:?} to", self.spec.name))?;
        kill_process(pid, signal).doing(format!("{signal:?} to {}", self.spec.name))
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = child.id();
        child.kill().await.doing(&self.spec.name)?;
        if let Some(pid) = pid {
            guard::ended(pid);
        }
        Ok(())
    }

    /// Asks it to end with SIGTERM and waits.
    ///
    /// # Errors
    /// If it does not end in time; it is killed then.
    pub async fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(limit).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// If it does not end in time; it is killed then.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let mut child = self.child.take().doing(format!("a process of {}", self.spec.name))?;
        let pid = child.id();
        let ended = tokio::time::timeout(limit, child.wait()).await;
        if ended.is_err() {
            child.kill().await?;
        }
        if let Some(pid) = pid {
            guard::ended(pid);
        }
        match ended {
            Ok(status) => Ok(status?),
            Err(_) => Err(Error::new(format!("{} did not end within {limit:?}", self.spec.name))),
        }
    }

    /// Starts it again as it was started, after [`Process::kill`], [`Process::terminate`] or its own end.
    ///
    /// # Errors
    /// If it still runs or cannot be started.
    pub fn start_again(&mut self) -> Result<()> {
        if self.child.is_some() && self.ended()?.is_none() {
            return Err(Error::new(format!("{} still runs", self.spec.name)));
        }
        self.launch()
    }

    /// Tries `attempt` until it works. Fails at once if the program ends.
    ///
    /// # Errors
    /// If it ends or is not ready in time, with what the last attempt said.
    pub async fn ready<T, F>(&mut self, limit: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let last = Instant::now() + limit;
        loop {
            self.must_run()?;
            let error = match tokio::time::timeout(Duration::from_secs(5), attempt()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => Error::new("no answer within 5 s"),
            };
            if Instant::now() > last {
                let (name, log) = (&self.spec.name, self.log());
                return Err(Error::new(format!(
                    "{name} was not ready after {limit:?}: {error} (log: {})",
                    log.display()
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        let Some(pid) = child.id() else { return };
        let _ = child.start_kill();
        // Reaped here, so that the guard is not left with a number that may become another's.
        for _ in 0..2_000 {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                guard::ended(pid);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
