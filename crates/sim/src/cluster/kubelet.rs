//! The kubelet: pods start, run for their time, and end.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, PodCondition, PodIP,
};
use slicegate_api::{Kind, Object, ObjectRef, Pod, Time};

use crate::store::{api_time, controller_of};
use crate::timeline::EntryKind;
use crate::world::{Event, World};

/// A condition of a pod.
pub(crate) fn condition(kind: &str, status: &str, reason: Option<&str>, time: &Time) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(ToOwned::to_owned),
        last_transition_time: Some(time.clone()),
        ..PodCondition::default()
    }
}

fn container_statuses(pod: &Pod, state: &ContainerState, ready: bool) -> Vec<ContainerStatus> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container| ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            ready,
            started: Some(ready),
            state: Some(state.clone()),
            ..ContainerStatus::default()
        })
        .collect()
}

/// How often the containers of a pod started again.
pub(crate) fn restarts_of(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

impl World {
    /// A pod of the store that is still the one meant.
    fn pod_of(&self, key: &ObjectRef, uid: &str) -> Option<Arc<Pod>> {
        match self.store.get(key) {
            Some(Object::Pod(pod)) if pod.metadata.uid.as_deref() == Some(uid) => Some(pod.clone()),
            _ => None,
        }
    }

    /// The containers of a pod start.
    pub(crate) fn pod_start(&mut self, key: &ObjectRef, uid: &str) {
        let Some(mut pod) = self.pod_of(key, uid) else { return };
        if pod.metadata.deletion_timestamp.is_some() || super::is_over(&pod) || self.stands_still(key) {
            return;
        }
        let run_time = self.pod_run_time(&pod);
        let time = api_time(self.now);
        let changed = Arc::make_mut(&mut pod);
        let state = ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(time.clone()) }),
            ..ContainerState::default()
        };
        let containers = container_statuses(changed, &state, true);
        let ip = self.next_ip();
        let status = changed.status.get_or_insert_default();
        status.phase = Some("Running".to_owned());
        status.start_time = Some(time.clone());
        let kinds = ["Initialized", "ContainersReady", "Ready", "PodScheduled"];
        status.conditions = Some(kinds.iter().map(|kind| condition(kind, "True", None, &time)).collect());
        status.container_statuses = Some(containers);
        status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
        status.pod_ip = Some(ip);
        self.store.put(Object::Pod(pod));
        if let Some(run_time) = run_time {
            let event = Event::PodFinish { pod: key.clone(), uid: uid.into(), restarts: 0 };
            self.queue.schedule(self.now.plus_micros(run_time), event);
        }
    }

    fn next_ip(&mut self) -> String {
        self.ips = self.ips.wrapping_add(1);
        let [_, b, c, d] = self.ips.to_be_bytes();
        format!("10.{}.{c}.{d}", 4_u8.saturating_add(b))
    }

    /// How long a pod runs; `None` for pods that run until they are deleted.
    fn pod_run_time(&self, pod: &Pod) -> Option<i64> {
        let object = Object::Pod(Arc::new(pod.clone()));
        let owner = controller_of(&object);
        if owner.is_some_and(|owner| owner.kind == "RayCluster") {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(owner) = owner.filter(|owner| owner.kind == "Job") else {
            return Some(self.run_time_of(&object));
        };
        let job = ObjectRef::new(Kind::Job, namespace, owner.name.as_str());
        let Some(job) = self.store.get(&job) else { return Some(self.settings.run_time) };
        let above = controller_of(job).and_then(|owner| {
            let kind = match owner.kind.as_str() {
                "JobSet" => Kind::JobSet,
                "RayJob" => Kind::RayJob,
                _ => return None,
            };
            self.store.get(&ObjectRef::new(kind, namespace, owner.name.as_str()))
        });
        Some(self.run_time_of(above.unwrap_or(job)))
    }

    /// The containers of a pod end well.
    pub(crate) fn pod_finish(&mut self, key: &ObjectRef, uid: &str, restarts: i32) {
        let Some(mut pod) = self.pod_of(key, uid) else { return };
        if pod.metadata.deletion_timestamp.is_some()
            || !super::is_running(&pod)
            || self.stands_still(key)
            || restarts_of(&pod) != restarts
        {
            return;
        }
        let time = api_time(self.now);
        let changed = Arc::make_mut(&mut pod);
        let started = changed.status.as_ref().and_then(|status| status.start_time.clone());
        let state = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: 0,
                reason: Some("Completed".to_owned()),
                started_at: started,
                finished_at: Some(time.clone()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        };
        let containers = container_statuses(changed, &state, false);
        let status = changed.status.get_or_insert_default();
        status.phase = Some("Succeeded".to_owned());
        let mut conditions = vec![condition("Initialized", "True", Some("PodCompleted"), &time)];
        conditions.push(condition("Ready", "False", Some("PodCompleted"), &time));
        conditions.push(condition("ContainersReady", "False", Some("PodCompleted"), &time));
        conditions.push(condition("PodScheduled", "True", None, &time));
        status.conditions = Some(conditions);
        status.container_statuses = Some(containers);
        self.store.put(Object::Pod(pod));
    }

    /// A pod that was told to go has gone.
    pub(crate) fn pod_gone(&mut self, key: &ObjectRef, uid: &str) {
        let Some(pod) = self.pod_of(key, uid) else { return };
        // A broken host answers no more; the pod goes with its node.
        if self.nodes.node_of(key).is_some_and(|node| !node.ready) {
            return;
        }
        if self.counts_deleted(&pod) {
            self.pod_failed(key, &pod);
        }
        self.store.remove(key);
    }

    /// Whether nothing runs on a pod's node.
    fn stands_still(&self, key: &ObjectRef) -> bool {
        self.nodes.node_of(key).is_some_and(|node| node.down || !node.ready)
    }

    /// The program of a pod ends with an error: the container starts again, or the pod has failed, as its restart policy says.
    pub(crate) fn fail_program(&mut self, key: &ObjectRef, code: i32) {
        let Some(Object::Pod(pod)) = self.store.get(key) else { return };
        let mut pod = pod.clone();
        let job = self.job_of_pod(key);
        if !super::is_running(&pod) || pod.metadata.deletion_timestamp.is_some() || self.stands_still(key) {
            let text = format!("nothing breaks: {key} does not run");
            self.say(job, EntryKind::HostFailed, text);
            return;
        }
        self.say(job, EntryKind::HostFailed, format!("the program of pod {} ended with exit code {code}", key.name));
        let never = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
        let time = api_time(self.now);
        let restarts = restarts_of(&pod).saturating_add(i32::from(!never));
        let run_time = self.pod_run_time(&pod);
        let uid: Box<str> = pod.metadata.uid.as_deref().unwrap_or_default().into();
        let changed = Arc::make_mut(&mut pod);
        let ended = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: code,
                reason: Some("Error".to_owned()),
                finished_at: Some(time.clone()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        };
        let status = changed.status.get_or_insert_default();
        for container in status.container_statuses.iter_mut().flatten() {
            if never {
                container.state = Some(ended.clone());
                (container.ready, container.started) = (false, Some(false));
            } else {
                container.last_state = Some(ended.clone());
                container.restart_count = restarts;
            }
        }
        if never {
            status.phase = Some("Failed".to_owned());
            for kind in ["Ready", "ContainersReady"] {
                for old in status.conditions.iter_mut().flatten().filter(|c| c.type_ == kind) {
                    *old = condition(kind, "False", Some("PodFailed"), &time);
                }
            }
        }
        self.store.put(Object::Pod(pod.clone()));
        if let Some(run_time) = run_time.filter(|_| !never) {
            // What it had done is lost.
            self.gauge.pod_lost(key);
            let event = Event::PodFinish { pod: key.clone(), uid, restarts };
            self.queue.schedule(self.now.plus_micros(run_time), event);
        }
    }

    /// Keeps nodes and the scheduler's queue in step with a pod.
    pub(crate) fn observe_pod(&mut self, key: &ObjectRef, pod: &Pod, gone: bool) {
        if gone || super::is_over(pod) {
            if !gone && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed") {
                self.ray_pod_failed(key, pod);
            }
            if gone {
                self.untracked.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            self.nodes.dequeue(key);
            if let Some(pool) = self.nodes.release(key, self.now) {
                self.watch_idle(pool);
            }
            return;
        }
        let spec = pod.spec.as_ref();
        if pod.metadata.deletion_timestamp.is_some() {
            self.nodes.dequeue(key);
            let uid: Box<str> = pod.metadata.uid.as_deref().unwrap_or_default().into();
            if self.terminating.insert(uid.clone()) {
                let at = self.now.plus_micros(self.settings.pod_stop);
                self.queue.schedule(at, Event::PodGone { pod: key.clone(), uid });
            }
        } else if spec.is_some_and(|spec| spec.node_name.is_none()) {
            let gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
            if !gated {
                let gang = super::gang_of(pod).or_else(|| self.ray_gang(pod));
                self.nodes.enqueue(key.clone(), pod, gang);
            }
        }
    }
}
