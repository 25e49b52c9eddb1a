//! Other sizes for jobs and node pools.

use serde_json::{Value, json};
use slicegate_api::{Kind, Object, ObjectRef};

use crate::plan::Size;
use crate::timeline::EntryKind;
use crate::world::World;

/// A list of an object and how to find a part of it.
struct Parts {
    /// Where the list is, as a JSON pointer.
    list: &'static str,
    /// The field with the name of a part.
    name: &'static str,
    /// What a part is called.
    called: &'static str,
}

const REPLICATED_JOBS: Parts = Parts { list: "/spec/replicatedJobs", name: "name", called: "replicatedJob" };
const WORKER_GROUPS: Parts = Parts { list: "/spec/workerGroupSpecs", name: "groupName", called: "workerGroup" };
const RAYJOB_GROUPS: Parts =
    Parts { list: "/spec/rayClusterSpec/workerGroupSpecs", name: "groupName", called: "workerGroup" };

impl World {
    /// Gives a job, or a part of it, another size, as `kubectl patch` would; of a RayJob whose cluster scales itself, as Ray's
    /// autoscaler would.
    pub(super) fn play_scale(&mut self, job: &ObjectRef, part: Option<&str>, size: Size) {
        let cluster = self.scaled_cluster(job);
        let key = cluster.as_ref().unwrap_or(job);
        let Some(object) = self.store.get(key) else {
            let why = slicegate_controller::WriteError::NotFound(key.clone()).to_string();
            self.refuse(job, why);
            return;
        };
        let Ok(live) = object.to_json() else { return };
        let planned = match key.kind {
            Kind::JobSet => in_part(&live, &REPLICATED_JOBS, part, size),
            Kind::RayCluster => in_part(&live, &WORKER_GROUPS, part, size),
            Kind::RayJob => in_part(&live, &RAYJOB_GROUPS, part, size),
            _ => {
                let before = live.pointer("/spec/parallelism").and_then(Value::as_i64).unwrap_or(1);
                let after = size.parallelism.unwrap_or(1);
                Ok((json!({"spec": {"parallelism": after}}), format!("parallelism {before} -> {after}")))
            }
        };
        match planned {
            Ok((patch, text)) => {
                let by = if cluster.is_some() { " by Ray's autoscaler" } else { "" };
                let key = key.clone();
                let result = self.store.patch(&key, false, &patch);
                self.tell_write(job, EntryKind::Scaled, format!("scaled{by}: {text}"), result);
            }
            Err(why) => self.refuse(job, format!("{job} cannot be scaled: {why}")),
        }
    }

    /// The RayCluster of a RayJob that Ray's own autoscaler resizes.
    fn scaled_cluster(&self, job: &ObjectRef) -> Option<ObjectRef> {
        let Some(Object::RayJob(rayjob)) = self.store.get(job) else { return None };
        let scales = rayjob.spec.ray_cluster_spec.as_ref()?.enable_in_tree_autoscaling == Some(true);
        let name = rayjob.status.ray_cluster_name.as_deref().filter(|_| scales)?;
        let cluster = ObjectRef::new(Kind::RayCluster, &*job.namespace, name);
        self.store.get(&cluster).map(|_| cluster)
    }

    /// Gives a node pool other autoscaling limits.
    pub(super) fn play_scale_pool(&mut self, name: &str, min: Option<u32>, max: Option<u32>) {
        let Some(id) = self.nodes.pool_named(name) else {
            self.say(None, EntryKind::Refused, format!("there is no node pool {name} to scale"));
            return;
        };
        let pool = &mut self.nodes.pools[id.0];
        let (low, high) = pool.autoscaling.unwrap_or((pool.target(), pool.target()));
        let (min, max) = (min.unwrap_or(low), max.unwrap_or(high));
        if min > max {
            let why = format!("node pool {name} cannot be scaled: minNodes {min} is more than maxNodes {max}");
            self.say(None, EntryKind::Refused, why);
            return;
        }
        pool.autoscaling = Some((min, max));
        self.note_pool_limits(name, min, max);
        self.say(None, EntryKind::Scaled, format!("node pool {name} scaled: {low} to {high} nodes -> {min} to {max}"));
        self.nodes.grow = true;
        self.nodes.retry = true;
        self.stuck.clear();
        self.retry_requests();
        self.watch_idle(id);
    }
}

/// The merge patch that gives a part of a job another size, and what it does in words.
fn in_part(live: &Value, parts: &Parts, part: Option<&str>, size: Size) -> Result<(Value, String), String> {
    let list = live.pointer(parts.list).and_then(Value::as_array).cloned().unwrap_or_default();
    let name_of = |item: &Value| item.get(parts.name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let names: Vec<String> = list.iter().map(name_of).collect();
    let called = parts.called;
    let index = match part {
        Some(part) => names.iter().position(|name| name == part).ok_or_else(|| {
            format!(
                "it has no {called} {part}, but {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )
        })?,
        None if list.len() == 1 => 0,
        None => return Err(format!("write which {called}: {}", names.join(", "))),
    };
    let mut list = list;
    let Some(item) = list.get_mut(index) else { return Err(format!("it has no {called}")) };
    let mut words = Vec::new();
    if let Some(after) = size.replicas {
        let before = item.get("replicas").and_then(Value::as_i64).unwrap_or(1);
        if let Some(most) = item.get("maxReplicas").and_then(Value::as_i64).filter(|most| i64::from(after) > *most) {
            return Err(format!("{called} {} has maxReplicas {most}", name_of(item)));
        }
        if let Some(least) = item.get("minReplicas").and_then(Value::as_i64).filter(|least| i64::from(after) < *least) {
            return Err(format!("{called} {} has minReplicas {least}", name_of(item)));
        }
        words.push(format!("replicas {before} -> {after}"));
        if let Some(fields) = item.as_object_mut() {
            fields.insert("replicas".to_owned(), after.into());
        }
    }
    if let Some(after) = size.parallelism {
        let spec = item.pointer_mut("/template/spec").and_then(Value::as_object_mut);
        let Some(spec) = spec else { return Err(format!("{called} {} has no template", names.join(", "))) };
        let before = spec.get("parallelism").and_then(Value::as_i64).unwrap_or(1);
        words.push(format!("parallelism {before} -> {after}"));
        spec.insert("parallelism".to_owned(), after.into());
    }
    let text = format!("{called} {}: {}", name_of(item), words.join(", "));
    let mut patch = Value::Array(list);
    for key in parts.list.split('/').skip(1).collect::<Vec<_>>().into_iter().rev() {
        patch = json!({ key: patch });
    }
    Ok((patch, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobset() -> Value {
        json!({"spec": {"replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": {"parallelism": 1}}},
            {"name": "slice", "replicas": 2, "template": {"spec": {"parallelism": 4}}}
        ]}})
    }

    #[test]
    fn the_named_part_is_changed_and_the_others_stay() {
        let size = Size { replicas: Some(3), parallelism: Some(8) };
        let (patch, text) = in_part(&jobset(), &REPLICATED_JOBS, Some("slice"), size).unwrap();
        let jobs = &patch["spec"]["replicatedJobs"];
        assert_eq!((&jobs[0]["replicas"], &jobs[1]["replicas"]), (&json!(1), &json!(3)));
        assert_eq!(jobs[1]["template"]["spec"]["parallelism"], 8);
        assert_eq!(text, "replicatedJob slice: replicas 2 -> 3, parallelism 4 -> 8");
    }

    #[test]
    fn a_part_that_is_not_clear_or_out_of_bounds_is_told() {
        let size = Size { replicas: Some(3), parallelism: None };
        let why = in_part(&jobset(), &REPLICATED_JOBS, None, size).unwrap_err();
        assert_eq!(why, "write which replicatedJob: driver, slice");
        assert!(in_part(&jobset(), &REPLICATED_JOBS, Some("x"), size).unwrap_err().contains("driver, slice"));
        let cluster = json!({"spec": {"workerGroupSpecs": [{"groupName": "tpu", "maxReplicas": 2, "minReplicas": 1}]}});
        assert!(in_part(&cluster, &WORKER_GROUPS, None, size).unwrap_err().contains("maxReplicas 2"));
        let size = Size { replicas: Some(0), parallelism: None };
        assert!(in_part(&cluster, &WORKER_GROUPS, None, size).unwrap_err().contains("minReplicas 1"));
    }
}
