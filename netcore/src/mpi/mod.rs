//! MPI without linking to it: the library is opened at run time, and this process is one of its ranks.
//!
//! - [`Family`]: handles and constants of Open MPI, MPICH and the standard ABI
//! - `library`: an opened library, and its calls
//! - `world`: all ranks, from the start to the end; the lease, by which one thread at a time calls the library; groups of some
//!   ranks, with operations of all
//! - `route`: messages between two ranks, as the patterns use them

#[expect(unsafe_code, reason = "a library without a binding is called")]
mod library;
mod route;
mod world;

pub use library::{Library, MpiError, Request};
pub use route::{Place, Route, Routes};
pub use world::{Group, Lease, RankFacts, World, start, world};

use serde::{Deserialize, Serialize};

// The families of MPI libraries: how each writes a handle, a constant and a status.
//
// A handle is a pointer (Open MPI, the standard ABI) or a number of 32 bits (MPICH). A `usize` carries either by value, and
// receives either through a pointer if it was zero before.

schemas::words! {
    /// The libraries that share an ABI, by their name in sentences.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Family {
        OpenMpi = "Open MPI",
        /// MPICH and its relatives with the same ABI (Intel MPI, MVAPICH, Cray MPICH).
        Mpich = "MPICH",
        /// The standard ABI of MPI 5.0.
        Standard = "MPI's standard ABI",
    }
}

/// The value of a handle.
#[derive(Clone, Copy)]
enum Handle {
    /// The address of an exported object.
    At(&'static str),
    Is(usize),
}

/// Place of the length of a message in a status.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// 64 bits at this word of 32 bits, shifted left by this much in the upper half (MPICH keeps a flag there).
    At { word: usize, flags: u32 },
    /// The structure is private: `MPI_Get_count`.
    Asked,
}

/// A row of the table of families.
struct Row {
    pub world: Handle,
    pub byte: Handle,
    pub double: Handle,
    pub sum: Handle,
    pub errors_return: Handle,
    pub status_ignore: usize,
    pub any_source: i32,
    pub serialized: i32,
    pub length: Length,
    /// File names, the usual one first.
    pub files: &'static [&'static str],
}

impl Family {
    /// Values of `mpi.h` of Open MPI 4.1, of MPICH 4.0, and of the forum's mpi-abi-stubs.
    const fn row(self) -> Row {
        use Handle::{At, Is};
        match self {
            Self::OpenMpi => Row {
                world: At("ompi_mpi_comm_world"),
                byte: At("ompi_mpi_byte"),
                double: At("ompi_mpi_double"),
                sum: At("ompi_mpi_op_sum"),
                errors_return: At("ompi_mpi_errors_return"),
                status_ignore: 0,
                any_source: -1,
                serialized: 2,
                length: Length::At { word: 4, flags: 0 },
                files: &["libmpi.so.40", "libmpi.so"],
            },
            Self::Mpich => Row {
                world: Is(0x4400_0000),
                byte: Is(0x4c00_010d),
                double: Is(0x4c00_080b),
                sum: Is(0x5800_0003),
                errors_return: Is(0x5400_0001),
                status_ignore: 1,
                any_source: -2,
                serialized: 2,
                length: Length::At { word: 0, flags: 1 },
                files: &["libmpich.so.12", "libmpi.so.12", "libmpich.so"],
            },
            Self::Standard => Row {
                world: Is(0x101),
                byte: Is(0x247),
                double: Is(0x214),
                sum: Is(0x21),
                errors_return: Is(0x143),
                status_ignore: 0,
                any_source: -1,
                serialized: 2048,
                length: Length::Asked,
                files: &["libmpi_abi.so.0", "libmpi_abi.so"],
            },
        }
    }

    /// The families in the order in which their libraries are looked for: first that of the launcher, by the variables that
    /// it gives its ranks.
    fn in_order(is_set: impl Fn(&str) -> bool) -> [Self; 3] {
        if is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK") && !is_set("PMI_SIZE") {
            [Self::OpenMpi, Self::Mpich, Self::Standard]
        } else {
            [Self::Mpich, Self::OpenMpi, Self::Standard]
        }
    }

    /// The family of a library, by what it exports and what it says of itself. `None`: an unknown one.
    fn of(exports: impl Fn(&str) -> bool, file: &str, version: &str) -> Option<Self> {
        if exports("ompi_mpi_comm_world") {
            return Some(Self::OpenMpi);
        }
        if file.contains("libmpi_abi") && exports("MPI_Abi_get_version") {
            return Some(Self::Standard);
        }
        let relatives = ["MPICH", "Intel(R) MPI", "MVAPICH"];
        relatives.iter().any(|name| version.contains(name)).then_some(Self::Mpich)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_says_which_library_is_looked_for_first() {
        let first = |set: &[&str]| Family::in_order(|name| set.contains(&name))[0];
        assert_eq!(first(&["OMPI_COMM_WORLD_SIZE", "PMIX_RANK"]), Family::OpenMpi);
        assert_eq!(first(&["PMI_SIZE", "PMI_FD"]), Family::Mpich);
        assert_eq!(first(&["PMIX_RANK"]), Family::OpenMpi, "srun --mpi=pmix");
        assert_eq!(first(&[]), Family::Mpich);
    }

    #[test]
    fn a_library_is_what_it_exports() {
        let of = |symbols: &[&str], file, version| Family::of(|name| symbols.contains(&name), file, version);
        assert_eq!(of(&["ompi_mpi_comm_world"], "x", ""), Some(Family::OpenMpi));
        assert_eq!(of(&[], "libmpi.so.12", "Intel(R) MPI Library 2021.9"), Some(Family::Mpich));
        let standard = "MPI_Abi_get_version";
        assert_eq!(of(&[standard], "/lib/libmpi_abi.so.0", "MPICH Version: 5.0.0"), Some(Family::Standard));
        assert_eq!(of(&[standard], "libmpi.so.12", "MPICH Version: 5.0.0"), Some(Family::Mpich));
        assert_eq!(of(&[], "libmpi.so", "Acme MPI 1"), None);
    }
}
