//! Turns of clients at an exclusive daemon: one client's tests at a time, first come first served.
//!
//! A turn belongs to a client process, not to a session: the sessions of a group of tests share it. It ends with the last of
//! them, and its time until a load begins is limited, so that no client can keep it by joining again and again.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use super::budget::Client;
use crate::{control::stop::Event, lock::Lock};

#[derive(Debug, Default)]
pub(super) struct Turns {
    line: Lock<Line>,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    turn: Option<Turn>,
    /// In the order of their arrival.
    waiting: Vec<Waiting>,
}

/// The turn of the client that may test now.
#[derive(Debug)]
struct Turn {
    client: Client,
    /// Numbers of the tickets that have a part in it; at least one.
    tickets: Vec<u64>,
    since: Instant,
    /// Whether one of its tests has begun its load. Later tests of the client wait for its next turn.
    under_load: bool,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    client: Client,
    news: Arc<Event>,
}

/// A session's place in the line, and later its part in a turn. Dropping it gives up either.
#[derive(Debug)]
pub(super) struct Ticket<'t> {
    turns: &'t Turns,
    number: u64,
    news: Arc<Event>,
}

impl Turns {
    /// Takes a place in the line. A client that has the turn already joins it, unless it has begun a load or has had it for
    /// longer than `hold`. Fails where the process has no descriptors left.
    pub(super) fn ask(&self, client: Client, hold: Duration) -> io::Result<Ticket<'_>> {
        let news = Arc::new(Event::new()?);
        let mut line = self.line.lock();
        let number = line.next;
        line.next += 1;
        match &mut line.turn {
            Some(turn) if turn.client == client && !turn.under_load && turn.since.elapsed() < hold => {
                turn.tickets.push(number);
            }
            _ => line.waiting.push(Waiting { number, client, news: Arc::clone(&news) }),
        }
        line.advance();
        Ok(Ticket { turns: self, number, news })
    }

    /// Tickets without a turn.
    pub(super) fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }
}

impl Line {
    /// Gives a free turn to the client that has waited longest.
    fn advance(&mut self) {
        if self.turn.is_some() {
            return;
        }
        let Some(client) = self.waiting.first().map(|first| first.client) else { return };
        let (its, others) = std::mem::take(&mut self.waiting).into_iter().partition(|w| w.client == client);
        self.waiting = others;
        let tickets = its.iter().map(|ticket: &Waiting| ticket.number).collect();
        self.turn = Some(Turn { client, tickets, since: Instant::now(), under_load: false });
        its.iter().chain(&self.waiting).for_each(|ticket| ticket.news.set());
    }

    fn leave(&mut self, number: u64) {
        let waiting = self.waiting.len();
        self.waiting.retain(|ticket| ticket.number != number);
        if self.waiting.len() < waiting {
            self.waiting.iter().for_each(|ticket| ticket.news.set());
        }
        if let Some(turn) = &mut self.turn {
            turn.tickets.retain(|ticket| *ticket != number);
            if turn.tickets.is_empty() {
                self.turn = None;
            }
        }
        self.advance();
    }
}

impl Ticket<'_> {
    /// Its place among the waiting clients, from 1; `None`: its client has the turn.
    pub(super) fn place(&self) -> Option<u32> {
        let line = self.turns.line.lock();
        let mine = line.waiting.iter().position(|ticket| ticket.number == self.number)?;
        let mut clients: Vec<Client> = line.waiting[..mine].iter().map(|ticket| ticket.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != line.waiting[mine].client);
        Some(u32::try_from(clients.len()).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// Begin of its client's turn; `None`: it waits.
    pub(super) fn since(&self) -> Option<Instant> {
        let line = self.turns.line.lock();
        line.turn.as_ref().filter(|turn| turn.tickets.contains(&self.number)).map(|turn| turn.since)
    }

    /// A test of the turn begins its load.
    pub(super) fn begin_load(&self) {
        if let Some(turn) = &mut self.turns.line.lock().turn {
            turn.under_load |= turn.tickets.contains(&self.number);
        }
    }

    /// Clears the descriptor. Ask for the place after this, not before.
    pub(super) fn clear_news(&self) {
        self.news.clear();
    }
}

/// Readable when the place may have changed.
impl AsFd for Ticket<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.turns.line.lock().leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::stop::wait;

    const HOLD: Duration = Duration::from_hours(1);

    fn has_news(ticket: &Ticket<'_>) -> bool {
        let [news] = wait([Some(ticket.as_fd())], Some(Instant::now())).unwrap();
        ticket.clear_news();
        news
    }

    #[test]
    fn clients_have_turns_in_the_order_of_their_arrival() {
        let turns = Turns::default();
        let [first, second, third] = [1, 2, 3].map(|client| turns.ask(client, HOLD).unwrap());
        assert_eq!([&first, &second, &third].map(Ticket::place), [None, Some(1), Some(2)]);
        drop(second);
        assert!(has_news(&third), "a place that is given up moves the others up");
        assert_eq!(third.place(), Some(1));
        drop(first);
        assert!(has_news(&third));
        assert_eq!(third.place(), None);
        drop(third);
        assert!(turns.line.lock().turn.is_none());
    }

    #[test]
    fn the_tests_of_a_group_share_a_turn_until_a_load_begins() {
        let turns = Turns::default();
        let (first, other) = (turns.ask(1, HOLD).unwrap(), turns.ask(2, HOLD).unwrap());
        let second = turns.ask(1, HOLD).unwrap();
        assert_eq!(second.place(), None);
        first.begin_load();
        let late = turns.ask(1, HOLD).unwrap();
        assert_eq!(late.place(), Some(2));
        drop(first);
        assert_eq!(other.place(), Some(1), "the turn ends with the last of its tests");
        drop(second);
        assert_eq!((other.place(), late.place()), (None, Some(1)));
        let again = turns.ask(2, Duration::ZERO).unwrap();
        assert_eq!(again.place(), Some(2), "its time to begin is over");
    }

    #[test]
    fn sessions_of_a_waiting_client_have_one_place() {
        let turns = Turns::default();
        let holder = turns.ask(1, HOLD).unwrap();
        let (mine, also_mine, other) =
            (turns.ask(2, HOLD).unwrap(), turns.ask(2, HOLD).unwrap(), turns.ask(3, HOLD).unwrap());
        assert_eq!([&mine, &also_mine, &other].map(Ticket::place), [Some(1), Some(1), Some(2)]);
        drop(holder);
        assert_eq!([&mine, &also_mine, &other].map(Ticket::place), [None, None, Some(1)]);
    }

    proptest! {
        /// In any order of coming, going and loads: one client has the turn, and it is free only while all are gone.
        #[test]
        fn the_turn_is_one_clients_and_never_idle(steps in prop::collection::vec((0_u64..4, 0_usize..6), 0..60)) {
            let turns = Turns::default();
            let mut tickets: Vec<(u64, Ticket<'_>)> = Vec::new();
            for (client, step) in steps {
                match step {
                    0..3 => tickets.push((client, turns.ask(client, HOLD).unwrap())),
                    3 if !tickets.is_empty() => tickets[0].1.begin_load(),
                    _ if !tickets.is_empty() => drop(tickets.remove(step % tickets.len())),
                    _ => {}
                }
                let holders: Vec<u64> =
                    tickets.iter().filter(|(_, ticket)| ticket.since().is_some()).map(|(client, _)| *client).collect();
                prop_assert!(holders.iter().all(|holder| *holder == holders[0]), "{holders:?}");
                prop_assert_eq!(holders.is_empty(), tickets.is_empty());
                for (_, ticket) in &tickets {
                    prop_assert_eq!(ticket.place().is_none(), ticket.since().is_some());
                }
            }
        }
    }
}
