//! Structural schemas, as custom resource definitions want them.

use serde_json::{Map, Value, json};

const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const LABEL_KEY: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The schema of a value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Schema(Map<String, Value>);

impl Schema {
    fn of(kind: &str) -> Self {
        Self(Map::new()).with("type", kind)
    }

    /// Sets a keyword.
    pub(super) fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }

    /// What the value is for.
    pub(super) fn about(mut self, text: &str) -> Self {
        self.0.shift_insert(0, "description".to_owned(), text.into());
        self
    }

    /// Adds a rule in the Common Expression Language, and what to say of values that break it.
    pub(super) fn rule(self, expression: &str, message: &str) -> Self {
        self.rule_at(None, expression, message)
    }

    /// Adds a rule that is about a field of the value.
    pub(super) fn rule_at(mut self, field: Option<&str>, expression: &str, message: &str) -> Self {
        let mut rule = json!({"rule": expression, "message": message});
        if let Some(field) = field {
            rule["fieldPath"] = field.into();
        }
        let rules = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(rule);
        }
        self
    }

    pub(super) fn max_length(self, most: u32) -> Self {
        self.with("maxLength", most)
    }

    pub(super) fn min_length(self, least: u32) -> Self {
        self.with("minLength", least)
    }

    pub(super) fn minimum(self, least: i64) -> Self {
        self.with("minimum", least)
    }

    pub(super) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    pub(super) fn one_of(self, values: &[&str]) -> Self {
        self.with("enum", values)
    }

    pub(super) fn items(self, least: Option<u32>, most: u32) -> Self {
        let bounded = match least {
            Some(least) => self.with("minItems", least),
            None => self,
        };
        bounded.with("maxItems", most)
    }

    /// Fields that must be there.
    pub(super) fn required(self, fields: &[&str]) -> Self {
        self.with("required", fields)
    }

    /// A list whose items have a name: appliers share it item by item.
    pub(super) fn by(self, keys: &[&str]) -> Self {
        self.with("x-kubernetes-list-map-keys", keys).with("x-kubernetes-list-type", "map")
    }

    /// A list that one applier owns as a whole.
    pub(super) fn atomic(self) -> Self {
        self.with("x-kubernetes-list-type", "atomic")
    }

    /// A list in which nothing occurs twice.
    pub(super) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", "set")
    }

    /// A map that one applier owns as a whole.
    pub(super) fn atomic_map(self) -> Self {
        self.with("x-kubernetes-map-type", "atomic")
    }

    /// The schema with further fields.
    pub(super) fn and<const N: usize>(mut self, fields: [(&str, Schema); N]) -> Self {
        let known = self.0.entry("properties").or_insert_with(|| json!({}));
        if let Some(known) = known.as_object_mut() {
            known.extend(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema.into())));
        }
        self
    }
}

impl From<Schema> for Value {
    fn from(schema: Schema) -> Self {
        Self::Object(schema.0)
    }
}

pub(super) fn object<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    Schema::of("object").and(fields)
}

pub(super) fn list(items: Schema) -> Schema {
    Schema::of("array").with("items", items)
}

pub(super) fn map(values: Schema) -> Schema {
    Schema::of("object").with("additionalProperties", values)
}

pub(super) fn string() -> Schema {
    Schema::of("string")
}

pub(super) fn boolean() -> Schema {
    Schema::of("boolean")
}

pub(super) fn int32() -> Schema {
    Schema::of("integer").with("format", "int32")
}

pub(super) fn int64() -> Schema {
    Schema::of("integer").with("format", "int64")
}

pub(super) fn count() -> Schema {
    int32().minimum(0)
}

pub(super) fn time() -> Schema {
    string().with("format", "date-time")
}

/// A Kubernetes quantity: a number, or a string with a suffix.
pub(super) fn quantity() -> Schema {
    Schema(Map::new())
        .with("anyOf", json!([{"type": "integer"}, {"type": "string"}]))
        .with("pattern", QUANTITY)
        .with("x-kubernetes-int-or-string", true)
}

/// The name of an object.
pub(super) fn dns_subdomain() -> Schema {
    string().max_length(253).with("pattern", DNS_SUBDOMAIN)
}

/// The name of a part of an object.
pub(super) fn dns_label() -> Schema {
    string().max_length(63).with("pattern", DNS_LABEL)
}

/// The key of a label.
pub(super) fn label_key(most: u32) -> Schema {
    string().max_length(most).with("pattern", LABEL_KEY)
}

/// Whatever the API server itself knows how to check later.
pub(super) fn anything() -> Schema {
    Schema::of("object").with("x-kubernetes-preserve-unknown-fields", true)
}

pub(super) fn labels() -> Schema {
    map(string())
}

/// Standard conditions.
pub(super) fn conditions() -> Schema {
    let condition = object([
        ("lastTransitionTime", time().about("When the status last changed.")),
        ("message", string().max_length(32_768).about("For people.")),
        ("observedGeneration", int64().minimum(0).about("The generation of the object that it is about.")),
        ("reason", string().min_length(1).max_length(1024).with("pattern", CONDITION_REASON).about("For machines.")),
        ("status", string().one_of(&["True", "False", "Unknown"]).about("Whether it holds.")),
        ("type", string().max_length(316).about("What may hold or not.")),
    ]);
    let required = ["lastTransitionTime", "message", "reason", "status", "type"];
    list(condition.required(&required)).items(None, 16).by(&["type"])
}

pub(super) fn label_selector() -> Schema {
    let requirement = object([("key", string()), ("operator", string()), ("values", list(string()).atomic())]);
    object([("matchExpressions", list(requirement.required(&["key", "operator"])).atomic()), ("matchLabels", labels())])
        .atomic_map()
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn taints() -> Schema {
    let taint =
        object([("effect", string().one_of(&EFFECTS)), ("key", string()), ("timeAdded", time()), ("value", string())]);
    list(taint.required(&["effect", "key"])).items(None, 8).atomic()
}

pub(super) fn tolerations() -> Schema {
    let toleration = object([
        ("effect", string().max_length(63)),
        ("key", string().max_length(317)),
        ("operator", string().max_length(63)),
        ("tolerationSeconds", int64()),
        ("value", string().max_length(63)),
    ]);
    list(toleration)
        .items(None, 8)
        .atomic()
        .rule(
            "self.all(t, (has(t.key) && t.key != '') || (has(t.operator) && t.operator == 'Exists'))",
            "a toleration without a key tolerates everything: its operator must be Exists",
        )
        .rule(
            "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
            "tolerationSeconds needs the effect NoExecute",
        )
        .rule(
            "self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",
            "the operator of a toleration is Equal or Exists",
        )
        .rule(
            "self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",
            "a toleration with the operator Exists has no value",
        )
        .rule(
            "self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            "the effect of a toleration is NoSchedule, PreferNoSchedule or NoExecute",
        )
}
