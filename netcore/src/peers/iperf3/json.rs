//! JSON behind its length, with bounds on what a peer can make this end read.

use serde_json::{Map, Value};

/// Largest parameters that are read, bytes: as servers since 3.18.
pub const MOST_PARAMETERS: usize = 8192;

/// Largest results that are read, bytes.
pub const MOST_RESULTS: usize = 1 << 20;

/// A text that is no valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// The length of a text, from the four bytes before it.
pub fn length(bytes: [u8; 4], most: usize) -> Result<usize, Malformed> {
    let length = u32::from_be_bytes(bytes);
    match usize::try_from(length) {
        Ok(length) if (1..=most).contains(&length) => Ok(length),
        _ => Err(Malformed(format!("a message of {length} bytes where at most {most} are expected"))),
    }
}

/// A text behind its length.
pub fn frame(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Parses an object. The parser bounds the depth, and refuses numbers that no float can hold.
pub fn object(text: &[u8]) -> Result<Map<String, Value>, Malformed> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Malformed("a JSON value that is no object".to_owned())),
        Err(error) => Err(Malformed(format!("no JSON: {error}"))),
    }
}

/// A value that is no count: no whole number, or a negative one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCount;

/// A count. iperf3 writes −1 where it knows none, and versions up to 3.12 write that as 2⁶⁴ − 1: `None`.
pub fn count_or_unknown(value: &Value) -> Result<Option<u64>, NoCount> {
    /// Counts from here on are negative numbers in disguise.
    const NEGATIVE: u64 = 1 << 63;
    let Value::Number(number) = value else { return Err(NoCount) };
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(count), ..) => Ok(Some(count).filter(|count| *count < NEGATIVE)),
        (None, Some(-1), _) => Ok(None),
        // A whole number in the form of a float.
        (None, None, Some(float)) if float >= 0.0 && float.fract() == 0.0 => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
            let count = float as u64;
            Ok(Some(count).filter(|count| *count < NEGATIVE))
        }
        (None, None, Some(float)) if (float + 1.0).abs() < f64::EPSILON => Ok(None),
        _ => Err(NoCount),
    }
}

/// A count that must be known.
pub fn count(value: &Value) -> Option<u64> {
    count_or_unknown(value).ok().flatten()
}

/// A number that is not negative.
pub fn amount(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn lengths_have_bounds() {
        assert_eq!(length([0, 0, 0, 0x7B], MOST_PARAMETERS), Ok(123));
        for bytes in [[0; 4], [0, 0, 0x20, 1], [0x80, 0, 0, 0], [0xFF; 4], *b"GET "] {
            assert!(length(bytes, MOST_PARAMETERS).is_err(), "{bytes:?}");
        }
        assert_eq!(length([0, 0x10, 0, 0], MOST_RESULTS), Ok(MOST_RESULTS));
    }

    #[test]
    fn depth_and_numbers_have_bounds() {
        for text in ["[".repeat(4000), "{\"a\":".repeat(1000), "{\"a\":1e999}".to_owned(), "{\"a\":NaN}".to_owned()] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object(b"7").is_err() && object(b"").is_err() && object(b"{}x").is_err() && object(b"\xFF").is_err());
    }

    #[test]
    fn minus_one_is_unknown_in_every_form() {
        for unknown in [json!(-1), json!(u64::MAX), json!(-1.0), json!(1.844_674_407_370_955_2e19)] {
            assert_eq!(count_or_unknown(&unknown), Ok(None), "{unknown}");
        }
        for wrong in [json!(-2), json!(1.5), json!("1"), json!(null), json!(true), json!(-1.5)] {
            assert_eq!(count_or_unknown(&wrong), Err(NoCount), "{wrong}");
        }
        assert_eq!(count(&json!(5e9)), Some(5_000_000_000));
        assert_eq!((amount(&json!(-0.5)), amount(&json!(0.25))), (None, Some(0.25)));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text: Vec<u8>) {
            let _ = object(&text);
        }

        #[test]
        fn frames_say_their_length(text: String) {
            let bytes = frame(&json!({ "text": text }));
            let (head, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(length(*head, usize::MAX), Ok(rest.len()));
            let object = object(rest).unwrap();
            prop_assert_eq!(object.get("text").and_then(Value::as_str), Some(text.as_str()));
        }
    }
}
