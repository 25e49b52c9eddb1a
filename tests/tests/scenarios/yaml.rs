//! YAML into JSON values, as far as the steps of a scenario need it.

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// What is being read: a list, or an object with the key that waits for its value.
enum Open {
    List(Vec<Value>),
    Fields(Map<String, Value>, Option<String>),
}

fn scalar(text: &str, plain: bool) -> Value {
    match text {
        _ if !plain => text.into(),
        "true" => true.into(),
        "false" => false.into(),
        "null" | "~" | "" => Value::Null,
        _ => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
    }
}

/// Reads one document.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut stack: Vec<Open> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let (event, _) = next.map_err(|e| e.to_string())?;
        let done = match event {
            Event::Scalar(text, style, ..) => scalar(&text, style == ScalarStyle::Plain),
            Event::SequenceStart(..) => {
                stack.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                stack.push(Open::Fields(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match stack.pop() {
                Some(Open::List(items)) => items.into(),
                Some(Open::Fields(fields, _)) => fields.into(),
                None => return Err("an end without a beginning".into()),
            },
            Event::Alias(_) => return Err("aliases are not for scenarios".into()),
            _ => continue,
        };
        match stack.last_mut() {
            None => return Ok(done),
            Some(Open::List(items)) => items.push(done),
            Some(Open::Fields(fields, key)) => match key.take() {
                None => *key = Some(done.as_str().map_or_else(|| done.to_string(), str::to_owned)),
                Some(name) => {
                    if fields.insert(name.clone(), done).is_some() {
                        return Err(format!("{name} stands there twice"));
                    }
                }
            },
        }
    }
    Err("the document is empty".into())
}
