//! What a pod waits for, or why it fails, from its own object.

use serde_json::Value;

use super::{Place, kubectl::line};

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

/// Those that say something.
fn joined(parts: &[&str]) -> Option<String> {
    let said: Vec<String> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| line(&part.replace('\n', " "))).collect();
    (!said.is_empty()).then(|| said.join(": "))
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
