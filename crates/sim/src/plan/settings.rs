//! The numbers of a simulation.

use std::collections::BTreeMap;

use slicegate_api::scenario::{Dws, Scenario};
use slicegate_api::{Kind, ObjectRef};
use slicegate_workload::Timestamp;

use super::Reader;
use super::target::{Target, target};
use crate::input::ScenarioError;

const SECOND: i64 = 1_000_000;
const WEEK: i64 = 7 * 86_400 * SECOND;

/// The bounds of a scenario's start: 1970 and 5000, in seconds since 1970. Later ones would let a long run leave the calendar.
const EARLIEST: i64 = 0;
const LATEST: i64 = 95_617_584_000;

/// What may stand for a wait without end.
const NEVER: &str = "never";

/// The numbers of a simulation, in microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) start: Timestamp,
    pub(crate) until: Option<i64>,
    pub(crate) run_time: i64,
    pub(crate) run_times: BTreeMap<String, i64>,
    pub(crate) node_provisioning: i64,
    pub(crate) dws: DwsSettings,
    pub(crate) scale_down_after: i64,
    /// From the first attempt to form a slice of partitions to its being formed.
    pub(crate) slice_formation: i64,
    /// From being bound to running.
    pub(crate) pod_start: i64,
    /// From being told to stop to being gone.
    pub(crate) pod_stop: i64,
    /// How long the Job controller waits after followers were refused.
    pub(crate) follower_delay: i64,
}

/// A wait that may have no end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    For(i64),
    Never,
}

/// What the provider does with ProvisioningRequests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DwsSettings {
    /// How long it takes to find capacity.
    pub(crate) finds_capacity: Wait,
    pub(crate) gives_up: i64,
    pub(crate) max_run: i64,
    pub(crate) requests: Vec<DwsRule>,
}

/// What happens to particular requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DwsRule {
    /// A ProvisioningRequest, or the job that it is for.
    pub(crate) object: ObjectRef,
    pub(crate) attempt: Option<i32>,
    pub(crate) finds_capacity: Option<Wait>,
    pub(crate) gives_up: Option<i64>,
    pub(crate) fails: Option<i64>,
    pub(crate) revoked: Option<i64>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // 2026-01-01T00:00:00Z
            start: Timestamp::from_seconds(1_767_225_600),
            until: None,
            run_time: 60 * SECOND,
            run_times: BTreeMap::new(),
            node_provisioning: 120 * SECOND,
            dws: DwsSettings {
                finds_capacity: Wait::For(300 * SECOND),
                gives_up: WEEK,
                max_run: WEEK,
                requests: Vec::new(),
            },
            scale_down_after: 600 * SECOND,
            slice_formation: 60 * SECOND,
            pod_start: SECOND,
            pod_stop: SECOND,
            follower_delay: SECOND,
        }
    }
}

impl Settings {
    /// Takes over what a scenario says.
    pub(super) fn read(&mut self, scenario: &Scenario, errors: &mut Vec<ScenarioError>) {
        let name = scenario.metadata.name.clone().unwrap_or_default();
        let spec = &scenario.spec;
        let mut reader = Reader { scenario: &name, errors };
        if let Some(until) = reader.duration("spec.until", spec.until.as_ref()) {
            self.until = Some(self.until.map_or(until, |limit| limit.min(until)));
        }
        for (field, text, value) in [
            ("spec.runTime", spec.run_time.as_ref(), &mut self.run_time),
            ("spec.nodeProvisioning", spec.node_provisioning.as_ref(), &mut self.node_provisioning),
            ("spec.sliceFormation", spec.slice_formation.as_ref(), &mut self.slice_formation),
            ("spec.scaleDownAfter", spec.scale_down_after.as_ref(), &mut self.scale_down_after),
        ] {
            if let Some(read) = reader.duration(field, text) {
                *value = read;
            }
        }
        self.dws.read(&spec.dws.clone().unwrap_or_default(), &mut reader);
        for (job, text) in &spec.run_times {
            if let Some(time) = reader.duration(&format!("spec.runTimes[{job}]"), Some(text)) {
                self.run_times.insert(job.clone(), time);
            }
        }
        if let Some(start) = &spec.start {
            match start.parse::<k8s_openapi::jiff::Timestamp>() {
                Ok(time) if (EARLIEST..LATEST).contains(&time.as_second()) => {
                    self.start = Timestamp::from_seconds(time.as_second());
                }
                _ => reader.errors.push(ScenarioError::Start { scenario: name.clone(), text: start.clone() }),
            }
        }
    }
}

impl DwsSettings {
    fn read(&mut self, dws: &Dws, reader: &mut Reader<'_>) {
        if let Some(read) = wait(reader, "spec.dws.findsCapacityAfter", dws.finds_capacity_after.as_ref()) {
            self.finds_capacity = read;
        }
        for (field, text, value) in [
            ("spec.dws.givesUpAfter", dws.gives_up_after.as_ref(), &mut self.gives_up),
            ("spec.dws.maxRunDuration", dws.max_run_duration.as_ref(), &mut self.max_run),
        ] {
            if let Some(read) = reader.duration(field, text) {
                *value = read;
            }
        }
        for (i, request) in dws.requests.iter().enumerate() {
            let field = |rest: &str| format!("spec.dws.requests[{i}].{rest}");
            let object = match target(&request.object) {
                Ok(Target::Object(object)) if has_requests(object.kind) => object,
                Ok(_) => {
                    let why = format!("{:?} gets no ProvisioningRequests; {NAME_A_JOB}", request.object);
                    reader.invalid(field("object"), why);
                    continue;
                }
                Err(why) => {
                    reader.invalid(field("object"), why);
                    continue;
                }
            };
            if request.attempt.is_some_and(|n| n < 1) {
                reader.invalid(field("attempt"), "attempts count from 1".to_owned());
            }
            let rule = DwsRule {
                object,
                attempt: request.attempt,
                finds_capacity: wait(reader, &field("findsCapacityAfter"), request.finds_capacity_after.as_ref()),
                gives_up: reader.duration(&field("givesUpAfter"), request.gives_up_after.as_ref()),
                fails: reader.duration(&field("failsAfter"), request.fails_after.as_ref()),
                revoked: reader.duration(&field("revokedAfter"), request.revoked_after.as_ref()),
                reason: request.reason.clone(),
                message: request.message.clone(),
            };
            self.requests.push(rule);
        }
    }
}

/// What to write where a ProvisioningRequest or the job behind it is named.
pub(super) const NAME_A_JOB: &str =
    "name a job, a Workload or a ProvisioningRequest as kind/name or kind/namespace/name";

/// Whether objects of the kind can have ProvisioningRequests, or are such.
pub(super) fn has_requests(kind: Kind) -> bool {
    crate::plan::is_job_kind(kind) || kind == Kind::ProvisioningRequest
}

/// A length of time or `never`.
fn wait(reader: &mut Reader<'_>, field: &str, text: Option<&String>) -> Option<Wait> {
    if text.is_some_and(|text| text.trim() == NEVER) {
        return Some(Wait::Never);
    }
    reader.duration(field, text).map(Wait::For)
}
