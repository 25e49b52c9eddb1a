//! What no compiler checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{cargo, root};

/// Which crates of the workspace a crate may use, itself or through others: the table of ARCHITECTURE.md.
const MAY_USE: &[(&str, &[&str])] = &[
    ("slicegate-quota", &[]),
    ("slicegate-tpu", &[]),
    ("slicegate-workload", &["slicegate-quota"]),
    ("slicegate-placement", &["slicegate-workload"]),
    ("slicegate-flavor", &["slicegate-workload"]),
    ("slicegate-preemption", &["slicegate-workload"]),
    ("slicegate-admission", &["slicegate-flavor", "slicegate-preemption", "slicegate-placement", "slicegate-tpu"]),
    ("slicegate-api", &["slicegate-workload", "slicegate-placement", "slicegate-tpu"]),
    ("slicegate-controller", &["slicegate-admission", "slicegate-api"]),
    ("slicegate-manifest", &["slicegate-api"]),
    ("slicegate-check", &["slicegate-manifest", "slicegate-controller", "slicegate-tpu"]),
    ("slicegate-sim", &["slicegate-controller", "slicegate-manifest", "slicegate-tpu"]),
    ("slicegate-kube", &["slicegate-controller"]),
    ("slicegate", &["slicegate-kube", "slicegate-sim", "slicegate-check"]),
    ("slicegate-control-plane", &["slicegate-quota", "slicegate-tpu"]),
];

/// Crates that know nothing of Kubernetes clients.
const CORE: &[&str] = &[
    "slicegate-quota",
    "slicegate-tpu",
    "slicegate-workload",
    "slicegate-flavor",
    "slicegate-preemption",
    "slicegate-placement",
    "slicegate-admission",
];

/// What the core never depends on.
const NOT_IN_CORE: &[&str] = &["k8s-openapi", "kube", "kube-core", "kube-client", "tokio", "serde_json", "hyper"];

pub(crate) fn run_all(findings: &mut Vec<String>) -> Result<(), String> {
    let packages = workspace_packages()?;
    directions(&packages, findings);
    core_is_pure(findings)?;
    versions_in_one_place(&packages, findings)?;
    texts(findings)?;
    Ok(())
}

/// Runs every check and says all that is wrong.
pub(crate) fn run() -> Result<(), String> {
    let mut findings = Vec::new();
    run_all(&mut findings)?;
    for name in workspace_packages()?.keys() {
        crate::run(cargo().args(["check", "--quiet", "-p", name]).current_dir(root()))?;
    }
    if findings.is_empty() {
        println!("tidy: nothing to report");
        return Ok(());
    }
    Err(findings.join("\n"))
}

struct Package {
    /// Normal and build dependencies within the workspace.
    uses: BTreeSet<String>,
    manifest: std::path::PathBuf,
}

fn workspace_packages() -> Result<BTreeMap<String, Package>, String> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root())
        .output()
        .map_err(|why| format!("cargo metadata cannot be run: {why}"))?;
    let value: Value =
        serde_json::from_slice(&output.stdout).map_err(|why| format!("cargo metadata is unreadable: {why}"))?;
    let list = |v: &Value, key: &str| v[key].as_array().cloned().unwrap_or_default();
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    Ok(list(&value, "packages")
        .iter()
        .map(|p| {
            let uses = list(p, "dependencies")
                .iter()
                .filter(|d| d["kind"].as_str() != Some("dev"))
                .map(|d| text(d, "name"))
                .filter(|n| n.starts_with("slicegate"))
                .collect();
            (text(p, "name"), Package { uses, manifest: text(p, "manifest_path").into() })
        })
        .collect())
}

fn directions(packages: &BTreeMap<String, Package>, findings: &mut Vec<String>) {
    let direct: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    for (name, package) in packages {
        let Some(_) = direct.get(name.as_str()) else { continue };
        let mut allowed = BTreeSet::new();
        let mut todo = vec![name.as_str()];
        while let Some(n) = todo.pop() {
            for &below in direct.get(n).copied().unwrap_or_default() {
                if allowed.insert(below) {
                    todo.push(below);
                }
            }
        }
        for used in &package.uses {
            if !allowed.contains(used.as_str()) {
                findings.push(format!("{name} depends on {used}, which ARCHITECTURE.md does not allow"));
            }
        }
    }
    for name in packages.keys().filter(|n| n.starts_with("slicegate")) {
        let is_helper = ["slicegate-examples", "slicegate-tests"].contains(&name.as_str());
        if !direct.contains_key(name.as_str()) && !is_helper {
            findings
                .push(format!("{name} is in no row of ARCHITECTURE.md's table (and of MAY_USE in xtask/src/tidy.rs)"));
        }
    }
}

fn core_is_pure(findings: &mut Vec<String>) -> Result<(), String> {
    let known = workspace_packages()?;
    for name in CORE.iter().filter(|n| known.contains_key(**n)) {
        let output = cargo()
            .args(["tree", "-p", name, "-e", "normal", "--prefix", "none", "--format", "{p}"])
            .current_dir(root())
            .output()
            .map_err(|why| format!("cargo tree cannot be run: {why}"))?;
        let tree = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in tree.lines() {
            let package = line.split_whitespace().next().unwrap_or_default();
            if NOT_IN_CORE.contains(&package) {
                findings.push(format!("{name} depends on {package}, which the core must not know"));
            }
        }
    }
    Ok(())
}

fn versions_in_one_place(packages: &BTreeMap<String, Package>, findings: &mut Vec<String>) -> Result<(), String> {
    for (name, package) in packages {
        let text = fs::read_to_string(&package.manifest).map_err(|why| format!("{name}: {why}"))?;
        let mut in_dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace") {
                findings.push(format!("{name}: `{line}` states a version of its own; use [workspace.dependencies]"));
            }
        }
    }
    Ok(())
}

/// Texts that drift: paths of one machine, the Rust version in the README.
fn texts(findings: &mut Vec<String>) -> Result<(), String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Ok(output) = output else {
        println!("tidy: SKIPPED the look at texts: there is no git");
        return Ok(());
    };
    let needles = ["/ro".to_owned() + "ot/.c", "/ho".to_owned() + "me/", "/wo".to_owned() + "rk/"];
    for file in String::from_utf8_lossy(&output.stdout).split('\0').filter(|f| !f.is_empty()) {
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if needles.iter().any(|n| line.contains(n.as_str())) {
                findings.push(format!("{file}:{}: names a path of one machine", number + 1));
            }
        }
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).map_err(|why| format!("Cargo.toml: {why}"))?;
    let version = manifest
        .lines()
        .find_map(|l| l.strip_prefix("rust-version = "))
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned();
    let readme = fs::read_to_string(root().join("README.md")).map_err(|why| format!("README.md: {why}"))?;
    if !readme.contains(&format!("Rust {version}")) {
        findings.push(format!("README.md does not say that Rust {version} is needed (rust-version in Cargo.toml)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_is_tidy() {
        let mut findings = Vec::new();
        super::run_all(&mut findings).unwrap();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
