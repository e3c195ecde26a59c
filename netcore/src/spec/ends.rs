//! Options of one end: sockets, buffers, CPUs, addresses and ports.

use std::{collections::BTreeSet, fmt, net::IpAddr, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{
    quantity::{bytes, optional_bytes},
    socket::SocketOptions,
};

/// Buffers of the data threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BufferOptions {
    /// Buffers used in turn (netperf -W); 1 keeps one warm buffer, or one for each datagram of a call.
    #[serde(deserialize_with = "ring")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>", range(min = 1)))]
    pub ring: u32,
    /// Alignment, a power of two (netperf -a); 4096, or for streams of datagrams: one after the other.
    #[serde(deserialize_with = "optional_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub alignment: Option<u64>,
    /// Offset from the alignment (netperf -o).
    #[serde(deserialize_with = "bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub offset: u64,
    /// Bytes written before each send and after each receive, after the engine's own stamp (netperf -k).
    #[serde(deserialize_with = "bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub dirty: u64,
    /// Bytes read after those (netperf -k).
    #[serde(deserialize_with = "bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub clean: u64,
    /// A file whose bytes are sent (netperf -F).
    pub fill_file: Option<PathBuf>,
}

/// Null is the default, 1.
fn ring<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Option::deserialize(deserializer).map(|ring| ring.unwrap_or(1))
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self { ring: 1, alignment: None, offset: 0, dirty: 0, clean: 0, fill_file: None }
    }
}

/// CPU numbers in ascending order. Plans also write `3`, `"0,2"` and `[0, "2-5"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Cpus(pub Vec<u32>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a CPU list: write 3, 0,2 or 2-5")]
pub struct CpusError(pub String);

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        let wrong = || CpusError(text.to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (low, high) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let low: u32 = low.trim().parse().map_err(|_| wrong())?;
            let high: u32 = high.trim().parse().map_err(|_| wrong())?;
            // glibc's CPU_SETSIZE.
            if low > high || high >= 1024 {
                return Err(wrong());
            }
            cpus.extend(low..=high);
        }
        Ok(Self(cpus.into_iter().collect()))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|cpu, next| *next == cpu + 1).map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            run => run.iter().map(u32::to_string).collect(),
        });
        f.write_str(&runs.collect::<Vec<_>>().join(","))
    }
}

struct CpusVisitor;

impl<'de> de::Visitor<'de> for CpusVisitor {
    type Value = Cpus;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CPU list such as 3, 0,2 or 2-5")
    }

    fn visit_u64<E: de::Error>(self, cpu: u64) -> Result<Cpus, E> {
        self.visit_str(&cpu.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Cpus, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Cpus, A::Error> {
        let mut cpus = BTreeSet::new();
        while let Some(part) = parts.next_element::<Cpus>()? {
            cpus.extend(part.0);
        }
        if cpus.is_empty() {
            return Err(de::Error::invalid_length(0, &self));
        }
        Ok(Cpus(cpus.into_iter().collect()))
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CpusVisitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Cpus {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cpus".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "CPUs: 3, \"0,2\", \"2-5\" or a list",
            "type": ["integer", "string", "array"],
            "items": {"type": ["integer", "string"]},
            "minimum": 0
        })
    }
}

/// Options of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndSpec {
    pub socket: SocketOptions,
    pub buffers: BufferOptions,
    /// Data thread i is pinned to the i-th CPU of the set, cyclically. `None`: not pinned.
    pub cpus: Option<Cpus>,
    /// Source addresses of the data sockets, cyclically. Empty: the route chooses.
    pub bind: Vec<IpAddr>,
    /// First data port; `None`: the kernel chooses. Flow i uses port + i if each flow needs its own.
    pub port: Option<u16>,
    /// Number of ports, from `port`, that connect tests cycle through; `None`: the kernel chooses.
    pub port_count: Option<u16>,
}

impl EndSpec {
    /// The CPU that the `thread`-th data thread is pinned to, if any.
    pub fn cpu_of(&self, thread: usize) -> Option<u32> {
        let cpus = &self.cpus.as_ref()?.0;
        cpus.get(thread % cpus.len().max(1)).copied()
    }

    /// The port of a flow's own socket; 0: the kernel chooses.
    pub fn port_of(&self, flow: u32) -> u16 {
        // Tests whose range goes beyond the last port are refused.
        self.port.map_or(0, |first| first.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_read_back() {
        for (text, shown) in [("3", "3"), ("0,2", "0,2"), ("2-5", "2-5"), ("5,1-3,2", "1-3,5")] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), shown);
        }
        assert!("5-2".parse::<Cpus>().is_err());
        assert!("".parse::<Cpus>().is_err());
        assert!("0-9999".parse::<Cpus>().is_err());
        let mixed: Cpus = serde_json::from_str(r#"[5, "1-3", 2]"#).unwrap();
        assert_eq!(serde_json::to_string(&mixed).unwrap(), "[1,2,3,5]");
    }
}
