//! `plumb key`: makes a key file for both ends of a session. And where a command finds its key.

use std::{env, path::PathBuf};

use netcore::control::key::Key;

use crate::error::{Error, Exit};

pub const EXAMPLES: &str = "\
Examples:
  plumb key lab.key
  scp -p lab.key b.lab:
  plumb serve --key-file lab.key                       (there)
  plumb run lab.yaml --key-file lab.key                (here)

Anybody with the file may start sessions: copy it over a channel you trust. An existing file is never replaced. As \
~/.config/plumb/key it is every command's key; PLUMB_KEY_FILE names another file, and PLUMB_KEY holds a key itself.";

/// The key that a command line asks for.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct KeyFile {
    /// File of the key that both ends share (see `plumb key`) [default: the key in PLUMB_KEY, the file in PLUMB_KEY_FILE, or
    /// ~/.config/plumb/key]
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
}

impl KeyFile {
    /// The key: of the option, else of the environment, else of the user's configuration. `None`: there is none.
    pub(super) fn load(&self) -> Result<Option<Key>, Error> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        if self.key_file.is_none()
            && let Some(text) = set("PLUMB_KEY")
        {
            let text = text.to_string_lossy();
            return Key::from_text(&text, "PLUMB_KEY").map(Some).map_err(|e| Error::Usage(e.to_string()));
        }
        let of_user = || {
            let folder = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".config")));
            folder.map(|folder| folder.join("plumb/key")).filter(|path| path.exists())
        };
        let file = self.key_file.clone().or_else(|| set("PLUMB_KEY_FILE").map(PathBuf::from)).or_else(of_user);
        file.as_deref().map(Key::load).transpose().map_err(Error::measurement)
    }
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The new file, readable by its owner only [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let key = Key::generate().map_err(Error::measurement)?;
    match &args.file {
        Some(path) => key.save(path).map_err(Error::measurement)?,
        None => super::print(&format!("{}\n", key.to_hex()))?,
    }
    Ok(Exit::Success)
}
