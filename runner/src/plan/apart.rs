//! Several plans in one run: their names and those of their cases are told apart.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::Path,
};

use super::case::{Plan, case_id};

/// Renames what plans have in common. A plan gets the name of its file, or a number. A case gets the name of its plan before
/// its own. A case that measures the same as one of an earlier plan gets an id of its own: the plans are different questions,
/// and their iterations must not be taken for those of one case.
pub fn tell_apart(plans: &mut [Plan]) {
    let names = unique(plans);
    for (plan, name) in plans.iter_mut().zip(names) {
        plan.name = name;
    }
    let mut plans_with: HashMap<String, BTreeSet<usize>> = HashMap::new();
    for (p, plan) in plans.iter().enumerate() {
        for case in &plan.cases {
            plans_with.entry(case.name.clone()).or_default().insert(p);
        }
    }
    let mut earlier = HashSet::new();
    for plan in plans {
        for case in &mut plan.cases {
            if plans_with.get(&case.name).is_some_and(|plans| plans.len() > 1) {
                case.name = format!("{}/{}", plan.name, case.name);
            }
            if earlier.contains(&case.id) {
                case.id = case_id(&case.members, &format!("{} {}", plan.name, case.name));
            }
        }
        earlier.extend(plan.cases.iter().map(|case| case.id.clone()));
    }
}

/// A name for each plan that no other has.
fn unique(plans: &[Plan]) -> Vec<String> {
    let once = |names: &[String], i: usize| names.iter().filter(|name| **name == names[i]).count() == 1;
    let own: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    let stem = |plan: &Plan| Path::new(&plan.path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let pick = |i: usize| if once(&own, i) { own[i].clone() } else { stem(&plans[i]).unwrap_or_default() };
    let named: Vec<String> = (0..plans.len()).map(pick).collect();
    let number = |i: usize| if once(&named, i) { named[i].clone() } else { format!("{}-{}", named[i], i + 1) };
    (0..plans.len()).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::load_str, *};

    fn told(plans: &[(&str, &str)]) -> Vec<(String, Vec<(String, String)>)> {
        let load = |(path, text): &(&str, &str)| {
            let text = format!("version: 1\n{text}\n");
            load_str(path, &text, &super::super::LoadOptions::default()).unwrap_or_else(|_| panic!("{text}"))
        };
        let mut plans: Vec<Plan> = plans.iter().map(load).collect();
        tell_apart(&mut plans);
        let cases = |plan: &Plan| plan.cases.iter().map(|case| (case.name.clone(), case.id.clone())).collect();
        plans.iter().map(|plan| (plan.name.clone(), cases(plan))).collect()
    }

    #[test]
    fn cases_of_two_plans_have_two_names_and_ids() {
        let a = ("a.yaml", "name: a\ntests: {bulk: {workload: tcp_stream}, only: {workload: tcp_rr}}");
        let b = ("b.yaml", "name: b\ntests: {bulk: {workload: tcp_stream}, other: {workload: udp_rr}}");
        let [alone, both] = [told(&[a]), told(&[a, b])];
        let names: Vec<&str> = both.iter().flat_map(|(_, cases)| cases).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/bulk", "only", "b/bulk", "other"]);
        let ids = |plan: &(String, Vec<(String, String)>)| plan.1.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&alone[0]), ids(&both[0]), "the first plan stays comparable with a run of its own");
        assert_ne!(ids(&both[0])[0], ids(&both[1])[0]);
        assert_eq!(alone[0].1[0].0, "bulk");
    }

    #[test]
    fn plans_of_one_name_are_named_after_their_files() {
        let text = "name: t\ntests: {bulk: {workload: tcp_stream}}";
        let names = |paths: &[&str]| -> Vec<String> {
            told(&paths.iter().map(|path| (*path, text)).collect::<Vec<_>>())
                .into_iter()
                .map(|(name, _)| name)
                .collect()
        };
        assert_eq!(names(&["x/one.yaml", "two.yaml"]), ["one", "two"]);
        assert_eq!(names(&["a/t.yaml", "b/t.yaml"]), ["t-1", "t-2"]);
    }
}
