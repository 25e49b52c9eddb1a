//! What tests of the life of workloads begin with, and what they look at: what a user sees.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use slicegate_control_plane::api::{self, Resource, is_true, items, name, text};
use slicegate_control_plane::cluster::Cluster;
use slicegate_control_plane::gke::{Gke, Pool, Settings};
use slicegate_control_plane::observe::{Change, Observer};
use slicegate_control_plane::slicegate::{self, Slicegate};
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Context as _, Error, Result, Value, ensure, ensure_eq, json};
use tokio::time::Instant;

use crate::objects;
use crate::suite::Suite;

/// The configuration with every kind of job, and without looking whether pods are ready, which only some tests are about.
pub(crate) const CONFIGURATION: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, ray.io/rayjob, ray.io/raycluster]}
featureGates: {DisableWaitForPodsReady: true}
";

/// How long something may take that should come at once.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A cluster with ordinary machines and a controller, an observer beside it.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) gke: Gke,
    pub(crate) observer: Observer,
    controller: RefCell<Option<Slicegate>>,
    options: slicegate::Options,
    folder: PathBuf,
    log: PathBuf,
}

impl<'a> Scene<'a> {
    /// A node of 64 vCPUs, these pools, and a controller with this configuration.
    pub(crate) async fn set(suite: &'a mut Suite, configuration: &str, pools: Vec<Pool>) -> Result<Self> {
        let folder = suite.test_folder();
        let cluster = suite.shared().await?;
        if !slicegate::is_installed(cluster).await? {
            slicegate::install(cluster).await?;
        }
        let gke = Gke::start(cluster, Settings::default()).await?;
        gke.add_pools([Pool::cpu("default-pool", 1, 64, 256)]).await?;
        gke.add_pools(pools).await?;
        let observer = Observer::start(cluster).await?;
        let options =
            slicegate::Options { configuration: Some(configuration.to_owned()), ..slicegate::Options::default() };
        let log = folder.join(format!("{}.log", options.name));
        let controller = RefCell::new(Some(Slicegate::start(cluster, &folder, &options).await?));
        Ok(Self { cluster, gke, observer, controller, options, folder, log })
    }

    /// Asks the controller to end, and waits until it has.
    pub(crate) async fn stop_controller(&self) -> Result<()> {
        let controller = self.controller.take();
        let status = controller.doing("a controller that runs")?.terminate().await?;
        ensure!(status.success(), "the controller ended with {status}");
        Ok(())
    }

    /// Starts the controller again.
    pub(crate) async fn start_controller(&self) -> Result<()> {
        let controller = Slicegate::start(self.cluster, &self.folder, &self.options).await?;
        self.controller.replace(Some(controller));
        Ok(())
    }

    /// `kubectl apply` of manifests.
    pub(crate) async fn apply(&self, manifests: &str) -> Result<()> {
        self.cluster.kubectl.apply(manifests).await.map(drop)
    }

    /// Runs kubectl and returns what it prints.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        Ok(self.cluster.kubectl.run(args).await?.stdout)
    }

    /// Waits for one object.
    pub(crate) async fn wait(
        &self,
        kind: Resource,
        named: &str,
        what: &str,
        good: impl FnMut(&Value) -> bool,
    ) -> Result<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        Wait::new(&self.cluster.client, kind, namespace).limit(SOON).one(named, what, good).await
    }

    /// Creates a job and says how to follow it.
    pub(crate) async fn submit(&self, job: &Value) -> Result<Run<'_>> {
        let run = self.run_of(job)?;
        self.cluster.kubectl.run_with(&["create", "-f", "-"], &job.to_string()).await?;
        Ok(run)
    }

    /// How to follow a job that was or will be created.
    pub(crate) fn run_of(&self, job: &Value) -> Result<Run<'_>> {
        let kind = match text(job, "/kind") {
            "Job" => api::JOBS,
            "JobSet" => api::JOB_SETS,
            "RayJob" => api::RAY_JOBS,
            "RayCluster" => api::RAY_CLUSTERS,
            other => return Err(Error::new(format!("{other} is no kind of job"))),
        };
        let namespace = text(job, "/metadata/namespace").to_owned();
        Ok(Run { scene: self, kind, namespace, name: name(job).to_owned() })
    }

    /// Creates a batch Job that holds its pods until it is told to end.
    pub(crate) async fn hold(&self, named: &str, pods: u32, cpu: &str, labels: &[(&str, &str)]) -> Result<Run<'_>> {
        self.submit(&held(named, pods, cpu, labels)).await
    }

    /// The rows of what `kubectl get` prints, as its columns say.
    pub(crate) async fn rows(&self, args: &[&str]) -> Result<Vec<BTreeMap<String, String>>> {
        let mut all = vec!["get"];
        all.extend(args);
        Ok(table(&self.kubectl(&all).await?))
    }

    /// The one row whose NAME begins so.
    pub(crate) async fn row(&self, args: &[&str], prefix: &str) -> Result<BTreeMap<String, String>> {
        let rows = self.rows(args).await?;
        let mut found = rows.iter().filter(|r| r.get("NAME").is_some_and(|n| n.starts_with(prefix)));
        match (found.next(), found.next()) {
            (Some(row), None) => Ok(row.clone()),
            _ => Err(Error::new(format!("not one {prefix} in what kubectl get {} says: {rows:?}", args.join(" ")))),
        }
    }

    /// Ends pods that run, by their names.
    pub(crate) async fn end_these(&self, exit_code: i32, names: &[&str]) -> Result<usize> {
        let ended: RefCell<BTreeSet<String>> = RefCell::default();
        let last = Instant::now() + SOON;
        while ended.borrow().len() < names.len() {
            // Whoever plays the kubelets may not have seen yet that they run.
            let choose = |p: &Value| {
                let runs = names.contains(&name(p)) && text(p, "/status/phase") == "Running";
                runs && ended.borrow_mut().insert(name(p).to_owned())
            };
            self.gke.finish(exit_code, choose).await?;
            ensure!(Instant::now() < last, "of the pods {names:?} only {:?} have run", ended.borrow());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(names.len())
    }

    /// Waits until the controller has told exactly these Events about an object, in this order: their reasons.
    pub(crate) async fn events(&self, about: &Value, expected: &[&str]) -> Result<()> {
        self.told(about, expected, false).await
    }

    /// The same in any order: what follows from writes of different objects has none.
    pub(crate) async fn events_in_any_order(&self, about: &Value, expected: &[&str]) -> Result<()> {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        self.told(about, &expected, true).await
    }

    async fn told(&self, about: &Value, expected: &[&str], sorted: bool) -> Result<()> {
        let uid = text(about, "/metadata/uid").to_owned();
        let namespace = match text(about, "/metadata/namespace") {
            "" => "default",
            namespace => namespace,
        };
        let ours = |e: &Value| {
            let reporter = text(e, "/reportingComponent");
            text(e, "/involvedObject/uid") == uid
                && (reporter.starts_with("kueue-") || reporter.ends_with("-kueue-controller"))
        };
        let mut last = Vec::new();
        let mut notes = Vec::new();
        let same = |seen: &Objects| {
            let mut told: Vec<&Value> = seen.values().filter(|e| ours(e)).collect();
            told.sort_by_key(|e| when(e));
            last = told.iter().map(|e| text(e, "/reason").to_owned()).collect::<Vec<String>>();
            if sorted {
                last.sort_unstable();
            }
            notes = told.iter().map(|e| format!("\n  {}: {}", text(e, "/reason"), text(e, "/message"))).collect();
            last == expected
        };
        let waited =
            Wait::new(&self.cluster.client, api::EVENTS, namespace).limit(SOON).until("these Events", same).await;
        if waited.is_err() {
            let about = format!("{} {namespace}/{}", text(about, "/kind"), name(about));
            ensure_eq!(last, expected, "Events about {about}:{}", notes.concat());
        }
        waited.map(drop)
    }

    /// The text of the last Event about an object with this reason.
    pub(crate) async fn note(&self, about: &Value, reason: &str) -> Result<String> {
        let last = |seen: &Objects| {
            let of_it = |e: &&Value| {
                // What comes from a list does not say its kind.
                let kind = text(about, "/kind");
                (kind.is_empty() || text(e, "/involvedObject/kind") == kind)
                    && text(e, "/involvedObject/name") == name(about)
                    && text(e, "/reason") == reason
            };
            seen.values().filter(of_it).max_by_key(|e| when(e)).map(|e| text(e, "/message").to_owned())
        };
        let wait = Wait::new(&self.cluster.client, api::EVENTS, "").limit(SOON);
        let seen = wait.until(&format!("{reason} about {}", name(about)), |seen| last(seen).is_some()).await?;
        Ok(last(&seen).unwrap_or_default())
    }

    /// The end of a test: no rule was broken, nothing is left over, and the controller has nothing to complain of.
    pub(crate) async fn end(self) -> Result<()> {
        self.observer.must_be_clean().await?;
        let log = std::fs::read_to_string(&self.log).doing(self.log.display())?;
        let known = ["there are no admission webhooks", "the configuration is not followed wholly"];
        let bad = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        let complaints: Vec<&str> = log.lines().filter(bad).filter(|l| !known.iter().any(|k| l.contains(k))).collect();
        ensure!(complaints.is_empty(), "the controller complains:\n{}", complaints.join("\n"));
        Ok(())
    }
}

/// When an Event was told: they are sent side by side. Those of one moment are numbered in their names.
fn when(event: &Value) -> (&str, u64) {
    let number = name(event).rsplit('.').next().unwrap_or_default();
    (text(event, "/eventTime"), u64::from_str_radix(number, 16).unwrap_or(0))
}

/// A table of kubectl's, whose columns are apart by several blanks.
fn table(printed: &str) -> Vec<BTreeMap<String, String>> {
    let Some(head) = printed.lines().next() else { return Vec::new() };
    let mut columns: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for part in head.split("  ") {
        if !part.trim().is_empty() {
            let blanks = part.len() - part.trim_start().len();
            columns.push((at + blanks, part.trim()));
        }
        at += part.len() + 2;
    }
    let row = |line: &str| {
        let ends = columns.iter().skip(1).map(|(from, _)| *from).chain([line.len()]);
        let cells = columns.iter().zip(ends);
        cells
            .map(|(&(from, title), to)| {
                let cell = line.get(from.min(line.len())..to.min(line.len())).unwrap_or_default();
                (title.to_owned(), cell.trim().to_owned())
            })
            .collect()
    };
    printed.lines().skip(1).map(row).collect()
}

/// A batch Job, created suspended, whose pods run until they are told to end.
pub(crate) fn held(named: &str, pods: u32, cpu: &str, labels: &[(&str, &str)]) -> Value {
    let mut job = objects::job(named, pods, cpu, None);
    job["spec"]["suspend"] = true.into();
    job["spec"]["template"]["metadata"] = json!({"annotations": {"e2e.slicegate.dev/run-time": "forever"}});
    for (key, value) in labels {
        job["metadata"]["labels"][format!("kueue.x-k8s.io/{key}")] = (*value).into();
    }
    job
}

/// A job that was created, and its Workload.
pub(crate) struct Run<'s> {
    scene: &'s Scene<'s>,
    kind: Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Run<'_> {
    fn wait(&self, kind: Resource) -> Wait<'_> {
        Wait::new(&self.scene.cluster.client, kind, &self.namespace).limit(SOON)
    }

    /// Waits until the Workload is so.
    pub(crate) async fn workload(&self, what: &str, good: impl Fn(&Value) -> bool) -> Result<Value> {
        let of_it = |w: &Value| {
            let owners = items(w, "/metadata/ownerReferences");
            owners.iter().any(|o| text(o, "/name") == self.name && text(o, "/kind") == self.kind.kind)
        };
        let what = format!("that of {}: {what}", self.name);
        let seen = self.wait(api::WORKLOADS).until(&what, |all| all.values().any(|w| of_it(w) && good(w))).await?;
        seen.into_values().find(|w| of_it(w) && good(w)).doing(what)
    }

    /// Waits until the Workload is admitted.
    pub(crate) async fn admitted(&self) -> Result<Value> {
        self.workload("admitted", |w| is_true(w, "Admitted")).await
    }

    /// Waits until the Workload says why it waits.
    pub(crate) async fn pending(&self, reason: &str) -> Result<Value> {
        let why = |w: &Value| api::condition(w, "QuotaReserved").map(|c| text(c, "/reason").to_owned());
        self.workload(reason, |w| !is_true(w, "QuotaReserved") && why(w).as_deref() == Some(reason)).await
    }

    /// Waits until the Workload is finished.
    pub(crate) async fn finished(&self) -> Result<Value> {
        self.workload("finished", |w| is_true(w, "Finished")).await
    }

    /// Waits until the job is so.
    pub(crate) async fn job(&self, what: &str, good: impl FnMut(&Value) -> bool) -> Result<Value> {
        self.wait(self.kind).one(&self.name, what, good).await
    }

    /// The job as it is.
    pub(crate) async fn now(&self) -> Result<Value> {
        self.job("there", |_| true).await
    }

    fn pods_label(&self) -> (&'static str, &str) {
        match self.kind.kind {
            "JobSet" => ("jobset.sigs.k8s.io/jobset-name", &self.name),
            "RayCluster" => ("ray.io/cluster", &self.name),
            "RayJob" => ("ray.io/originated-from-cr-name", &self.name),
            _ => ("batch.kubernetes.io/job-name", &self.name),
        }
    }

    /// Waits until exactly so many pods are there, all running; returns them.
    pub(crate) async fn runs(&self, pods: usize) -> Result<Vec<Value>> {
        let (key, value) = self.pods_label();
        let running = |seen: &Objects| {
            let running = |p: &&Value| {
                text(p, "/status/phase") == "Running" && p.pointer("/metadata/deletionTimestamp").is_none()
            };
            seen.values().filter(running).count() == pods && seen.len() == pods
        };
        let wait = self.wait(api::PODS).labels(&format!("{key}={value}"));
        Ok(wait.until(&format!("{pods} running"), running).await?.into_values().collect())
    }

    /// Waits until exactly so many pods are there, all running and made as the admission says.
    pub(crate) async fn runs_as_admitted(&self, pods: usize) -> Result<()> {
        let (key, value) = self.pods_label();
        let as_admitted = |p: &Value| {
            text(p, "/status/phase") == "Running" && !text(p, "/metadata/labels/kueue.x-k8s.io~1podset").is_empty()
        };
        let all = |seen: &Objects| seen.len() == pods && seen.values().all(as_admitted);
        let wait = self.wait(api::PODS).labels(&format!("{key}={value}"));
        wait.until(&format!("{pods} running as admitted"), all).await.map(drop)
    }

    /// Waits until no pod runs or will.
    pub(crate) async fn stopped(&self) -> Result<()> {
        self.runs(0).await.map(drop)
    }

    /// Ends the pods that run, and says how many did.
    pub(crate) async fn end_pods(&self, exit_code: i32) -> Result<usize> {
        let (key, value) = self.pods_label();
        let pointer = format!("/metadata/labels/{}", key.replace('/', "~1"));
        let of_it = |p: &Value| text(p, &pointer) == value && text(p, "/status/phase") == "Running";
        let all = api::PODS.list(&self.scene.cluster.client, &self.namespace).await?;
        let names: Vec<&str> = all.iter().filter(|p| of_it(p)).map(name).collect();
        self.scene.end_these(exit_code, &names).await
    }

    /// Ends the pods that run well, and waits until the job and its Workload have finished.
    pub(crate) async fn complete(&self) -> Result<Value> {
        self.end_pods(0).await?;
        self.finished().await
    }

    /// Deletes the job, and waits until it and its Workload are gone.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.kind.delete(&self.scene.cluster.client, &self.namespace, &self.name).await?;
        self.gone().await
    }

    /// Waits until the job and its Workload are gone.
    pub(crate) async fn gone(&self) -> Result<()> {
        self.wait(self.kind).gone(&self.name).await?;
        let prefix = format!("{}-{}-", self.kind.kind.to_lowercase(), self.name);
        let gone = |seen: &Objects| !seen.keys().any(|(_, n)| n.starts_with(&prefix));
        self.wait(api::WORKLOADS).until(&format!("none of {}", self.name), gone).await.map(drop)
    }

    /// All changes of the conditions of a Workload, with their reasons.
    pub(crate) async fn conditions(&self, workload: &Value) -> Result<Vec<String>> {
        self.scene.observer.catch_up().await?;
        Ok(self.scene.observer.conditions(api::WORKLOADS, &self.namespace, name(workload), true))
    }

    /// How many Workloads the job has had.
    pub(crate) async fn workloads(&self) -> Result<usize> {
        self.scene.observer.catch_up().await?;
        let job = self.scene.observer.versions(self.kind, &self.namespace, &self.name);
        let uids: BTreeSet<&str> = job.iter().map(|s| text(&s.object, "/metadata/uid")).collect();
        let all = self.scene.observer.all();
        let of_it = all.iter().filter(|s| s.kind == api::WORKLOADS.plural && s.change == Change::Added);
        let of_it = of_it.filter(|s| {
            let owners = items(&s.object, "/metadata/ownerReferences");
            owners.iter().any(|o| uids.contains(text(o, "/uid")))
        });
        Ok(of_it.count())
    }
}

/// Who owns parts of an object by the API server's account, without those who only write status by other ways.
pub(crate) fn managers(object: &Value) -> BTreeSet<(String, String)> {
    items(object, "/metadata/managedFields")
        .iter()
        .map(|m| (text(m, "/manager").to_owned(), text(m, "/operation").to_owned()))
        .collect()
}

/// A condition's status, reason and message in one text.
pub(crate) fn said(object: &Value, kind: &str) -> String {
    api::condition(object, kind).map_or_else(
        || format!("no {kind}"),
        |c| format!("{}({}): {}", text(c, "/status"), text(c, "/reason"), text(c, "/message")),
    )
}

/// A flavor, a ClusterQueue of so much cpu in it, and a LocalQueue of the same name in the namespace `default`.
/// `more` are further fields of the ClusterQueue's spec.
pub(crate) fn queue(named: &str, cpu: &str, more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!(", {more}") };
    format!(
        "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: plain}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {named}}}
spec: {{namespaceSelector: {{}}, resourceGroups: [{{coveredResources: [cpu],
  flavors: [{{name: plain, resources: [{{name: cpu, nominalQuota: {cpu}}}]}}]}}]{more}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: {named}, namespace: default}}
spec: {{clusterQueue: {named}}}
"
    )
}
