//! Watching the objects of a kind.

use futures_util::StreamExt as _;
use futures_util::pin_mut;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use slicegate_api::{Kind, Object};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::perform::object;

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

/// Watches a kind until the task is aborted or nobody listens. Connections that break are made anew, and so are lists that the
/// API server has forgotten.
pub(crate) fn start(client: Client, kind: Kind, to: mpsc::Sender<Seen>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let api: Api<DynamicObject> = Api::all_with(client, &resource(kind));
        let stream = watcher(api, watcher::Config::default()).default_backoff();
        pin_mut!(stream);
        while let Some(event) = stream.next().await {
            let seen = match event {
                Ok(Event::Init) => Some(Seen::Begin(kind)),
                Ok(Event::InitApply(o)) => read(kind, &o).map(Seen::Listed),
                Ok(Event::InitDone) => Some(Seen::Done(kind)),
                Ok(Event::Apply(o)) => read(kind, &o).map(Seen::Applied),
                Ok(Event::Delete(o)) => read(kind, &o).map(Seen::Deleted),
                Err(error) if is_absent(&error) => Some(Seen::Absent(kind)),
                Err(error) => {
                    tracing::warn!(kind = kind.as_str(), %error, "watching failed; trying again");
                    None
                }
            };
            if let Some(seen) = seen
                && to.send(seen).await.is_err()
            {
                return;
            }
        }
    })
}

/// An object, if it can be read. One that cannot is told about and left as if it were not there.
fn read(kind: Kind, dynamic: &DynamicObject) -> Option<Object> {
    let name = dynamic.metadata.name.as_deref().unwrap_or_default();
    let namespace = dynamic.metadata.namespace.as_deref().unwrap_or_default();
    let value = serde_json::to_value(dynamic).map_err(|e| e.to_string());
    match value.and_then(|value| object(kind, value)) {
        Ok(object) => Some(object),
        Err(error) => {
            tracing::error!(kind = kind.as_str(), namespace, name, %error, "this object cannot be read and is left out");
            None
        }
    }
}

fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(inner) | watcher::Error::WatchStartFailed(inner)) = error else {
        return false;
    };
    matches!(inner, kube::Error::Api(status) if status.code == 404)
}
