//! Files that a test reads: the bytes that it sends, and a certificate. Each is opened once, and only this descriptor is checked and
//! read: a path that changes its meaning later changes nothing.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use crate::{
    error::EndError,
    spec::{FileUse, Payload, Side, TestSpec},
    transport::certificate,
};

/// Files that a test may read.
#[derive(Clone, Copy, Debug)]
pub enum Readable<'a> {
    Everything,
    /// These files, and those in these folders.
    Within(&'a [PathBuf]),
}

impl Readable<'_> {
    /// `found`: a path without symbolic links.
    fn contains(self, found: &Path) -> bool {
        match self {
            Self::Everything => true,
            Self::Within(list) => {
                list.iter().filter_map(|path| path.canonicalize().ok()).any(|it| found.starts_with(it))
            }
        }
    }
}

/// Why a file is not read.
#[derive(Debug)]
pub enum Unread {
    /// It is not [`Readable`], whether it exists or not.
    Forbidden(PathBuf),
    Failed(EndError),
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct FillFile {
    path: PathBuf,
    file: File,
}

impl FillFile {
    /// Opens a regular file.
    pub fn open(path: &Path, readable: Readable<'_>) -> Result<Self, Unread> {
        // O_PATH finds the file without an effect on it: neither a FIFO's writer nor a device notices.
        let found = File::options().read(true).custom_flags(libc::O_PATH).open(path);
        let found = found.and_then(|file| {
            let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            Ok((readable.contains(&fs::read_link(&by_descriptor)?), file, by_descriptor))
        });
        let opened = match (found, readable) {
            (Ok((false, ..)), _) | (Err(_), Readable::Within(_)) => return Err(Unread::Forbidden(path.to_owned())),
            (Err(error), Readable::Everything) => Err(error),
            (Ok((true, file, by_descriptor)), _) => file.metadata().and_then(|facts| {
                if facts.is_file() { File::open(by_descriptor) } else { Err(io::Error::other("it is no regular file")) }
            }),
        };
        let file = opened.map_err(|error| Unread::Failed(EndError::system(failed(path))(error)))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The first bytes, as many as there are.
    pub fn beginning(&self, wanted: usize) -> Result<Vec<u8>, EndError> {
        let mut contents = Vec::new();
        let read = FromStart { file: &self.file, at: 0 }.take(wanted as u64).read_to_end(&mut contents);
        read.map_err(EndError::system(failed(&self.path)))?;
        Ok(contents)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn failed(path: &Path) -> String {
    format!("cannot read the file {}", path.display())
}

/// Reads independently of the descriptor's own position: several threads read at the same time.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Bytes of the messages of an end.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// Zero bytes.
    Zero,
    /// Pseudo-random bytes, the same in every run.
    Random,
    /// The bytes of a file; `None`: it was not opened.
    File(Option<&'a FillFile>),
}

/// The open files of a test at one end: by the end whose messages they fill, and that of the certificate.
#[derive(Debug, Default)]
pub struct FillFiles {
    near: Option<FillFile>,
    far: Option<FillFile>,
    certificate: Option<FillFile>,
}

impl FillFiles {
    /// Opens the files that a test reads at this end: [`TestSpec::files`].
    pub fn open(spec: &TestSpec, side: Side, readable: Readable<'_>) -> Result<Self, Unread> {
        let mut files = Self::default();
        for (file_use, path) in spec.files(side) {
            let place = match file_use {
                FileUse::MessagesOf(Side::Near) => &mut files.near,
                FileUse::MessagesOf(Side::Far) => &mut files.far,
                FileUse::Certificate => &mut files.certificate,
            };
            *place = Some(FillFile::open(path, readable)?);
        }
        Ok(files)
    }

    /// The files of a plan that this process runs itself.
    pub fn of_own(spec: &TestSpec, side: Side) -> Result<Self, EndError> {
        Self::open(spec, side, Readable::Everything).map_err(|unread| match unread {
            Unread::Failed(error) => error,
            Unread::Forbidden(path) => EndError::Impossible(failed(&path)),
        })
    }

    /// The path and the text of the certificate, and a byte more if it is too long.
    pub fn certificate(&self) -> Result<Option<(&Path, Vec<u8>)>, EndError> {
        let read = |file| Ok((FillFile::path(file), file.beginning(certificate::MOST_BYTES + 1)?));
        self.certificate.as_ref().map(read).transpose()
    }

    /// Bytes of the messages that an end sends.
    pub fn contents(&self, spec: &TestSpec, sender: Side) -> Contents<'_> {
        let file = if sender == Side::Near { &self.near } else { &self.far };
        match (spec.fill_file(sender), &spec.payload) {
            (Some(_), _) => Contents::File(file.as_ref()),
            (None, Payload::Zero) => Contents::Zero,
            (None, _) => Contents::Random,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file behind a path may change between its check and its use.
    #[test]
    fn the_file_that_was_admitted_is_the_one_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let allowed = [folder.path().join("allowed")];
        let (inside, secret) = (allowed[0].join("file"), folder.path().join("secret"));
        fs::create_dir(&allowed[0]).unwrap();
        fs::write(&inside, "public").unwrap();
        fs::write(&secret, "secret").unwrap();
        let file = FillFile::open(&inside, Readable::Within(&allowed)).unwrap();
        fs::remove_file(&inside).unwrap();
        std::os::unix::fs::symlink(&secret, &inside).unwrap();
        assert_eq!(file.beginning(100).unwrap(), b"public");
        assert_eq!(file.beginning(3).unwrap(), b"pub", "it is read from its start each time");
        assert!(matches!(FillFile::open(&inside, Readable::Within(&allowed)), Err(Unread::Forbidden(_))));
        // A file by itself may be named, too.
        FillFile::open(&secret, Readable::Within(std::slice::from_ref(&secret))).unwrap();
    }
}
