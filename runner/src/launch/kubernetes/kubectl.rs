//! The user's own `kubectl`: its configuration, context and credentials are theirs.
//!
//! From a pod's own object it reads what the pod waits for, or why it fails. It also removes what launchers of this machine left
//! that were ended together with their watchdogs.

use std::{
    ffi::OsStr,
    io::{self, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use netcore::control::stop::{StopFlag, Urgency};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use schemas::text::plain;
use serde_json::Value;

use super::{Failure, Place, manifest};
use crate::plan::model::Kubernetes;

/// The longest wait of `kubectl` for an answer of the API server.
const REQUEST: &str = "--request-timeout=20s";

/// Time for one call. `kubectl` tries several times to reach a server.
const PATIENCE: Duration = Duration::from_secs(45);

/// Characters kept of a line.
const KEPT_CHARACTERS: usize = 300;

#[derive(Clone, Debug)]
pub struct Kubectl {
    argv: Vec<String>,
}

impl Kubectl {
    pub fn new(options: &Kubernetes) -> Self {
        let namespace = options.namespace.iter().map(|namespace| format!("--namespace={namespace}"));
        Self { argv: ["kubectl".to_owned()].into_iter().chain(options.args.iter().cloned()).chain(namespace).collect() }
    }

    /// The words of a call.
    pub fn command<W: AsRef<str>>(&self, words: impl IntoIterator<Item = W>) -> Vec<String> {
        self.argv.iter().cloned().chain(words.into_iter().map(|word| word.as_ref().to_owned())).collect()
    }

    /// Runs it to its end and returns its standard output.
    pub fn run<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
        input: Option<&str>,
        stop: &StopFlag,
    ) -> Result<String, Failure> {
        let words: Vec<&str> = [REQUEST].into_iter().chain(words).collect();
        let mut child = Ending(self.start(&words, input.map_or_else(Stdio::null, |_| Stdio::piped()))?);
        let (stdin, stdout, stderr) = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
        thread::scope(|scope| {
            scope.spawn(|| {
                // A kubectl that does not read says why.
                stdin.zip(input).map(|(mut stdin, input)| stdin.write_all(input.as_bytes()))
            });
            let (out, err) = (scope.spawn(|| text(stdout)), scope.spawn(|| text(stderr)));
            let began = Instant::now();
            let status = loop {
                match child.0.try_wait() {
                    Ok(Some(status)) => break Some(status),
                    Ok(None) if stop.urgency() == Urgency::None && began.elapsed() < PATIENCE => {
                        thread::sleep(Duration::from_millis(5));
                    }
                    Ok(None) | Err(_) => {
                        child.end();
                        break None;
                    }
                }
            };
            let out = out.join().unwrap_or_default();
            let lines = lines(&err.join().unwrap_or_default());
            match status {
                Some(status) if status.success() => Ok(out),
                Some(status) => Err(Failure { what: format!("{} ended ({status})", called(&words)), lines }),
                None if stop.urgency() != Urgency::None => {
                    Err(Failure { what: "a signal ended the run".into(), lines })
                }
                None => Err(Failure {
                    what: format!("{} had no answer in {} s", called(&words), PATIENCE.as_secs()),
                    lines,
                }),
            }
        })
    }

    /// Runs it as long as the result lives. It prints JSON objects.
    pub fn watch<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<Watch, Failure> {
        let words: Vec<&str> = words.into_iter().collect();
        let mut child = Ending(self.start(&words, Stdio::null())?);
        let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
        let (sender, objects) = mpsc::channel();
        let (errors, said) = mpsc::channel();
        let started = thread::Builder::new().name("kubectl".into()).spawn(move || {
            read_objects(stdout, &sender);
            drop(sender);
            let _ = errors.send(lines(&text(stderr)));
        });
        started.map_err(|error| Failure { what: format!("no thread for kubectl: {error}"), lines: Vec::new() })?;
        Ok(Watch { child, objects, said, what: called(&words) })
    }

    fn start(&self, words: &[&str], input: Stdio) -> Result<Child, Failure> {
        let argv = self.command(words);
        // A process group of its own: SIGINT of the terminal is for this program alone.
        Command::new(OsStr::new(&argv[0]))
            .args(&argv[1..])
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| Failure {
                what: format!("`{}` did not start: {error}; it must be installed here", argv[0]),
                lines: Vec::new(),
            })
    }
}

/// A running `kubectl` that prints objects.
#[derive(Debug)]
pub struct Watch {
    child: Ending,
    objects: Receiver<Value>,
    said: Receiver<Vec<String>>,
    what: String,
}

/// The end of a [`Watch`].
#[derive(Debug)]
pub enum Ended {
    /// The API server ended it, as it does with all after some time.
    Orderly,
    Failed(Failure),
}

impl Watch {
    /// The next object; `None`: none within that time.
    pub fn next(&mut self, within: Duration) -> Result<Option<Value>, Ended> {
        match self.objects.recv_timeout(within) {
            Ok(object) => Ok(Some(object)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let lines = self.said.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
                match self.child.0.wait() {
                    Ok(status) if status.success() => Err(Ended::Orderly),
                    status => {
                        let how =
                            status.map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string());
                        Err(Ended::Failed(Failure { what: format!("{} ended ({how})", self.what), lines }))
                    }
                }
            }
        }
    }
}

/// A child that ends with its value.
#[derive(Debug)]
struct Ending(Child);

impl Ending {
    fn end(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Only its own end can make this fail.
            let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_objects(stdout: Option<ChildStdout>, sender: &mpsc::Sender<Value>) {
    let Some(stdout) = stdout else { return };
    for object in serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>() {
        let Ok(object) = object else { return };
        if sender.send(object).is_err() {
            return;
        }
    }
}

fn text(source: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // The text before an error is still worth showing.
    let _: Option<io::Result<usize>> = source.map(|mut source| source.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `kubectl create`: the first word that is no option.
fn called(words: &[&str]) -> String {
    format!("kubectl {}", words.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default())
}

/// A line of the cluster for an error: short, and without hostile characters.
pub fn line(text: &str) -> String {
    plain(&text.trim_end().chars().take(KEPT_CHARACTERS).collect::<String>())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|text| !text.trim().is_empty()).map(line).collect()
}

/// Reasons of a waiting container that no further wait changes. An image that could not be pulled is tried again by the
/// node: the back-off shows that this failed twice.
const HOPELESS: [&str; 6] = [
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// For what.
    Waiting(String),
    Ready(Place),
    /// Why.
    Failed(String),
}

impl State {
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Ready(place) => Some(place.clone()),
            _ => None,
        }
    }
}

/// The pod's name and its state.
pub fn of(pod: &Value) -> (String, State) {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
    (text("/metadata/name").to_owned(), state(pod, &text))
}

fn state<'a>(pod: &'a Value, text: &impl Fn(&str) -> &'a str) -> State {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return State::Failed("somebody deleted it".into());
    }
    let container = |path: &str| text(&format!("/status/containerStatuses/0/state/{path}"));
    let condition = |kind: &str| {
        let all = pod.pointer("/status/conditions").and_then(Value::as_array);
        all.into_iter().flatten().find(|it| it["type"] == kind)
    };
    match text("/status/phase") {
        phase @ ("Failed" | "Succeeded") => {
            let code = pod.pointer("/status/containerStatuses/0/state/terminated/exitCode").map(Value::to_string);
            let code = code.map_or_else(String::new, |code| format!("its program ended with exit code {code}"));
            let reasons = [text("/status/reason"), text("/status/message"), container("terminated/message"), &code];
            State::Failed(joined(&reasons).unwrap_or_else(|| format!("it is {phase}")))
        }
        _ if condition("Ready").is_some_and(|it| it["status"] == "True") => State::Ready(Place {
            node: Some(text("/spec/nodeName").to_owned()).filter(|node| !node.is_empty()),
            address: text("/status/podIP").parse().ok(),
        }),
        phase => {
            let reason = container("waiting/reason");
            let why = joined(&[reason, container("waiting/message")]);
            if HOPELESS.contains(&reason) {
                return State::Failed(why.unwrap_or_default());
            }
            let unscheduled = condition("PodScheduled").filter(|it| it["status"] == "False");
            let no_node = unscheduled.and_then(|it| joined(&[it["reason"].as_str()?, it["message"].as_str()?]));
            State::Waiting(no_node.or(why).unwrap_or_else(|| format!("it is {phase}")))
        }
    }
}

/// The parts that have a text, in one line.
fn joined(parts: &[&str]) -> Option<String> {
    let said: Vec<String> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| line(&part.replace('\n', " "))).collect();
    (!said.is_empty()).then(|| said.join(": "))
}

/// Deletes the objects of launchers that are gone. It needs the right to list ConfigMaps; without it, the pods' deadline ends
/// them.
pub fn sweep(kubectl: &Kubectl, stop: &StopFlag) {
    let (selector, format) = (manifest::launchers(), manifest::run_and_process());
    let Ok(list) = kubectl.run(["get", "configmaps", "-l", &selector, "-o", &format], None, stop) else { return };
    let owners = list.lines().filter_map(|line| line.split_once(' '));
    let dead: Vec<&str> = owners.filter(|(_, process)| !manifest::is_alive(process)).map(|(run, _)| run).collect();
    if !dead.is_empty() {
        let selector = manifest::of_runs(&dead);
        // The next start tries again to delete the rest.
        let _ = kubectl.run(["delete", "pods,configmaps", "-l", &selector, "--wait=false"], None, stop);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_status(status: &Value) -> State {
        of(&json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status})).1
    }

    #[test]
    fn a_running_pod_has_a_place() {
        let ready =
            json!({"phase": "Running", "podIP": "10.1.0.7", "conditions": [{"type": "Ready", "status": "True"}]});
        let place = Place { node: Some("n1".into()), address: Some([10, 1, 0, 7].into()) };
        assert_eq!(of_status(&ready), State::Ready(place));
        assert_eq!(of_status(&json!({"phase": "Pending"})), State::Waiting("it is Pending".into()));
    }

    #[test]
    fn causes_are_told() {
        let waits = |reason: &str| {
            let waiting = json!({"reason": reason, "message": "because"});
            of_status(&json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}))
        };
        assert_eq!(waits("ErrImagePull"), State::Waiting("ErrImagePull: because".into()));
        assert_eq!(waits("ImagePullBackOff"), State::Failed("ImagePullBackOff: because".into()));
        let unscheduled =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"});
        let state = of_status(&json!({"phase": "Pending", "conditions": [unscheduled]}));
        assert_eq!(state, State::Waiting("Unschedulable: 0/2 nodes".into()));
        let state = of_status(&json!({"phase": "Failed", "reason": "DeadlineExceeded", "message": "too old"}));
        assert_eq!(state, State::Failed("DeadlineExceeded: too old".into()));
        let ended = json!([{"state": {"terminated": {"exitCode": 2}}}]);
        let state = of_status(&json!({"phase": "Failed", "containerStatuses": ended}));
        assert_eq!(state, State::Failed("its program ended with exit code 2".into()));
        let deleted = json!({"metadata": {"name": "p", "deletionTimestamp": "now"}, "status": {"phase": "Running"}});
        assert!(matches!(of(&deleted).1, State::Failed(_)));
    }
}
