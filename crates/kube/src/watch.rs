//! Watching the objects of a kind.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::pin_mut;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use slicegate_api::{Kind, Object, ObjectRef, extension, kueue};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::call::Call;
use crate::connect::{root_cause, shortened};
use crate::perform::pruned;

/// The first wait after a watch failed.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A watch that did well for so long has done well.
const DONE_WELL: Duration = Duration::from_secs(30);
/// How long to wait before a kind that is not served is looked for again.
const ABSENT_WAIT: Duration = Duration::from_secs(5);
/// After how long it is said once more that something still goes wrong.
const REMIND: Duration = Duration::from_mins(5);

/// Something seen of a kind.
#[derive(Debug)]
pub(crate) enum Seen {
    /// All objects are listed from here on.
    Begin(Kind),
    /// An object of the list.
    Listed(Object),
    /// All objects have been listed: others are gone.
    Done(Kind),
    /// An object is new or changed.
    Applied(Object),
    /// An object is gone; this is its last state.
    Deleted(Object),
    /// An object is there that cannot be read.
    Unreadable(ObjectRef),
    /// An object that was last known in this version was looked for, and is not there.
    Missing(ObjectRef, Option<u64>),
    /// The API server does not serve the kind.
    Absent(Kind),
}

/// What kube needs to know of a kind.
pub(crate) fn resource(kind: Kind) -> ApiResource {
    let api_version = kind.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.as_str().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

/// Which objects of a kind are watched. Lists are consistent: what was written before is in them.
fn selection(kind: Kind) -> watcher::Config {
    let config = watcher::Config::default();
    match kind {
        Kind::ConfigMap => config.labels(&format!("{}=true", extension::NODE_POOLS)),
        // A pod that has ended uses nothing.
        Kind::Pod => config.fields("status.phase!=Succeeded,status.phase!=Failed"),
        _ => config,
    }
}

/// Waits grow while a watch fails, and begin anew when it has done well for a while.
#[derive(Debug, Default)]
struct Patience {
    last: Option<(Instant, Duration)>,
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let wait = match self.last {
            Some((at, wait)) if now.duration_since(at) < DONE_WELL => wait.saturating_mul(2).min(LONGEST_WAIT),
            _ => FIRST_WAIT,
        };
        self.last = Some((now, wait));
        Some(wait)
    }
}

impl Backoff for Patience {
    /// A list that begins is no success yet.
    fn reset(&mut self) {}
}

/// Watches a kind until the task is aborted or nobody listens. Connections that break are made anew, and so are lists that the
/// API server has forgotten.
pub(crate) fn start(client: Client, kind: Kind, to: mpsc::Sender<Seen>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
        let stream = watcher(api, selection(kind)).backoff(Patience::default());
        pin_mut!(stream);
        let mut trouble = Trouble::new(kind);
        let mut was_listed = false;
        while let Some(event) = stream.next().await {
            let mut absent = false;
            let seen = match event {
                Ok(Event::Init) => Some(Seen::Begin(kind)),
                Ok(Event::InitApply(o)) => Some(read(kind, o).map_or_else(Seen::Unreadable, Seen::Listed)),
                Ok(Event::InitDone) => {
                    trouble.over();
                    was_listed = true;
                    Some(Seen::Done(kind))
                }
                Ok(Event::Apply(o)) => {
                    trouble.over();
                    Some(read(kind, o).map_or_else(Seen::Unreadable, Seen::Applied))
                }
                Ok(Event::Delete(o)) => Some(gone(kind, o)),
                Err(error) if code(&error) == Some(404) && is_absent(&client, kind, was_listed).await => {
                    trouble.absent();
                    absent = true;
                    (!is_required(kind)).then_some(Seen::Absent(kind))
                }
                Err(error) => {
                    trouble.failed(&error);
                    None
                }
            };
            if let Some(seen) = seen
                && to.send(seen).await.is_err()
            {
                return;
            }
            if absent {
                tokio::time::sleep(ABSENT_WAIT).await;
            }
        }
    })
}

/// What goes wrong with a watch is told once and then every few minutes, and once more when it is over.
struct Trouble {
    kind: Kind,
    told: Option<(String, Instant)>,
}

impl Trouble {
    const fn new(kind: Kind) -> Self {
        Self { kind, told: None }
    }

    fn tell(&mut self, what: &str) -> bool {
        let now = Instant::now();
        let known = |(told, at): &(String, Instant)| told == what && now.duration_since(*at) < REMIND;
        let news = !self.told.as_ref().is_some_and(known);
        if news {
            self.told = Some((what.to_owned(), now));
        }
        news
    }

    fn failed(&mut self, error: &watcher::Error) {
        let kind = self.kind.as_str();
        if code(error) == Some(410) {
            tracing::info!(kind, "the API server has forgotten what came last; listing anew");
            return;
        }
        let why = reason(error);
        if self.tell(&why) {
            match code(error) {
                Some(401) => {
                    let help = "look whether the token or certificate has expired";
                    tracing::error!(kind, error = why, "the API server does not accept the credentials; {help}");
                }
                Some(403) => {
                    tracing::error!(kind, error = why, "not allowed to watch; the role must have get, list and watch");
                }
                // As it does for a moment after a definition was changed.
                Some(429) => tracing::info!(kind, error = why, "the API server asks to wait"),
                _ => tracing::warn!(kind, error = why, "watching failed; trying again"),
            }
        }
    }

    fn absent(&mut self) {
        let kind = self.kind.as_str();
        if !self.tell("absent") {
            return;
        }
        if is_required(self.kind) {
            tracing::error!(kind, "not served; apply the definitions that `slicegate crds` prints. Waiting for them");
        } else {
            tracing::info!(kind, "not served; looking for it now and then");
        }
    }

    fn over(&mut self) {
        if self.told.take().is_some() {
            tracing::info!(kind = self.kind.as_str(), "watching again");
        }
    }
}

/// Whether nothing can be decided where the kind is not served.
pub(crate) fn is_required(kind: Kind) -> bool {
    kind.group() == kueue::GROUP || is_built_in(kind)
}

fn is_built_in(kind: Kind) -> bool {
    matches!(kind, Kind::PriorityClass | Kind::RuntimeClass) || !kind.group().contains('.')
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

/// What went wrong, in short.
fn reason(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => shortened(&status.message),
        error => root_cause(error),
    }
}

/// Whether a kind that is not found is not defined. An API server that starts may not find what it does have.
async fn is_absent(client: &Client, kind: Kind, was_listed: bool) -> bool {
    if is_built_in(kind) {
        return false;
    }
    let name = format!("{}.{}", kind.plural(), kind.group());
    let call = Call::get(format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"));
    let Ok(request) = call.request() else { return false };
    match client.request::<Value>(request).await {
        Ok(definition) => !serves(&definition, kind),
        Err(kube::Error::Api(status)) if status.code == 404 => true,
        // Whoever may not look believes what was said, unless it is known better.
        Err(kube::Error::Api(status)) if status.code == 403 => !was_listed,
        Err(_) => false,
    }
}

/// Whether a definition has the version that is asked for.
fn serves(definition: &Value, kind: Kind) -> bool {
    let version = kind.api_version().split_once('/').map_or("", |(_, version)| version);
    let versions = definition["spec"]["versions"].as_array();
    versions.into_iter().flatten().any(|v| v["name"] == version && v["served"] == true)
}

/// An object, if it can be read. One that cannot is told about, and what was known of it stays.
fn read(kind: Kind, dynamic: DynamicObject) -> Result<Object, ObjectRef> {
    let name = dynamic.metadata.name.clone().unwrap_or_default();
    let namespace = dynamic.metadata.namespace.clone().unwrap_or_default();
    let DynamicObject { mut metadata, data, .. } = dynamic;
    metadata.managed_fields = None;
    match kind.read(pruned(kind, data)) {
        Ok(mut object) => {
            *object.metadata_mut() = metadata;
            Ok(object)
        }
        Err(error) => {
            tracing::error!(kind = kind.as_str(), namespace, name, %error, "this object cannot be read; it is left alone");
            Err(ObjectRef::new(kind, namespace, name))
        }
    }
}

/// An object that is gone, of which the metadata are enough.
fn gone(kind: Kind, dynamic: DynamicObject) -> Seen {
    let reference = ObjectRef::new(
        kind,
        dynamic.metadata.namespace.clone().unwrap_or_default(),
        dynamic.metadata.name.clone().unwrap_or_default(),
    );
    match read(kind, dynamic) {
        Ok(object) => Seen::Deleted(object),
        Err(_) => Seen::Unreadable(reference),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_grow_while_a_watch_fails() {
        let mut patience = Patience::default();
        let waits: Vec<u128> = (0..7).filter_map(|_| patience.next()).map(|w| w.as_millis()).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        patience.reset();
        assert_eq!(patience.next(), Some(LONGEST_WAIT), "a list that begins is no success yet");
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(patience.next(), Some(FIRST_WAIT));
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_going_wrong_is_told_now_and_then() {
        let mut trouble = Trouble::new(Kind::Node);
        assert!(trouble.tell("no") && !trouble.tell("no") && trouble.tell("never"));
        for _ in 0..4 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert!(!trouble.tell("never"));
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(trouble.tell("never") && !trouble.tell("never"));
    }

    #[test]
    fn some_kinds_may_be_missing() {
        let required: Vec<&str> = Kind::ALL.iter().filter(|k| is_required(**k)).map(|k| k.as_str()).collect();
        for kind in ["Workload", "ClusterQueue", "Namespace", "Job", "PriorityClass", "RuntimeClass", "Pod"] {
            assert!(required.contains(&kind), "{kind}");
        }
        for kind in ["JobSet", "RayJob", "RayCluster", "ProvisioningRequest", "Slice"] {
            assert!(!required.contains(&kind), "{kind}");
        }
    }

    #[test]
    fn a_kind_in_another_version_is_not_there() {
        let definition = |name: &str, served: bool| json!({"spec": {"versions": [{"name": name, "served": served}]}});
        assert!(serves(&definition("v1alpha2", true), Kind::JobSet));
        assert!(!serves(&definition("v1alpha2", false), Kind::JobSet));
        assert!(!serves(&definition("v1", true), Kind::JobSet));
    }

    #[test]
    fn an_object_is_read_with_its_metadata() {
        let dynamic: DynamicObject = serde_json::from_value(json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "3", "managedFields": [{"manager": "m"}]},
            "spec": {"parallelism": 2, "template": {"spec": {"containers": []}}}}))
        .unwrap();
        let object = read(Kind::Job, dynamic).unwrap();
        assert_eq!(object.reference().to_string(), "Job ns/a");
        assert_eq!(object.metadata().resource_version.as_deref(), Some("3"));
        assert_eq!(object.metadata().managed_fields, None);
        let broken: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "b", "namespace": "ns"}, "spec": 7})).unwrap();
        assert_eq!(read(Kind::Job, broken).unwrap_err(), ObjectRef::new(Kind::Job, "ns", "b"));
    }
}
