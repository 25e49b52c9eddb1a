//! A process beside the tests that ends what they started, in whatever way they end.
//!
//! It is this program once more, holding the other end of a pipe: when the tests are gone, killed or not, the pipe breaks.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// The argument by which the program knows that it is the guard.
const ARGUMENT: &str = "guard-of-a-test-run";

static PIPE: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();

/// Becomes the guard if this process was started as one, and does not return then. To be called first in `main`.
pub fn become_guard_if_asked() {
    if std::env::args().nth(1).as_deref() == Some(ARGUMENT) {
        watch(std::io::stdin().lock());
        std::process::exit(0);
    }
}

/// A process was started, in a group of its own.
pub(crate) fn started(pid: u32) {
    tell(&format!("+{pid}"));
}

/// A process has ended.
pub(crate) fn ended(pid: u32) {
    tell(&format!("-{pid}"));
}

/// A folder is to be removed at the end.
pub(crate) fn remove_at_end(folder: &Path) {
    tell(&format!("d{}", folder.display()));
}

fn tell(line: &str) {
    let pipe = PIPE.get_or_init(|| Mutex::new(start()));
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pipe) = pipe.as_mut() {
        // Without a guard things still end in the ordinary way.
        let _ = writeln!(pipe, "{line}");
    }
}

fn start() -> Option<ChildStdin> {
    let program = std::env::current_exe().ok()?;
    // A group of its own: what interrupts the tests from the terminal must not end it.
    let child = Command::new(program)
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    child.stdin
}

fn watch(input: impl std::io::BufRead) {
    let mut pids = BTreeSet::new();
    let mut folders: Vec<PathBuf> = Vec::new();
    for line in input.lines().map_while(Result::ok) {
        let Some((first, rest)) = line.split_at_checked(1) else { continue };
        match (first, rest.parse::<i32>()) {
            ("+", Ok(pid)) => drop(pids.insert(pid)),
            ("-", Ok(pid)) => drop(pids.remove(&pid)),
            ("d", _) => folders.push(rest.into()),
            _ => {}
        }
    }
    for pid in pids.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    for folder in folders {
        let _ = std::fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_ends_when_the_pipe_breaks() {
        let start = || Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let (mut left, mut kept) = (start(), start());
        let folder = std::env::temp_dir().join(format!("guard-test-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        watch(format!("+{0}\n+{1}\n-{1}\nd{2}\n", left.id(), kept.id(), folder.display()).as_bytes());
        assert!(!left.wait().unwrap().success(), "the process that was left is killed");
        assert!(kept.try_wait().unwrap().is_none(), "the one that ended is not touched: its number may be another's");
        assert!(!folder.exists());
        kept.kill().unwrap();
        kept.wait().unwrap();
    }
}
