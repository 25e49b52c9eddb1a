//! Where a field is within its object.

use std::fmt;

/// The place of a field, written like `spec.resourceGroups[0].flavors[1].name`.
///
/// It is a list on the stack, linked upwards: nothing is allocated until it is written out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl Path<'static> {
    /// The object itself.
    pub(crate) const ROOT: Self = Self { parent: None, step: Step::Root };
}

impl<'a> Path<'a> {
    /// A field of it.
    pub(crate) const fn field(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    /// An element of it.
    pub(crate) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of it, a map.
    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_root = match self.parent {
            None => true,
            Some(parent) => {
                parent.fmt(f)?;
                matches!(parent.step, Step::Root)
            }
        };
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if at_root => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_kubernetes_writes_it() {
        let spec = Path::ROOT.field("spec");
        let labels = spec.field("nodeLabels");
        assert_eq!(labels.key("a.b/c").to_string(), "spec.nodeLabels[a.b/c]");
        assert_eq!(spec.field("levels").index(3).field("nodeLabel").to_string(), "spec.levels[3].nodeLabel");
        assert_eq!(Path::ROOT.to_string(), "");
    }
}
