//! The tutorials' own manifests load without a word.

#[cfg(test)]
mod tutorials {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use slicegate_manifest::{Body, Options, PathSpec, load, sources_from_paths};

    fn shared() -> Option<PathBuf> {
        let path = std::env::var_os("SLICEGATE_SHARED").map(PathBuf::from);
        if path.is_none() {
            println!("SKIPPED: SLICEGATE_SHARED does not name the folder with the tutorials");
        }
        path
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn check(specs: &[PathSpec], objects: &[&str]) {
        let loaded = load(&sources_from_paths(specs).unwrap(), &Options::default());
        let text: String = loaded.diagnostics.iter().map(ToString::to_string).collect();
        assert!(text.is_empty(), "{text}");
        let names: Vec<String> = loaded
            .documents
            .iter()
            .map(|d| match &d.body {
                Body::Object(o) => o.reference().to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(names, objects);
    }

    #[test]
    fn multislice() {
        let Some(shared) = shared() else { return };
        let folder = shared.join("tutorials/multislice");
        for queues in ["kueue.yaml", "kueue-preemption.yaml"] {
            check(
                &[PathSpec { path: folder.join(queues), ..PathSpec::default() }],
                &["ResourceFlavor vlp-24", "ClusterQueue cluster-queue", "LocalQueue default/multislice-queue"],
            );
        }
        for variant in ["autopilot", "standard"] {
            let file =
                |name: &str| PathSpec { path: folder.join(format!("{name}-{variant}.yaml")), ..PathSpec::default() };
            check(
                &[
                    PathSpec { path: folder.join("priority-class.yaml"), ..PathSpec::default() },
                    file("jobsets-multislice"),
                    file("jobset-low-priority"),
                ],
                &[
                    "PriorityClass low-priority",
                    "JobSet multislice-1slice",
                    "JobSet multislice-2slice",
                    "JobSet multislice-3slice",
                    "JobSet low-priority",
                ],
            );
        }
    }

    #[test]
    fn dws() {
        let Some(shared) = shared() else { return };
        let folder = shared.join("tutorials/dws");
        let job = |id| PathSpec { path: folder.join("rayjob-tpu-v6e-dws.yaml"), env: env(&[("JOB_ID", id)]) };
        let pools = env(&[("ONDEMAND_NODEPOOL", "on-demand-pool"), ("DWS_NODEPOOL", "dws-pool")]);
        check(
            &[PathSpec { path: folder.join("dws-tpu-queue.yaml"), env: pools }, job("1"), job("2")],
            &[
                "ResourceFlavor default-cpu",
                "ResourceFlavor on-demand",
                "ResourceFlavor dws",
                "ClusterQueue cluster-queue",
                "LocalQueue default/user-queue",
                "AdmissionCheck dws-prov",
                "ProvisioningRequestConfig dws-config",
                "RayJob rayjob-tpu-v6e-dws-1",
                "RayJob rayjob-tpu-v6e-dws-2",
            ],
        );
    }
}
