//! Compresses the fonts that pictures are drawn with: they would be an eighth of the program.

use std::{env, fs, path::Path};

use miniz_oxide::deflate::compress_to_vec_zlib;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    for (name, font) in [("regular", dejavu::sans::regular()), ("bold", dejavu::sans::bold())] {
        let file = Path::new(&out).join(format!("{name}.ttf.zlib"));
        fs::write(file, compress_to_vec_zlib(font, 9)).expect("cargo's folder takes a file");
    }
}
