//! The Dynamic Workload Scheduler: it answers ProvisioningRequests of the class `queued-provisioning.gke.io`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use slicegate_tpu::label;
use tokio::time::Instant;

use crate::api::{POD_TEMPLATES, PROVISIONING_REQUESTS, is_true, items, text};
use crate::error::{Error, Result};
use crate::gke::{Change, Gke, Shared, follow, now, place};

/// The class of requests that it answers.
pub const CLASS: &str = "queued-provisioning.gke.io";

const EVERY: Duration = Duration::from_millis(200);

/// What becomes of a ProvisioningRequest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is accepted, and provisioned after this time, as soon as a pool that suits is empty.
    Provision {
        /// From being accepted.
        after: Duration,
    },
    /// It is accepted, and fails after this time.
    Fail {
        /// From being accepted.
        after: Duration,
        /// The condition's reason, such as `OutOfResources`.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// It is accepted, and waits until the test says more.
    Wait,
    /// Nobody looks at it.
    Ignore,
}

pub(super) async fn run(shared: Arc<Shared>) {
    let seen: Mutex<BTreeMap<(String, String), Value>> = Mutex::new(BTreeMap::new());
    let locked = || seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let client = shared.client.clone();
    let watching = async {
        let mut listed = BTreeMap::new();
        follow(&client, PROVISIONING_REQUESTS, |change| match change {
            Change::Begin => listed.clear(),
            Change::Is(request) => {
                listed.insert(place(&request), request.clone());
                locked().insert(place(&request), request);
            }
            Change::Listed => *locked() = std::mem::take(&mut listed),
            Change::Gone(request) => drop(locked().remove(&place(&request))),
        })
        .await;
    };
    let answering = async {
        let mut accepted_at: BTreeMap<String, Instant> = BTreeMap::new();
        let mut done: BTreeSet<String> = BTreeSet::new();
        loop {
            tokio::time::sleep(EVERY).await;
            let requests: Vec<Value> = locked().values().cloned().collect();
            for request in requests.iter().filter(|r| text(r, "/spec/provisioningClassName") == CLASS) {
                let uid = text(request, "/metadata/uid").to_owned();
                if done.contains(&uid) {
                    continue;
                }
                // What could not be written is tried again at the next look.
                if let Ok(true) = shared.answer_one(request, &mut accepted_at).await {
                    done.insert(uid);
                }
            }
        }
    };
    tokio::join!(watching, answering);
}

impl Shared {
    /// Does what is next for a request. Says whether nothing more is to be done.
    async fn answer_one(&self, request: &Value, accepted_at: &mut BTreeMap<String, Instant>) -> Result<bool> {
        if ["Provisioned", "Failed"].iter().any(|c| is_true(request, c)) {
            return Ok(true);
        }
        let answer = {
            let state = self.state();
            state.answers.get(&place(request)).unwrap_or(&state.settings.answer).clone()
        };
        if answer == Answer::Ignore {
            return Ok(false);
        }
        let uid = text(request, "/metadata/uid").to_owned();
        let since = if let Some(since) = accepted_at.get(&uid) {
            *since
        } else {
            if !is_true(request, "Accepted") {
                let message = "Provisioning Request was successfully queued.";
                self.tell(request, "Accepted", "SuccessfullyQueued", message, None).await?;
            }
            let now = Instant::now();
            accepted_at.insert(uid, now);
            now
        };
        match answer {
            Answer::Fail { after, reason, message } if since.elapsed() >= after => {
                self.tell(request, "Failed", &reason, &message, None).await?;
                Ok(true)
            }
            Answer::Provision { after } if since.elapsed() >= after => self.provision(request).await,
            _ => Ok(false),
        }
    }

    /// Makes nodes for a request, if a pool that suits is empty.
    async fn provision(&self, request: &Value) -> Result<bool> {
        let (namespace, name) = place(request);
        let Some(pod_set) = items(request, "/spec/podSets").first() else { return Ok(true) };
        let template = text(pod_set, "/podTemplateRef/name");
        let Some(template) = POD_TEMPLATES.get(&self.client, &namespace, template).await? else { return Ok(false) };
        let spec = template.pointer("/template/spec").cloned().unwrap_or_default();
        let count = pod_set.get("count").and_then(Value::as_u64).and_then(|c| u32::try_from(c).ok()).unwrap_or(1);
        let resize_request = format!("gke-{namespace}-{name}");
        let resize_request: String = resize_request.chars().take(63).collect();
        let chosen = {
            let mut state = self.state();
            let mut suitable = state.pools.iter_mut().filter(|(_, p)| {
                let room = p.pool.autoscaled.unwrap_or(0);
                p.pool.queued && p.nodes.is_empty() && !p.growing && room >= count && p.pool.suits(&tolerant(&spec))
            });
            suitable.next().map(|(name, pool)| {
                pool.growing = true;
                name.clone()
            })
        };
        let Some(pool) = chosen else { return Ok(false) };
        let labels = BTreeMap::from([(label::PROVISIONING_REQUEST.to_owned(), resize_request.clone())]);
        let result = async {
            self.grow(&pool, count, &labels).await?;
            let details = json!({"ResizeRequestName": resize_request, "NodePoolName": pool});
            let message = "Provisioning Request was successfully provisioned.";
            self.tell(request, "Provisioned", "Provisioned", message, Some(details)).await
        }
        .await;
        if let Some(found) = self.state().pools.get_mut(&pool) {
            found.growing = false;
            found.for_whom = Some(text(request, "/metadata/uid").to_owned());
        }
        if result.is_err() {
            self.shrink(&pool).await?;
        }
        result.map(|()| true)
    }

    /// Adds a condition to a request.
    async fn tell(
        &self,
        request: &Value,
        kind: &str,
        reason: &str,
        message: &str,
        details: Option<Value>,
    ) -> Result<()> {
        let (namespace, name) = place(request);
        let current = PROVISIONING_REQUESTS.get(&self.client, &namespace, &name).await?;
        let current = current.ok_or_else(|| Error::new(format!("ProvisioningRequest {namespace}/{name} is gone")))?;
        let mut conditions: Vec<Value> =
            items(&current, "/status/conditions").iter().filter(|c| text(c, "/type") != kind).cloned().collect();
        conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now(), "observedGeneration": current["metadata"]["generation"]}));
        let mut status = json!({"conditions": conditions});
        if let Some(details) = details {
            status["provisioningClassDetails"] = details;
        }
        let body = json!({"metadata": {"resourceVersion": current["metadata"]["resourceVersion"]}, "status": status});
        PROVISIONING_REQUESTS.patch_status(&self.client, &namespace, &name, &body).await.map(drop)
    }
}

/// The autoscaler assumes that the pods of a request tolerate what their nodes are tainted with.
fn tolerant(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut tolerations = items(&spec, "/tolerations").to_vec();
    tolerations.push(json!({"key": label::QUEUED, "operator": "Equal", "value": "true", "effect": "NoSchedule"}));
    spec["tolerations"] = tolerations.into();
    spec
}

impl Gke {
    /// The reservation of a request that was provisioned is over.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn expire_booking(&self, namespace: &str, name: &str) -> Result<()> {
        let message = "Capacity booking for the Provisioning Request has expired.";
        self.say_of(namespace, name, "BookingExpired", "BookingExpired", message).await
    }

    /// The capacity of a request is taken back, with all that runs there.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn revoke(&self, namespace: &str, name: &str) -> Result<()> {
        let message = "Capacity for the Provisioning Request was revoked.";
        self.say_of(namespace, name, "CapacityRevoked", "CapacityRevoked", message).await?;
        let request = PROVISIONING_REQUESTS.get(&self.shared.client, namespace, name).await?.unwrap_or_default();
        let pool = text(&request, "/status/provisioningClassDetails/NodePoolName").to_owned();
        if pool.is_empty() { Ok(()) } else { self.shared.shrink(&pool).await }
    }

    /// A request fails now.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn fail_request(&self, namespace: &str, name: &str, reason: &str, message: &str) -> Result<()> {
        self.answer(namespace, name, Answer::Wait);
        self.say_of(namespace, name, "Failed", reason, message).await
    }

    async fn say_of(&self, namespace: &str, name: &str, kind: &str, reason: &str, message: &str) -> Result<()> {
        let request = json!({"metadata": {"namespace": namespace, "name": name}});
        self.shared.tell(&request, kind, reason, message, None).await
    }
}
