//! The results of an end: the same shape both ways.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    parameters::MOST_STREAMS,
    wire::{Malformed, amount, count, count_or_unknown},
};

/// An end's results of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// CPU time of the end's process over the time of the test, percent of one CPU: all, user, system. `None`: unknown.
    pub cpu: Option<[f64; 3]>,
    /// Whether it counted retransmissions; `None`: it only received.
    pub has_retransmits: Option<bool>,
    pub congestion: Option<String>,
    pub output: Option<String>,
    pub streams: Vec<StreamResults>,
}

/// An end's results of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamResults {
    pub id: u64,
    /// Sent or received, without the omitted ones.
    pub bytes: u64,
    pub retransmits: Option<u64>,
    /// Of received datagrams, seconds.
    pub jitter_s: f64,
    /// Lost datagrams, with those of the omitted time.
    pub errors: u64,
    /// Datagrams, with those of the omitted time: sent, or the highest counter that was seen.
    pub packets: u64,
    /// Lost ones and all of the omitted time; `None`: the version (before 3.14) does not tell.
    pub omitted: Option<(u64, u64)>,
    /// Its own time without the omitted one, seconds; 0: unknown.
    pub seconds: f64,
}

impl Results {
    pub fn encode(&self) -> Value {
        let unknown_is_minus_one = |number: Option<u64>| number.map_or(json!(-1), |number| json!(number));
        let [total, user, system] = self.cpu.unwrap_or_default();
        let stream = |stream: &StreamResults| {
            let mut value = json!({
                "id": stream.id,
                "bytes": stream.bytes,
                "retransmits": unknown_is_minus_one(stream.retransmits),
                "jitter": stream.jitter_s,
                "errors": stream.errors,
                "packets": stream.packets,
                "start_time": 0,
                "end_time": stream.seconds,
            });
            if let Some((errors, packets)) = stream.omitted {
                value["omitted_errors"] = json!(errors);
                value["omitted_packets"] = json!(packets);
            }
            value
        };
        let mut value = json!({
            "cpu_util_total": total,
            "cpu_util_user": user,
            "cpu_util_system": system,
            "sender_has_retransmits": unknown_is_minus_one(self.has_retransmits.map(u64::from)),
            "streams": self.streams.iter().map(stream).collect::<Vec<_>>(),
        });
        if let Some(algorithm) = &self.congestion {
            value["congestion_used"] = json!(algorithm);
        }
        if let Some(output) = &self.output {
            value["server_output_text"] = json!(output);
        }
        value
    }

    /// The results that an end sent, if they can be true. The other end's own texts are not kept.
    pub fn decode(text: &[u8]) -> Result<Self, Malformed> {
        let raw: Raw = serde_json::from_slice(text).map_err(|error| Malformed(format!("no results: {error}")))?;
        if raw.streams.len() > 2 * MOST_STREAMS as usize {
            return Err(Malformed(format!("results of {} streams", raw.streams.len())));
        }
        let cpu = [&raw.cpu_util_total, &raw.cpu_util_user, &raw.cpu_util_system];
        let cpu = match cpu.map(|value| (value.is_null(), amount(value))) {
            [(_, Some(total)), (_, Some(user)), (_, Some(system))] => Some([total, user, system]),
            // The version divides by a time that may be 0, and writes what is no number as null.
            any if any.iter().any(|(is_null, _)| *is_null) => None,
            _ => return Err(Malformed("`cpu_util_total` and its like are not positive numbers".to_owned())),
        };
        let congestion = raw.congestion_used.filter(|name| {
            (1..=32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        });
        Ok(Self {
            cpu,
            has_retransmits: count_or_unknown(&raw.sender_has_retransmits)
                .map_err(|_| wrong("sender_has_retransmits", &raw.sender_has_retransmits))?
                .map(|flag| flag != 0),
            congestion,
            output: None,
            streams: raw.streams.iter().map(RawStream::decode).collect::<Result<_, _>>()?,
        })
    }
}

fn wrong(key: &str, value: &Value) -> Malformed {
    Malformed(match value {
        Value::Number(number) => format!("`{key}` is {number}"),
        _ => format!("`{key}` is no number"),
    })
}

/// The keys that are read. Others are skipped, whatever they hold.
#[derive(Deserialize)]
struct Raw {
    cpu_util_total: Value,
    cpu_util_user: Value,
    cpu_util_system: Value,
    sender_has_retransmits: Value,
    congestion_used: Option<String>,
    streams: Vec<RawStream>,
}

#[derive(Deserialize)]
struct RawStream {
    id: Value,
    bytes: Value,
    retransmits: Value,
    jitter: Value,
    errors: Value,
    packets: Value,
    #[serde(default)]
    omitted_errors: Value,
    #[serde(default)]
    omitted_packets: Value,
    #[serde(default)]
    start_time: Value,
    #[serde(default)]
    end_time: Value,
}

impl RawStream {
    fn decode(&self) -> Result<StreamResults, Malformed> {
        let number = |key, value: &Value| count(value).ok_or_else(|| wrong(key, value));
        let optional = |key, value: &Value| if value.is_null() { Ok(None) } else { number(key, value).map(Some) };
        let time = |key, value: &Value| {
            if value.is_null() { Ok(0.0) } else { amount(value).ok_or_else(|| wrong(key, value)) }
        };
        let (errors, packets) = (number("errors", &self.errors)?, number("packets", &self.packets)?);
        let omitted =
            (optional("omitted_errors", &self.omitted_errors)?, optional("omitted_packets", &self.omitted_packets)?);
        let omitted = omitted.0.zip(omitted.1);
        if omitted.is_some_and(|(_, omitted)| omitted > packets) {
            return Err(Malformed(format!("more omitted datagrams than all {packets}")));
        }
        let seconds = time("end_time", &self.end_time)? - time("start_time", &self.start_time)?;
        Ok(StreamResults {
            id: number("id", &self.id)?,
            bytes: number("bytes", &self.bytes)?,
            retransmits: count_or_unknown(&self.retransmits).map_err(|_| wrong("retransmits", &self.retransmits))?,
            jitter_s: if self.jitter.is_null() {
                0.0
            } else {
                amount(&self.jitter).ok_or_else(|| wrong("jitter", &self.jitter))?
            },
            errors,
            packets,
            omitted,
            seconds: seconds.max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Recorded from a server of version 3.12 that received.
    const RECEIVED: &str = r#"{"cpu_util_total":8.7927368450146339,"cpu_util_user":0.91828283492543661,"cpu_util_system":7.874358703100623,"sender_has_retransmits":18446744073709551615,"congestion_used":"bbr","streams":[{"id":1,"bytes":499056640,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.049231}]}"#;

    /// Recorded from a server of version 3.12 that received datagrams.
    const DATAGRAMS: &str = r#"{"cpu_util_total":0.0810775192762041,"cpu_util_user":0.0809820216092121,"cpu_util_system":0,"sender_has_retransmits":18446744073709551615,"streams":[{"id":1,"bytes":655360,"retransmits":18446744073709551615,"jitter":2.0820811926298781e-05,"errors":0,"packets":20,"start_time":0,"end_time":1.047132}]}"#;

    #[test]
    fn recorded_results_are_read() {
        let results = Results::decode(RECEIVED.as_bytes()).unwrap();
        assert_eq!((results.has_retransmits, results.congestion.as_deref()), (None, Some("bbr")));
        assert!((results.cpu.unwrap()[0] - 8.792_736).abs() < 1e-5);
        let stream = StreamResults { id: 1, bytes: 499_056_640, seconds: 1.049_231, ..StreamResults::default() };
        assert_eq!(results.streams, [stream]);
        let results = Results::decode(DATAGRAMS.as_bytes()).unwrap();
        assert_eq!(results.congestion, None);
        assert_eq!((results.streams[0].packets, results.streams[0].omitted), (20, None));
        assert!((results.streams[0].jitter_s - 2.082e-5).abs() < 1e-8);
    }

    #[test]
    fn what_cannot_be_true_is_refused() {
        for (from, to, why) in [
            ("\"bytes\":499056640", "\"bytes\":-1", "`bytes` is -1"),
            ("\"bytes\":499056640", "\"bytes\":1.5", "`bytes` is 1.5"),
            ("\"errors\":0", "\"errors\":-3", "`errors` is -3"),
            ("\"jitter\":0", "\"jitter\":-0.1", "`jitter` is -0.1"),
            ("\"packets\":0", "\"packets\":\"0\"", "`packets` is no number"),
            ("8.7927368450146339", "-8", "not positive numbers"),
            ("\"end_time\":1.049231", "\"end_time\":1e999", "no results"),
            ("\"id\":1,", "", "no results"),
            ("\"packets\":0", "\"packets\":4,\"omitted_packets\":5,\"omitted_errors\":0", "more omitted datagrams"),
        ] {
            let text = RECEIVED.replace(from, to);
            assert_ne!(text, RECEIVED);
            let said = Results::decode(text.as_bytes()).unwrap_err().to_string();
            assert!(said.contains(why), "{to}: {said}");
        }
        let many = format!("{{\"streams\":[{}", "{\"id\":1},".repeat(300));
        assert!(Results::decode(many.as_bytes()).is_err());
        // A version that divided by 0.
        assert_eq!(Results::decode(RECEIVED.replace("8.7927368450146339", "null").as_bytes()).unwrap().cpu, None);
    }

    fn valid() -> impl Strategy<Value = Results> {
        // Floats of which every decimal form is exact.
        let eighths = || (0..1u32 << 20).prop_map(|n| f64::from(n) / 8.0);
        let stream = (1u64..300, 0..1u64 << 53, prop::option::of(0..1u64 << 40), eighths(), 0..1u64 << 40, eighths());
        let stream = stream.prop_map(|(id, bytes, retransmits, jitter_s, packets, seconds)| StreamResults {
            id,
            bytes,
            retransmits,
            jitter_s,
            errors: packets / 7,
            packets,
            omitted: retransmits.map(|_| (packets / 9, packets / 3)),
            seconds,
        });
        let cpu = prop::array::uniform3(eighths());
        let head = (cpu, prop::option::of(any::<bool>()), prop::option::of("[a-z]{1,16}"));
        (head, prop::collection::vec(stream, 0..40)).prop_map(|((cpu, has_retransmits, congestion), streams)| Results {
            cpu: Some(cpu),
            has_retransmits,
            congestion,
            output: None,
            streams,
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(results in valid()) {
            let text = results.encode().to_string();
            prop_assert_eq!(Results::decode(text.as_bytes()), Ok(results));
        }

        #[test]
        fn changed_texts_are_decoded_or_refused(results in valid(), at: prop::sample::Index, byte: u8) {
            let mut text = results.encode().to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            let _ = Results::decode(&text);
        }
    }
}
