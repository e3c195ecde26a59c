//! Compresses the parts of the fonts that pictures are drawn with: whole, they would be an eighth of the program.

use std::{env, fs, path::Path};

use miniz_oxide::deflate::compress_to_vec_zlib;

/// The tables of a font that give outlines and widths. The others are for hinting, shaping and names.
const TABLES: [&[u8]; 8] = [b"OS/2", b"cmap", b"glyf", b"head", b"hhea", b"hmtx", b"loca", b"maxp"];

/// Bytes of a font's head, and of a table's entry behind it: tag, checksum, offset and length (OpenType 1.9, "Organization of an
/// OpenType Font").
const HEAD: usize = 12;
const ENTRY: usize = 16;

/// A font with those tables only. Its search hints stay zero: nobody needs them for eight tables.
fn drawn(font: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_be_bytes(font[at..at + 4].try_into().expect("four bytes")) as usize;
    let count = usize::from(u16::from_be_bytes([font[4], font[5]]));
    let entries = (0..count).map(|i| HEAD + i * ENTRY).filter(|at| TABLES.contains(&&font[*at..at + 4]));
    let entries: Vec<usize> = entries.collect();
    assert_eq!(entries.len(), TABLES.len(), "the font has these tables");
    let mut out = font[..4].to_vec();
    out.extend(u16::try_from(entries.len()).expect("eight").to_be_bytes());
    out.extend([0; 6]);
    let mut tables = Vec::new();
    for at in entries {
        let offset = u32::try_from(HEAD + TABLES.len() * ENTRY + tables.len()).expect("a font is small");
        out.extend(&font[at..at + 8]);
        out.extend(offset.to_be_bytes());
        out.extend(&font[at + 12..at + ENTRY]);
        tables.extend(&font[number(at + 8)..][..number(at + 12)]);
        tables.resize(tables.len().next_multiple_of(4), 0);
    }
    out.extend(tables);
    out
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    for (name, font) in [("regular", dejavu::sans::regular()), ("bold", dejavu::sans::bold())] {
        let file = Path::new(&out).join(format!("{name}.ttf.zlib"));
        fs::write(file, compress_to_vec_zlib(&drawn(font), 9)).expect("cargo's folder takes a file");
    }
}
