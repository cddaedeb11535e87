//! Taking in the drop boxes, before anything is sent.

use super::Tick;
use crate::intake::{self, By};
use crate::model::draft::Draft;
use crate::model::ids::DestName;
use crate::store::{Dropped, Intake, Limits, StoreError};
use crate::users;

/// After so many files of a box that cannot be taken in, its others wait for the next tick, which
/// begins elsewhere in the box.
const STAY_MAX: u64 = 20_000;

/// The part of a tick's time that is given to drop boxes: one in so many.
const SHARE: u64 = 3;

impl Tick<'_, '_> {
    /// Takes in what other programs have dropped.
    pub(super) fn take_in(&mut self, begun_ms: u64) -> Result<(), StoreError> {
        let config = self.engine.config;
        let only = self.options.destination.as_ref();
        for (name, has_files) in self.session.drop_boxes()? {
            if has_files && !config.destinations.contains_key(&name) && only.is_none() {
                self.report.warnings.push(format!(
                    "incoming/{name}: destination `{name}` is not configured; its files wait"
                ));
            }
        }
        let bytes_max = intake::text_bytes_max(config);
        let limits = intake::limits(config);
        let takes_items = config.destinations.values().filter(|d| d.command.is_none());
        let names = takes_items.map(|destination| &destination.name);
        let mut open: Vec<&DestName> = names
            .filter(|name| only.is_none_or(|only| only == *name))
            .collect();
        // One group of each box in turn: none keeps the others waiting, and all of them together
        // leave the tick most of its time to send.
        let until_ms = begun_ms.saturating_add(self.max_runtime_ms() / SHARE);
        while !open.is_empty() {
            let mut left = Vec::new();
            for name in open {
                if self.stop_cause(begun_ms).is_some() || self.engine.clock.steady_ms() > until_ms {
                    return Ok(());
                }
                if self.take_in_some(name, bytes_max, &limits)? {
                    left.push(name);
                }
            }
            open = left;
        }
        Ok(())
    }

    /// Takes in the next group of a box. True if there is more to take in.
    fn take_in_some(
        &mut self,
        name: &DestName,
        bytes_max: u64,
        limits: &Limits,
    ) -> Result<bool, StoreError> {
        let (config, store, now) = (self.engine.config, self.engine.store, self.now());
        let mut decide = |dropped: &Dropped<'_>| {
            let by = By {
                now,
                who: users::with_uid(dropped.uid),
                principal: users::name(dropped.uid),
                id: dropped.id,
            };
            let offer = item_of(dropped).and_then(|draft| {
                intake::offer(config, draft, None, store, &by)
                    .map_err(|(refused, _)| refused.to_string())
            });
            match offer {
                Ok(offer) => Intake::Accept(Box::new(offer)),
                Err(why) => Intake::Refuse(why),
            }
        };
        let taken = self.session.take_in(name, bytes_max, limits, &mut decide)?;
        self.report.ingested += taken.accepted;
        if let Some(full) = &taken.full {
            let full = intake::full(config, full);
            let warning = format!("incoming/{name} waits: {full}");
            self.report.warnings.push(warning);
            return Ok(false);
        }
        Ok(taken.left && taken.stay < STAY_MAX)
    }
}

/// Reads a dropped file as a draft for the box that it was in.
fn item_of(dropped: &Dropped<'_>) -> Result<Draft, String> {
    let mut draft = Draft::parse(dropped.bytes).map_err(|error| error.to_string())?;
    let own: &DestName = dropped.destination;
    match &draft.destination {
        Some(name) if name != own => Err(format!(
            "it names destination `{name}` and was dropped for `{own}`"
        )),
        Some(_) | None => {
            draft.destination = Some(own.clone());
            Ok(draft)
        }
    }
}
