//! Building the control plane's programs from pinned Go modules, once on a machine.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::error::{Context as _, Error, Result};

/// A program and the module it is built in.
struct Program {
    module: &'static str,
    name: &'static str,
    package: &'static str,
}

const PROGRAMS: [Program; 7] = [
    Program { module: "etcd", name: "etcd", package: "go.etcd.io/etcd/server/v3" },
    Program { module: "kubernetes", name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
    Program {
        module: "kubernetes",
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
    Program { module: "kubernetes", name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" },
    Program { module: "kubernetes", name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" },
    Program { module: "jobset", name: "jobset", package: "sigs.k8s.io/jobset" },
    Program { module: "kuberay", name: "kuberay", package: "github.com/ray-project/kuberay/ray-operator" },
];

/// Kueue itself, to be compared with.
const KUEUE: Program = Program { module: "kueue", name: "kueue", package: "sigs.k8s.io/kueue/cmd/kueue" };

const JOBSET: &str = "sigs.k8s.io/jobset";
const KUBERAY: &str = "github.com/ray-project/kuberay/ray-operator";
const AUTOSCALER_APIS: &str = "k8s.io/autoscaler/cluster-autoscaler/apis";

/// The programs and files of the control plane.
#[derive(Clone, Debug)]
pub struct Programs {
    /// etcd.
    pub etcd: PathBuf,
    /// The API server.
    pub apiserver: PathBuf,
    /// The controllers of Kubernetes itself.
    pub controller_manager: PathBuf,
    /// The scheduler.
    pub scheduler: PathBuf,
    /// kubectl.
    pub kubectl: PathBuf,
    /// The JobSet controller.
    pub jobset: PathBuf,
    /// The KubeRay operator.
    pub kuberay: PathBuf,
    /// Definitions of JobSet's kinds.
    pub jobset_crds: PathBuf,
    /// JobSet's webhook configurations.
    pub jobset_webhooks: PathBuf,
    /// Definitions of Ray's kinds.
    pub kuberay_crds: PathBuf,
    /// The definition of ProvisioningRequest.
    pub provisioning_crds: PathBuf,
}

/// Where built programs are kept: `$SLICEGATE_CACHE/control-plane`, or in the user's cache folder.
///
/// # Errors
/// If neither `SLICEGATE_CACHE` nor `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = from("SLICEGATE_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("slicegate")))
        .or_else(|| Some(from("HOME")?.join(".cache").join("slicegate")));
    let base = base.ok_or("no cache folder: set SLICEGATE_CACHE, XDG_CACHE_HOME or HOME")?;
    Ok(base.join("control-plane"))
}

/// Whether there is a Go tool chain.
pub fn go_is_there() -> bool {
    Command::new("go").arg("version").output().is_ok_and(|o| o.status.success())
}

/// Builds what is not built yet. `say` is told what takes time.
///
/// # Errors
/// If there is no Go, a module cannot be had, or something does not compile.
pub fn programs(say: &mut dyn FnMut(&str)) -> Result<Programs> {
    if !go_is_there() {
        return Err(Error::new(
            "the control plane is built from Go modules, and there is no `go` to be run: install Go 1.26 or newer (go.dev/dl)",
        ));
    }
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let cache = cache()?;
    let mut paths = Vec::new();
    for program in &PROGRAMS {
        paths.push(built(&modules, &cache, program, say)?);
    }
    let [etcd, apiserver, controller_manager, scheduler, kubectl, jobset, kuberay] =
        <[PathBuf; 7]>::try_from(paths).map_err(|_| "as many paths as programs")?;
    let jobset_module = module_dir(&modules.join("jobset"), JOBSET)?;
    let kuberay_module = module_dir(&modules.join("kuberay"), KUBERAY)?;
    let autoscaler_module = module_dir(&modules.join("autoscaler-apis"), AUTOSCALER_APIS)?;
    Ok(Programs {
        etcd,
        apiserver,
        controller_manager,
        scheduler,
        kubectl,
        jobset,
        kuberay,
        jobset_crds: jobset_module.join("config/components/crd/bases"),
        jobset_webhooks: jobset_module.join("config/components/webhook/manifests.yaml"),
        kuberay_crds: kuberay_module.join("config/crd/bases"),
        provisioning_crds: autoscaler_module.join("config/crd"),
    })
}

/// Builds Kueue if it is not built yet.
///
/// # Errors
/// If its modules cannot be had, or something does not compile.
pub fn kueue(say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    built(&modules, &cache()?, &KUEUE, say)
}

/// The linker's flags. kube-apiserver refuses to run without a version.
fn ldflags(module: &str, go_mod: &str) -> Result<String> {
    let mut flags = "-s -w".to_owned();
    if module == "kubernetes" {
        let version = go_mod
            .lines()
            .find_map(|l| l.trim().strip_prefix("k8s.io/kubernetes ")?.split_whitespace().next())
            .doing("the version of k8s.io/kubernetes in go.mod")?;
        let mut parts = version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let x = "-X k8s.io/component-base/version";
        let more =
            format!(" {x}.gitMajor={major} {x}.gitMinor={minor} {x}.gitVersion={version} {x}.gitTreeState=clean");
        flags.push_str(&more);
    }
    Ok(flags)
}

fn built(modules: &Path, cache: &Path, program: &Program, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let folder = modules.join(program.module);
    let read = |name: &str| fs::read_to_string(folder.join(name)).doing(folder.join(name).display());
    let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
    let flags = ldflags(program.module, &go_mod)?;
    let mut hash = Sha256::new();
    for part in [&go_mod, &go_sum, &flags] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let number = hash.finalize().iter().take(6).fold(0_u64, |n, b| n << 8 | u64::from(*b));
    let hash = format!("{number:012x}");
    let kept = cache.join(format!("{}-{hash}", program.module));
    let path = kept.join(program.name);
    if path.is_file() {
        return Ok(path);
    }
    say(&format!("building {} (minutes the first time on a machine)", program.name));
    fs::create_dir_all(&kept).doing(kept.display())?;
    // Under another name until it is whole: two runs may build at the same time, and one may be interrupted.
    let unfinished = kept.join(format!(".{}-{}", program.name, std::process::id()));
    let mut build = go(&folder);
    build.args(["build", "-trimpath", "-ldflags", &flags, "-o"]).arg(&unfinished).arg(program.package);
    run(&mut build)?;
    fs::rename(&unfinished, &path).doing(path.display())?;
    Ok(path)
}

/// The folder of a module's files.
fn module_dir(folder: &Path, module: &str) -> Result<PathBuf> {
    run(go(folder).args(["mod", "download", module]))?;
    let dir = run(go(folder).args(["list", "-m", "-f", "{{.Dir}}", module]))?;
    let dir = PathBuf::from(dir.trim());
    if dir.is_dir() { Ok(dir) } else { Err(Error::new(format!("{module}: go knows no folder of it"))) }
}

fn go(folder: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(folder).env("GOWORK", "off");
    go
}

fn run(command: &mut Command) -> Result<String> {
    let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let what = format!("go {}", words.join(" "));
    let output = command.output().doing(&what)?;
    if !output.status.success() {
        return Err(Error::new(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_is_told_its_version() {
        let go_mod = "require (\n\tk8s.io/kubernetes v1.36.3\n)\n";
        let flags = ldflags("kubernetes", go_mod).unwrap();
        assert!(flags.contains("version.gitMinor=36 "), "{flags}");
        assert!(flags.contains("version.gitVersion=v1.36.3 "), "{flags}");
        assert_eq!(ldflags("etcd", "").unwrap(), "-s -w");
        assert!(ldflags("kubernetes", "").is_err());
    }

    #[test]
    fn every_program_has_a_pinned_module() {
        for program in PROGRAMS.iter().chain([&KUEUE]) {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(program.module);
            let text = fs::read_to_string(folder.join("go.mod")).unwrap();
            let tool = text.lines().any(|l| l.trim().trim_start_matches("tool ") == program.package);
            assert!(tool, "{}: {} is no tool of it", folder.display(), program.package);
            assert!(folder.join("go.sum").is_file());
        }
    }
}
