//! What can happen in a scenario, beside documents that are applied.

use serde_json::Value;
use slicegate_api::scenario::{
    ScenarioDelete, ScenarioDws, ScenarioEvent, ScenarioEvictNode, ScenarioPatch, ScenarioScale,
};
use slicegate_api::{Kind, ObjectRef};

use super::settings::{NAME_A_JOB, has_requests};
use super::target::{Target, target};
use super::{Reader, is_job_kind};
use crate::cluster::failure::Failure;
use crate::input::Item;

/// Something to do.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are documents")]
pub(crate) enum Action {
    /// A document is applied.
    Apply(Item),
    /// An object is patched.
    Patch {
        target: Target,
        /// Whether its status is meant.
        status: bool,
        merge: Value,
    },
    /// A job gets another size.
    Scale { job: ObjectRef, part: Option<String>, size: Size },
    /// A node pool gets other limits.
    ScalePool { pool: Box<str>, min: Option<u32>, max: Option<u32> },
    /// An object is deleted.
    Delete { target: Target, propagation: Propagation },
    /// Nodes are drained.
    EvictNode { nodes: Drained, count: Option<usize>, lasts: Option<i64> },
    /// Drained nodes are back.
    Restore { nodes: Vec<Box<str>> },
    /// A host breaks, or a program on it.
    Fail(Failure),
    /// The provider decides about a ProvisioningRequest.
    Dws { object: ObjectRef, outcome: DwsOutcome, reason: Option<String>, message: Option<String> },
}

/// The size of a part of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Size {
    pub(crate) replicas: Option<i32>,
    pub(crate) parallelism: Option<i32>,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Propagation {
    /// They go after it.
    #[default]
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// Which nodes are drained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Drained {
    Node(Box<str>),
    Pool(Box<str>),
    Job(ObjectRef),
}

/// What the provider decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DwsOutcome {
    FindsCapacity,
    Fails,
    BookingExpires,
    RevokesCapacity,
}

const KINDS: &str = "apply, patch, scale, delete, fail, evictNode, dws";

/// Reads what an event does, unless it applies a document. `at` is the event's own path.
pub(super) fn read(event: &ScenarioEvent, at: &str, reader: &mut Reader<'_>) -> Option<Action> {
    let said = [
        event.apply.is_some(),
        event.patch.is_some(),
        event.scale.is_some(),
        event.delete.is_some(),
        event.fail.is_some(),
        event.evict_node.is_some(),
        event.dws.is_some(),
    ];
    match said.into_iter().filter(|said| *said).count() {
        1 => {}
        0 => {
            reader.invalid(at.to_owned(), format!("nothing happens here; write one of {KINDS}"));
            return None;
        }
        _ => {
            reader.invalid(at.to_owned(), format!("only one thing happens in an event: write one of {KINDS}"));
            return None;
        }
    }
    if let Some(event) = &event.patch {
        return patch(event, &format!("{at}.patch"), reader);
    }
    if let Some(event) = &event.scale {
        return scale(event, &format!("{at}.scale"), reader);
    }
    if let Some(event) = &event.delete {
        return delete(event, &format!("{at}.delete"), reader);
    }
    if let Some(event) = &event.fail {
        let failure = Failure::read(event);
        return failure
            .map_err(|(field, why)| reader.invalid(format!("{at}.{field}"), why.to_string()))
            .ok()
            .map(Action::Fail);
    }
    if let Some(event) = &event.evict_node {
        return evict_node(event, &format!("{at}.evictNode"), reader);
    }
    event.dws.as_ref().and_then(|event| dws(event, &format!("{at}.dws"), reader))
}

/// `object` or `workloadOf`.
fn one_of(object: Option<&String>, workload_of: Option<&String>, at: &str, reader: &mut Reader<'_>) -> Option<Target> {
    match (object, workload_of) {
        (Some(object), None) => reader.target(format!("{at}.object"), object),
        (None, Some(job)) => {
            let field = format!("{at}.workloadOf");
            reader.job(&field, job).map(Target::WorkloadOf)
        }
        _ => {
            reader.invalid(at.to_owned(), "write either object or workloadOf".to_owned());
            None
        }
    }
}

fn patch(event: &ScenarioPatch, at: &str, reader: &mut Reader<'_>) -> Option<Action> {
    let target = one_of(event.object.as_ref(), event.workload_of.as_ref(), at, reader);
    if let Some(Target::NodePool(pool)) = &target {
        let why = format!("a node pool is no object of the API; write scale with object: NodePool/{pool}");
        reader.invalid(format!("{at}.object"), why);
        return None;
    }
    let status = match event.subresource.as_deref() {
        None | Some("") => false,
        Some("status") => true,
        Some(other) => {
            reader.invalid(format!("{at}.subresource"), format!("there is no subresource {other:?}; write status"));
            return None;
        }
    };
    if event.merge.as_object().is_none_or(serde_json::Map::is_empty) {
        let why = "write the fields that are to change, such as {spec: {stopPolicy: Hold}}";
        reader.invalid(format!("{at}.merge"), why.to_owned());
        return None;
    }
    Some(Action::Patch { target: target?, status, merge: event.merge.clone() })
}

fn scale(event: &ScenarioScale, at: &str, reader: &mut Reader<'_>) -> Option<Action> {
    let target = reader.target(format!("{at}.object"), &event.object)?;
    let mut wrong = Vec::new();
    let job = match target {
        Target::NodePool(pool) => {
            let strange = [
                ("replicatedJob", event.replicated_job.is_some()),
                ("workerGroup", event.worker_group.is_some()),
                ("replicas", event.replicas.is_some()),
                ("parallelism", event.parallelism.is_some()),
            ];
            wrong.extend(strange.iter().filter(|(_, there)| *there).map(|(name, _)| *name));
            strange_fields(&wrong, "a NodePool", "minNodes and maxNodes", at, reader)?;
            let nodes = |field: &str, n: Option<i32>, reader: &mut Reader<'_>| match n.map(u32::try_from) {
                None => Some(None),
                Some(Ok(n)) => Some(Some(n)),
                Some(Err(_)) => {
                    reader.invalid(format!("{at}.{field}"), "must be 0 or more".to_owned());
                    None
                }
            };
            let min = nodes("minNodes", event.min_nodes, reader)?;
            let max = nodes("maxNodes", event.max_nodes, reader)?;
            if min.is_none() && max.is_none() {
                reader.invalid(at.to_owned(), "write minNodes, maxNodes or both".to_owned());
                return None;
            }
            return Some(Action::ScalePool { pool, min, max });
        }
        Target::Object(job) | Target::WorkloadOf(job) => job,
    };
    let (strange, may): (&[(&str, bool)], &str) = match job.kind {
        Kind::Job => (
            &[
                ("replicatedJob", event.replicated_job.is_some()),
                ("workerGroup", event.worker_group.is_some()),
                ("replicas", event.replicas.is_some()),
            ],
            "parallelism",
        ),
        Kind::JobSet => {
            (&[("workerGroup", event.worker_group.is_some())], "replicas and parallelism of a replicatedJob")
        }
        Kind::RayJob | Kind::RayCluster => (
            &[("replicatedJob", event.replicated_job.is_some()), ("parallelism", event.parallelism.is_some())],
            "replicas of a workerGroup",
        ),
        kind => {
            let why = format!("a {kind} has no size; name a Job, JobSet, RayJob, RayCluster or NodePool");
            reader.invalid(format!("{at}.object"), why);
            return None;
        }
    };
    wrong.extend(strange.iter().filter(|(_, there)| *there).map(|(name, _)| *name));
    wrong.extend(event.min_nodes.map(|_| "minNodes").into_iter().chain(event.max_nodes.map(|_| "maxNodes")));
    strange_fields(&wrong, &format!("a {}", job.kind), may, at, reader)?;
    for (field, n) in [("replicas", event.replicas), ("parallelism", event.parallelism)] {
        if n.is_some_and(|n| n < 0) {
            reader.invalid(format!("{at}.{field}"), "must be 0 or more".to_owned());
            return None;
        }
    }
    if event.replicas.is_none() && event.parallelism.is_none() {
        reader.invalid(at.to_owned(), format!("write the new size: {may}"));
        return None;
    }
    let part = event.replicated_job.clone().or_else(|| event.worker_group.clone());
    Some(Action::Scale { job, part, size: Size { replicas: event.replicas, parallelism: event.parallelism } })
}

/// Tells of fields that the target does not have.
fn strange_fields(wrong: &[&str], what: &str, may: &str, at: &str, reader: &mut Reader<'_>) -> Option<()> {
    let Some(first) = wrong.first() else { return Some(()) };
    reader.invalid(format!("{at}.{first}"), format!("{what} has none; what can be changed is {may}"));
    None
}

fn delete(event: &ScenarioDelete, at: &str, reader: &mut Reader<'_>) -> Option<Action> {
    let target = one_of(event.object.as_ref(), event.workload_of.as_ref(), at, reader);
    if let Some(Target::NodePool(pool)) = &target {
        let why = format!("a node pool cannot be deleted here; scale NodePool/{pool} to maxNodes: 0 and drain it");
        reader.invalid(format!("{at}.object"), why);
        return None;
    }
    let propagation = match event.propagation.as_deref() {
        None | Some("Background" | "") => Propagation::Background,
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        Some(other) => {
            let why = format!("{other:?} is not known; write Background, Foreground or Orphan");
            reader.invalid(format!("{at}.propagation"), why);
            return None;
        }
    };
    Some(Action::Delete { target: target?, propagation })
}

fn evict_node(event: &ScenarioEvictNode, at: &str, reader: &mut Reader<'_>) -> Option<Action> {
    let nodes = match (&event.node, &event.pool, &event.job) {
        (Some(node), None, None) => Drained::Node(node.as_str().into()),
        (None, Some(pool), None) => Drained::Pool(pool.as_str().into()),
        (None, None, Some(job)) => Drained::Job(reader.job(&format!("{at}.job"), job)?),
        _ => {
            reader.invalid(at.to_owned(), "write one of node, pool and job".to_owned());
            return None;
        }
    };
    let count = match event.count.map(usize::try_from) {
        None => None,
        Some(Ok(n)) if n > 0 => Some(n),
        Some(_) => {
            reader.invalid(format!("{at}.count"), "must be 1 or more".to_owned());
            return None;
        }
    };
    let lasts = match &event.lasts {
        None => None,
        Some(text) => Some(reader.duration(&format!("{at}.for"), Some(text))?),
    };
    Some(Action::EvictNode { nodes, count, lasts })
}

fn dws(event: &ScenarioDws, at: &str, reader: &mut Reader<'_>) -> Option<Action> {
    let object = match reader.target(format!("{at}.object"), &event.object)? {
        Target::Object(object) if has_requests(object.kind) => object,
        _ => {
            let why = format!("{:?} gets no ProvisioningRequests; {NAME_A_JOB}", event.object);
            reader.invalid(format!("{at}.object"), why);
            return None;
        }
    };
    let outcome = match event.outcome.as_str() {
        "FindsCapacity" => DwsOutcome::FindsCapacity,
        "Fails" => DwsOutcome::Fails,
        "BookingExpires" => DwsOutcome::BookingExpires,
        "RevokesCapacity" => DwsOutcome::RevokesCapacity,
        other => {
            let why = format!("{other:?} is not known; write FindsCapacity, Fails, BookingExpires or RevokesCapacity");
            reader.invalid(format!("{at}.outcome"), why);
            return None;
        }
    };
    Some(Action::Dws { object, outcome, reason: event.reason.clone(), message: event.message.clone() })
}

impl Reader<'_> {
    fn target(&mut self, field: String, text: &str) -> Option<Target> {
        target(text).map_err(|why| self.invalid(field, why)).ok()
    }

    fn job(&mut self, field: &str, text: &str) -> Option<ObjectRef> {
        match self.target(field.to_owned(), text)? {
            Target::Object(job) if is_job_kind(job.kind) => Some(job),
            _ => {
                self.invalid(
                    field.to_owned(),
                    format!("{text:?} is no job; name one as kind/name or kind/namespace/name"),
                );
                None
            }
        }
    }
}
