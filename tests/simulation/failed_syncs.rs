//! What a failed sync has let go is never written by a later one: whoever goes on must begin anew.

use std::rc::Rc;

use rustix::io::Errno;

use crate::actors;
use crate::crash_disk::Profile;
use crate::plan::{Trigger, When};
use crate::world::{Ended, World};

/// One sync of a producer's fails, it repeats itself, and then power is lost: the key is still that
/// of the item that was acknowledged.
#[test]
fn a_key_outlives_whatever_sync_of_its_reservation_failed() {
    let config = crate::config();
    for profile in [Profile::Strict, Profile::Ext4] {
        for seed in 0..40 {
            for sync in 1..9 {
                let world = World::new(Rc::clone(&config), profile, seed, true);
                let fault = Trigger::Fault {
                    errno: Errno::IO,
                    lasts: false,
                };
                let accept = |triggers, id: &mut Option<_>| {
                    let ended = world.process(triggers, true, || {
                        *id = actors::accept_keyed(&world);
                    });
                    assert_eq!(ended, Ended::Well);
                };
                let (mut first, mut second, mut third) = (None, None, None);
                accept(vec![(When::Sync(sync), fault)], &mut first);
                accept(Vec::new(), &mut second);
                assert!(second.is_some() && (first.is_none() || first == second));
                world.lose_power();
                accept(Vec::new(), &mut third);
                let story = world.trace().join("\n");
                assert_eq!(third, second, "{profile:?} {seed}, sync {sync}:\n{story}");
                world.end();
            }
        }
    }
}

/// Whatever operation fails from some moment on, a producer that repeats itself comes to its end.
#[test]
fn a_producer_ends_whatever_fails_for_good() {
    let config = crate::config();
    for errno in [Errno::IO, Errno::ACCESS] {
        for moment in 1..60 {
            let world = World::new(Rc::clone(&config), Profile::Strict, 1, true);
            let lasting = Trigger::Fault { errno, lasts: true };
            let accept = |triggers| {
                let ended = world.process(triggers, true, || {
                    actors::accept_keyed(&world);
                });
                assert_eq!(ended, Ended::Well);
            };
            accept(Vec::new());
            accept(vec![(When::Any(moment), lasting)]);
            world.end();
        }
    }
}
