//! Jobs by themselves: pod sets, start and restore, states, names, priorities.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read fails")]

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use slicegate_api::ray::{RayCluster, RayClusterSpec};
use slicegate_api::{Kind, Object, PodTemplateSpec, PriorityClass, kueue};
use slicegate_controller::jobs::{self, JobContext, JobError, as_job, as_job_mut, ray};
use slicegate_controller::names;
use slicegate_controller::podset::{self, PodSetInfo};
use slicegate_controller::priority;
use slicegate_controller::topology_request::{PodIndex, topology_request};

use crate::fixtures::{gates, json, object, same};
use crate::report::Report;

/// Runs the suites of the folder `jobs` that are about one job alone.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    for suites in [
        pod_sets_of_jobs,
        pod_sets_of_ray_cluster_specs,
        elastic_pod_sets_follow_the_cluster,
        jobs_run_and_are_restored,
        ray_cluster_specs_run_and_are_restored,
        states_of_jobs,
        what_is_put_into_pods,
        topology_requests,
        names_of_workloads,
        priorities,
    ] {
        suites(corpus, kind, report);
    }
}

fn infos(value: &Value) -> Vec<PodSetInfo> {
    serde_json::from_value(value.clone()).unwrap()
}

fn no_cluster(_: &str) -> Option<Arc<RayCluster>> {
    None
}

fn same_pod_sets(got: &Result<Vec<kueue::PodSet>, JobError>, expect: &Value) -> Result<(), String> {
    match (got, expect.get("error")) {
        (Ok(got), None) => same(&serde_json::to_value(got).unwrap(), &expect["podSets"]),
        (Err(error), Some(want)) if error.to_string() == want.as_str().unwrap() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn pod_sets_of_jobs(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in ["job-podsets", "jobset-podsets", "rayjob-podsets", "raycluster-podsets"] {
        report.suite(corpus, kind, suite, |case| {
            let gates = gates(case);
            let context = JobContext { gates: &gates, ray_cluster: &no_cluster };
            let job = object(&case["job"]);
            same_pod_sets(&as_job(&job).unwrap().pod_sets(&context), &case["expect"])
        });
    }
}

fn pod_sets_of_ray_cluster_specs(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "raycluster-spec-podsets", |case| {
        let spec: RayClusterSpec = serde_json::from_value(case["rayClusterSpec"].clone()).unwrap();
        let annotations = serde_json::from_value(case["annotations"].clone()).unwrap();
        same_pod_sets(&ray::pod_sets(&spec, Option::as_ref(&annotations), &gates(case)), &case["expect"])
    });
}

fn elastic_pod_sets_follow_the_cluster(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "raycluster-elastic-podsets", |case| {
        let mut pod_sets: Vec<kueue::PodSet> = serde_json::from_value(case["podSets"].clone()).unwrap();
        let gates = gates(case);
        let clusters: Vec<Object> = case["objects"].as_array().into_iter().flatten().map(object).collect();
        let find = |name: &str| {
            clusters.iter().find(|c| c.name() == name).map(|c| match c {
                Object::RayCluster(c) => c.clone(),
                _ => unreachable!(),
            })
        };
        let context = JobContext { gates: &gates, ray_cluster: &find };
        let job = object(&case["job"]);
        let elastic = as_job(&job).unwrap().is_elastic(&gates) && case["enableInTreeAutoscaling"] == true;
        let name = case["rayClusterName"].as_str().unwrap_or_default();
        let got = if elastic { ray::follow_cluster(&mut pod_sets, job.name(), name, &context) } else { Ok(()) };
        same_pod_sets(&got.map(|()| pod_sets), &case["expect"])
    });
    report.suite(corpus, kind, "rayjob-elastic", |case| {
        let all: Vec<Object> = case["objects"].as_array().unwrap().iter().map(object).collect();
        let gates = gates(case);
        let find = |name: &str| {
            all.iter().find_map(|c| match c {
                Object::RayCluster(c) if c.metadata.name.as_deref() == Some(name) => Some(c.clone()),
                _ => None,
            })
        };
        let context = JobContext { gates: &gates, ray_cluster: &find };
        let job = all.iter().find(|o| o.kind() == Kind::RayJob).unwrap();
        same_pod_sets(&as_job(job).unwrap().pod_sets(&context), &case["expect"])
    });
}

fn jobs_run_and_are_restored(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in ["job-run-restore", "rayjob-run-restore"] {
        report.suite(corpus, kind, suite, |case| {
            let gates = gates(case);
            let context = JobContext { gates: &gates, ray_cluster: &no_cluster };
            let mut job = object(&case["job"]);
            let result = as_job_mut(&mut job).unwrap().run(&infos(&case["runInfo"]), &context);
            let expect = &case["expect"];
            let error = result.err().map(|e| e.to_string());
            if error.as_deref() != expect["runError"].as_str() {
                return Err(format!("error {error:?}"));
            }
            if error.is_none() {
                same(&json(&job), &expect["afterRun"]).map_err(|e| format!("after run: {e}"))?;
            }
            if expect.get("afterRestore").is_some() {
                let restored = as_job_mut(&mut job).unwrap();
                restored.restore(&infos(&case["restoreInfo"]), &context);
                restored.suspend();
                same(&json(&job), &expect["afterRestore"]).map_err(|e| format!("after restore: {e}"))?;
            }
            Ok(())
        });
    }
    for suite in ["jobset-restore", "rayjob-restore"] {
        report.suite(corpus, kind, suite, |case| {
            let gates = gates(case);
            let context = JobContext { gates: &gates, ray_cluster: &no_cluster };
            let mut job = object(&case["job"]);
            let changed = as_job_mut(&mut job).unwrap().restore(&infos(&case["restoreInfo"]), &context);
            same(&changed.into(), &case["expect"]["changed"])?;
            same(&json(&job), &case["expect"]["job"])
        });
    }
}

fn ray_cluster_specs_run_and_are_restored(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "raycluster-spec-run", |case| {
        let mut spec: RayClusterSpec = serde_json::from_value(case["rayClusterSpec"].clone()).unwrap();
        let result = ray::run(&mut spec, &infos(&case["runInfo"]), &gates(case));
        match (result, case["expect"].get("error")) {
            (Ok(()), None) => same(&serde_json::to_value(spec).unwrap(), &case["expect"]["rayClusterSpec"]),
            (Err(e), Some(want)) => same(&e.to_string().into(), want),
            other => Err(format!("{other:?}")),
        }
    });
    report.suite(corpus, kind, "raycluster-spec-restore", |case| {
        let mut spec: RayClusterSpec = serde_json::from_value(case["rayClusterSpec"].clone()).unwrap();
        let changed = ray::restore(&mut spec, &infos(&case["restoreInfo"]));
        same(&changed.into(), &case["expect"]["changed"])?;
        same(&serde_json::to_value(spec).unwrap(), &case["expect"]["rayClusterSpec"])
    });
}

fn states_of_jobs(corpus: &Path, kind: &str, report: &mut Report) {
    for suite in ["job-pods-ready", "jobset-pods-ready"] {
        report.suite(corpus, kind, suite, |case| {
            let job = object(&case["job"]);
            same(&as_job(&job).unwrap().pods_ready().into(), &case["expect"]["podsReady"])
        });
    }
    for suite in ["job-reclaimable-pods", "jobset-reclaimable-pods"] {
        report.suite(corpus, kind, suite, |case| {
            let job = object(&case["job"]);
            let got = serde_json::to_value(as_job(&job).unwrap().reclaimable_pods()).unwrap();
            same(&got, &case["expect"]["reclaimablePods"])
        });
    }
    report.suite(corpus, kind, "rayjob-finished", |case| {
        let job = object(&case["job"]);
        let finished = as_job(&job).unwrap().finished();
        let expect = &case["expect"];
        same(&finished.is_some().into(), &expect["finished"])?;
        same(&finished.as_ref().is_some_and(|f| f.success).into(), &expect["success"])?;
        same(&finished.map(|f| f.message).unwrap_or_default().into(), &expect["message"])
    });
    report.suite(corpus, kind, "rayjob-on-hold", |case| {
        let job = object(&case["job"]);
        same(&as_job(&job).unwrap().on_hold().into(), &case["expect"]["onHold"])
    });
    report.suite(corpus, kind, "job-terminal-indexes", |case| {
        let text = |key: &str| case[key].as_str().unwrap();
        let completions = i32::try_from(case["completions"].as_i64().unwrap()).unwrap();
        let count = jobs::batch::terminal_indexes(text("completedIndexes"), text("failedIndexes"), completions);
        same(&count.into(), &case["expect"]["count"])
    });
    report.suite(corpus, kind, "job-clean-labels", |case| {
        let mut template: PodTemplateSpec =
            serde_json::from_value(serde_json::json!({"metadata": {"labels": case["labels"]}})).unwrap();
        jobs::batch::clean_labels(&mut template);
        same(&serde_json::to_value(template.metadata.unwrap().labels).unwrap(), &case["expect"]["labels"])
    });
}

fn what_is_put_into_pods(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "podset-info-from-assignment", |case| {
        let flavors: Vec<Object> = case["objects"].as_array().into_iter().flatten().map(object).collect();
        let assignment: kueue::PodSetAssignment = serde_json::from_value(case["podSetAssignment"].clone()).unwrap();
        let count = i32::try_from(case["defaultCount"].as_i64().unwrap()).unwrap();
        let tas = gates(case).topology_aware_scheduling;
        let got = PodSetInfo::from_assignment(&assignment, None, count, tas, |name| {
            flavors.iter().find_map(|f| match f {
                Object::ResourceFlavor(f) if f.metadata.name.as_deref() == Some(name) => Some(f.as_ref()),
                _ => None,
            })
        });
        match (got, case["expect"].get("error")) {
            (Ok(info), None) => {
                let mut want: PodSetInfo = serde_json::from_value(case["expect"]["info"].clone()).unwrap();
                let mut info = info;
                let key = |t: &slicegate_api::Toleration| t.key.clone();
                want.tolerations.sort_by_key(key);
                info.tolerations.sort_by_key(key);
                if info == want { Ok(()) } else { Err(format!("\n   got {info:?}\n  want {want:?}")) }
            }
            (Err(e), Some(want)) => same(&e.to_string().into(), want),
            other => Err(format!("{other:?}")),
        }
    });
    report.suite(corpus, kind, "podset-info-merge", |case| {
        let original: PodTemplateSpec = serde_json::from_value(case["template"].clone()).unwrap();
        let mut template = original.clone();
        let info: PodSetInfo = serde_json::from_value(case["info"].clone()).unwrap();
        let expect = &case["expect"];
        match (
            podset::merge_into(&mut template, &info, gates(case).elastic_jobs_via_workload_slices),
            expect.get("error"),
        ) {
            (Ok(()), None) => same(&serde_json::to_value(&template).unwrap(), &expect["template"])?,
            (Err(e), Some(want)) => return same(&e.to_string().into(), want),
            other => return Err(format!("{other:?}")),
        }
        let before = PodSetInfo::from_pod_set(&kueue::PodSet { template: original, ..kueue::PodSet::default() });
        same(&podset::restore(&mut template, &before).into(), &expect["restoreChanged"])?;
        same(&serde_json::to_value(&template).unwrap(), &expect["restoredTemplate"])
    });
    report.suite(corpus, kind, "sanitize-podsets", |case| {
        let mut pod_sets: Vec<kueue::PodSet> = serde_json::from_value(case["podSets"].clone()).unwrap();
        podset::sanitize(&mut pod_sets);
        same(&serde_json::to_value(pod_sets).unwrap(), &case["expect"]["podSets"])
    });
}

fn topology_requests(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "podset-topology-request", |case| {
        let template: PodTemplateSpec =
            serde_json::from_value(serde_json::json!({"metadata": {"annotations": case["annotations"]}})).unwrap();
        let count = case["subGroupCount"].as_i64().map(|c| i32::try_from(c).unwrap());
        let index = PodIndex {
            label: case["podIndexLabel"].as_str(),
            sub_group: case["subGroupIndexLabel"].as_str().zip(count),
        };
        let got = topology_request(&template, index, gates(case).tas_multi_layer_topology);
        match (got, case["expect"].get("error")) {
            (Ok(got), None) => same(&serde_json::to_value(got).unwrap(), &case["expect"]["topologyRequest"]),
            (Err(_), Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

fn names_of_workloads(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "workload-names", |case| {
        let owner = &case["owner"];
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        let owner = names::Owner {
            kind: text("kind"),
            group: text("group"),
            name: text("name"),
            uid: Some(text("uid")),
            extra: case["extra"].as_str(),
            short: case["config"]["featureGates"]["ShortWorkloadNames"] == true,
        };
        let got = match case["variantOf"].as_str() {
            Some(workload) => names::variant(workload, case["flavor"].as_str().unwrap(), owner),
            None => names::workload(owner),
        };
        same(&got.into(), &case["expect"]["name"])
    });
}

struct Classes(Vec<Object>);

impl priority::Classes for Classes {
    fn workload_priority_class(&self, name: &str) -> Option<i32> {
        self.0.iter().find_map(|o| match o {
            Object::WorkloadPriorityClass(c) if o.name() == name => Some(c.value),
            _ => None,
        })
    }

    fn priority_class(&self, name: &str) -> Option<&PriorityClass> {
        self.priority_classes().into_iter().find(|c| c.metadata.name.as_deref() == Some(name))
    }

    fn priority_classes(&self) -> Vec<&PriorityClass> {
        self.0
            .iter()
            .filter_map(|o| match o {
                Object::PriorityClass(c) => Some(c.as_ref()),
                _ => None,
            })
            .collect()
    }
}

fn priorities(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "extract-priority", |case| {
        let classes = Classes(case["objects"].as_array().into_iter().flatten().map(object).collect());
        let pod_sets: Vec<kueue::PodSet> = serde_json::from_value(case["podSets"].clone()).unwrap();
        let job = object(&case["job"]);
        let expect = &case["expect"];
        match (priority::resolve(job.metadata(), &pod_sets, &classes), expect.get("error")) {
            (Ok(got), None) => {
                same(&got.value.into(), &expect["priority"])?;
                same(&serde_json::to_value(got.class_ref()).unwrap(), &expect["priorityClassRef"])
            }
            (Err(e), Some(want)) => same(&e.to_string().into(), want),
            other => Err(format!("{other:?}")),
        }
    });
}
