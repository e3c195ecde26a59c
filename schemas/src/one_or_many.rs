//! A key of a plan that takes a word or several.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor},
};

/// One word or a list of words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OneOrMany(pub Vec<String>);

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word or a list of words")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany(vec![text.to_owned()]))
    }

    /// A name of digits only.
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<OneOrMany, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_bool<E: serde::de::Error>(self, word: bool) -> Result<OneOrMany, E> {
        self.visit_str(&word.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(OneOrMany(all))
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

impl JsonSchema for OneOrMany {
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "array"], "items": {"type": "string"}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_list_of_one() {
        let read = |text| serde_json::from_str::<OneOrMany>(text).map(|words| words.0);
        assert_eq!(read("\"test\"").unwrap(), ["test"]);
        assert_eq!(read("[\"test\", \"streams\"]").unwrap(), ["test", "streams"]);
        assert_eq!(read("7").unwrap(), ["7"]);
        assert!(read("{}").unwrap_err().to_string().contains("a word or a list of words"));
        let both = OneOrMany(vec!["a".into(), "b".into()]);
        assert_eq!(read(&serde_json::to_string(&both).unwrap()).unwrap(), both.0, "written and read back");
    }
}
