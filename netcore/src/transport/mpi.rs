//! Flows between two ranks of MPI.
//!
//! The near end sends the test's token and its own rank with the first of the far end's tags; the far end answers. By this the
//! library has also made its connection before the load.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use nix::sys::eventfd::EventFd;

use super::{
    Deadline, Link,
    connection::Token,
    meeting::{Destination, Endpoints, Listening, Meeting},
};
use crate::{
    error::EndError,
    mpi::{Group, Lease, Place, Routes, World, world},
    spec::{TestSpec, Transport},
};

/// This process as a rank.
fn this_rank() -> Result<&'static World, EndError> {
    world().ok_or_else(|| {
        EndError::Impossible(
            "this end is no rank of MPI: both `from` and `to` of a test over MPI must be hosts with `launch: {mpi: …}`, whose \
             launcher starts them together"
                .to_owned(),
        )
    })
}

/// The name and version of the library that carries the data of a test here; `None`: none does.
pub fn library(transport: Transport) -> Option<String> {
    let over_mpi = transport == Transport::Mpi;
    world().filter(|_| over_mpi).map(|world| world.facts.library.clone())
}

/// Time for the last test of a rank to leave the library.
const FREE_WITHIN: Duration = Duration::from_secs(3);

/// The right to call the library, in time.
fn lease(deadline: &Deadline<'_>) -> Result<Lease, EndError> {
    this_rank()?.lease(deadline.left().min(FREE_WITHIN), &|| deadline.is_cancelled()).ok_or_else(|| {
        if deadline.is_cancelled() {
            return EndError::Cancelled;
        }
        EndError::Impossible(
            "this rank is busy with another test over MPI, and one thread at a time calls its library: let the tests of a \
             rank run one after the other"
                .to_owned(),
        )
    })
}

/// Bytes of the near end's first message: the token, and its rank.
const GREETING_BYTES: usize = size_of::<Token>() + size_of::<u32>();

/// This rank, with tags for messages both ways: one pair for each flow.
fn place(flows: u32) -> Result<Place, EndError> {
    let world = this_rank()?;
    Ok(Place { world: world.facts.world, rank: world.facts.rank, tag: world.tags(flows) })
}

/// Far end: its place.
pub fn listen(spec: &TestSpec, _: &Token) -> Result<Listening, EndError> {
    let endpoints = Endpoints { mpi: Some(place(spec.flows())?), ..Endpoints::default() };
    Ok(Listening { endpoints, ..Listening::default() })
}

/// Far end: waits for the near end's token and answers it.
pub fn accept(at: &Listening, Meeting { spec, token, deadline }: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let Some(place) = &at.endpoints.mpi else { return Ok(Vec::new()) };
    let lease = lease(deadline)?;
    let missed = || deadline.missed(0, spec.flows(), "no message of the near end's rank came over MPI");
    let left = || deadline.left();
    loop {
        let greeting = lease.answer(None, place.tag, &left)?.ok_or_else(missed)?;
        let Some((sent, rank)) = greeting.split_last_chunk().filter(|_| greeting.len() == GREETING_BYTES) else {
            continue;
        };
        if sent != token {
            // A test that was given up.
            continue;
        }
        let peer = i32::from_le_bytes(*rank);
        if !lease.greet(peer, place.tag + 1, token, &left)? {
            return Err(missed());
        }
        return links(&Routes::new(lease, peer, place.tag, spec.flows(), false), spec);
    }
}

/// Near end: sends the token to the far end's rank and waits for the answer.
pub fn open(to: Destination<'_>, Meeting { spec, token, deadline }: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let world = this_rank()?;
    let place = to.endpoints.mpi.as_ref().filter(|place| place.world == world.facts.world).ok_or_else(|| {
        EndError::Impossible(
            "the two ends are ranks of different launchers, which cannot send to each other over MPI: start them by one \
             `launch`"
                .to_owned(),
        )
    })?;
    let lease = lease(deadline)?;
    let left = || deadline.left();
    let missed = || deadline.missed(0, spec.flows(), "the far end's rank did not answer over MPI");
    let peer = i32::try_from(place.rank).unwrap_or(-1);
    let greeting = [&token[..], &world.facts.rank.to_le_bytes()].concat();
    if !lease.greet(peer, place.tag, &greeting, &left)? {
        return Err(missed());
    }
    loop {
        let answer = lease.answer(Some(peer), place.tag + 1, &left)?.ok_or_else(missed)?;
        if answer == token {
            return links(&Routes::new(lease, peer, place.tag, spec.flows(), true), spec);
        }
    }
}

/// This rank in a test of several: its place, with a tag for messages both ways.
pub fn rank() -> Result<Place, EndError> {
    place(1)
}

/// The group of the ranks of a test. The first one collects the tokens of the others and answers when all are there: from
/// then on no rank waits in vain.
pub fn group(rank: usize, places: &[Place], token: &Token, deadline: &Deadline<'_>) -> Result<Group, EndError> {
    let world = this_rank()?;
    let own = world.facts.world;
    if let Some(other) = places.iter().position(|place| place.world != own) {
        return Err(EndError::Impossible(format!(
            "rank {other} was started by another launcher than rank {rank}, and they cannot send to each other over MPI: \
             start all by one `launch`"
        )));
    }
    let lease = lease(deadline)?;
    let left = || deadline.left();
    let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let missed = |there: usize| deadline.missed(there, count, "the other ranks did not come over MPI");
    let (Some((first, others)), tag) = (places.split_first(), places.first().map_or(0, |place| place.tag)) else {
        return Err(missed(0));
    };
    let number = |place: &Place| i32::try_from(place.rank).unwrap_or(-1);
    if rank == 0 {
        let mut there = 1;
        while there < places.len() {
            let greeting = lease.answer(None, tag, &left)?.ok_or_else(|| missed(there))?;
            there += usize::from(greeting == token);
        }
        for other in others {
            if !lease.greet(number(other), tag + 1, token, &left)? {
                return Err(missed(there));
            }
        }
    } else {
        if !lease.greet(number(first), tag, token, &left)? {
            return Err(missed(1));
        }
        while lease.answer(Some(number(first)), tag + 1, &left)?.ok_or_else(|| missed(1))? != token {}
    }
    Ok(Group::new(lease, places)?)
}

fn links(routes: &Arc<Routes>, spec: &TestSpec) -> Result<Vec<Link>, EndError> {
    let link = |flow: u32| {
        // A thread of several flows looks at the descriptors for a while, and nothing ever comes there.
        let nothing = EventFd::new().map_err(EndError::system("no descriptor for a flow"))?;
        let route = routes.route(flow);
        Ok(Link { route, ..Link::of_socket(flow, OwnedFd::from(nothing)) })
    };
    (0..spec.flows()).map(link).collect()
}
