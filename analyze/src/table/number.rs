//! Numbers in cells.

/// The number in a cell's text: `Ok(None)` for an empty cell, an error for text that is not a finite number.
#[inline]
pub fn parse_number(text: &str) -> Result<Option<f64>, String> {
    match short_decimal(text.as_bytes()) {
        Some(number) => Ok(Some(number)),
        None => parse_any(text),
    }
}

fn parse_any(text: &str) -> Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Some(value)),
        Ok(_) => Err(format!("`{text}` is not a finite number; undefined values are empty cells")),
        Err(_) => {
            let shown: String = text.chars().take(40).collect();
            Err(format!("`{shown}` is not a number"))
        }
    }
}

/// Parses up to fifteen digits, with or without a point: most cells are like that. Digits and power of ten are exact
/// doubles, so the quotient is rounded once (Clinger 1990) and equals the standard library's. That one takes longer
/// because it handles every case.
#[inline]
fn short_decimal(text: &[u8]) -> Option<f64> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    if text.len() > 16 {
        return None;
    }
    let (mut digits, mut rest) = (0, text);
    if let Some((eight, behind)) = text.split_first_chunk()
        && let Some(number) = eight_digits(*eight)
    {
        (digits, rest) = (number, behind);
    }
    let mut decimals = None;
    for (i, byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' => digits = digits * 10 + u64::from(byte - b'0'),
            b'.' if decimals.is_none() => decimals = Some(rest.len() - i - 1),
            _ => return None,
        }
    }
    let figures = text.len() - usize::from(decimals.is_some());
    (1..16).contains(&figures).then(|| digits as f64 / POWERS[decimals.unwrap_or(0)])
}

/// Parses eight digits at once; `None` if one of them is something else. Pairs, fours and eights are added up side by
/// side in one word (Lemire, Number parsing at a gigabyte per second, 2021).
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let digits = u64::from_le_bytes(text).wrapping_sub(ZEROS);
    // Adding 118 sets the top bit of a byte that is 10 or more; a byte below '0' has it set already.
    if (digits.wrapping_add(ONES * 118) | digits) & (ONES * 0x80) != 0 {
        return None;
    }
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn same_as_the_standard_library(text: &str) {
        match (text.parse::<f64>(), parse_number(text)) {
            (Ok(theirs), Ok(Some(ours))) => assert_eq!(theirs.to_bits(), ours.to_bits(), "{text}"),
            (Err(_), Ok(None)) => assert!(text.is_empty()),
            (theirs, ours) => assert!(ours.is_err() && !theirs.is_ok_and(f64::is_finite), "{text}"),
        }
    }

    #[test]
    fn edges() {
        for text in
            ["", ".", "5.", ".5", "0", "-0", "999999999999999", "9007199254740993", "0.000000000000001", "1.2.3"]
        {
            same_as_the_standard_library(text);
        }
        // Every byte at every place among eight digits.
        for byte in 0..128 {
            for place in 0..8 {
                let mut text = *b"12345678";
                text[place] = byte;
                same_as_the_standard_library(str::from_utf8(&text).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn every_decimal_is_the_standard_librarys(text in "[0-9]{0,9}[.]?[0-9]{0,9}", odd in "[-+0-9.eE]{0,12}", v: f64) {
            same_as_the_standard_library(&text);
            same_as_the_standard_library(&odd);
            same_as_the_standard_library(&v.to_string());
        }
    }
}
