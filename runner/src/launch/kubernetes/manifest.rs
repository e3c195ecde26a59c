//! The objects of a run: an owner without content, and pods that have no rights and a deadline.

use std::{fs, process};

use netcore::measure::{addresses::addresses, host::HostFacts};
use schemas::text::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    launch::remote::Remote,
    plan::model::{Kubernetes, Word},
};

/// Name of the container in each pod.
pub const CONTAINER: &str = "plumb";

/// Label of all objects of one run.
const RUN: &str = "plumb.run";

/// Label of the objects that launchers of this machine made.
const LAUNCHER: &str = "plumb.launcher";

/// Annotation of the owner: the launcher's process.
const PROCESS: &str = "plumb.process";

/// A user without any rights; most images have a name for it.
const NOBODY: u32 = 65534;

/// Time between SIGTERM and SIGKILL of a pod.
const GRACE_S: u32 = 2;

#[derive(Debug)]
pub struct Manifest {
    /// Part of all names.
    run: String,
    /// Names of the ends, by pod.
    ends: Vec<String>,
    /// All of a pod's `spec`.
    spec: Value,
}

impl Manifest {
    pub fn new(options: &Kubernetes, remote: &Remote, ends: &[String], deadline_s: u64) -> Result<Self, String> {
        if options.image.is_empty() {
            return Err(
                "launch.kubernetes needs `image`: the name of an image with plumb, as the cluster's nodes pull it"
                    .into(),
            );
        }
        // The end of such an identifier is random.
        let run = uuid::Uuid::now_v7().simple().to_string()[20..].to_owned();
        let spec = spec(options, remote, &run, ends.len(), deadline_s);
        Ok(Self { run, ends: ends.to_vec(), spec })
    }

    /// Name of a pod.
    pub fn pod(&self, index: usize) -> String {
        format!("{}-{}", self.name(), index + 1)
    }

    /// Name of the owner.
    fn name(&self) -> String {
        format!("plumb-{}", self.run)
    }

    /// Selects the run's objects.
    pub fn selector(&self) -> String {
        format!("{RUN}={}", self.run)
    }

    /// The owner. It holds nothing: who deletes it deletes the pods.
    pub fn owner(&self) -> String {
        let about = "Owner of the pods of one plumb run. They go when it is deleted.";
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name(),
                "labels": {RUN: self.run, LAUNCHER: launcher()},
                "annotations": {PROCESS: this_process()},
            },
            "data": {"about": about},
        })
        .to_string()
    }

    /// The pods. `owner` is the unique id of the owner that was created.
    pub fn pods(&self, owner: &str) -> String {
        let pod = |(index, end): (usize, &String)| {
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": self.pod(index),
                    "labels": {RUN: self.run},
                    "annotations": {"plumb.end": end},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": self.name(), "uid": owner}],
                },
                "spec": self.spec,
            })
        };
        let items: Vec<Value> = self.ends.iter().enumerate().map(pod).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    }

    /// Words of the call that deletes everything. The pods are named, too: this is faster than by their owner alone.
    pub fn deletion(&self) -> Vec<String> {
        let fixed = ["--request-timeout=20s", "delete", "--ignore-not-found", "--wait=false"].map(str::to_owned);
        let pods = (0..self.ends.len()).map(|index| format!("pod/{}", self.pod(index)));
        fixed.into_iter().chain([format!("configmap/{}", self.name())]).chain(pods).collect()
    }
}

fn spec(options: &Kubernetes, remote: &Remote, run: &str, pods: usize, deadline_s: u64) -> Value {
    // The program itself waits for a key that never comes: an image that holds nothing else will do. An image for a copy of
    // the program has a shell and its tools.
    let life = format!("{deadline_s}s");
    let idle = if remote.copy.is_some() {
        vec!["sleep", &life]
    } else {
        vec![&*remote.program, "serve", "--launched", "--silence", &life]
    };
    let mut container = json!({
        "name": CONTAINER,
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": idle,
        // Open and silent; without it, it is at its end at once.
        "stdin": true,
        // Requests without limits: a limit would be measured.
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline_s,
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    if remote.copy.is_some() {
        container["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
        spec["volumes"] = json!([{"name": "tmp", "emptyDir": {}}]);
    }
    if pods > 1 {
        // A wish: where nodes are few, pods share them.
        let apart = json!({"labelSelector": {"matchLabels": {RUN: run}}, "topologyKey": "kubernetes.io/hostname"});
        spec["affinity"] = json!({"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}],
        }});
    }
    if options.host_network {
        spec["hostNetwork"] = json!(true);
    }
    if let Some(labels) = &options.nodes {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, Word(value))| (name.clone(), json!(value))).collect();
        spec["nodeSelector"] = json!(labels);
    }
    spec["containers"] = json!([container]);
    spec
}

/// Selects the owners that launchers of this machine made.
pub fn launchers() -> String {
    format!("{LAUNCHER}={}", launcher())
}

/// Prints an owner's run and its launcher's process.
pub fn run_and_process() -> String {
    let escaped = |name: &str| name.replace('.', r"\.");
    format!(
        r#"jsonpath={{range .items[*]}}{{.metadata.labels.{}}} {{.metadata.annotations.{}}}{{"\n"}}{{end}}"#,
        escaped(RUN),
        escaped(PROCESS)
    )
}

/// Selects all objects of these runs.
pub fn of_runs(runs: &[&str]) -> String {
    format!("{RUN} in ({})", runs.join(","))
}

/// A hash that launchers share if they see each other's processes. Machines that were cloned while they ran differ in their
/// addresses at least.
fn launcher() -> String {
    let facts = HostFacts::collect();
    let processes = fs::read_link("/proc/self/ns/pid").ok();
    let here = (facts.boot_id, facts.hostname, processes, addresses().unwrap_or_default());
    hex(&Sha256::digest(format!("{here:?}"))[..8])
}

/// A process, so that another one with its number is told from it.
fn this_process() -> String {
    let pid = process::id();
    format!("{pid}-{}", began(pid).unwrap_or_default())
}

/// Whether the process of an annotation still runs.
pub fn is_alive(process: &str) -> bool {
    let parts = process.split_once('-').and_then(|(pid, began)| Some((pid.parse().ok()?, began)));
    parts.is_some_and(|(pid, then)| began(pid).is_some_and(|now| now == then))
}

/// The process's start in clock ticks after boot: field 22 of its `stat`, the 20th behind its name in parentheses.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(options: &Kubernetes, ends: &[&str]) -> Manifest {
        let remote = Remote { program: "plumb".into(), copy: None, args: vec!["serve".into(), "--launched".into()] };
        let ends: Vec<String> = ends.iter().map(|end| (*end).to_owned()).collect();
        Manifest::new(options, &remote, &ends, 60).unwrap()
    }

    #[test]
    fn pods_have_an_owner_a_deadline_and_no_rights() {
        let nodes = [("zone".to_owned(), Word("a".into()))].into();
        let options = Kubernetes { image: "plumb:1".into(), nodes: Some(nodes), ..Kubernetes::default() };
        let manifest = manifest(&options, &["pod1", "pod2"]);
        let list: Value = serde_json::from_str(&manifest.pods("u-1")).unwrap();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 2);
        assert_ne!(items[0]["metadata"]["name"], items[1]["metadata"]["name"]);
        for pod in items {
            let owner: Value = serde_json::from_str(&manifest.owner()).unwrap();
            assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u-1");
            assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], owner["metadata"]["name"]);
            let spec = &pod["spec"];
            assert_eq!(spec["activeDeadlineSeconds"], 60);
            assert_eq!(spec["automountServiceAccountToken"], false);
            assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
            assert_eq!(spec["nodeSelector"], json!({"zone": "a"}));
            assert!(spec["affinity"].is_object());
            assert!(spec.get("hostNetwork").is_none());
            let container = &spec["containers"][0];
            assert_eq!(container["command"], json!(["plumb", "serve", "--launched", "--silence", "60s"]));
            assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        }
    }

    #[test]
    fn every_object_is_deleted_by_its_name() {
        let options = Kubernetes { image: "plumb:1".into(), ..Kubernetes::default() };
        let manifest = manifest(&options, &["a", "b"]);
        let words = manifest.deletion();
        let owner: Value = serde_json::from_str(&manifest.owner()).unwrap();
        let named = |kind: &str, object: &Value| {
            words.contains(&format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap()))
        };
        assert!(named("configmap", &owner), "{words:?}");
        let list: Value = serde_json::from_str(&manifest.pods("u-1")).unwrap();
        assert!(list["items"].as_array().unwrap().iter().all(|pod| named("pod", pod)), "{words:?}");
    }

    #[test]
    fn a_process_is_told_from_another_with_its_number() {
        assert!(is_alive(&this_process()));
        assert!(!is_alive(&format!("{}-1", process::id())));
        assert!(!is_alive("none"));
    }

    #[test]
    fn an_image_must_be_named() {
        let remote = Remote { program: "plumb".into(), copy: None, args: vec![] };
        let why = Manifest::new(&Kubernetes::default(), &remote, &["a".into()], 60).unwrap_err();
        assert!(why.contains("`image`"), "{why}");
    }
}
