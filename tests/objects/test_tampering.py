"""Whatever is changed in a folder of objects is noticed, and what only looks alike is kept apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillfs.core.manifest import digest_text
from skillfs.errors import IntegrityError, NotFoundError, SkillFSError
from skillfs.objects.folder import ObjectFolder, blob_name
from skillfs.objects.local import LocalObjects
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.objects.upkeep import fsck
from tests.collisions import MD5_PAIR, XXH3_PAIR
from tests.objects.harness import check_whole, digest_of, take

TEXT = b"---\nname: a\n---\nRead me.\n"


@pytest.mark.parametrize("pair", [MD5_PAIR, XXH3_PAIR], ids=["md5", "xxh3"])
def test_contents_with_one_hash_stay_two(folder: ObjectFolder, pair: tuple[bytes, bytes]) -> None:
    one, other = pair
    catalog = SnapshotCatalog(folder)
    take(catalog, [one], "one")
    assert catalog.blobs.has_all([digest_of(other)]) == set()
    take(catalog, [one, other], "two", at=1)
    assert check_whole(folder) == {"one": [one], "two": sorted([one, other])}
    folder.put_all([(blob_name(digest_of(one)), [other])])
    with pytest.raises(IntegrityError):
        check_whole(folder)


def objects(folder: LocalObjects) -> dict[str, bytes]:
    found = {}
    for prefix in ("blobs/", "manifests/", "snapshots/", "labels/"):
        found.update({info.name: folder.get(info.name) for info in folder.listed(prefix)})
    return found


def changed(data: bytes, bits: range | list[int]) -> Iterator[bytes]:
    """The same with one byte changed, each in turn; cut short by a byte; and longer by one."""
    for at in range(len(data)):
        for bit in bits:
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    yield data[:-1]
    yield data + b"\n"
    yield b""


def check_every_byte(folder: LocalObjects, bits: range | list[int]) -> None:
    take(SnapshotCatalog(folder), [TEXT], "v1")
    sound = objects(folder)
    assert {name.partition("/")[0] for name in sound} == {"blobs", "manifests", "snapshots", "labels"}
    tried = 0
    for name, data in sound.items():
        for other in changed(data, bits):
            folder.put_all([(name, [other])])
            with pytest.raises(SkillFSError) as caught:
                check_label(folder)
            assert isinstance(caught.value, IntegrityError), (name, other)
            tried += 1
            folder.put_all([(name, [data])])
        check_label(folder)
    assert tried > 500
    assert objects(folder) == sound
    assert not [finding for finding in fsck(folder) if finding.is_fault]


def check_label(folder: ObjectFolder) -> None:
    """What a caller does who restores `v1`."""
    catalog = SnapshotCatalog(folder)
    _, record = catalog.resolve("v1")
    (skill,) = catalog.manifest(record).skills
    with catalog.blobs.open(skill.files[0].digest, skill.files[0].size) as handle:
        assert b"".join(handle.blocks()) == TEXT


def test_every_byte_that_is_changed_is_noticed(local: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    # That what is written is on the disk is not what this is about.
    monkeypatch.setattr("os.fsync", lambda fd: None)
    check_every_byte(local, [0])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_bit_that_is_changed_is_noticed(local: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    check_every_byte(local, range(8))


def test_fsck_finds_every_changed_object(local: LocalObjects) -> None:
    take(SnapshotCatalog(local), [TEXT], "v1")
    for name, data in objects(local).items():
        local.put_all([(name, [data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]])])
        found = fsck(local)
        assert name in [finding.name for finding in found if finding.kind == "damaged"]
        assert not local.has(name)
        assert local.has("bad/" + name.replace("/", "-"))
        for info in list(local.listed("bad/")):
            local.remove(info.name)
        local.put_all([(name, [data])])
        if not local.has("labels/v1"):  # it named a record that was damaged
            SnapshotCatalog(local).add(next(SnapshotCatalog(local).records())[1], "v1")
        check_label(local)


def test_objects_that_changed_places_are_noticed(local: LocalObjects) -> None:
    """Each is sound by itself."""
    catalog = SnapshotCatalog(local)
    take(catalog, [TEXT], "v1")
    take(catalog, [b"other"], "v2", at=1)
    sound = objects(local)
    for prefix in ("blobs/", "manifests/", "snapshots/"):
        names = [name for name in sound if name.startswith(prefix)]
        for one in names:
            other = next(name for name in names if name != one)
            local.put_all([(one, [sound[other]])])
            with pytest.raises(IntegrityError):
                check_whole(local)
            local.put_all([(one, [sound[one]])])
    check_whole(local)


def test_no_message_holds_content_or_paths(local: LocalObjects) -> None:
    take(SnapshotCatalog(local), [TEXT], "v1")
    secret = b"the-secret-in-it"
    for name, data in objects(local).items():
        local.put_all([(name, [data + secret])])
        with pytest.raises(SkillFSError) as caught:
            check_label(local)
        error: BaseException | None = caught.value
        assert secret.decode() not in str(error)
        assert local.path not in str(error)
        local.put_all([(name, [data])])


def test_what_is_gone_is_said_by_its_digest(local: LocalObjects) -> None:
    take(SnapshotCatalog(local), [TEXT], "v1")
    local.remove(blob_name(digest_of(TEXT)))
    with pytest.raises(IntegrityError, match=digest_text(digest_of(TEXT))):
        check_label(local)
    local.remove("labels/v1")
    with pytest.raises(NotFoundError):
        check_label(local)
