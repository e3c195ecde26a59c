//! This process as a rank: `MPI_COMM_WORLD` from its start to its end, and groups of some of its ranks: messages between any two,
//! and operations of all.

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Condvar, OnceLock, PoisonError,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Family, Place,
    library::{Comm, Library, MpiError},
};
use crate::lock::Lock;

/// Facts about a rank, for its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankFacts {
    /// A random number that all ranks of one start share.
    pub world: u64,
    pub rank: u32,
    pub size: u32,
    pub family: Family,
    /// The library's name and version, in its own words.
    pub library: String,
    /// The file that was opened.
    pub file: String,
    /// Threads that may call the library.
    pub threads: String,
    /// The library's name of the host.
    pub processor: String,
    /// Settings in the rank's environment that choose the transport.
    pub settings: BTreeMap<String, String>,
}

/// The ranks that were started together, and this one among them.
pub struct World {
    library: Library,
    pub facts: RankFacts,
    /// Whether a thread calls the library.
    leased: Lock<bool>,
    freed: Condvar,
    /// The tag after the last one that this rank has given.
    next_tag: AtomicI32,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// The world of this process, once [`start`] has returned.
pub fn world() -> Option<&'static World> {
    WORLD.get()
}

/// Variables in which launchers say how many ranks they start.
const SIZES: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// Longest setting that is told, characters.
const LONGEST_SETTING: usize = 200;

/// Most settings that are told.
const MOST_SETTINGS: usize = 64;

/// Tags lie below this number, which the standard guarantees.
const TAGS: i32 = 32_767;

/// Opens the library, or `file`, and becomes a rank. It returns when all ranks are there. Call it once, on the thread that
/// will call [`World::finish`].
pub fn start(file: Option<&str>) -> Result<&'static World, String> {
    let library = open(file)?;
    let failed = |error: MpiError| format!("{} does not work: {error}", library.file);
    if !library.init().map_err(failed)? {
        let file = &library.file;
        return Err(format!("{file} was built without threads (no MPI_THREAD_SERIALIZED): plumb needs another build"));
    }
    let (rank, size) = library.rank_and_size(library.world()).map_err(failed)?;
    let (version, number) = (library.version(), |name: &str| env::var(name).ok()?.parse().ok());
    check_size(&library, &version, size, SIZES.iter().find_map(|name| number(name)))?;
    let mut world =
        getrandom::u64().map_err(|error| format!("the system gives no random bytes: {error}"))?.to_le_bytes();
    library.broadcast(library.world(), &mut world, 0).map_err(failed)?;
    let facts = RankFacts {
        world: u64::from_le_bytes(world),
        rank: u32::try_from(rank).unwrap_or(0),
        size: u32::try_from(size).unwrap_or(0),
        family: library.family,
        library: version,
        file: library.file.clone(),
        threads: "serialized".to_owned(),
        processor: library.processor(),
        settings: settings(env::vars()),
    };
    let world = World { library, facts, leased: Lock::default(), freed: Condvar::new(), next_tag: AtomicI32::new(0) };
    Ok(WORLD.get_or_init(|| world))
}

fn open(file: Option<&str>) -> Result<Library, String> {
    if let Some(file) = file {
        return Library::open(file).map_err(|error| format!("{error} (launch.mpi.library)"));
    }
    let families = Family::in_order(|name| env::var_os(name).is_some());
    let mut errors = Vec::new();
    for file in families.iter().flat_map(|family| family.row().files) {
        match Library::open(file) {
            Ok(library) => return Ok(library),
            Err(error) => errors.push(error),
        }
    }
    Err(format!(
        "no MPI library on this host: {}; install the one of the launcher (Debian: libopenmpi3, libmpich12), or name its \
         file: launch.mpi.library",
        errors.first().map_or("", String::as_str)
    ))
}

/// A library of another family than the launcher's does not fail: each rank believes to be alone.
fn check_size(library: &Library, version: &str, size: i32, launched: Option<i32>) -> Result<(), String> {
    let Library { family, file, .. } = library;
    match launched {
        Some(launched) if launched != size => Err(format!(
            "{file} ({version}) knows of {size} ranks, and the launcher has started {launched}: it is not the launcher's \
             library. Name that one (launch.mpi.library), or use the launcher of {family} (srun: --mpi=pmi2 for MPICH, \
             --mpi=pmix for Open MPI)"
        )),
        None if size == 1 => Err(format!(
            "no MPI launcher has started this process, and {file} ({version}) believes that it is alone: start it by \
             mpirun, mpiexec or srun"
        )),
        _ => Ok(()),
    }
}

/// Settings that choose how messages travel, without those by which Open MPI's launcher talks to its ranks.
fn settings(variables: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    const PREFIXES: [&str; 9] = [
        "OMPI_MCA_pml",
        "OMPI_MCA_btl",
        "OMPI_MCA_mtl",
        "OMPI_MCA_coll",
        "OMPI_MCA_mpi_",
        "OMPI_MCA_opal_common",
        "UCX_",
        "MPIR_CVAR_",
        "FI_",
    ];
    let chooses = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let short = |value: String| value.chars().take(LONGEST_SETTING).collect();
    variables.filter(|(name, _)| chooses(name)).take(MOST_SETTINGS).map(|(name, value)| (name, short(value))).collect()
}

impl World {
    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    pub(super) fn everyone(&self) -> Comm {
        self.library.world()
    }

    /// The right to call the library, once it is free. `None`: it was not free within `at_most`, or `cancelled`
    /// says to give up.
    pub fn lease(&'static self, at_most: Duration, cancelled: &dyn Fn() -> bool) -> Option<Lease> {
        let deadline = Instant::now() + at_most;
        let mut leased = self.leased.lock();
        while *leased {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || cancelled() {
                return None;
            }
            let slice = left.min(Duration::from_millis(50));
            leased = self.freed.wait_timeout(leased, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
        *leased = true;
        Some(Lease(self))
    }

    /// Tags for messages both ways of so many flows: the first of them. Only after many tests are they given again.
    pub fn tags(&self, flows: u32) -> i32 {
        let wanted = i32::try_from(flows).unwrap_or(TAGS).saturating_mul(2).min(TAGS);
        let next = |first: i32| if first > TAGS - wanted { wanted } else { first + wanted };
        let first = self.next_tag.fetch_update(Relaxed, Relaxed, |first| Some(next(first))).unwrap_or(0);
        if first > TAGS - wanted { 0 } else { first }
    }

    /// Leaves the world. All ranks must, so the caller bounds it: after the death of a rank it may not return. Without effect
    /// where a thread still waits in the library.
    pub fn finish(&'static self, at_most: Duration) {
        if let Some(lease) = self.lease(at_most, &|| false) {
            self.library.finalize();
            // The library must not be called after that.
            std::mem::forget(lease);
        }
    }
}

/// The right to call the library. It goes from thread to thread with the test that it belongs to.
pub struct Lease(&'static World);

impl Lease {
    pub(super) fn world(&self) -> &'static World {
        self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.0.leased.lock() = false;
        self.0.freed.notify_all();
    }
}

/// A group of ranks, with the lease of this one.
pub struct Group {
    lease: Lease,
    comm: Comm,
    rank: usize,
    size: usize,
    /// Whether all ranks have done their work.
    parted: bool,
}

/// The tag of all messages. The communicator tells groups apart.
const TAG: i32 = 0;

impl Group {
    /// The group of these ranks of the world, in this order: its first rank's tag tells it from others that are made at
    /// the same time. It waits for all of them.
    pub fn new(lease: Lease, places: &[Place]) -> Result<Self, MpiError> {
        let ranks: Vec<i32> = places.iter().map(|place| number(place.rank as usize)).collect();
        let tag = places.first().map_or(0, |place| place.tag);
        let library = lease.world().library();
        let comm = library.group(&ranks, tag)?;
        let (rank, size) = library.rank_and_size(comm)?;
        let positive = |number: i32| usize::try_from(number).unwrap_or(0);
        Ok(Self { rank: positive(rank), size: positive(size), lease, comm, parted: false })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// The library and the communicator, for operations of all.
    pub fn parts(&self) -> (&'static Library, Comm) {
        (self.lease.world().library(), self.comm)
    }

    #[inline]
    pub fn send(&self, to: usize, bytes: &[u8]) -> Result<(), MpiError> {
        self.lease.world().library().send(self.comm, bytes, number(to), TAG)
    }

    /// Receives a message and returns its length.
    #[inline]
    pub fn receive(&self, from: usize, buffer: &mut [u8]) -> Result<usize, MpiError> {
        self.lease.world().library().receive(self.comm, buffer, number(from), TAG)
    }

    /// Sends one message and receives another at the same time; returns the length of the other.
    #[inline]
    pub fn exchange(&self, to: usize, bytes: &[u8], from: usize, buffer: &mut [u8]) -> Result<usize, MpiError> {
        let (to, from) = ((bytes, number(to)), (buffer, number(from)));
        self.lease.world().library().send_receive(self.comm, to, from, TAG)
    }

    /// All ranks have done their work and drop the group.
    pub fn part(&mut self) {
        self.parted = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // After a failure the others may never do the same, and the communicator stays.
        if self.parted {
            self.lease.world().library().free(self.comm);
        }
    }
}

/// A rank's number as the library takes it. There are few thousand at most.
fn number(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_transport() {
        let set = ["OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_ess_base_jobid", "UCX_TLS", "PATH", "MPIR_CVAR_NOLOCAL"];
        let told = settings(set.iter().map(|name| ((*name).to_owned(), "x".repeat(1000))));
        let names: Vec<_> = told.keys().map(String::as_str).collect();
        assert_eq!(names, ["MPIR_CVAR_NOLOCAL", "OMPI_MCA_btl_tcp_if_include", "UCX_TLS"]);
        assert!(told.values().all(|value| value.len() == LONGEST_SETTING));
    }
}
