//! The custom resource definitions of Kueue's kinds: what an API server must know to serve them.
//!
//! Both versions are served and v1beta2 is stored. What the API server can check by itself is in the schemas, as structure or as
//! rules in the Common Expression Language; what needs more than one object or knowledge of resources is left to
//! [validation](crate::validation).

mod others;
mod queues;
mod schema;
mod workload;

use serde_json::{Value, json};

use self::schema::{Schema, object, string};
use crate::kueue::GROUP;

/// A version of the API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// `v1beta1`: served, deprecated.
    V1Beta1,
    /// `v1beta2`: served and stored.
    V1Beta2,
}

impl Version {
    /// Both, the older first.
    pub const ALL: [Self; 2] = [Self::V1Beta1, Self::V1Beta2];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }
}

/// Where an API server finds the webhook that converts between versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversionWebhook {
    /// How it is reached.
    pub client: WebhookClient,
    /// The certificates, PEM in base64, by which the API server knows it; `None` where somebody else fills them in.
    pub ca_bundle: Option<String>,
}

/// How an API server reaches a webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebhookClient {
    /// By the address of a service in the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// By address, where the webhook runs outside the cluster.
    Url(String),
}

impl Default for ConversionWebhook {
    fn default() -> Self {
        let (namespace, name) = ("kueue-system".to_owned(), "kueue-webhook-service".to_owned());
        Self { client: WebhookClient::Service { namespace, name }, ca_bundle: None }
    }
}

impl ConversionWebhook {
    /// The path under which objects are converted.
    pub const PATH: &'static str = "/convert";

    fn to_json(&self) -> Value {
        let mut client = match &self.client {
            WebhookClient::Service { namespace, name } => {
                json!({"service": {"namespace": namespace, "name": name, "path": Self::PATH}})
            }
            WebhookClient::Url(url) => json!({"url": url}),
        };
        if let Some(bundle) = &self.ca_bundle {
            client["caBundle"] = bundle.as_str().into();
        }
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}})
    }
}

/// A kind, as its definition names it.
struct Definition {
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    /// Whether the two versions differ by more than fields that one of them does not have.
    converted: bool,
    schema: fn(Version) -> Schema,
}

const DEFINITIONS: [Definition; 11] = [
    Definition {
        kind: "AdmissionCheck",
        plural: "admissionchecks",
        short: &["ac"],
        namespaced: false,
        converted: false,
        schema: others::admission_check,
    },
    Definition {
        kind: "ClusterQueue",
        plural: "clusterqueues",
        short: &["cq"],
        namespaced: false,
        converted: true,
        schema: queues::cluster_queue,
    },
    Definition {
        kind: "Cohort",
        plural: "cohorts",
        short: &["co"],
        namespaced: false,
        converted: true,
        schema: queues::cohort,
    },
    Definition {
        kind: "LocalQueue",
        plural: "localqueues",
        short: &["queue", "queues", "lq"],
        namespaced: true,
        converted: true,
        schema: queues::local_queue,
    },
    Definition {
        kind: "MultiKueueCluster",
        plural: "multikueueclusters",
        short: &["mkc"],
        namespaced: false,
        converted: true,
        schema: others::multi_kueue_cluster,
    },
    Definition {
        kind: "MultiKueueConfig",
        plural: "multikueueconfigs",
        short: &["mkconf"],
        namespaced: false,
        converted: false,
        schema: others::multi_kueue_config,
    },
    Definition {
        kind: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        short: &["prc"],
        namespaced: false,
        converted: false,
        schema: |_| others::provisioning_request_config(),
    },
    Definition {
        kind: "ResourceFlavor",
        plural: "resourceflavors",
        short: &["flavor", "flavors", "rf"],
        namespaced: false,
        converted: false,
        schema: |_| others::resource_flavor(),
    },
    Definition {
        kind: "Topology",
        plural: "topologies",
        short: &["topo"],
        namespaced: false,
        converted: false,
        schema: others::topology,
    },
    Definition {
        kind: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        short: &["wpc"],
        namespaced: false,
        converted: false,
        schema: others::workload_priority_class,
    },
    Definition {
        kind: "Workload",
        plural: "workloads",
        short: &["kwl", "kueueworkload", "kueueworkloads"],
        namespaced: true,
        converted: true,
        schema: workload::schema,
    },
];

/// The custom resource definitions of all kinds, ready to be applied.
pub fn definitions(webhook: &ConversionWebhook) -> Vec<Value> {
    DEFINITIONS.iter().map(|definition| definition.to_json(webhook)).collect()
}

/// The schema of the objects of a kind in one version, as an API server would check them; `None` for kinds of others.
pub fn schema_of(kind: &str, version: Version) -> Option<Value> {
    DEFINITIONS.iter().find(|d| d.kind == kind).map(|d| (d.schema)(version).into())
}

impl Definition {
    fn to_json(&self, webhook: &ConversionWebhook) -> Value {
        let versions: Vec<Value> = Version::ALL.iter().map(|v| self.version(*v)).collect();
        let mut spec = json!({
            "group": GROUP,
            "names": {
                "kind": self.kind,
                "listKind": format!("{}List", self.kind),
                "plural": self.plural,
                "shortNames": self.short,
                "singular": self.kind.to_lowercase(),
            },
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions,
        });
        if self.converted {
            spec["conversion"] = webhook.to_json();
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{GROUP}", self.plural)},
            "spec": spec,
        })
    }

    fn version(&self, version: Version) -> Value {
        let schema: Value = (self.schema)(version).into();
        let has_status = schema["properties"].get("status").is_some();
        let mut served = json!({
            "name": version.as_str(),
            "served": true,
            "storage": version == Version::V1Beta2,
            "schema": {"openAPIV3Schema": schema},
        });
        if version == Version::V1Beta1 && self.kind != "MultiKueueConfig" {
            served["deprecated"] = true.into();
            served["deprecationWarning"] = "This version is deprecated. Use v1beta2 instead.".into();
        }
        let columns = columns(self.kind, version);
        if !columns.is_empty() {
            served["additionalPrinterColumns"] = columns.into();
        }
        if has_status {
            served["subresources"] = json!({"status": {}});
        }
        if self.kind == "Workload" && version == Version::V1Beta2 {
            served["selectableFields"] = json!([{"jsonPath": ".status.admission.clusterQueue"}]);
        }
        served
    }
}

/// The columns that `kubectl get` shows beside the name.
fn columns(kind: &str, version: Version) -> Vec<Value> {
    let column = |name: &str, path: &str, kind: &str| json!({"name": name, "jsonPath": path, "type": kind});
    let wide = |mut column: Value| {
        column["priority"] = 1.into();
        column
    };
    let is = |condition: &str| format!(".status.conditions[?(@.type=='{condition}')].status");
    let age = || column("Age", ".metadata.creationTimestamp", "date");
    match kind {
        "Workload" => vec![
            column("Queue", ".spec.queueName", "string"),
            column("Reserved in", ".status.admission.clusterQueue", "string"),
            column("Admitted", &is("Admitted"), "string"),
            column("Finished", &is("Finished"), "string"),
            age(),
        ],
        "ClusterQueue" => {
            let cohort = if version == Version::V1Beta1 { ".spec.cohort" } else { ".spec.cohortName" };
            vec![
                column("Cohort", cohort, "string"),
                wide(column("Strategy", ".spec.queueingStrategy", "string")),
                column("Pending Workloads", ".status.pendingWorkloads", "integer"),
                wide(column("Admitted Workloads", ".status.admittedWorkloads", "integer")),
            ]
        }
        "LocalQueue" => vec![
            column("ClusterQueue", ".spec.clusterQueue", "string"),
            column("Pending Workloads", ".status.pendingWorkloads", "integer"),
            column("Admitted Workloads", ".status.admittedWorkloads", "integer"),
        ],
        "MultiKueueCluster" => vec![column("Connected", &is("Active"), "string"), age()],
        "WorkloadPriorityClass" => vec![column("Value", ".value", "integer")],
        _ => Vec::new(),
    }
}

/// The schema of an object with a spec and a status.
fn root(spec: Option<Schema>, status: Option<Schema>) -> Schema {
    let mut root = object([
        ("apiVersion", string().about("The version of the API that the object is written in.")),
        ("kind", string().about("The kind of the object.")),
        ("metadata", object([])),
    ]);
    if let Some(spec) = spec {
        root = root.and([("spec", spec.about("What is wanted."))]);
    }
    if let Some(status) = status {
        root = root.and([("status", status.about("What is."))]);
    }
    root
}
