// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
use super::*;
use crate::files::effective_uid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

/// Somebody else. Only root can give files to him; other users have none of his, and skip what is
/// about him.
const OTHER: u32 = 65534;

fn is_root() -> bool {
    effective_uid() == 0
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// A folder as /tmp, one of ours with a file in it, and the folder of both.
fn shared() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let all = tempfile::tempdir().unwrap();
    let (public, own) = (all.path().join("pub"), all.path().join("own"));
    fs::create_dir(&public).unwrap();
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(own.join("victim"), "precious").unwrap();
    (all, public, own)
}

#[test]
fn links_of_our_own_are_followed_to_folders_and_files() {
    let (_all, public, own) = shared();
    symlink(&own, public.join("folder")).unwrap();
    symlink("folder/../own/free", public.join("file")).unwrap();
    write(&public.join("folder/x"), b"1").unwrap();
    write(&public.join("file"), b"2").unwrap();
    assert_eq!((text(own.join("x")), text(own.join("free"))), ("1".into(), "2".into()));
    assert!(public.join("file").is_symlink(), "the link stays");
    symlink("round", public.join("round")).unwrap();
    assert_eq!(write(&public.join("round"), b"").unwrap_err().raw_os_error(), Some(libc::ELOOP));
    fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
    let error = write(&public.join("folder/x"), b"3").unwrap_err();
    assert!(error.to_string().contains("other users may write to its folder"), "{error}");
}

#[test]
fn links_of_others_are_not_followed_anywhere() {
    if !is_root() {
        return;
    }
    let (_all, public, own) = shared();
    for (link, path) in [("folder", "folder/victim"), ("file", "file")] {
        let to = if link == "file" { own.join("victim") } else { own.clone() };
        symlink(to, public.join(link)).unwrap();
        lchown(public.join(link), Some(OTHER), None).unwrap();
        let path = public.join(path);
        let errors = [
            write(&path, b"").unwrap_err(),
            begin(&path, 0o600).unwrap_err(),
            Folder::make(&path.join("more")).map(drop).unwrap_err(),
        ];
        for error in errors {
            let said = format!(
                "link {} belongs to another user (65534), and is not followed",
                public.join(link).display()
            );
            assert!(error.to_string().contains(&said), "{error}");
        }
    }
    assert_eq!(text(own.join("victim")), "precious");
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
}

#[test]
fn what_belongs_to_others_is_neither_written_to_nor_replaced() {
    if !is_root() {
        return;
    }
    let (_all, public, own) = shared();
    fs::write(public.join("file"), "his").unwrap();
    fs::create_dir(public.join("folder")).unwrap();
    for name in ["file", "folder"] {
        chown(public.join(name), Some(OTHER), None).unwrap();
    }
    let folder = Folder::open(&public).unwrap();
    for old in [Old::Replace, Old::Keep] {
        let error = folder.write(name("file"), 0o600, old, b"").unwrap_err();
        assert!(error.to_string().contains("belongs to another user"), "{error}");
    }
    assert!(begin(&public.join("file"), 0o600).is_err());
    assert!(PartialFolder::begin(&folder, name("folder"), 0o755).is_err());
    let his = folder.folder(name("folder")).unwrap();
    assert!(his.check_ours().is_err() && !folder.is_ours(name("file")));
    assert_eq!(
        (text(public.join("file")), text(own.join("victim"))),
        ("his".into(), "precious".into())
    );
    assert_eq!(fs::read_dir(&public).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn a_folder_that_is_held_stays_the_same() {
    let (_all, public, own) = shared();
    let folder = Folder::make(&public.join("a/b")).unwrap();
    fs::rename(public.join("a"), public.join("was")).unwrap();
    symlink(&own, public.join("a")).unwrap();
    symlink(&own, own.join("b")).unwrap();
    folder.create(name("victim"), 0o600).unwrap();
    folder.remove(name("victim")).unwrap();
    assert_eq!(text(own.join("victim")), "precious");
}

#[test]
fn a_new_file_never_meets_another() {
    let (_all, public, own) = shared();
    let folder = Folder::open(&public).unwrap();
    symlink(own.join("victim"), public.join("link")).unwrap();
    let refused = folder.create(name("link"), 0o600).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    assert!(folder.append(name("link")).is_err() && folder.read(name("link")).is_err());
    // What is replaced by name is the link, not what it leads to.
    folder.write(name("link"), 0o600, Old::Replace, b"new").unwrap();
    assert_eq!(
        (text(public.join("link")), text(own.join("victim"))),
        ("new".into(), "precious".into())
    );
}

#[test]
fn a_name_does_not_lead_out_of_its_folder() {
    let (_all, public, _own) = shared();
    let folder = Folder::open(&public).unwrap();
    for bad in ["", ".", "..", "../own/victim", "/tmp/x", "a/b", "a/"] {
        assert!(folder.create(name(bad), 0o600).is_err(), "{bad}");
        assert!(folder.append(name(bad)).is_err(), "{bad}");
        assert!(folder.make_folder(name(bad), 0o700).is_err(), "{bad}");
    }
}

#[test]
fn what_was_there_is_replaced_kept_or_refused() {
    let (_all, public, _own) = shared();
    let folder = Folder::open(&public).unwrap();
    let put = |old, text: &str| folder.write(name("x"), 0o600, old, text.as_bytes());
    put(Old::Refuse, "1").unwrap();
    assert_eq!(put(Old::Refuse, "2").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    put(Old::Keep, "3").unwrap();
    put(Old::Replace, "4").unwrap();
    assert_eq!((text(public.join("x")), text(public.join("x.old"))), ("4".into(), "1".into()));
    assert_eq!(fs::read_dir(&public).unwrap().count(), 2);
    ["5", "6"].iter().for_each(|text| put(Old::KeepAll, text).unwrap());
    let all = ["x", "x.old", "x.old2", "x.old3"].map(|name| text(public.join(name)));
    assert_eq!(all, ["6", "1", "4", "5"]);
}

#[test]
fn what_is_not_complete_goes_and_what_a_killed_process_left_goes_with_the_next() {
    let (_all, public, _own) = shared();
    let folder = Folder::open(&public).unwrap();
    let count = || fs::read_dir(&public).unwrap().count();
    drop(Partial::begin(&folder, name("x"), 0o600).unwrap());
    drop(PartialFolder::begin(&folder, name("x"), 0o700).unwrap());
    assert_eq!(count(), 0);
    fs::write(public.join(".x.part-0123456789abcdef"), "").unwrap();
    fs::create_dir_all(public.join(".x.part-fedcba9876543210/inner")).unwrap();
    fs::write(public.join(".x.part-notours"), "").unwrap();
    let being_made = Partial::begin(&folder, name("x"), 0o600).unwrap();
    assert_eq!(count(), 2);
    let also = PartialFolder::begin(&folder, name("x"), 0o700).unwrap();
    assert_eq!(count(), 3, "what is being made stays");
    drop((being_made, also));
    assert_eq!(count(), 1);
}

#[test]
fn no_leftover_is_looked_for_where_others_choose_the_names() {
    let (_all, public, _own) = shared();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(public.join(".x.part-0123456789abcdef")).unwrap();
    fs::write(public.join(".x.part-0123456789abcdef/precious"), "").unwrap();
    let folder = Folder::open(&public).unwrap();
    drop(PartialFolder::begin(&folder, name("x"), 0o700).unwrap());
    assert!(public.join(".x.part-0123456789abcdef/precious").exists());
}

#[test]
fn of_two_folders_with_one_name_the_second_knows() {
    let (_all, public, _own) = shared();
    let folder = Folder::open(&public).unwrap();
    let begin = || PartialFolder::begin(&folder, name("x"), 0o755).unwrap();
    let (mut one, mut other) = (begin(), begin());
    one.complete(None).unwrap();
    let there = folder.folder(name("x")).unwrap();
    let refused = other.complete(None).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    other.folder().create(name("second"), 0o644).unwrap();
    other.complete(Some(&there)).unwrap();
    assert!(public.join("x/second").exists());
    // It is another one by now.
    let mut late = begin();
    assert_eq!(late.complete(Some(&there)).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    drop(late);
    assert!(public.join("x/second").exists() && fs::read_dir(&public).unwrap().count() == 1);
}

#[test]
fn devices_and_descriptors_are_written_to() {
    assert!(begin(Path::new("/dev/null"), 0o600).unwrap().write_all(b"x").is_ok());
    let (mut reader, writer) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    begin(Path::new(&path), 0o600).unwrap().write_all(b"x").unwrap();
    drop(writer);
    assert_eq!(io::Read::read(&mut reader, &mut [0; 8]).unwrap(), 1);
    let error = begin(Path::new("/tmp"), 0o600).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
}

#[test]
fn a_tree_is_removed_with_links_but_not_what_they_lead_to() {
    let (_all, public, own) = shared();
    fs::create_dir_all(public.join("x/y/z")).unwrap();
    symlink(&own, public.join("x/y/link")).unwrap();
    let folder = Folder::open(&public).unwrap();
    folder.remove_all(name("x")).unwrap();
    symlink(&own, public.join("link")).unwrap();
    assert!(folder.remove_all(name("link")).is_err());
    assert_eq!(text(own.join("victim")), "precious");
    assert_eq!(fs::read_dir(&public).unwrap().count(), 1);
}

#[test]
fn a_link_that_has_come_after_the_path_was_walked_is_not_followed() {
    let (_all, public, own) = shared();
    symlink(own.join("victim"), public.join("x")).unwrap();
    let error = Folder::open(&public).unwrap().open_special(name("x")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    // Nor does a pipe that nobody reads hang behind a link of /proc.
    let pipe = public.join("pipe");
    make_pipe(&pipe);
    let seen = crate::files::look_at(&pipe).unwrap();
    let error = begin(Path::new(&path_of(&seen)), 0o600).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn links_are_not_followed_where_others_can_name_them() {
    let (_all, public, own) = shared();
    symlink(&own, public.join("link")).unwrap();
    let to = |path: &str| write(&public.join(path), b"x").map_err(|e| e.to_string());
    to("link/new").unwrap();
    fs::hard_link(public.join("link"), public.join("other")).unwrap();
    assert!(to("link/new").unwrap_err().contains("it has another name, too"));
    fs::set_permissions(&public, fs::Permissions::from_mode(0o755)).unwrap();
    to("link/new").unwrap();
    if is_root() {
        chown(&public, None, Some(OTHER)).unwrap();
        fs::set_permissions(&public, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(to("link/new").unwrap_err().contains("other users may write to its folder"));
        chown(&public, Some(OTHER), None).unwrap();
        for mode in [0o755, 0o1777] {
            fs::set_permissions(&public, fs::Permissions::from_mode(mode)).unwrap();
            assert!(to("link/new").unwrap_err().contains("other users may write to its folder"));
        }
    }
}

#[test]
fn a_file_of_the_one_user_of_a_folder_is_replaced_but_not_written_to() {
    if !is_root() {
        return;
    }
    let (_all, public, own) = shared();
    fs::hard_link(own.join("victim"), public.join("his")).unwrap();
    chown(&public, Some(OTHER), None).unwrap();
    chown(public.join("his"), Some(OTHER), None).unwrap();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o755)).unwrap();
    write(&public.join("his"), b"new").unwrap();
    assert_eq!(
        (text(public.join("his")), text(own.join("victim"))),
        ("new".into(), "precious".into())
    );
    chown(public.join("his"), Some(OTHER), None).unwrap();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(write(&public.join("his"), b"newer").is_err());
}

#[test]
fn a_tree_is_not_removed_by_name_where_others_can_rename_it() {
    let (_all, public, _own) = shared();
    fs::create_dir(public.join("x")).unwrap();
    fs::write(public.join("x/precious"), "").unwrap();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
    let folder = Folder::open(&public).unwrap();
    assert!(folder.remove_all(name("x")).is_err());
    assert!(public.join("x/precious").exists());
    // What is replaced there is removed nevertheless, by its descriptor.
    let old = folder.folder(name("x")).unwrap();
    PartialFolder::begin(&folder, name("x"), 0o755).unwrap().complete(Some(&old)).unwrap();
    assert!(old.names().unwrap().is_empty());
    assert_eq!(fs::read_dir(&public).unwrap().count(), 1);
    let partial = PartialFolder::begin(&folder, name("x"), 0o755).unwrap();
    partial.folder().make_folder(name("inner"), 0o755).unwrap();
    drop(partial);
    assert_eq!(fs::read_dir(&public).unwrap().count(), 1);
}

#[test]
fn a_device_or_a_pipe_is_written_to_and_not_replaced() {
    let (_all, public, _own) = shared();
    write(Path::new("/dev/null"), b"x").unwrap();
    assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    make_pipe(&public.join("pipe"));
    let folder = Folder::open(&public).unwrap();
    for old in [Old::Replace, Old::Keep, Old::KeepAll] {
        let error = folder.write(name("pipe"), 0o600, old, b"x").unwrap_err();
        assert!(error.to_string().contains("is not replaced by a file"), "{error}");
    }
    assert_eq!(fs::read_dir(&public).unwrap().count(), 1);
}

#[test]
fn of_two_that_keep_all_none_replaces_the_others() {
    const EACH: usize = 50;
    let (_all, public, _own) = shared();
    let put = || {
        let folder = Folder::open(&public).unwrap();
        (0..EACH).for_each(|_| folder.write(name("x"), 0o600, Old::KeepAll, b"x").unwrap());
    };
    std::thread::scope(|scope| {
        scope.spawn(put);
        put();
    });
    assert_eq!(fs::read_dir(&public).unwrap().count(), 2 * EACH);
}
