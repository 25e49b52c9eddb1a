//! `SG10xx`: Kueue's configuration file.

use slicegate_controller::{controller_manager, feature_gates, from_file};

use super::{meant, rule};
use crate::model::Model;
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[rule! {
    "SG1001", Error, "A configuration that the controller refuses",
    why: "the controller does not start with it",
    source: "the reader that slicegate controller itself uses; Kueue docs, Configuration API",
    look: refused,
}];

/// All that `slicegate controller --config` says before it starts, but for what depends on its flags and its machine.
fn refused(model: &Model<'_>, out: &mut Sink<'_>) {
    for file in &model.configurations {
        let errors = from_file(file.object).err().into_iter().chain(controller_manager(file.object).err()).flatten();
        for error in errors {
            let gate = error.feature_gate().and_then(|name| meant(name, feature_gates()));
            let help = gate.map(|name| format!("write {name}")).unwrap_or_default();
            out.report(file.document, &error.path, error.why.clone(), help);
        }
    }
}
