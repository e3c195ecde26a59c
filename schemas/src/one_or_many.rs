//! A key of a plan that takes a word or several.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor},
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        if all.is_empty() {
            return Err(A::Error::custom("the list is empty: write a word, or leave the key out"));
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
        json_schema!({"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1})
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
        for wrong in ["{}", "true", "7"] {
            assert!(read(wrong).unwrap_err().to_string().contains("a word or a list of words"), "{wrong}");
        }
        assert!(read("[]").unwrap_err().to_string().contains("the list is empty"));
        let both = OneOrMany(vec!["a".into(), "b".into()]);
        assert_eq!(read(&serde_json::to_string(&both).unwrap()).unwrap(), both.0, "written and read back");
    }
}
