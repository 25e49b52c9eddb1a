//! Which fields a type has, asked of its own reader.
//!
//! A type is read from a stand-in that has every field there is; what the reader asks for on the way are its fields.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::position::Step;

/// The fields of the mapping at a path, as far as the reader says.
pub(crate) fn fields<S: for<'de> DeserializeSeed<'de>>(seed: S, path: &[Step]) -> Vec<&'static str> {
    let mut found = Vec::new();
    // The stand-in stops where it is to look, so reading it fails.
    let _ = seed.deserialize(Probe { rest: path, found: &mut found });
    found
}

/// The name nearest to one that was misspelt, if any is near; else the only one that begins so: fields were renamed in that way
/// (`cohort` became `cohortName`).
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|k| (distance(name, k), *k)).min()?;
    let length = name.chars().count();
    if near.0 <= length / 3 {
        return Some(near.1);
    }
    let mut longer = known.iter().copied().filter(|k| length > 2 && k.starts_with(name));
    longer.next().filter(|_| longer.next().is_none())
}

/// Whether a name is another one with a slip or two: closer than [`nearest`] asks for.
pub fn is_slip(name: &str, of: &str) -> bool {
    name != of && distance(name, of) <= 2
}

/// How many letters must be changed, added, taken away or swapped with the next.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut cost = (rows[i - 1][j - 1] + usize::from(!same)).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(rows[i - 2][j - 2] + 1);
            }
            row.push(cost);
        }
        rows.push(row);
    }
    rows.last().and_then(|r| r.last()).copied().unwrap_or_default()
}

/// The stand-in: it has the one field or element that leads on along the path.
struct Probe<'a> {
    rest: &'a [Step],
    found: &'a mut Vec<&'static str>,
}

#[derive(Debug)]
struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("looked far enough")
    }
}

impl std::error::Error for Stop {}

impl de::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.rest.first() {
            Some(Step::Field(_)) => visitor.visit_map(self),
            Some(Step::Index(_)) => visitor.visit_seq(self),
            None => Err(Stop),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if self.rest.is_empty() {
            self.found.extend_from_slice(fields);
            return Err(Stop);
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Probe<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Stop> {
        let Some(Step::Field(name)) = self.rest.first() else { return Ok(None) };
        let name: StrDeserializer<'_, Stop> = (&**name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Stop> {
        let rest = self.rest.get(1..).ok_or_else(|| Stop::custom(""))?;
        self.rest = &[];
        seed.deserialize(Probe { rest, found: self.found })
    }
}

impl<'de> SeqAccess<'de> for Probe<'_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Stop> {
        let Some(rest) = self.rest.get(1..) else { return Ok(None) };
        self.rest = &[];
        seed.deserialize(Probe { rest, found: self.found }).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use slicegate_api::kueue::ClusterQueue;
    use slicegate_api::{JobSpec, scenario::Scenario};

    use super::*;
    use crate::position::parse_path;

    #[test]
    fn types_say_what_they_have() {
        let quota = fields(PhantomData::<ClusterQueue>, &parse_path("spec.resourceGroups[3].flavors[0].resources[7]"));
        assert_eq!(quota, ["name", "nominalQuota", "borrowingLimit", "lendingLimit"]);
        assert!(fields(PhantomData::<Scenario>, &[]).contains(&"spec"));
        let container = fields(PhantomData::<JobSpec>, &parse_path("template.spec.containers[0]"));
        assert!(container.contains(&"image"), "{container:?}");
        assert!(fields(PhantomData::<ClusterQueue>, &parse_path("spec.nothing.here")).is_empty());
    }

    #[test]
    fn only_near_names_are_proposed() {
        let known = ["nominalQuota", "borrowingLimit", "name"];
        assert_eq!(nearest("nominalQouta", &known), Some("nominalQuota"));
        assert_eq!(nearest("borrowLimit", &known), Some("borrowingLimit"));
        assert_eq!(nearest("nominalquota", &known), Some("nominalQuota"));
        assert_eq!(nearest("borrowing", &known), Some("borrowingLimit"), "the only one that begins so");
        assert_eq!(nearest("cohort", &["cohortName", "cohortLabel"]), None, "one of several");
        assert_eq!(nearest("no", &known), None, "too short");
        assert_eq!(nearest("weight", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn distances() {
        for (a, b, n) in [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("kitten", "sitting", 3), ("é", "e", 1)] {
            assert_eq!((distance(a, b), distance(b, a)), (n, n), "{a} {b}");
        }
    }
}
