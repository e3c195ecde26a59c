//! The payload of a test.

use std::{fmt, path::PathBuf};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, EnumAccess, VariantAccess},
};

/// The bytes that are sent. A plan writes a file's path; the wire has `{"file": path}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// Zero bytes: compressible.
    Zero,
    /// Pseudo-random bytes from a fixed seed: not compressible.
    #[default]
    Random,
    /// Bytes of a file on the sending host, at least one message long, repeated over the ring.
    File(PathBuf),
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("zero, random, or a file's path")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Payload, A::Error> {
        let (word, rest) = data.variant::<String>()?;
        if word == "file"
            && let Ok(path) = rest.newtype_variant()
        {
            return Ok(Payload::File(path));
        }
        match word.as_str() {
            "zero" => Ok(Payload::Zero),
            "random" => Ok(Payload::Random),
            path if path.contains(['/', '.']) => Ok(Payload::File(path.into())),
            _ => Err(de::Error::custom(format!(
                "unknown payload `{word}`: write zero, random, or the path of a file (./{word})"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("Payload", &["zero", "random", "a file's path"], Visitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Payload {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Payload".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "zero, random, or a file's path",
            "type": "string",
            "examples": ["zero", "random"]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_reads_back_and_a_path_is_a_file() {
        for payload in [Payload::Zero, Payload::Random, Payload::File("file".into())] {
            let text = serde_json::to_string(&payload).unwrap();
            assert_eq!(serde_json::from_str::<Payload>(&text).unwrap(), payload, "{text}");
        }
        assert_eq!(serde_json::from_str::<Payload>("\"./file\"").unwrap(), Payload::File("./file".into()));
        for wrong in ["\"file\"", "\"noise\"", "3"] {
            assert!(serde_json::from_str::<Payload>(wrong).is_err(), "{wrong}");
        }
    }
}
