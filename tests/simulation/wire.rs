//! The receiver, and the wire to it: it drops repeats of a key while it remembers it, acts, and its
//! answers come late, are lost, or are refusals.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tickpost::model::ids::RequestId;
use tickpost::model::outcome::{Answer, Outcome, TransportClass};
use tickpost::transport::{Send, Sent, Transport};

use crate::crash_disk::Rng;
use crate::world::World;

/// How long the receiver remembers a key: as the configuration says.
pub(crate) const WINDOW_MS: u64 = 3_600_000;

/// What the receiver knows.
#[derive(Default)]
pub(crate) struct Receiver {
    /// How often each item's request arrived.
    pub(crate) arrivals: BTreeMap<RequestId, u32>,
    /// How often it was acted on.
    pub(crate) effects: BTreeMap<RequestId, u32>,
    /// Items of which a success was answered, whether or not the answer arrived.
    pub(crate) answered: BTreeMap<RequestId, u32>,
    /// What each arrived as, first.
    identity: BTreeMap<RequestId, (String, String, String)>,
    /// When a key was first seen.
    remembered: BTreeMap<RequestId, u64>,
    /// The bodies of notices, and to whom.
    pub(crate) notices: BTreeMap<RequestId, (String, String)>,
}

struct Flight {
    id: RequestId,
    sent: Sent,
    left_ms: u64,
}

pub(crate) struct Wire {
    world: Rc<World>,
    rng: Rng,
    good: u64,
    flights: Vec<Flight>,
    /// What it was told the outcome of, by item.
    pub(crate) told: Vec<RequestId>,
}

impl Wire {
    pub(crate) fn new(world: &Rc<World>, seed: u64, good: u64) -> Self {
        Self {
            world: Rc::clone(world),
            rng: Rng::new(seed),
            good,
            flights: Vec::new(),
            told: Vec::new(),
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Good,
    /// It never arrives.
    Unsent(TransportClass),
    /// It arrives and may be acted on, but no answer comes.
    Lost {
        acts: bool,
        class: TransportClass,
    },
    /// It is refused, and not acted on.
    Refused(u16),
    /// A gateway answers, so nobody knows whether it was acted on.
    Gateway {
        acts: bool,
        status: u16,
    },
}

impl Transport for Wire {
    fn begin(&mut self, send: Send) {
        let world = Rc::clone(&self.world);
        drop(world.count("wire", Path::new("send")));
        let id = send.envelope.request_id;
        let dest = send.envelope.destination.as_str();
        let fate = self.fate(dest);
        let outcome = world.receiver.borrow_mut().arrive(&world, &send, fate);
        let outcome = match outcome {
            Ok((outcome, note)) => {
                world.say(|| {
                    format!(
                        "wire: {dest} {id} {} {fate:?}: {note}",
                        send.envelope.request.path
                    )
                });
                outcome
            }
            Err(why) => world.broken(why),
        };
        let ms = match &outcome {
            Outcome::MaybeSent(_) if self.rng.percent(10) => 200_000,
            Outcome::MaybeSent(_) => 1_000 + self.rng.below(30_000),
            Outcome::Answered(_) | Outcome::NotSent(_) | Outcome::Interrupted => {
                1 + self.rng.below(2_000)
            }
        };
        self.flights.push(Flight {
            id,
            sent: Sent {
                token: send.token,
                outcome,
                ms,
            },
            left_ms: ms,
        });
        drop(world.count("wire", Path::new("sent")));
    }

    fn next(&mut self, limit: Duration) -> Option<Sent> {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap();
        let first = (0..self.flights.len()).min_by_key(|index| self.flights[*index].left_ms);
        let first = first.filter(|index| self.flights[*index].left_ms <= limit_ms);
        let passed = first.map_or(limit_ms, |index| self.flights[index].left_ms);
        self.world.pass(passed);
        for flight in &mut self.flights {
            flight.left_ms -= passed.min(flight.left_ms);
        }
        let flight = self.flights.remove(first?);
        drop(self.world.count("wire", Path::new("answer")));
        self.told.push(flight.id);
        Some(flight.sent)
    }
}

impl Wire {
    fn fate(&mut self, dest: &str) -> Fate {
        use TransportClass::{ConnectRefused, DnsFailure, ResetAfterSend, TimeoutAfterSend};
        if self.rng.percent(self.good) {
            return Fate::Good;
        }
        let acts = self.rng.percent(60);
        let class = *self.rng.pick(&[TimeoutAfterSend, ResetAfterSend]);
        match self.rng.below(10) {
            0 => Fate::Unsent(*self.rng.pick(&[ConnectRefused, DnsFailure])),
            1..6 => Fate::Lost { acts, class },
            6..8 => Fate::Refused(*self.rng.pick(&[503, 503, 429, 408])),
            8 if dest != "ops" => Fate::Refused(*self.rng.pick(&[422, 404, 401, 503])),
            _ => Fate::Gateway {
                acts,
                status: *self.rng.pick(&[500, 502, 504]),
            },
        }
    }
}

fn answer(status: u16, headers: &[(&str, String)]) -> Outcome {
    Outcome::Answered(Answer {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
        ..Answer::default()
    })
}

impl Receiver {
    fn arrive(
        &mut self,
        world: &World,
        send: &Send,
        fate: Fate,
    ) -> Result<(Outcome, &'static str), String> {
        if let Fate::Unsent(class) = fate {
            return Ok((Outcome::failed(class, "unsent"), "never arrives"));
        }
        let envelope = &send.envelope;
        let id = envelope.request_id;
        let request = &envelope.request;
        *self.arrivals.entry(id).or_default() += 1;
        let seen = (
            request.method.clone(),
            request.path.clone(),
            request.body_sha256.clone(),
        );
        let first = self.identity.entry(id).or_insert_with(|| seen.clone());
        if *first != seen {
            return Err(format!("G4: {id} came as {first:?} and then as {seen:?}"));
        }
        if envelope.notice {
            let body = request.body_bytes().ok().flatten().unwrap_or_default();
            let text = String::from_utf8_lossy(&body).into_owned();
            self.notices
                .insert(id, (envelope.destination.to_string(), text));
        }
        let now = world.true_ms();
        let keyed = send.destination.key.is_sent();
        let since = self.remembered.get(&id).copied();
        let is_known = keyed && since.is_some_and(|since| now - since < WINDOW_MS);
        let acts = match fate {
            Fate::Good => true,
            Fate::Lost { acts, .. } | Fate::Gateway { acts, .. } => acts,
            Fate::Unsent(_) | Fate::Refused(_) => false,
        };
        let mut note = "not acted on";
        if acts && is_known {
            note = "a repeat, dropped";
        } else if acts {
            note = "acted on";
            self.remembered.insert(id, now);
            let effects = self.effects.entry(id).or_default();
            *effects += 1;
            if *effects > 1 && request.method != "PUT" {
                return Err(format!("G7: {id} was acted on {effects} times"));
            }
        }
        let replayed = [("idempotent-replayed", "true".to_owned())];
        Ok((
            match fate {
                Fate::Good => {
                    *self.answered.entry(id).or_default() += 1;
                    answer(200, if is_known { &replayed } else { &[] })
                }
                Fate::Lost { class, .. } => Outcome::failed(class, "lost"),
                // The receiver does not refuse for good what it has acted on.
                Fate::Refused(422 | 404) if self.effects.contains_key(&id) => answer(503, &[]),
                Fate::Refused(429) => answer(429, &[("retry-after", (now % 4000).to_string())]),
                Fate::Refused(status) | Fate::Gateway { status, .. } => answer(status, &[]),
                Fate::Unsent(class) => Outcome::failed(class, "unsent"),
            },
            note,
        ))
    }
}
