//! The command that starts the daemon at the far end, with the program there or with a copy of this one.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use netcore::measure::host::HostFacts;
use sha2::{Digest, Sha256};

/// Exit code of [`RECEIVE`] where it could not start the program. Its last line says why.
pub const NOT_RECEIVED: i32 = 97;

/// Receives the program on standard input and becomes it: `$1` bytes, their SHA-256 `$2`, for the machine `$3`; the rest are
/// its arguments.
///
/// It travels through the login shells of other people: one line, no single quote, and no `!` before a word, which csh
/// replaces. The folder is the first whose files may be executed; the shell itself runs a file without a `#!` line there. The
/// program is removed before it runs: the open descriptor 3 keeps it. A second process gives up a transfer without progress
/// for 6 s, since sshd may not notice for hours that its client is gone. It also cleans up after a shell that was killed. It ends by
/// SIGKILL: another signal would meet the shell's own traps in it, as long as it has not reset them, and these remove the program.
const RECEIVE: &str = concat!(
    r#"s=$1; h=$2; m=$3; shift 3; "#,
    r#"fail() { echo "plumb-copy: $1" >&2; exit 97; }; "#,
    r#"u=$(uname -m); [ "$u" = "$m" ] || fail "this host is a $u, and the program is for $m"; "#,
    r#"f=; for t in "$XDG_RUNTIME_DIR" "$TMPDIR" /tmp /dev/shm "$HOME"; do "#,
    r#"[ -n "$t" ] && [ -d "$t" ] || continue; "#,
    r#"d=$(mktemp -d "$t/plumb.XXXXXX" 2>/dev/null) || continue; "#,
    r#"trap "rm -rf \"$d\"" EXIT; trap "exit 98" HUP INT TERM PIPE; "#,
    r#"echo "exit 0" > "$d/plumb" 2>/dev/null && chmod 700 "$d/plumb" && "$d/plumb" 2>/dev/null && { f=$d/plumb; break; }; "#,
    r#"rm -rf "$d"; done; "#,
    r#"[ -n "$f" ] || fail "no folder for the program: XDG_RUNTIME_DIR, TMPDIR, /tmp, /dev/shm and HOME are missing, full or noexec"; "#,
    r#"exec 4<&0; head -c "$s" <&4 > "$f" & p=$!; "#,
    r#"{ n=-1; while sleep 6; do o=$n; n=$(wc -c < "$f") || break; [ "$n" = "$o" ] && { kill $p; rm -rf "$d"; break; }; done; } "#,
    r#"4<&- </dev/null >/dev/null 2>&1 & w=$!; trap "kill $p $w 2>/dev/null; rm -rf \"$d\"" EXIT; "#,
    r#"wait $p; { kill -9 $w; wait $w; } 2>/dev/null; exec 4<&-; "#,
    r#"g=$(sha256sum < "$f"); [ "${g%% *}" = "$h" ] || fail "the program did not arrive whole"; "#,
    r#"exec 3< "$f"; rm -rf "$d"; trap - EXIT HUP INT TERM PIPE; exec /proc/self/fd/3 "$@""#,
);

/// A program of this machine that travels.
#[derive(Clone, Debug)]
pub struct Copy {
    pub path: PathBuf,
    bytes: u64,
    sha256: String,
    machine: String,
}

impl Copy {
    /// This program. It is read once.
    pub fn of_this_program() -> io::Result<Self> {
        static READ: OnceLock<Copy> = OnceLock::new();
        if let Some(copy) = READ.get() {
            return Ok(copy.clone());
        }
        // The file of the running program, also after it was replaced.
        let copy = Self::of(Path::new("/proc/self/exe"))?;
        Ok(READ.get_or_init(|| copy).clone())
    }

    fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            bytes += read as u64;
        }
        let sha256 = hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let machine = HostFacts::collect().arch.unwrap_or_default();
        Ok(Self { path: path.to_owned(), bytes, sha256, machine })
    }
}

/// The far end's command.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The program there, where it does not travel.
    pub program: String,
    pub copy: Option<Copy>,
    /// Arguments of the program.
    pub args: Vec<String>,
}

impl Remote {
    /// The command as a list, for launchers that run one without a shell.
    pub fn argv(&self) -> Vec<String> {
        let Some(copy) = &self.copy else {
            return [vec![self.program.clone()], self.args.clone()].concat();
        };
        let fixed = ["sh", "-c", RECEIVE, "plumb-copy"].map(str::to_owned).to_vec();
        [fixed, vec![copy.bytes.to_string(), copy.sha256.clone(), copy.machine.clone()], self.args.clone()].concat()
    }

    /// The command as a line for a login shell, which may be of any kind.
    pub fn line(&self) -> String {
        let words: Vec<String> = self.argv().iter().map(|word| quoted(word)).collect();
        format!("exec {}", words.join(" "))
    }
}

/// A word for any shell. A path in the home (`~/bin/plumb`) stays as it is.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Output, Stdio},
    };

    use super::*;

    fn received(sent: &[u8], bytes: usize, copy: &Copy, home: &Path, shell: &str) -> Output {
        let argv = Remote { program: String::new(), copy: Some(copy.clone()), args: vec!["an argument".into()] }.argv();
        let mut child = Command::new(shell)
            .args(&argv[1..])
            .env_remove("XDG_RUNTIME_DIR")
            .env("TMPDIR", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A receiver that refuses does not read.
        let _ = stdin.write_all(&sent[..bytes]).and_then(|()| stdin.write_all(b"and the rest\n"));
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    fn left(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    /// `cat` is a program that shows what is left on standard input, here with `env` to show an argument.
    #[test]
    fn the_program_arrives_runs_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = Path::new("/bin/cat");
        let copy = Copy::of(path).unwrap();
        let bytes = std::fs::read(path).unwrap();
        for shell in ["sh", "bash"] {
            let argv = Remote { program: String::new(), copy: Some(copy.clone()), args: vec!["-".into()] }.argv();
            let mut child = Command::new(shell)
                .args(&argv[1..])
                .env_remove("XDG_RUNTIME_DIR")
                .env("TMPDIR", home.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(&bytes).and_then(|()| stdin.write_all(b"and the rest\n")).unwrap();
            drop(stdin);
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{shell}: {output:?}");
            // Not a byte more than the program is taken from the stream.
            assert_eq!(output.stdout, b"and the rest\n", "{shell}");
            assert_eq!(left(home.path()), 0, "{shell}");
        }
    }

    #[test]
    fn what_did_not_arrive_whole_is_not_run() {
        let home = tempfile::tempdir().unwrap();
        let path = Path::new("/bin/cat");
        let bytes = std::fs::read(path).unwrap();
        let copy = Copy::of(path).unwrap();
        let output = received(&bytes, bytes.len() / 2, &copy, home.path(), "sh");
        assert_eq!(output.status.code(), Some(NOT_RECEIVED));
        assert!(String::from_utf8_lossy(&output.stderr).contains("did not arrive whole"), "{output:?}");
        assert_eq!(left(home.path()), 0);
        let other = Copy { machine: "pdp11".into(), ..copy };
        let output = received(&bytes, bytes.len(), &other, home.path(), "sh");
        assert_eq!(output.status.code(), Some(NOT_RECEIVED));
        assert!(String::from_utf8_lossy(&output.stderr).contains("for pdp11"), "{output:?}");
        assert_eq!(left(home.path()), 0);
    }

    #[test]
    fn the_line_is_safe_in_every_login_shell() {
        assert!(!RECEIVE.contains(['\'', '\n']), "{RECEIVE}");
        let replaced =
            RECEIVE.match_indices('!').filter(|(at, _)| RECEIVE[at + 1..].starts_with(char::is_alphanumeric));
        assert_eq!(replaced.count(), 0, "{RECEIVE}");
        let remote = Remote { program: "~/bin/plumb".into(), copy: None, args: vec!["serve".into(), "a b".into()] };
        assert_eq!(remote.line(), "exec ~/bin/plumb serve 'a b'");
    }
}
