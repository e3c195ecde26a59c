//! Messages that are nearly right: one of the protocol's, with some of its values changed. Random bytes alone would seldom
//! get past the JSON.

use std::{path::Path, sync::OnceLock};

use serde_json::{Number, Value};

use crate::control::channel::PROTOCOLS;

/// Most values of a message that are changed.
const CHANGES: usize = 32;

/// Most copies of an element of a list.
const COPIES: usize = 64;

/// Numbers at which arithmetic breaks.
const NUMBERS: [f64; 8] = [0.0, -0.0, 1.0, -1.0, 0.5, 9_007_199_254_740_992.0, f64::MAX, f64::MIN_POSITIVE];
const WHOLES: [u64; 8] = [0, 1, 2, 65_535, u32::MAX as u64, 1 << 53, i64::MAX as u64, u64::MAX];

/// Every message of the newest protocol, by kind.
fn wire() -> &'static Value {
    static WIRE: OnceLock<Value> = OnceLock::new();
    WIRE.get_or_init(|| {
        let name = format!("tests/session/wire/protocol-{}.json", PROTOCOLS.end());
        let text = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file of the project");
        serde_json::from_slice(&text).expect("the file is JSON")
    })
}

/// One of the messages of a kind (`requests`, `replies`, …), changed as the bytes say. `None`: there are no bytes.
pub fn message(kind: &str, bytes: &[u8]) -> Option<Value> {
    let (choice, mut bytes) = bytes.split_first()?;
    let messages = match &wire()[kind] {
        Value::Array(messages) => &messages[..],
        one => std::slice::from_ref(one),
    };
    let mut message = messages[usize::from(*choice) % messages.len()].clone();
    for _ in 0..CHANGES {
        let Some(([low, high, how], rest)) = bytes.split_first_chunk() else { break };
        let mut place = usize::from(u16::from_le_bytes([*low, *high])) % count(&message);
        bytes = rest;
        if let Some(value) = nth(&mut message, &mut place) {
            change(value, *how, &mut bytes);
        }
    }
    Some(message)
}

/// Values in a tree, its root included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The value at a place, in the order of the text.
fn nth<'v>(value: &'v mut Value, place: &mut usize) -> Option<&'v mut Value> {
    if *place == 0 {
        return Some(value);
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, place)),
        Value::Object(fields) => fields.values_mut().find_map(|field| nth(field, place)),
        _ => None,
    }
}

fn change(value: &mut Value, how: u8, bytes: &mut &[u8]) {
    let mut taken = |most: usize| {
        let (taken, rest) = bytes.split_at(most.min(bytes.len()));
        *bytes = rest;
        taken
    };
    let choice = usize::from(how >> 4);
    match (how & 15, value) {
        (0, value) => *value = Value::Null,
        (1, value) => *value = Value::Bool(choice > 7),
        (2, value) => *value = WHOLES[choice % 8].into(),
        (3, value) => *value = Number::from_f64(NUMBERS[choice % 8]).map_or(Value::Null, Value::Number),
        (4, value) => *value = word(taken(8)).into(),
        (5, value) => *value = word(taken(8)).cast_signed().into(),
        (6, value) => *value = Number::from_f64(f64::from_bits(word(taken(8)))).map_or(Value::Null, Value::Number),
        (7, value) => {
            let length = taken(1).first().map_or(0, |n| usize::from(*n));
            *value = String::from_utf8_lossy(taken(length)).into();
        }
        // Any other value of the protocol: most often a word of another field.
        (8, value) => {
            let mut place = usize::try_from(word(taken(2))).unwrap_or_default() % count(wire());
            *value = nth(&mut wire().clone(), &mut place).map_or(Value::Null, |other| other.clone());
        }
        (9, Value::Array(items)) => {
            let copies = taken(1).first().map_or(0, |n| usize::from(*n) % COPIES);
            if let Some(item) = items.get(choice % items.len().max(1)).cloned() {
                items.extend(std::iter::repeat_n(item, copies));
            }
        }
        (_, Value::Array(items)) => items.truncate(choice),
        (9, Value::Object(fields)) => drop(fields.insert("unknown".to_owned(), Value::Null)),
        (_, Value::Object(fields)) => {
            let name = fields.keys().nth(choice % fields.len().max(1)).cloned();
            name.and_then(|name| fields.shift_remove(&name));
        }
        _ => {}
    }
}

/// Up to eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
