// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the programs of each user may take of a recording. A recording of all programs (`-a`, as
//! root) includes programs of other users, which must leave room: those of one user get a quarter,
//! all other users together half.

use super::map::MAPS_MAX;
use std::collections::BTreeMap;

/// Programs of one user at a time.
const PROGRAMS_MAX: usize = 2048;
/// Bytes of addresses for the files of all other users' programs.
const ADDRESSES_MAX: u64 = 1 << 44;

pub struct Shares {
    /// The user whose programs are not limited; `None`: no program is, because all were asked for.
    own: Option<u32>,
    /// Bytes of all rings.
    most: u64,
}

/// What the programs of a user take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub programs: usize,
    /// Bytes of rings.
    pub memory: u64,
    /// Bytes of files.
    pub addresses: u64,
}

/// By user id.
pub type AllTaken = BTreeMap<u32, Taken>;

impl Shares {
    pub fn new(own: Option<u32>, most: u64) -> Shares {
        Shares { own, most }
    }

    fn is_another_user(&self, uid: u32) -> bool {
        self.own.is_some_and(|own| own != uid)
    }

    /// Bytes that programs of this user may take in addition. If a program takes more than it may,
    /// the others keep their share.
    pub fn left(&self, uid: u32, taken: &AllTaken) -> u64 {
        let (one, all) = (self.most / 4, self.most / 2);
        let charged = |uid: &u32, t: &Taken| {
            if self.is_another_user(*uid) { t.memory.min(one) } else { t.memory }
        };
        let sum = |others: bool| {
            let mine = taken.iter().filter(|(uid, _)| self.is_another_user(**uid) == others);
            mine.fold(0u64, |sum, (uid, t)| sum.saturating_add(charged(uid, t)))
        };
        let (own, strange) = (sum(false), sum(true).min(all));
        let left = self.most.saturating_sub(own).saturating_sub(strange);
        if !self.is_another_user(uid) {
            return left;
        }
        let used = taken.get(&uid).map_or(0, |t| charged(&uid, t));
        left.min(one - used).min(all - strange)
    }

    /// Why one more program of a user, with a file of so many bytes, is too much; `None` if it is
    /// not.
    pub fn reason_against(&self, uid: u32, bytes: u64, taken: &AllTaken) -> Option<String> {
        if taken.get(&uid).is_some_and(|t| t.programs >= PROGRAMS_MAX) {
            return Some(format!("{PROGRAMS_MAX} programs of its user are recorded already"));
        }
        if !self.is_another_user(uid) {
            return None;
        }
        let others = taken.iter().filter(|(uid, _)| self.is_another_user(**uid)).map(|(_, t)| t);
        let (programs, addresses) =
            others.fold((0, bytes), |(n, b), t| (n + t.programs, b.saturating_add(t.addresses)));
        if programs >= MAPS_MAX / 2 {
            return Some(format!(
                "{programs} programs of other users than the recorder's are recorded already"
            ));
        }
        (addresses > ADDRESSES_MAX).then(|| {
            format!(
                "files of other users than the recorder's are more than {} TiB",
                ADDRESSES_MAX >> 40
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 0;

    fn taken(list: &[(u32, usize, u64)]) -> AllTaken {
        list.iter()
            .map(|(uid, programs, memory)| {
                (*uid, Taken { programs: *programs, memory: *memory, addresses: 0 })
            })
            .collect()
    }

    #[test]
    fn programs_of_other_users_leave_room() {
        let shares = Shares::new(Some(OWN), 800);
        let left = |uid, list: &[(u32, usize, u64)]| shares.left(uid, &taken(list));
        assert_eq!((left(OWN, &[]), left(7, &[])), (800, 200));
        // Whatever they take.
        let greedy = [(7, 1, u64::MAX), (8, 1, u64::MAX), (9, 1, u64::MAX)];
        assert_eq!((left(OWN, &greedy), left(7, &greedy), left(10, &greedy)), (400, 0, 0));
        assert_eq!(left(7, &[(7, 1, 150), (OWN, 1, 100)]), 50);
        assert_eq!(left(8, &[(7, 1, 200), (9, 1, 150)]), 50);
        assert_eq!((left(OWN, &[(OWN, 1, 700)]), left(7, &[(OWN, 1, 700)])), (100, 100));
        // Where all programs were asked for, no user is limited.
        assert_eq!(Shares::new(None, 800).left(7, &taken(&[(7, 1, 300)])), 500);
    }

    #[test]
    fn programs_of_a_user_are_bounded() {
        let shares = Shares::new(Some(OWN), 800);
        let refused = |uid, bytes, list: &[(u32, usize, u64)]| {
            shares.reason_against(uid, bytes, &taken(list)).is_some()
        };
        assert!(
            !refused(7, 1, &[(7, 2047, 0)])
                && refused(7, 1, &[(7, 2048, 0)])
                && refused(OWN, 1, &[(OWN, 2048, 0)])
        );
        let many = [(7, 2048, 0), (8, 2048, 0)];
        assert!(refused(9, 1, &many) && !refused(OWN, 1, &many));
        assert!(refused(9, (1 << 44) + 1, &[]) && !refused(OWN, (1 << 44) + 1, &[]));
    }
}
