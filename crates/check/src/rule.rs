//! What a rule is, and how it says what it found.

use std::fmt;

use slicegate_manifest::{Code, Diagnostic, Document, Severity, Texts};

use crate::model::Model;

/// What a rule is about: the first two of the four digits of its code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// `SG00xx`: the text and the form of objects.
    Reading,
    /// `SG01xx`: fields of ClusterQueues and Cohorts.
    Queues,
    /// `SG02xx`: preemption and priorities.
    Preemption,
    /// `SG03xx`: names of other objects.
    References,
    /// `SG04xx`: quota and flavors.
    Quota,
    /// `SG05xx`: TPU shapes and node pools.
    Shapes,
    /// `SG06xx`: jobs.
    Jobs,
    /// `SG07xx`: admission checks and provisioning.
    Provisioning,
    /// `SG08xx`: topology-aware placement.
    Topology,
    /// `SG09xx`: pods.
    Pods,
    /// `SG10xx`: Kueue's configuration file.
    Configuration,
}

impl Subject {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Reading,
        Self::Queues,
        Self::Preemption,
        Self::References,
        Self::Quota,
        Self::Shapes,
        Self::Jobs,
        Self::Provisioning,
        Self::Topology,
        Self::Pods,
        Self::Configuration,
    ];

    /// What it is called in a list of rules.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Reading => "Text and form",
            Self::Queues => "Fields of ClusterQueues and Cohorts",
            Self::Preemption => "Preemption and priorities",
            Self::References => "Names of other objects",
            Self::Quota => "Quota and flavors",
            Self::Shapes => "TPU shapes and node pools",
            Self::Jobs => "Jobs",
            Self::Provisioning => "Admission checks and provisioning",
            Self::Topology => "Topology-aware placement",
            Self::Pods => "Pods",
            Self::Configuration => "The configuration file",
        }
    }

    /// What its codes begin with, such as `SG04`.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Reading => "SG00",
            Self::Queues => "SG01",
            Self::Preemption => "SG02",
            Self::References => "SG03",
            Self::Quota => "SG04",
            Self::Shapes => "SG05",
            Self::Jobs => "SG06",
            Self::Provisioning => "SG07",
            Self::Topology => "SG08",
            Self::Pods => "SG09",
            Self::Configuration => "SG10",
        }
    }
}

/// A kind of mistake.
pub struct Rule {
    /// Its code, such as `SG0301`. A code is never given to another rule.
    pub code: &'static str,
    /// How bad its findings are, unless one says otherwise.
    pub severity: Severity,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Why it matters, in one sentence.
    pub why: &'static str,
    /// Where the rule comes from.
    pub source: &'static str,
    /// Its case file: wrong and right manifests with what is found in them.
    pub(crate) cases: &'static str,
    /// Looks for it. Rules about the text have none: the reader looks.
    pub(crate) look: Option<fn(&Model<'_>, &mut Sink<'_>)>,
}

impl Rule {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        let of = |s: &Subject| self.code.starts_with(s.prefix());
        Subject::ALL.into_iter().find(of).unwrap_or(Subject::Reading)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("code", &self.code).field("title", &self.title).finish_non_exhaustive()
    }
}

/// A mistake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The rule that is broken.
    pub rule: &'static Rule,
    /// Where and how, with [`Code::Rule`] as its code.
    pub diagnostic: Diagnostic,
    /// Where its object begins, if it was found by looking at one.
    pub(crate) object: Option<Place>,
}

/// Where an object begins: source, line and column.
pub(crate) type Place = (usize, usize, usize);

/// Where a document begins.
pub(crate) const fn place(document: &Document) -> Place {
    (document.source, document.line, document.column)
}

/// Where rules put what they find.
pub(crate) struct Sink<'a> {
    texts: &'a Texts<'a>,
    rule: Option<&'static Rule>,
    findings: Vec<Finding>,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(texts: &'a Texts<'a>) -> Self {
        Self { texts, rule: None, findings: Vec::new() }
    }

    /// Lets a rule look.
    pub(crate) fn run(&mut self, rule: &'static Rule, model: &Model<'_>) {
        let Some(look) = rule.look else { return };
        self.rule = Some(rule);
        look(model, self);
    }

    /// Says that a field of a document is wrong, and what to write instead.
    pub(crate) fn report(&mut self, document: &Document, path: &str, message: String, help: impl Into<String>) {
        let Some(rule) = self.rule else { return };
        self.report_as(rule.severity, document, path, message, help);
    }

    /// As [`Sink::report`], with a severity of its own.
    pub(crate) fn report_as(
        &mut self,
        severity: Severity,
        document: &Document,
        path: &str,
        message: String,
        help: impl Into<String>,
    ) {
        let Some(rule) = self.rule else { return };
        let diagnostic = document.diagnostic_in(self.texts, severity, Code::Rule(rule.code), path, message);
        let help = document.in_its_words(help.into());
        let diagnostic = Diagnostic { why: rule.why.to_owned(), help, ..diagnostic };
        self.findings.push(Finding { rule, diagnostic, object: Some(place(document)) });
    }

    /// Takes over a finding of the reader.
    pub(crate) fn take(&mut self, rule: &'static Rule, diagnostic: Diagnostic) {
        let diagnostic = Diagnostic { code: Code::Rule(rule.code), why: rule.why.to_owned(), ..diagnostic };
        self.findings.push(Finding { rule, diagnostic, object: None });
    }

    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}
