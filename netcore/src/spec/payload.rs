//! The payload of a test.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, EnumAccess, VariantAccess},
};

use super::{Role, Side, TestSpec, Transport};

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

/// The use of a file that an end opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// It fills the messages of this end.
    MessagesOf(Side),
    /// It has the certificate and the key of the far end.
    Certificate,
}

impl TestSpec {
    /// The file whose bytes fill the messages of an end; `None`: they are of no file.
    pub(crate) fn fill_file(&self, sender: Side) -> Option<&Path> {
        let of_both = if let Payload::File(path) = &self.payload { Some(path) } else { None };
        self.end(sender).buffers.fill_file.as_ref().or(of_both).map(PathBuf::as_path)
    }

    /// All files that an end opens: those of the messages that it sends, and with `integrity` of those that it expects, and that of its
    /// certificate. A daemon admits these files and the engines get no others.
    pub fn files(&self, side: Side) -> impl Iterator<Item = (FileUse, &Path)> {
        let makes = move |sender: &Side| if *sender == side { self.sends(side) } else { self.expects_of_other(side) };
        let fills = [Side::Near, Side::Far].into_iter().filter(makes);
        let fills = fills.filter_map(|sender| Some((FileUse::MessagesOf(sender), self.fill_file(sender)?)));
        fills.chain(self.certificate().filter(|_| side == Side::Far).map(|path| (FileUse::Certificate, path)))
    }

    fn sends(&self, side: Side) -> bool {
        [Role::Sender, Role::Requester, Role::Responder].into_iter().any(|role| self.has_role(side, role))
    }

    /// Whether an end makes the other one's messages, to compare them with what arrives. An echo returns its own.
    fn expects_of_other(&self, side: Side) -> bool {
        let receives =
            [Role::Receiver, Role::Requester, Role::Responder].into_iter().any(|role| self.has_role(side, role));
        self.integrity && receives && !self.is_echo()
    }

    /// Whether the far end returns the near end's bytes.
    pub(crate) fn is_echo(&self) -> bool {
        self.is_alone() || self.transport == Transport::Icmp
    }
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
schemas::published!(Payload as "Payload", {
    "description": "zero, random, or a file's path",
    "type": "string",
    "examples": ["zero", "random"]
});

#[cfg(test)]
mod tests {
    use super::{
        super::{Direction, Pattern},
        *,
    };

    #[test]
    fn an_end_opens_the_files_that_it_sends_or_checks() {
        let of = |pattern, change: fn(&mut TestSpec)| {
            let mut spec = TestSpec::new(pattern, Transport::Tcp);
            spec.payload = Payload::File("/both".into());
            spec.far.buffers.fill_file = Some("/far".into());
            change(&mut spec);
            [Side::Near, Side::Far]
                .map(|side| spec.files(side).map(|(_, path)| path.display().to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(Pattern::Stream, |_| ()), ["/both", ""]);
        assert_eq!(of(Pattern::Stream, |spec| spec.direction = Direction::Reverse), ["", "/far"]);
        assert_eq!(of(Pattern::Stream, |spec| spec.direction = Direction::Duplex), ["/both", "/far"]);
        assert_eq!(of(Pattern::Stream, |spec| spec.direction = Direction::Bidirectional), ["/both", "/far"]);
        assert_eq!(of(Pattern::Stream, |spec| spec.integrity = true), ["/both", "/both"]);
        assert_eq!(of(Pattern::RequestResponse, |_| ()), ["/both", "/far"]);
        assert_eq!(of(Pattern::RequestResponse, |spec| spec.integrity = true), ["/both /far", "/both /far"]);
        let ping = |spec: &mut TestSpec| (spec.transport, spec.integrity) = (Transport::Icmp, true);
        assert_eq!(of(Pattern::Ping, ping), ["/both", ""], "it expects its own");
        let none = |spec: &mut TestSpec| (spec.payload, spec.far.buffers.fill_file) = (Payload::Zero, None);
        assert_eq!(of(Pattern::RequestResponse, none), ["", ""]);
    }

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
