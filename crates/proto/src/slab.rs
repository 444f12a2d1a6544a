//! A table whose keys are small numbers that are never mistaken for an earlier user's: 16 bits of index, 16 of
//! generation. The wire's transfer numbers and the bookkeeping of trains refer to entries that may be gone.

/// Entries by key.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<(u16, Option<T>)>,
    free: Vec<u16>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new(), len: 0 }
    }
}

fn split(key: u32) -> (usize, u16) {
    ((key & 0xffff) as usize, (key >> 16) as u16)
}

fn join(index: usize, generation: u16) -> u32 {
    index as u32 | (generation as u32) << 16
}

impl<T> Slab<T> {
    /// Stores a value; `None` when 65,536 are stored.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        // A key comes back after 65,536 uses of its slot: the oldest free slot is used first once there are some.
        let index = if self.free.len() > 64 || self.entries.len() > 0xffff {
            if self.free.is_empty() {
                return None;
            }
            self.free.remove(0) as usize
        } else {
            self.entries.push((0, None));
            self.entries.len() - 1
        };
        let entry = &mut self.entries[index];
        entry.1 = Some(value);
        self.len += 1;
        Some(join(index, entry.0))
    }

    /// The value of a key.
    pub fn get(&self, key: u32) -> Option<&T> {
        let (index, generation) = split(key);
        self.entries.get(index).filter(|e| e.0 == generation)?.1.as_ref()
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        let (index, generation) = split(key);
        self.entries.get_mut(index).filter(|e| e.0 == generation)?.1.as_mut()
    }

    /// Takes a value out; its key is not valid any more.
    pub fn remove(&mut self, key: u32) -> Option<T> {
        let (index, generation) = split(key);
        let entry = self.entries.get_mut(index).filter(|e| e.0 == generation)?;
        let value = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(index as u16);
        self.len -= 1;
        Some(value)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All, by ascending index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(i, e)| Some((join(i, e.0), e.1.as_ref()?)))
    }

    /// All, by ascending index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(i, e)| {
            let generation = e.0;
            Some((join(i, generation), e.1.as_mut()?))
        })
    }

    /// The keys of all.
    pub fn keys(&self) -> Vec<u32> {
        self.iter().map(|(k, _)| k).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_stays_invalid_when_its_slot_is_used_again() {
        let mut slab = Slab::default();
        let keys: Vec<u32> = (0..200).map(|i| slab.insert(i).unwrap()).collect();
        for &k in &keys {
            assert!(slab.remove(k).is_some());
            assert!(slab.remove(k).is_none());
        }
        let again: Vec<u32> = (0..200).map(|i| slab.insert(i).unwrap()).collect();
        assert!(keys.iter().all(|k| slab.get(*k).is_none() && !again.contains(k)));
        assert_eq!(slab.len(), 200);
    }
}
