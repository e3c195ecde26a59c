//! Facts about a library that need no launcher.

use super::*;

#[test]
fn a_file_that_is_no_mpi_library_is_named_with_what_it_lacks() {
    let why = |file: &str| Library::open(file).map(|_| ()).unwrap_err();
    assert_eq!(why("libc.so.6"), "libc.so.6 has no MPI_Init_thread: it is no MPI library");
    assert!(why("/nonexistent/libmpi.so").contains("/nonexistent/libmpi.so"));
    assert_eq!(why("lib\0mpi"), "`lib\0mpi` is no file name");
}

#[test]
fn symbols_are_found_or_missing() {
    let libc = dlopen("libc.so.6").unwrap();
    assert!(symbol(libc, "getpid").is_some());
    assert!(symbol(libc, "MPI_Send").is_none() && symbol(libc, "get\0pid").is_none());
}

#[test]
fn texts_end_where_the_call_says() {
    let written = |said: c_int, code: c_int| {
        text(|bytes, length| {
            // SAFETY: the buffer has TEXT_BYTES, which is more than three, and the length is the caller's variable.
            unsafe {
                bytes.copy_from_nonoverlapping(c"ab".as_ptr().cast(), 3);
                *length = said;
            }
            code
        })
    };
    assert_eq!([written(2, 0), written(3, 0), written(1, 0)], ["ab", "ab", "a"]);
    assert_eq!([written(c_int::MAX, 0), written(-1, 0), written(2, 1)], ["ab", "", ""]);
    assert_eq!(name_and_version("Open MPI v4.1.4, package: x\nmore"), "Open MPI v4.1.4");
}
