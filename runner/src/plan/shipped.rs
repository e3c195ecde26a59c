//! The plans inside the program: the files of `plans/`, by their names.

/// A plan that needs no file.
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../../plans/", $name, ".yaml")) }),*]
    };
}

/// All of them, in the order in which `plumb plans` lists them: first those that a new user needs first.
pub const PLANS: &[Shipped] = shipped![
    "quick" "responsiveness" "message-size" "udp-loss" "find-rate" "aggregate" "burst" "cpu-cost" "fast-paths" "encrypted" "soak" "path"
    "fabric" "mpi" "nas" "netperf-classics" "netpipe" "lmbench" "hpcbench-tcp" "hpcbench-udp"
];

/// The plan of this name.
pub fn shipped(name: &str) -> Option<&'static Shipped> {
    PLANS.iter().find(|plan| plan.name == name)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::plan::{Format, LoadOptions, load_str};

    #[test]
    fn every_file_of_the_folder_is_inside_under_its_own_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let names: BTreeSet<String> =
            files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let inside: BTreeSet<String> = PLANS.iter().map(|plan| plan.name.to_owned()).collect();
        assert_eq!(inside, names);
        for shipped in PLANS {
            let plan = load_str(shipped.name, shipped.text, &LoadOptions::default());
            let plan = plan.unwrap_or_else(|out| panic!("{}", out.render(Format::Human)));
            assert_eq!(plan.name, shipped.name);
            assert!(plan.description.is_some_and(|question| question.contains('?')), "{} asks nothing", shipped.name);
        }
    }
}
