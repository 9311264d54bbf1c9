//! Authentication: names and passwords of HTTP's basic authentication, checked against bcrypt hashes.
//!
//! A hash is slow to check by design, so it is checked on a thread that may block, a few at a time, and a
//! password that was right is recognized by a keyed digest. The time that a wrong password takes does not
//! show whether a name exists.

use bcrypt::HashParts;
use headers::authorization::{Authorization, Basic};
use ring::{hmac, rand};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Concurrent hash checks: each takes a CPU.
const AT_ONCE: usize = 2;

/// 2 to this power rounds: the highest that the exporters' documents name. There a single password takes many seconds.
const HIGHEST_COST: u32 = 18;

/// A hash of a password, as `htpasswd -B` makes it.
#[derive(Clone)]
pub(super) struct Hash(String);

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hash)")
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: HashParts =
            text.parse().map_err(|_| "this is no bcrypt hash; `htpasswd -nBC 10 \"\"` makes one")?;
        if !(4..=HIGHEST_COST).contains(&parts.get_cost()) {
            return Err(format!("a cost of {} is not supported: use 4 to {HIGHEST_COST}", parts.get_cost()));
        }
        Ok(Hash(text.to_owned()))
    }
}

impl Hash {
    /// Whether it is the hash of this password. Slow.
    fn is_of(&self, password: &str) -> bool {
        bcrypt::verify(password, &self.0).unwrap_or(false)
    }
}

/// The users of one configuration.
pub(super) struct Users {
    hashes: BTreeMap<String, Hash>,
    /// Digest of the last correct password, by name.
    remembered: Arc<Mutex<HashMap<String, hmac::Tag>>>,
    /// Key of the digests; it is in this process alone.
    key: hmac::Key,
    /// Chooses the user whose hash replaces that of an unknown name.
    stand_in: RandomState,
    places: Arc<Semaphore>,
}

/// What a check requires.
#[derive(Debug)]
enum Check {
    /// The password was right before.
    Remembered,
    /// It must be checked against this hash. `known`: it is the user's own; else the result is no in any
    /// case.
    Hash { hash: Hash, known: bool },
}

impl Users {
    /// `None` without users: then every client may make requests.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub(super) fn new(hashes: BTreeMap<String, Hash>) -> Result<Option<Self>, String> {
        if hashes.is_empty() {
            return Ok(None);
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())
            .map_err(|_| "the kernel gives no random bytes")?;
        Ok(Some(Users {
            hashes,
            remembered: Arc::default(),
            key,
            stand_in: RandomState::new(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }))
    }

    /// Takes over which passwords were right from the users before a change, where the hash is the same: else all
    /// clients would be checked again at once, behind a crowd that guesses.
    pub(super) fn remember(&mut self, before: &Users) {
        let known = before.remembered();
        let same = known.iter().filter(|(name, _)| {
            let hashes = [&self.hashes, &before.hashes].map(|hashes| hashes.get(*name).map(|hash| &hash.0));
            hashes[0].is_some() && hashes[0] == hashes[1]
        });
        let same = same.map(|(name, digest)| (name.clone(), *digest)).collect();
        drop(known);
        self.key = before.key.clone();
        self.remembered = Arc::new(Mutex::new(same));
    }

    /// Whether this is a user with the right password. `turn`: of the client, which may have others wait.
    pub(super) async fn admit(&self, given: &Authorization<Basic>, turn: &Arc<Semaphore>) -> bool {
        let (name, password) = (given.username(), given.password());
        let (hash, known) = match self.check(name, password) {
            Check::Remembered => return true,
            Check::Hash { hash, known } => (hash, known),
        };
        // Neither is ever closed.
        let Ok(turn) = Arc::clone(turn).acquire_owned().await else { return false };
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return false };
        // Others with the same password may have waited for the same result.
        if matches!(self.check(name, password), Check::Remembered) {
            return true;
        }
        let (candidate, name) = (password.to_owned(), name.to_owned());
        let (remembered, key) = (Arc::clone(&self.remembered), self.key.clone());
        // To its end, even if the client goes: else it could have any number checked, and one that is closed for
        // others would never be known.
        let checked = spawn_blocking(move || {
            let right = hash.is_of(&candidate) && known;
            if right {
                let digest = hmac::sign(&key, candidate.as_bytes());
                remembered.lock().unwrap_or_else(PoisonError::into_inner).insert(name, digest);
            }
            drop((place, turn));
            right
        });
        checked.await.unwrap_or(false)
    }

    fn check(&self, name: &str, password: &str) -> Check {
        if let Some(hash) = self.hashes.get(name) {
            let digest = self.remembered().get(name).copied();
            // Compares in constant time.
            let right = digest
                .is_some_and(|digest| hmac::verify(&self.key, password.as_bytes(), digest.as_ref()).is_ok());
            return if right { Check::Remembered } else { Check::Hash { hash: hash.clone(), known: true } };
        }
        // The same one for the same name, so that two requests do not reveal it either.
        let count = u64::try_from(self.hashes.len()).unwrap_or(1);
        let turn = usize::try_from(self.stand_in.hash_one(name) % count).unwrap_or_default();
        match self.hashes.values().nth(turn) {
            Some(hash) => Check::Hash { hash: hash.clone(), known: false },
            None => unreachable!("there is at least one user"),
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<String, hmac::Tag>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests;
