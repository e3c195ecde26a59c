//! Removes what launchers of this machine left that were ended together with their guardians.

use netcore::control::stop::StopFlag;

use super::{kubectl::Kubectl, manifest};

/// Deletes the objects of launchers that are gone. It needs the right to list ConfigMaps; without it, the pods' deadline ends
/// them.
pub fn sweep(kubectl: &Kubectl, stop: &StopFlag) {
    let (selector, format) = (manifest::launchers(), manifest::run_and_process());
    let Ok(list) = kubectl.run(["get", "configmaps", "-l", &selector, "-o", &format], None, stop) else { return };
    let owners = list.lines().filter_map(|line| line.split_once(' '));
    let dead: Vec<&str> = owners.filter(|(_, process)| !manifest::is_alive(process)).map(|(run, _)| run).collect();
    if !dead.is_empty() {
        let selector = manifest::of_runs(&dead);
        // What cannot be deleted now is tried again at the next start.
        let _ = kubectl.run(["delete", "pods,configmaps", "-l", &selector, "--wait=false"], None, stop);
    }
}
