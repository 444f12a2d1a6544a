//! The shared key: a file that nobody else may read.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::hex;

/// Least length of a key.
const KEY_BYTES_MIN: usize = 16;
/// Longest file that is taken for a key.
const KEY_FILE_BYTES_MAX: usize = 4096;
/// What others may do with the file: nothing.
const MODE_OF_OTHERS: u32 = 0o077;

/// A result of HMAC-SHA256.
pub(super) type Digest = [u8; 32];

/// What both machines know and nobody else.
#[derive(Clone)]
pub(crate) struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

impl Key {
    /// Reads a key; what surrounds it in the file, spaces and line ends, is no part of it. The error is one line for
    /// the user.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let failed = |error: std::io::Error| format!("key file {name}: {error}");
        let file = File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "key file {name}: there is none: `polyrail bench serve --make-key {name}` makes one; both machines need the same"
            ),
            _ => failed(error),
        })?;
        let facts = file.metadata().map_err(failed)?;
        if !facts.is_file() {
            return Err(format!("key file {name}: no regular file"));
        }
        let mode = facts.permissions().mode() & 0o777;
        if mode & MODE_OF_OTHERS != 0 {
            return Err(format!("key file {name}: open to others (mode {mode:04o}): `chmod 600 {name}`"));
        }
        let mut bytes = Vec::new();
        file.take(KEY_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > KEY_FILE_BYTES_MAX {
            return Err(format!("key file {name}: longer than {KEY_FILE_BYTES_MAX} bytes, so no key"));
        }
        let key = bytes.trim_ascii();
        if key.len() < KEY_BYTES_MIN {
            let length = key.len();
            return Err(format!(
                "key file {name}: {length} bytes, at least {KEY_BYTES_MIN} are needed: make one by `polyrail bench serve --make-key`"
            ));
        }
        Ok(Self(key.to_vec()))
    }

    /// Writes a new random key to a file that must not exist yet. The error is one line for the user.
    pub(crate) fn make(path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("key file {}: {error}", path.display());
        let text = hex::encode(&random().map_err(failed)?) + "\n";
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.as_mut().map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("key file {}: is there already and is kept: name another", path.display())
            }
            _ => format!("key file {}: {error}", path.display()),
        })?;
        file.write_all(text.as_bytes()).map_err(failed)
    }

    /// HMAC-SHA256 over all parts, one after the other.
    pub(super) fn digest(&self, parts: &[&[u8]]) -> Digest {
        digest(&self.0, parts)
    }

    /// Whether `claimed` is the digest of the parts; takes as long for any answer.
    pub(super) fn verifies(&self, parts: &[&[u8]], claimed: &Digest) -> bool {
        verifies(&self.0, parts, claimed)
    }

    #[cfg(test)]
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// HMAC-SHA256 over all parts, one after the other.
pub(super) fn digest(key: &[u8], parts: &[&[u8]]) -> Digest {
    mac(key, parts).finalize().into_bytes().into()
}

/// Whether `claimed` is the digest of the parts; takes as long for any answer.
pub(super) fn verifies(key: &[u8], parts: &[&[u8]], claimed: &Digest) -> bool {
    mac(key, parts).verify_slice(claimed).is_ok()
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Randomness fit for keys and nonces.
pub(super) fn random() -> std::io::Result<Digest> {
    let mut bytes = [0; 32];
    polyrail_sys::process::random_bytes(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A path in a folder of this test alone, removed with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("polyrail-key-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_made_key_is_private_random_and_never_overwrites() {
        let folder = Folder::new("made");
        let [one, two] = ["one", "two"].map(|name| folder.0.join(name));
        Key::make(&one).unwrap();
        Key::make(&two).unwrap();
        assert_eq!(one.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let [first, second] = [&one, &two].map(|path| Key::load(path).unwrap());
        assert_eq!(first.0.len(), 64);
        assert_ne!(first.0, second.0);
        assert!(Key::make(&one).unwrap_err().contains("is kept"));
        assert_eq!(Key::load(&one).unwrap().0, first.0);
        assert_eq!(format!("{first:?}"), "Key(not shown)");
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_short_is_refused_with_the_fix() {
        let folder = Folder::new("refused");
        let path = folder.0.join("key");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        for open in [0o644, 0o640, 0o601] {
            mode(&path, open);
            let said = Key::load(&path).unwrap_err();
            assert!(said.contains(&format!("{open:04o}")) && said.contains("chmod 600"), "{said}");
        }
        mode(&path, 0o400);
        assert_eq!(Key::load(&path).unwrap().0, b"0123456789abcdef");
        mode(&path, 0o600);
        std::fs::write(&path, " 123456789abcdef\n").unwrap();
        assert!(Key::load(&path).unwrap_err().contains("15 bytes, at least 16"));
        std::fs::write(&path, [b'a'; 4097]).unwrap();
        assert!(Key::load(&path).unwrap_err().contains("longer than 4096"));
        assert!(Key::load(&folder.0).unwrap_err().contains("no regular file"));
        assert!(Key::load(&folder.0.join("none")).unwrap_err().contains("--make-key"));
    }
}
