//! Reads JSON, one value after another.

use serde_json::Number;

use crate::diagnostic::Code;
use crate::position::Span;
use crate::tree::{Data, Field, Keys, MAX_DEPTH, Node, Parsed, Problem, add_field};

/// Reads a text as JSON.
///
/// # Errors
/// The first thing that is not JSON.
pub(crate) fn parse(text: &str) -> Result<Parsed, Problem> {
    let mut reader = Reader { text, at: 0, problems: Vec::new() };
    let mut documents = Vec::new();
    loop {
        reader.space();
        if reader.at >= text.len() {
            return Ok(Parsed { documents, problems: reader.problems });
        }
        documents.push(reader.value(0)?);
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    problems: Vec<Problem>,
}

type Result<T, E = Problem> = std::result::Result<T, E>;

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        if there {
            self.step();
        }
        there
    }

    fn space(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.step(),
                // Byte order marks may be at the start of a text.
                Some(0xef) if self.at == 0 && self.text.starts_with('\u{feff}') => self.at = '\u{feff}'.len_utf8(),
                _ => return,
            }
        }
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        let end = self.text.get(self.at..).and_then(|t| t.chars().next()).map_or(0, char::len_utf8);
        Problem {
            code: Code::Syntax,
            span: Span::new(self.at, self.at.saturating_add(end)),
            message: format!("this is not JSON: {}", message.into()),
            help: String::new(),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node> {
        if depth >= MAX_DEPTH {
            return Err(Problem {
                code: Code::TooLarge,
                message: format!("nested more than {MAX_DEPTH} levels deep"),
                ..self.problem("")
            });
        }
        self.space();
        let start = self.at;
        let data = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Data::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Data::Bool(true))?,
            Some(b'f') => self.word("false", Data::Bool(false))?,
            Some(b'n') => self.word("null", Data::Null)?,
            Some(_) => return Err(self.problem("expected a value")),
            None => return Err(self.problem("it ends where a value is expected")),
        };
        Ok(Node { span: Span::new(start, self.at), data })
    }

    fn word(&mut self, word: &str, data: Data) -> Result<Data> {
        if self.text.get(self.at..).is_some_and(|t| t.starts_with(word)) {
            self.at = self.at.saturating_add(word.len());
            Ok(data)
        } else {
            Err(self.problem("expected a value"))
        }
    }

    fn array(&mut self, depth: usize) -> Result<Data> {
        self.step();
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Data::Items(items));
        }
        loop {
            items.push(self.value(depth.saturating_add(1))?);
            self.space();
            if self.take(b']') {
                return Ok(Data::Items(items));
            }
            if !self.take(b',') {
                return Err(self.problem("expected `,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Data> {
        self.step();
        let mut fields = Vec::new();
        let mut keys = Keys::default();
        self.space();
        if self.take(b'}') {
            return Ok(Data::Fields(fields));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.problem("expected a key in quotes"));
            }
            let start = self.at;
            let key = self.string()?;
            let key_span = Span::new(start, self.at);
            self.space();
            if !self.take(b':') {
                return Err(self.problem("expected `:`"));
            }
            let value = self.value(depth.saturating_add(1))?;
            add_field(&mut fields, &mut keys, Field { key, key_span, value }, &mut self.problems);
            self.space();
            if self.take(b'}') {
                return Ok(Data::Fields(fields));
            }
            if !self.take(b',') {
                return Err(self.problem("expected `,` or `}`"));
            }
        }
    }

    fn string(&mut self) -> Result<String> {
        self.step();
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            out.push_str(rest.get(..end).unwrap_or_default());
            self.at = self.at.saturating_add(end);
            match self.peek() {
                Some(b'"') => {
                    self.step();
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.step();
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.problem("a control character in a string")),
                None => return Err(self.problem("a string without an end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(byte) = self.peek() else { return Err(self.problem("a string without an end")) };
        self.step();
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                // The second half of a character beyond the basic plane.
                let second =
                    (0xd800..0xdc00).contains(&first) && self.text.get(self.at..).is_some_and(|t| t.starts_with("\\u"));
                if second {
                    let back = self.at;
                    self.at = self.at.saturating_add(2);
                    let low = self.hex()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let code = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    self.at = back;
                }
                char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => {
                self.at = self.at.saturating_sub(1);
                return Err(self.problem("an unknown escape"));
            }
        })
    }

    fn hex(&mut self) -> Result<u32> {
        let end = self.at.saturating_add(4);
        let digits = self.text.get(self.at..end).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(code) => {
                self.at = end;
                Ok(code)
            }
            None => Err(self.problem("expected four hexadecimal digits")),
        }
    }

    fn number(&mut self) -> Result<Data> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let number = rest.get(..end).and_then(|t| t.parse::<Number>().ok());
        match number {
            Some(number) => {
                self.at = self.at.saturating_add(end);
                Ok(Data::Number(number))
            }
            None => Err(self.problem("this is no number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: &Node) -> serde_json::Value {
        match &node.data {
            Data::Null => serde_json::Value::Null,
            Data::Bool(b) => (*b).into(),
            Data::Number(n) => n.clone().into(),
            Data::Text(t) => t.clone().into(),
            Data::Items(items) => items.iter().map(self::node).collect(),
            Data::Fields(fields) => {
                serde_json::Value::Object(fields.iter().map(|f| (f.key.clone(), self::node(&f.value))).collect())
            }
        }
    }

    #[test]
    fn reads_what_serde_json_reads() {
        for text in [
            "{}",
            "[]",
            " [ 1 , -2.5e3, \"a\\n\\u00e9\\ud83d\\ude00\\/\", true, false, null, {\"a\": [ ] } ] ",
            "18446744073709551615",
            "\"\\\"\\\\\\b\\f\\r\\t\"",
            "{\"a\":{\"b\":{}},\"c\":\"é\"}",
        ] {
            let parsed = parse(text).unwrap();
            let expected: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(parsed.documents.iter().map(node).collect::<Vec<_>>(), [expected], "{text}");
        }
    }

    #[test]
    fn refuses_what_serde_json_refuses() {
        for text in [
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a: 1}",
            "\"\\x\"",
            "\"\n\"",
            "01",
            "1.",
            "+1",
            "tru",
            "[1 2]",
            "\"\\u12\"",
            "\"",
            "-",
            "nul",
            "]",
        ] {
            assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text}");
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_may_follow_one_another() {
        assert_eq!(parse("{} {}\n[]").unwrap().documents.len(), 3);
        assert_eq!(parse(" \n").unwrap().documents.len(), 0);
    }

    #[test]
    fn duplicate_keys_are_found() {
        let parsed = parse("{\"a\": 1, \"a\": 2}").unwrap();
        assert_eq!((parsed.problems[0].code, parsed.problems[0].span), (Code::DuplicateKey, Span::new(9, 12)));
    }

    #[test]
    fn depth_is_limited() {
        assert_eq!(parse(&"[".repeat(100_000)).unwrap_err().code, Code::TooLarge);
    }
}
