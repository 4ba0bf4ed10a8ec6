//! Tests targets that can be written, targets that cannot be written, replaced files, and locks.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::open;
use super::*;

/// Makes an empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("unpadded-wire-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn lock(path: &Path) -> Result<Target> {
    Target::find(path)?.lock()
}

/// A target that cannot be written causes an error before `write` is called, and no files are left behind.
#[test]
fn where_no_file_can_be() {
    let folder = folder("where");
    fs::create_dir(folder.join("folder")).unwrap();
    let refused = |path: &Path| {
        let outcome = write_atomically(path, |_| panic!("nothing is written"));
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        error.to_string()
    };
    let is = |error: String, end: &str| assert!(error.ends_with(end), "{error}");
    is(refused(&folder.join("folder")), "expected the path of a file, got the path of a folder");
    is(refused(&folder.join("new/")), "expected the path of a file, got the path of a folder");
    let none = folder.join("none");
    let end = format!("expected an existing folder to write the file in, got none at `{}`", none.display());
    is(refused(&none.join("x")), &end);
    assert!(refused(Path::new("")).contains("file ``: expected the path of a file"));
    let error = open(&folder).map(|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("expected a file, got a folder or a device"), "{error}");

    // A rename would replace a device, and would replace a link instead of the file that it points to.
    #[cfg(unix)]
    {
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        is(refused(&socket), "expected the path of a file, got the path of a device or a pipe");
        let link = |to: &str| std::os::unix::fs::symlink(to, folder.join("link")).unwrap();
        link("none");
        is(refused(&folder.join("link")), "expected the path of a file, got a link that leads nowhere");
        fs::remove_file(folder.join("link")).unwrap();
        link("folder/file");
        fs::write(folder.join("folder/file"), b"old").unwrap();
        write_atomically(&folder.join("link"), |w| w.write_section("a", b"new")).unwrap();
        assert!(folder.join("link").is_symlink() && open(&folder.join("folder/file")).is_ok());
        for left in ["socket", "link"] {
            fs::remove_file(folder.join(left)).unwrap();
        }
    }

    // Temporary files that killed processes left for this target are removed; other files stay.
    let left = [".x.0123456789abcdef.tmp", ".xy.0123456789abcdef.tmp", ".x.a.tmp", "x.0123456789abcdef.tmp"];
    for left in left {
        fs::write(folder.join(left), b"half").unwrap();
    }
    // A temporary file that a process is still writing also stays.
    let busy = File::create(folder.join(".x.fedcba9876543210.tmp")).unwrap();
    busy.try_lock().unwrap();
    write_atomically(&folder.join("x"), |w| w.write_section("a", b"whole")).unwrap();
    let others = [".x.a.tmp", ".x.fedcba9876543210.tmp", ".xy.0123456789abcdef.tmp"];
    assert_eq!(names(&folder)[..3], others);
    assert_eq!(names(&folder)[3..], ["folder", "x", "x.0123456789abcdef.tmp"]);
    drop(busy);
    write_atomically(&folder.join("x"), |w| w.write_section("a", b"whole")).unwrap();
    assert_eq!(names(&folder).len(), 5);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    let folder = folder("failed");
    let path = folder.join("file");
    write_atomically(&path, |w| w.write_section("a", b"old")).unwrap();
    let failed = write_atomically(&path, |w| {
        w.write_section("a", b"new")?;
        Err(Error::new("x", "y", "z"))
    });
    assert!(failed.is_err());
    let mut reader = open(&path).unwrap();
    assert_eq!(reader.next_section().unwrap(), Some("a"));
    assert_eq!(reader.read_section().unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(open(&path).map(|_| ()).unwrap_err().kind(), ErrorKind::Io);
}

/// Every container numbers its processes from 1. A process can therefore have the number of a process in another
/// container that was killed while it wrote.
#[test]
fn what_a_process_of_the_same_number_left_is_no_obstacle() {
    let folder = folder("number");
    for count in 0..100 {
        fs::write(folder.join(format!(".x.{}.{count}.tmp", std::process::id())), b"half").unwrap();
        fs::write(folder.join(format!(".unpadded-{}.tmp", std::process::id())), b"").unwrap();
    }
    let target = lock(&folder.join("x")).unwrap();
    target.check().unwrap();
    target.write(|w| w.write_section("a", b"whole")).unwrap();
    // Random names differ even if they are drawn in quick succession.
    let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| target.temporary(false).unwrap().1).collect();
    assert_eq!(drawn.len(), 100);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn one_at_a_time_holds_a_file_by_whatever_path() {
    let folder = folder("lock");
    let x = folder.join("x");
    // A killed process leaves a lock file without a lock.
    fs::write(folder.join(".x.lock"), b"").unwrap();
    let held = lock(&x).unwrap();
    held.write(|w| w.write_section("a", b"new")).unwrap();
    let refused = |path: &Path| {
        let error = lock(path).err().expect("it was locked twice").to_string();
        let shown = format!(
            "file `{}`: expected no other training that saves to this file, got a training",
            path.display()
        );
        assert!(
            error.starts_with(&shown) && error.contains(".x.lock`: wait until the training ends"),
            "{error}"
        );
    };
    refused(&x);
    refused(&folder.join(".").join("x"));
    fs::create_dir(folder.join("y")).unwrap();
    refused(&folder.join("y/../x"));
    lock(&folder.join("y/x")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("x", folder.join("link")).unwrap();
        std::os::unix::fs::symlink(".", folder.join("here")).unwrap();
        refused(&folder.join("link"));
        refused(&folder.join("here/link"));
        // A save through one hard link does not change the file at the other hard link, because the save replaces the
        // link.
        fs::hard_link(&x, folder.join("hard")).unwrap();
        let hard = lock(&folder.join("hard")).unwrap();
        hard.write(|w| w.write_section("a", b"other")).unwrap();
        assert_ne!(fs::read(&x).unwrap(), fs::read(folder.join("hard")).unwrap());
        drop(hard);
        drop(held);
        assert_eq!(names(&folder), ["hard", "here", "link", "x", "y"]); // no lock file stays
        // No lock is taken through a link, or through what is no file.
        let made = |to: &str| std::os::unix::fs::symlink(to, folder.join(".x.lock")).unwrap();
        for to in ["nowhere", "hard", "."] {
            made(to);
            let error = lock(&x).err().expect("it was locked through a link").to_string();
            assert!(error.contains(".x.lock`, or none, got a symbolic link: remove it"), "{error}");
            fs::remove_file(folder.join(".x.lock")).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(folder.join(".x.lock")).unwrap();
        let error = lock(&x).err().expect("a pipe was locked").to_string();
        assert!(error.contains("or none, got a folder, a pipe or a device"), "{error}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// The threads lock and release one file repeatedly: a thread removes the lock file while other threads open it.
#[test]
fn never_two_hold_a_lock() {
    let folder = folder("race");
    let (x, busy) = (folder.join("x"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let one = || {
            // The test counts successful locks, since the number of failed attempts depends on the machine.
            let mut taken = 0;
            while taken < 50 {
                let held = match lock(&x) {
                    Ok(held) => held,
                    Err(error) => {
                        assert!(error.to_string().contains("no other training"), "{error}");
                        std::thread::yield_now();
                        continue;
                    }
                };
                assert!(held.lock.is_some());
                assert!(!busy.swap(true, Ordering::SeqCst), "two at once");
                std::thread::yield_now();
                busy.store(false, Ordering::SeqCst);
                taken += 1;
            }
        };
        for _ in 0..4 {
            scope.spawn(one);
        }
    });
    assert_eq!(names(&folder), [""; 0]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_forbids_a_write_is_found_before_it() {
    let folder = folder("check");
    let refused = |name: &str| {
        let error = lock(&folder.join(name)).unwrap().check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        error.to_string()
    };
    let longest = "x".repeat(255 - 22);
    let fits = lock(&folder.join(&longest)).unwrap();
    fits.check().unwrap();
    fits.write(|w| w.write_section("a", b"new")).unwrap();
    fits.check().unwrap();
    for bytes in [234, 255, 300] {
        let (error, longer) = (refused(&"x".repeat(bytes)), "x".repeat(bytes));
        let end = format!(
            "a shorter name, since the name of the temporary file is 22 bytes longer, got {bytes} bytes"
        );
        assert!(error.ends_with(&end), "{error}");
        assert!(write_atomically(&folder.join(longer), |_| panic!("nothing is written")).is_err());
    }
    fs::write(folder.join("text"), "text").unwrap();
    let foreign = "expected a new file, or an existing file of `unpadded`, got a file of another format, which was left as it is";
    assert!(refused("text").ends_with(foreign), "{}", refused("text"));
    fs::write(folder.join("empty"), "").unwrap();
    lock(&folder.join("empty")).unwrap().check().unwrap();
    drop(fits);
    let mut left = names(&folder);
    left.retain(|name| *name != longest);
    assert_eq!(left, ["empty", "text"]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_mounted_is_known_by_its_path() {
    if Path::new("/proc/self/mountinfo").exists() {
        assert!(mounted(Path::new("/proc")) && !mounted(Path::new("/proc/self")));
    }
}

#[cfg(unix)]
#[test]
fn permissions_are_kept() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let folder = folder("mode");
    let x = folder.join("x");
    let mode = |mode: u32| fs::set_permissions(&x, fs::Permissions::from_mode(mode)).unwrap();
    let save = || write_atomically(&x, |w| w.write_section("a", b"new")).unwrap();
    save();
    let usual = fs::metadata(&x).unwrap().mode();
    fs::write(folder.join("y"), "").unwrap();
    assert_eq!(usual, fs::metadata(folder.join("y")).unwrap().mode());
    for kept in [0o600, 0o640, 0o444, 0o666] {
        mode(kept);
        save();
        assert_eq!(fs::metadata(&x).unwrap().mode() & 0o7777, kept);
    }
    mode(0o640);
    match chown(&x, Some(12), Some(34)) {
        Ok(()) => {
            save();
            let about = fs::metadata(&x).unwrap();
            assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (12, 34, 0o640));
        }
        Err(e) => println!("not tried, as it takes root: that the owner is kept ({e})"),
    }
    fs::remove_dir_all(&folder).unwrap();
}
