//! Layers of test bodies: built-in ← defaults ← profiles ← test ← matrix value ← member ← `--set`.

use std::sync::Arc;

use super::{
    keys::{self, key},
    tree::{Entry, Node, Value},
};

/// The lowest layer of every test, as a plan would write it.
pub const BUILT_IN: &str = "\
streams: 1
inflight: 1
io: auto
receive: copy
payload: random
integrity: false
warmup: 0s
cooldown: 0s
duration: 10s
interval: 0s
iterations: 1
collect: [cpu, limits, tcp_info]
";

/// A test has one stop rule: a layer that sets one removes those of lower layers.
const STOP_RULES: [&str; 3] = [key::duration, key::bytes, key::transactions];

/// Merges a test body over another: maps merge by key, scalars and lists replace, `assert+` appends, `~` removes.
pub fn body(mut under: Node, over: &Node) -> Node {
    if STOP_RULES.iter().any(|rule| over.get(rule).is_some_and(|value| !value.is_null())) {
        for rule in STOP_RULES {
            under.remove(rule);
        }
    }
    let mut merged = node(under, over);
    if let Some(more) = merged.remove(key::assert_more) {
        append(&mut merged, more);
    }
    merged
}

fn append(merged: &mut Node, more: Entry) {
    let Value::Map(entries) = &mut merged.value else { return };
    match entries.iter_mut().find(|e| &*e.key == key::assert) {
        Some(Entry { value: Node { value: Value::List(list), .. }, .. }) => {
            if let Value::List(items) = more.value.value {
                list.extend(items);
            }
        }
        _ => entries.push(Entry { key: key::assert.into(), ..more }),
    }
}

fn node(under: Node, over: &Node) -> Node {
    let (Value::Map(mut entries), Value::Map(above)) = (under.value, &over.value) else { return over.clone() };
    for entry in above {
        match entries.iter_mut().find(|e| e.key == entry.key) {
            Some(below) => {
                let lower = std::mem::replace(&mut below.value, Node::empty_map(entry.value.span));
                below.value = node(lower, &entry.value);
                below.key_span = entry.key_span;
            }
            None => entries.push(entry.clone()),
        }
    }
    Node { value: Value::Map(entries), span: over.span }
}

/// Options of the near end, and those of the far end, which takes over what it does not set itself.
const ENDS: [(&str, &str); 2] = [(key::socket, key::remote_socket), (key::buffers, key::remote_buffers)];

/// Removes nulls (`~`) from maps at every depth. Those of the far end's options stay: there a null says that the far end does
/// not take over the near end's value.
pub fn prune(node: &mut Node) {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|e| !e.value.is_null());
        for entry in entries.iter_mut().filter(|entry| ENDS.iter().all(|(_, far)| *entry.key != **far)) {
            prune(&mut entry.value);
        }
    }
}

/// A test with these values of its matrix.
pub fn combined(test: &Node, values: &[(Arc<str>, Node)]) -> Node {
    let mut combined = test.clone();
    for (path, value) in values {
        let mut layer = Node::empty_map(value.span);
        layer.set(path, value.clone());
        combined = body(combined, &layer);
    }
    prune(&mut combined);
    combined
}

/// The test with the options spelled out that its far end takes from its near end.
pub fn with_far_end(test: &Node) -> Node {
    let mut test = test.clone();
    for (near, far) in ENDS {
        let Some(mut under) = test.get(near).filter(|under| under.entries().is_some()).cloned() else { continue };
        // The name of an interface belongs to one machine; the IP version is set once for both ends.
        under.remove("device");
        under.remove("ipv6");
        let merged = test.get(far).map_or_else(|| under.clone(), |over| node(under.clone(), over));
        test.set(far, merged);
    }
    test
}

/// The part of a test that its members inherit.
pub fn inherited_by_members(test: &Node) -> Node {
    let mut node = test.clone();
    for key in keys::of_whole_test() {
        node.remove(key);
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{diagnostics::Diagnostics, source::Sources, yaml::parse};
    use proptest::prelude::*;

    fn read(text: &str) -> Node {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        parse(source, &mut Diagnostics::new(sources)).unwrap()
    }

    fn merged(under: &str, over: &str) -> String {
        let mut node = body(read(under), &read(over));
        prune(&mut node);
        node.to_json().to_string()
    }

    #[test]
    fn maps_merge_and_everything_else_replaces() {
        assert_eq!(
            merged("{socket: {no_delay: true, mss: 1400}, tags: [a]}", "{socket: {mss: 500}, tags: [b], streams: 2}"),
            r#"{"socket":{"no_delay":true,"mss":500},"tags":["b"],"streams":2}"#
        );
    }

    #[test]
    fn null_removes_and_assert_plus_appends() {
        assert_eq!(merged("{socket: {mss: 1}, streams: 3}", "{streams: ~, socket: {mss: ~}}"), r#"{"socket":{}}"#);
        assert_eq!(merged("{assert: [a]}", "{assert+: [b]}"), r#"{"assert":["a","b"]}"#);
        assert_eq!(merged("{assert: [a]}", "{assert: [c], assert+: [b]}"), r#"{"assert":["c","b"]}"#);
        assert_eq!(merged("{}", "{assert+: [b]}"), r#"{"assert":["b"]}"#);
    }

    #[test]
    fn the_far_end_has_what_the_near_end_has() {
        let far = |test: &str| with_far_end(&read(test)).to_json()["remote_socket"].to_string();
        assert_eq!(far("{socket: {mss: 1, device: a, ipv6: true}}"), r#"{"mss":1}"#);
        assert_eq!(
            far("{socket: {mss: 1, ttl: 2}, remote_socket: {mss: 3, device: b}}"),
            r#"{"mss":3,"ttl":2,"device":"b"}"#
        );
        assert_eq!(far("{remote_socket: {mss: 3}}"), r#"{"mss":3}"#);
        let mut test = read("{socket: {mss: 1, ttl: 2}, remote_socket: {mss: ~}, buffers: ~}");
        prune(&mut test);
        let whole = with_far_end(&test).to_json();
        assert_eq!(whole["remote_socket"].to_string(), r#"{"mss":null,"ttl":2}"#, "a null is not overwritten");
        assert!(whole.get("buffers").is_none());
    }

    #[test]
    fn a_stop_rule_replaces_another() {
        assert_eq!(merged("{duration: 10s}", "{bytes: 1GB}"), r#"{"bytes":"1GB"}"#);
        assert_eq!(merged("{bytes: 1GB}", "{streams: 1}"), r#"{"bytes":"1GB","streams":1}"#);
    }

    #[test]
    fn built_in_is_a_plan_that_reads() {
        assert!(read(BUILT_IN).get("duration").is_some());
    }

    fn any_map() -> impl Strategy<Value = String> {
        proptest::collection::btree_map("[a-d]", "[0-9]{1,3}", 0..4)
            .prop_map(|m| format!("{{{}}}", m.iter().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>().join(", ")))
    }

    proptest! {
        #[test]
        fn merging_keeps_all_keys_and_the_upper_values(under in any_map(), over in any_map()) {
            let (under, over) = (read(&under), read(&over));
            let all = body(under.clone(), &over);
            for entry in under.entries().unwrap() {
                let upper = over.get(&entry.key).or(Some(&entry.value));
                prop_assert_eq!(all.get(&entry.key).and_then(Node::text), upper.and_then(Node::text));
            }
            for entry in over.entries().unwrap() {
                prop_assert_eq!(all.get(&entry.key).and_then(Node::text), entry.value.text());
            }
        }

        #[test]
        fn merging_is_associative(a in any_map(), b in any_map(), c in any_map()) {
            let (a, b, c) = (read(&a), read(&b), read(&c));
            let sorted = |n: Node| {
                let mut all: Vec<_> = n.entries().unwrap().iter().map(|e| (e.key.clone(), e.value.text().map(str::to_owned))).collect();
                all.sort();
                all
            };
            prop_assert_eq!(sorted(body(body(a.clone(), &b), &c)), sorted(body(a, &body(b, &c))));
        }
    }
}
