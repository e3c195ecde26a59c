//! The command that starts the daemon at the far end, with the program there or with a copy of this one.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use memchr::memmem;
use netcore::measure::host::HostFacts;
use schemas::text::{hex, shell_word};
use sha2::{Digest, Sha256};

/// Exit code of [`RECEIVE`] where it could not start the program. Its last line says why.
pub const NOT_RECEIVED: i32 = 97;

/// The file of the running program, also after it was replaced.
const OWN: &str = "/proc/self/exe";

/// The folder of programs for other machines, in the place of this program's own.
const PROGRAMS: &str = "PLUMB_PROGRAMS";

/// The far end's words about its machine, and the end of these words.
const OTHER_MACHINE: (&str, &str) = ("plumb-copy: this host is a ", ", and the program is for ");

/// Receives the program on standard input and becomes it. `$1` is [`Copy::label`]; the rest are its arguments.
///
/// It travels through the login shells of other people: one line, no single quote, and no `!` before a word, which csh
/// replaces. The folder is the first whose files may be executed; the shell itself runs a file without a `#!` line there. The
/// program is removed before it runs: the open descriptor 3 keeps it. A second process gives up a transfer without progress
/// for 6 s, since sshd may not notice for hours that its client is gone. It also cleans up after a shell that was killed. It ends by
/// SIGKILL: another signal would meet the shell's own traps in it, as long as it has not reset them, and these remove the program.
const RECEIVE: &str = concat!(
    r#"s=${1%%:*}; h=${1#*:}; m=${h#*:}; h=${h%:*}; shift; "#,
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

/// A program that travels.
#[derive(Clone, Debug)]
pub struct Copy {
    pub path: PathBuf,
    /// Its bytes, their SHA-256 and its machine, as [`RECEIVE`] takes them: one word, which stands once in a launcher's command.
    pub label: String,
}

impl Copy {
    /// This program. It is read once.
    pub fn of_this_program() -> io::Result<Self> {
        static READ: OnceLock<Copy> = OnceLock::new();
        if let Some(copy) = READ.get() {
            return Ok(copy.clone());
        }
        let path = Path::new(OWN);
        let copy = Self::of(path, &fs::read(path)?, &HostFacts::collect().arch.unwrap_or_default());
        Ok(READ.get_or_init(|| copy).clone())
    }

    /// The same program for another machine, as its `uname -m` says it: `plumb-MACHINE` beside this one, or in `$PLUMB_PROGRAMS`.
    pub fn for_machine(machine: &str) -> Result<Self, String> {
        let folder = env::var_os(PROGRAMS).map(PathBuf::from);
        let own = || env::current_exe().ok()?.parent().map(Path::to_owned);
        let path = folder.or_else(own).unwrap_or_default().join(format!("plumb-{machine}"));
        let version = env!("CARGO_PKG_VERSION");
        // Begins what `plumb --version` prints, which is a text in every program.
        let build = format!("{version} ({},", env!("PLUMB_BUILD").split(',').next().unwrap_or_default());
        let wrong = match fs::read(&path) {
            Ok(program) if memmem::find(&program, build.as_bytes()).is_some() => {
                return Ok(Self::of(&path, &program, machine));
            }
            Ok(_) => format!("is not of this program's version {})", build.trim_end_matches(',')),
            Err(error) => format!("cannot be read: {error}"),
        };
        Err(format!(
            "its machine is {machine}, and the program to send there, {}, {wrong}\n         \
             take bin/plumb of plumbline-{version}-{machine}.tar.gz, from this program's release; {PROGRAMS} may name another folder",
            path.display()
        ))
    }

    /// Whether it is the running program.
    pub fn is_own(&self) -> bool {
        self.path == Path::new(OWN)
    }

    fn of(path: &Path, program: &[u8], machine: &str) -> Self {
        let label = format!("{}:{}:{machine}", program.len(), hex(&Sha256::digest(program)));
        Self { path: path.to_owned(), label }
    }
}

/// The machine of the far end, if it said that it is another one than the program's.
pub fn other_machine(lines: &[String]) -> Option<&str> {
    let (begin, end) = OTHER_MACHINE;
    let said = lines.iter().find_map(|line| Some(line.split_once(begin)?.1.split_once(end)?.0))?;
    // It becomes part of a file's name.
    said.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(said)
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
        [fixed, vec![copy.label.clone()], self.args.clone()].concat()
    }

    /// The command as a line for a login shell, which may be of any kind.
    pub fn line(&self) -> String {
        // A path in the home (`~/bin/plumb`) stays as it is.
        let words: Vec<String> = self.argv().iter().map(|word| shell_word(word, "~")).collect();
        format!("exec {}", words.join(" "))
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

    fn own_machine() -> String {
        HostFacts::collect().arch.unwrap()
    }

    fn left(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    /// `cat` is a program that shows what is left on standard input, here with `env` to show an argument.
    #[test]
    fn the_program_arrives_runs_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = Path::new("/bin/cat");
        let bytes = fs::read(path).unwrap();
        let copy = Copy::of(path, &bytes, &own_machine());
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
        let bytes = fs::read(path).unwrap();
        let copy = Copy::of(path, &bytes, &own_machine());
        let output = received(&bytes, bytes.len() / 2, &copy, home.path(), "sh");
        assert_eq!(output.status.code(), Some(NOT_RECEIVED));
        assert!(String::from_utf8_lossy(&output.stderr).contains("did not arrive whole"), "{output:?}");
        assert_eq!(left(home.path()), 0);
        let other = Copy::of(path, &bytes, "pdp11");
        let output = received(&bytes, bytes.len(), &other, home.path(), "sh");
        assert_eq!(output.status.code(), Some(NOT_RECEIVED));
        let lines: Vec<String> = String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect();
        assert!(lines.iter().any(|line| line.contains("for pdp11")), "{lines:?}");
        assert_eq!(other_machine(&lines), Some(&*own_machine()));
        assert_eq!(left(home.path()), 0);
    }

    #[test]
    fn a_machine_that_is_no_word_names_no_file() {
        let said = |machine: &str| [format!("plumb-copy: this host is a {machine}, and the program is for x86_64")];
        assert_eq!(other_machine(&said("aarch64")), Some("aarch64"));
        assert_eq!(other_machine(&said("../../etc/passwd")), None);
        let why = Copy::for_machine("pdp11").unwrap_err();
        assert!(why.contains("/plumb-pdp11, cannot be read: No such file"), "{why}");
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
