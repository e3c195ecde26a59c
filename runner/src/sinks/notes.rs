//! What a reader of the numbers should know: honest sentences below the summary.

use std::collections::{BTreeMap, BTreeSet};

use netcore::report::SideReport;

use super::run_json::HostRecord;
use crate::schedule::run::Measured;

/// Collects over the run.
#[derive(Debug, Default)]
pub struct Notes {
    congestion_controls: BTreeSet<String>,
    said: Vec<String>,
}

impl Notes {
    /// Keeps what the ends of an iteration said.
    pub fn keep(&mut self, measured: &Measured) {
        for report in measured.members.iter().flat_map(|m| [&m.near, &m.far]) {
            self.congestion_controls.extend(congestion_control(report));
            for note in &report.notes {
                if !self.said.contains(note) {
                    self.said.push(note.clone());
                }
            }
        }
    }

    /// The sentences about a run on these machines.
    #[must_use]
    pub fn of_run(&self, hosts: &BTreeMap<String, HostRecord>) -> Vec<String> {
        let mut notes = Vec::new();
        let shared = share_a_machine(hosts);
        if self.congestion_controls.iter().any(|c| c.starts_with("bbr")) {
            notes.push(if shared {
                "congestion control is bbr, which paces even loopback; with socket.congestion_control: cubic it may be \
                 twice as fast"
                    .to_owned()
            } else {
                "congestion control is bbr, which paces: compare it only with results that used it too".to_owned()
            });
        }
        if shared {
            notes.push("the two ends share this machine: this measures its kernel, not a network".to_owned());
        }
        notes.extend(self.said.iter().cloned());
        notes
    }
}

fn congestion_control(report: &SideReport) -> Option<String> {
    let granted = report.options.iter().find(|g| g.option == "congestion_control")?;
    granted.at_end.clone().or_else(|| granted.at_start.clone())
}

/// Whether any far end is in the same boot of the same kernel as this process.
fn share_a_machine(hosts: &BTreeMap<String, HostRecord>) -> bool {
    let Some(here) = hosts.get("local").and_then(|h| h.facts.boot_id.as_ref()) else { return false };
    hosts.iter().any(|(name, host)| name != "local" && host.facts.boot_id.as_ref() == Some(here))
}
