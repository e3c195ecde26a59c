//! Names of pages and anchors: of plain letters, and the same from build to build, so that links to them stay valid.

use crate::{history::told::Told, import::fnv1a};

/// Longest readable part of a name.
const LONGEST: usize = 60;

/// The file of a series: what it is, and a hash of all that tells it from others.
pub fn page(told: &Told) -> String {
    let key = &told.series.key;
    let direction = if key.direction == "forward" { "" } else { &key.direction };
    let readable = slug(&[told.series.case.as_str(), &key.member, direction, &key.metric].join(" "));
    let parts = [&key.plan, &key.machine, &key.case_id, &key.member, &key.direction, &key.metric];
    let hash = fnv1a(&parts.map(String::as_str).join("\x1f")) & 0xffff_ffff_ffff;
    format!("{readable}-{hash:012x}.html")
}

/// Whether a text can be the name of a file that [`page`] made.
pub fn is_page(name: &str) -> bool {
    name.strip_suffix(".html").is_some_and(|stem| {
        !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

/// An anchor. A text of other characters, or a long one, gets a hash, which a dot sets apart from all plain ones.
pub fn anchor(kind: &str, text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.len() <= LONGEST
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if is_plain { format!("{kind}-{text}") } else { format!("{kind}-{}.{:016x}", slug(text), fnv1a(text)) }
}

/// Lower-case letters and digits of a text, with a dash for what stands between them.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        if slug.len() >= LONGEST {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let trimmed = slug.trim_end_matches('-');
    if trimmed.is_empty() { "x".to_owned() } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_plain_and_anchors_differ() {
        assert_eq!(
            slug("bulk[message_size=64KiB,streams=4] throughput"),
            "bulk-message-size-64kib-streams-4-throughput"
        );
        assert_eq!(slug("../../<script>"), "script");
        assert_eq!(slug("äöü"), "x");
        assert_eq!(anchor("run", "0198-c2_A"), "run-0198-c2_A");
        assert_ne!(anchor("run", "a b"), anchor("run", "a/b"));
        assert!(!anchor("run", "\"><i>").contains(['"', '<', ' ']));
    }
}
