//! JSON of another host, read so that its texts can be printed and its lists are bounded.
//!
//! Terminals and the logs of CI systems obey some texts. A client prints what daemons say, in many places and by way of many
//! files. So texts are escaped and cut where they enter, by the reader of all messages: no field can be forgotten. A field that
//! is data of a program says so with [`raw`], and is not printed.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemas::text::plain;
use serde::{
    Deserialize,
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess,
        Visitor,
    },
    forward_to_deserialize_any,
};

/// Limit of a text of another host, characters.
pub const LONGEST_TEXT: usize = 4096;

/// Limit of the sentences of one kind in a report.
pub const MOST_SENTENCES: usize = 64;

/// Reads a message whose texts are escaped ([`plain`]), and cut to [`LONGEST_TEXT`].
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let message = T::deserialize(Foreign(&mut reader))?;
    reader.end()?;
    Ok(message)
}

/// A text of at most this many characters: a longer one is cut, and ends with `…`.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

fn tamed(text: &str) -> String {
    let escaped = plain(&shortened(text, LONGEST_TEXT));
    shortened(&escaped, LONGEST_TEXT).into_owned()
}

const RAW: &str = "Raw";

/// For `deserialize_with`: data of a program, as it came. It must not be printed.
pub fn raw<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    struct Raw;
    impl<'de> Visitor<'de> for Raw {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(self, reader: D) -> Result<String, D::Error> {
            String::deserialize(reader)
        }
    }
    reader.deserialize_newtype_struct(RAW, Raw)
}

/// For `deserialize_with`: bytes in base64, which are printed as they are.
pub fn base64<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    let text = raw(reader)?;
    let is_base64 = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    if is_base64 { Ok(text) } else { Err(Error::custom("a histogram is not in base64")) }
}

/// For `deserialize_with`: a list of at most `MOST`. A longer one is an error before its rest is read.
pub fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    reader: D,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Bounded<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(element) = list.next_element()? {
                if all.len() == MOST {
                    return Err(Error::custom(format_args!("a list has more than {MOST} elements")));
                }
                all.push(element);
            }
            Ok(all)
        }
    }
    reader.deserialize_seq(Bounded::<T, MOST>(PhantomData))
}

/// A part of the reader, or of what it reads for, whose texts are escaped between the two.
struct Foreign<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Foreign<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Foreign(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Foreign(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        if name == RAW {
            return self.0.deserialize_newtype_struct(name, visitor);
        }
        self.0.deserialize_newtype_struct(name, Foreign(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Foreign(visitor))
    }

    // JSON says by itself what a value is. Keys of maps are texts.
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

macro_rules! values {
    ($($name:ident: $type:ty)*) => {
        $(fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$name(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Foreign<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    values! {
        visit_bool: bool visit_i64: i64 visit_i128: i128 visit_u64: u64 visit_u128: u128 visit_f64: f64
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.0.visit_string(tamed(text))
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Foreign(reader))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, reader: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Foreign(reader))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Foreign(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Foreign(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Foreign(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Foreign<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Foreign(reader))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Foreign<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Foreign(seed))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Foreign<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Foreign(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Foreign(seed))
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Foreign<A> {
    type Error = A::Error;
    type Variant = Foreign<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, content) = self.0.variant_seed(Foreign(seed))?;
        Ok((name, Foreign(content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Foreign<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Foreign(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, Foreign(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Foreign(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;
    use crate::{
        control::message::{ErrorCode, Executed, Reply, ReplyError},
        report::{Ending, Evidence, SideReport},
        spec::Side,
    };

    const HOSTILE: &str = "\u{1b}]0;title\u{7}\n::set-output name=a::b\u{202e}";
    const SHOWN: &str = "\\u{1b}]0;title\\u{7}\\n\\u{3a}:set-output name=a::b\\u{202e}";

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    enum Shapes {
        Unit,
        New(String),
        Tuple(String, Option<String>),
        Struct { list: Vec<(String, u64)>, map: BTreeMap<String, String> },
        Data(#[serde(deserialize_with = "raw")] String),
    }

    #[test]
    fn texts_are_escaped_wherever_they_stand() {
        let all = |text: &str| {
            [
                Shapes::Unit,
                Shapes::New(text.to_owned()),
                Shapes::Tuple(text.to_owned(), Some(text.to_owned())),
                Shapes::Struct {
                    list: vec![(text.to_owned(), 7)],
                    map: BTreeMap::from([(text.to_owned(), text.to_owned())]),
                },
            ]
        };
        for (sent, expected) in all(HOSTILE).iter().zip(all(SHOWN)) {
            let json = serde_json::to_vec(sent).unwrap();
            assert_eq!(from_slice::<Shapes>(&json).unwrap(), expected);
        }
        let data = Shapes::Data(HOSTILE.to_owned());
        assert_eq!(from_slice::<Shapes>(&serde_json::to_vec(&data).unwrap()).unwrap(), data);
        // A name that is unknown is quoted in the error.
        for json in [r#"{"\u001b[2J":1}"#, r#""\u001b[2J""#, r#"{"Struct":{"list":[],"map":{},"\u001b[2J":1}}"#] {
            let said = from_slice::<Shapes>(json.as_bytes()).unwrap_err().to_string();
            assert!(said.contains("\\u{1b}[2J"), "{said}");
            assert!(!said.contains('\u{1b}'), "{said}");
        }
        assert!(from_slice::<u64>(b"1 2").is_err(), "more than one");
    }

    #[test]
    fn a_daemons_words_cannot_be_printed_raw() {
        let sent = Reply::Error(ReplyError::new(ErrorCode::Failed, HOSTILE));
        let Reply::Error(got) = from_slice(&serde_json::to_vec(&sent).unwrap()).unwrap() else { panic!() };
        assert_eq!(got.message, SHOWN);
        let output = |text: &str| {
            let stdout = text.to_owned();
            Reply::Executed(Box::new(Executed::Done { stdout, stderr: String::new(), elapsed_ns: 0 }))
        };
        let sent = output(&"a\tb\n".repeat(LONGEST_TEXT));
        assert_eq!(from_slice::<Reply>(&serde_json::to_vec(&sent).unwrap()).unwrap(), sent, "a program's data");
    }

    #[test]
    fn reports_are_bounded_while_they_are_read() {
        let long = || "x".repeat(LONGEST_TEXT + 1);
        let failed = SideReport { io: long(), ..SideReport::empty(Side::Far, Ending::Failed(long())) };
        let got: SideReport = from_slice(&serde_json::to_vec(&failed).unwrap()).unwrap();
        let Ending::Failed(said) = &got.ending else { panic!() };
        assert_eq!((said.chars().count(), got.io.chars().count()), (LONGEST_TEXT + 1, LONGEST_TEXT + 1));
        assert!(said.ends_with("x…"));
        let many = || vec![String::new(); MOST_SENTENCES + 1];
        let missing = Evidence { missing: many(), ..Evidence::default() };
        let empty = SideReport::empty(Side::Far, Ending::Complete);
        for json in [
            serde_json::to_vec(&SideReport { notes: many(), ..empty.clone() }).unwrap(),
            serde_json::to_vec(&missing).unwrap(),
        ] {
            let said = [from_slice::<SideReport>(&json).map(drop), from_slice::<Evidence>(&json).map(drop)];
            let said = said.map(|read| read.unwrap_err().to_string()).join("\n");
            assert!(said.contains("a list has more than"), "{said}");
        }
    }
}
