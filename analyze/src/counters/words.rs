//! Words between blanks.

/// The words of a line: what ASCII blanks divide, looked at byte by byte. In the tables that this is for, nothing else
/// divides, and `split_whitespace` spends its time on characters.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.bytes().position(|b| !is_blank(b))?;
        let word = &rest[start..];
        let end = word.bytes().position(is_blank).unwrap_or(word.len());
        rest = &word[end..];
        Some(&word[..end])
    })
}

/// The blanks of ASCII as [`char::is_whitespace`] has them, which `is_ascii_whitespace` does not all.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_those_of_the_standard_library(line in "[a-z0-9é \t\x0b\x0c\r]{0,40}") {
            prop_assert_eq!(super::words(&line).collect::<Vec<_>>(), line.split_whitespace().collect::<Vec<_>>());
        }
    }
}
