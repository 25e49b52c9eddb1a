//! Small stories that were recorded with Kueue, played again: the same manifests, the same deeds of users. After each deed every
//! object becomes as it was in the recording, and at the end the same was told in the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use slicegate_control_plane::api::{self, condition, name, text};
use slicegate_control_plane::gke::{Pool, Settings};
use slicegate_control_plane::observe::Change;
use slicegate_control_plane::wait::{Objects, Wait};
use slicegate_control_plane::{Error, Result, Value, ensure, json};
use tokio::time::Instant;

use super::stage::{Files, Stage};
use crate::likeness::{differences, timeless, unlike};
use crate::recordings::{Recording, Version, there};
use crate::suite::Suite;

/// What is compared after each deed.
const COMPARED: [(&str, &str); 5] = [
    ("jobs", "Job"),
    ("pods", "Pod"),
    ("workloads", "Workload"),
    ("clusterqueues", "ClusterQueue"),
    ("localqueues", "LocalQueue"),
];

/// How long it may take until all is as it was recorded: in a new cluster garbage is first collected after half a minute.
const SOON: Duration = Duration::from_secs(40);

/// A recording that is played again.
struct Story<'a> {
    stage: Stage<'a>,
    recording: Recording,
}

impl<'a> Story<'a> {
    /// A node, the flavor, and the queues of the recording. Pods run until the test ends them.
    async fn begin(suite: &'a mut Suite, recording: Recording, more: &str) -> Result<Self> {
        let settings = Settings { run_time: None, ..Settings::default() };
        let stage = Stage::set(suite, settings, vec![Pool::cpu("default-pool", 1, 64, 256)]).await?;
        let flavor = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: std}}";
        stage.cluster.kubectl.apply(&format!("{flavor}\n---\n{more}")).await?;
        let story = Self { stage, recording };
        story.apply("clusterqueues", "a").await?;
        story.apply("localqueues", "a").await?;
        Ok(story)
    }

    async fn kubectl(&self, args: &[&str]) -> Result<()> {
        self.stage.cluster.kubectl.run(args).await.map(drop)
    }

    /// `kubectl apply` of what an object of the recording was made of.
    async fn apply(&self, kind: &str, named: &str) -> Result<()> {
        self.stage.cluster.kubectl.apply(&self.recording.manifest(kind, named)?).await.map(drop)
    }

    /// Ends the pods of a Job that run, well.
    async fn end_pods(&self, job: &str) -> Result<()> {
        let of_it = |p: &Value| text(p, "/metadata/labels/batch.kubernetes.io~1job-name") == job;
        let last = Instant::now() + SOON;
        while self.stage.gke.finish(0, of_it).await? == 0 {
            ensure!(Instant::now() < last, "no pod of {job} runs");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until all objects are as they were in the recording at a time, in seconds.
    async fn is_as_at(&self, seconds: f64) -> Result<()> {
        let last = Instant::now() + SOON;
        loop {
            let unlike = self.unlike_at(seconds);
            if unlike.is_empty() {
                return Ok(());
            }
            if Instant::now() > last {
                let unlike = unlike.join("\n  ");
                return Err(Error::new(format!(
                    "unlike what was recorded at {seconds} s (ours / theirs):\n  {unlike}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn unlike_at(&self, seconds: f64) -> Vec<String> {
        let compared = |v: &Version<'_>| COMPARED.iter().any(|(kind, _)| *kind == v.kind);
        let all = self.stage.observer.all();
        let ours = all.iter().map(|s| Version { kind: s.kind, gone: s.change == Change::Deleted, object: &s.object });
        let ours = there(ours.filter(compared));
        let theirs = there(self.recording.until(seconds).filter(compared));
        let mut found = Vec::new();
        for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            let kind = COMPARED.iter().find(|(kind, _)| *kind == key.0).map_or("", |(_, kind)| *kind);
            match (ours.get(key), theirs.get(key)) {
                (Some(left), Some(right)) => {
                    found.extend(unlike(kind, left, right).into_iter().map(|d| format!("{kind} {}: {d}", key.1)));
                }
                (left, _) => {
                    let whose = if left.is_some() { "only ours" } else { "only theirs" };
                    found.push(format!("{kind} {} ({}): {whose}", key.1, key.2));
                }
            }
        }
        found
    }

    /// Ends the story: conditions changed in the recorded order, the statuses of queues took no value that was not recorded, and
    /// the same Events were told, in whatever order.
    async fn end(self, folder: PathBuf, result: Result<()>, jobs: &[&str]) -> Result<()> {
        let result = match result {
            Ok(()) => self.compare(jobs).await,
            failed => failed,
        };
        self.stage.end(folder, result).await
    }

    async fn compare(&self, jobs: &[&str]) -> Result<()> {
        let workloads: Vec<String> = jobs.iter().map(|j| format!("job-{j}-")).collect();
        let workloads: Vec<&str> = workloads.iter().map(String::as_str).collect();
        self.stage.observer.catch_up().await?;
        self.stage.as_recorded(&self.recording, &workloads)?;
        let mut unlike = Vec::new();
        for kind in ["clusterqueues", "localqueues"] {
            unlike.extend(self.unlike_statuses(kind));
        }
        unlike.extend(self.unlike_events());
        ensure!(unlike.is_empty(), "unlike what was recorded (ours / theirs):\n  {}", unlike.join("\n  "));
        Ok(())
    }

    /// The statuses that a queue had and, in this order, was not recorded to have had.
    fn unlike_statuses(&self, kind: &str) -> Vec<String> {
        let all = self.stage.observer.all();
        let ours = all.iter().filter(|s| s.kind == kind).map(|s| &s.object);
        let mut theirs = self.recording.until(f64::MAX).filter(|v| v.kind == kind).map(|v| v.object);
        let status = |o: &Value| timeless(o).get("status").cloned().unwrap_or_default();
        let mut found = Vec::new();
        let mut last = Value::Null;
        for now in ours.map(status) {
            if now != last && !theirs.any(|t| differences(&status(t), &now).is_empty()) {
                found.push(format!("{kind}: its status became {now}"));
                break;
            }
            last = now;
        }
        found
    }

    /// In what the Events that the controller told differ from recorded ones, object by object.
    fn unlike_events(&self) -> Vec<String> {
        let all = self.stage.observer.all();
        let ours = by_object(all.iter().filter(|s| s.kind == "events").map(|s| &s.object));
        let theirs = by_object(self.recording.until(f64::MAX).filter(|v| v.kind == "events").map(|v| v.object));
        let mut found = Vec::new();
        for about in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            let of = |told: &BTreeMap<String, Value>| told.get(about).cloned().unwrap_or_default();
            found.extend(
                unlike("Event", &of(&ours), &of(&theirs)).into_iter().map(|d| format!("Events about {about}: {d}")),
            );
        }
        found
    }
}

/// The Events of a queue's controller by what they are about and what they say, each once. They are sent side by side: their
/// order says little.
fn by_object<'a>(events: impl Iterator<Item = &'a Value>) -> BTreeMap<String, Value> {
    let mut told: BTreeMap<String, BTreeSet<[String; 4]>> = BTreeMap::new();
    for event in events {
        let reporter = text(event, "/reportingComponent");
        if !(reporter.starts_with("kueue-") || reporter.ends_with("-kueue-controller")) {
            continue;
        }
        let kind = text(event, "/involvedObject/kind");
        let named = text(event, "/involvedObject/name");
        let named = if kind == "Workload" { named.rsplit_once('-').map_or("", |(stable, _)| stable) } else { named };
        let message = timeless(&text(event, "/message").into());
        let words = text(&message, "").split(' ').map(|w| if is_time(w) { "some time" } else { w });
        let message = words.collect::<Vec<&str>>().join(" ");
        let one = [message.as_str(), text(event, "/reason"), text(event, "/type"), reporter].map(str::to_owned);
        told.entry(format!("{kind} {named}")).or_default().insert(one);
    }
    let value = |events: BTreeSet<[String; 4]>| {
        let mut fields = serde_json::Map::new();
        for [message, reason, severity, from] in events {
            let again = fields.keys().filter(|known| known.starts_with(&message)).count();
            let event = json!({"reason": reason, "type": severity, "from": from});
            fields.insert(format!("{message} ({again})"), event);
        }
        Value::Object(fields)
    };
    told.into_iter().map(|(about, events)| (about, value(events))).collect()
}

/// `12s`.
fn is_time(word: &str) -> bool {
    word.strip_suffix('s').is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
}

pub(super) async fn as_recorded_when_a_quota_is_raised(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let story = Story::begin(suite, files.recording("quota-edit")?, "").await?;
    let result = a_quota_is_raised(&story).await;
    story.end(folder, result, &["j1"]).await
}

async fn a_quota_is_raised(story: &Story<'_>) -> Result<()> {
    story.is_as_at(1.05).await?;
    story.apply("jobs", "j1").await?;
    story.is_as_at(4.0).await?;
    let quota =
        r#"[{"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": "4"}]"#;
    story.kubectl(&["patch", "clusterqueue", "a", "--type=json", "-p", quota]).await?;
    story.is_as_at(9.0).await?;
    story.end_pods("j1").await?;
    story.is_as_at(12.0).await
}

pub(super) async fn as_recorded_when_a_high_priority_preempts(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let class = |name: &str, value: u32| {
        format!(
            "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {{name: {name}}}, value: {value}}}"
        )
    };
    let classes = format!("{}\n---\n{}", class("low", 1), class("high", 9));
    let story = Story::begin(suite, files.recording("priority-preempts")?, &classes).await?;
    let result = a_high_priority_preempts(&story).await;
    story.end(folder, result, &["low1", "low2", "high1"]).await
}

async fn a_high_priority_preempts(story: &Story<'_>) -> Result<()> {
    story.is_as_at(1.05).await?;
    story.apply("jobs", "low1").await?;
    story.is_as_at(2.2).await?;
    // Who is younger is told by the second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    story.apply("jobs", "low2").await?;
    story.is_as_at(5.0).await?;
    story.apply("jobs", "high1").await?;
    story.is_as_at(9.5).await?;
    story.end_pods("high1").await?;
    story.is_as_at(15.0).await
}

pub(super) async fn as_recorded_when_jobs_are_deleted(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let story = Story::begin(suite, files.recording("deletes")?, "").await?;
    let result = jobs_are_deleted(&story).await;
    story.end(folder, result, &["run", "wait1", "wait2"]).await
}

async fn jobs_are_deleted(story: &Story<'_>) -> Result<()> {
    story.is_as_at(1.06).await?;
    story.apply("jobs", "run").await?;
    story.is_as_at(3.0).await?;
    // One after the other: of two that come at once either may be looked at first.
    story.apply("jobs", "wait1").await?;
    let decided = |seen: &Objects| {
        seen.values().any(|w| name(w).starts_with("job-wait1-") && condition(w, "QuotaReserved").is_some())
    };
    let client = &story.stage.cluster.client;
    Wait::new(client, api::WORKLOADS, "default").until("the first is decided about", decided).await?;
    story.apply("jobs", "wait2").await?;
    story.is_as_at(6.5).await?;
    story.kubectl(&["delete", "job", "wait1"]).await?;
    story.is_as_at(9.0).await?;
    story.kubectl(&["delete", "job", "run"]).await?;
    story.is_as_at(12.5).await?;
    story.end_pods("wait2").await?;
    story.is_as_at(16.0).await
}

pub(super) async fn as_recorded_when_a_part_of_a_job_is_admitted(suite: &mut Suite) -> Result<()> {
    let Some(files) = Files::find(suite) else { return Ok(()) };
    let folder = suite.test_folder();
    let story = Story::begin(suite, files.recording("partial-admission")?, "").await?;
    let result = a_part_is_admitted(&story).await;
    story.end(folder, result, &["p"]).await
}

async fn a_part_is_admitted(story: &Story<'_>) -> Result<()> {
    story.is_as_at(1.06).await?;
    story.apply("jobs", "p").await?;
    story.is_as_at(4.0).await?;
    story.end_pods("p").await?;
    story.is_as_at(8.0).await?;
    story.end_pods("p").await?;
    story.is_as_at(11.0).await
}
