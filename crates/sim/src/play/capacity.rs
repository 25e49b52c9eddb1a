//! What the provider decides about ProvisioningRequests when a scenario says so.

use slicegate_api::{Kind, Object, ObjectRef};

use crate::plan::DwsOutcome;
use crate::world::World;

impl World {
    pub(super) fn play_dws(
        &mut self,
        object: &ObjectRef,
        outcome: DwsOutcome,
        reason: Option<String>,
        message: Option<String>,
    ) {
        let Some(key) = self.request_of(object) else {
            self.refuse(object, format!("{object} has no ProvisioningRequest"));
            return;
        };
        let done = match outcome {
            DwsOutcome::FindsCapacity => self.find_capacity(&key),
            DwsOutcome::Fails => self.fail_request(&key, reason, message),
            DwsOutcome::BookingExpires => self.expire_booking(&key, reason, message),
            DwsOutcome::RevokesCapacity => self.revoke(&key, reason, message),
        };
        if let Err(why) = done {
            self.refuse(object, format!("ProvisioningRequest {} {why}", key.name));
        }
    }

    /// The newest ProvisioningRequest that an object has, or the object itself.
    fn request_of(&self, object: &ObjectRef) -> Option<ObjectRef> {
        if object.kind == Kind::ProvisioningRequest {
            return self.store.get(object).map(|_| object.clone());
        }
        let all = self.store.of_kind(Kind::ProvisioningRequest).filter(|(key, _)| self.is_request_of(key, object));
        all.max_by_key(|(_, request)| match request {
            Object::ProvisioningRequest(r) => {
                let version = r.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
                (r.metadata.creation_timestamp.clone(), version)
            }
            _ => (None, None),
        })
        .map(|(key, _)| key.clone())
    }
}
