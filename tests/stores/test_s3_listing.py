"""Listings of S3 that no S3 would send: each ends in one clear error, and soon."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from skillfs import SkillFileSystem
from skillfs.errors import StoreUnavailableError
from skillfs.stores.source import Found
from tests.conftest import skill_md
from tests.servers.faults import FaultyS3
from tests.servers.listener import Answer
from tests.servers.s3 import Bucket, Request
from tests.stores.test_s3 import source_of, try_once

KEY, ETAG, SIZE = "<Key>p/a/x</Key>", '<ETag>"0123"</ETag>', "<Size>3</Size>"
TIME = "<LastModified>2026-01-02T03:04:05.000Z</LastModified>"
SOUND = KEY + ETAG + SIZE + TIME


@dataclass(frozen=True)
class Listing:
    """A listing that is made up.

    Attributes:
        inner: What is in it.
        versions: Whether it is one of versions.
    """

    inner: str | Callable[[Request], str]
    versions: bool = False

    def before(self, request: Request) -> Answer:
        """The listing."""
        name = "ListVersionsResult" if self.versions else "ListBucketResult"
        inner = self.inner if isinstance(self.inner, str) else self.inner(request)
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{request.bucket}</Name><MaxKeys>1000</MaxKeys>{inner}</{name}>"
        )
        return Answer(200, (("Content-Type", "application/xml"),), text.encode())

    def after(self, answer: Answer) -> Answer:
        """As it is."""
        return answer


@dataclass(frozen=True)
class OfYear:
    """Every time of a listing is of another year."""

    year: str

    def before(self, request: Request) -> None:
        """Pass it on."""

    def after(self, answer: Answer) -> Answer:
        """The listing, of that year."""
        year = f"<LastModified>{self.year}-06-01T".encode()
        return replace(answer, body=re.sub(rb"<LastModified>\d{4}-\d\d-\d\dT", year, answer.body))


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    try_once(monkeypatch)


def listed(bucket: Bucket, faulty: FaultyS3, inner: Any, versions: bool = False) -> list[Found]:
    source = source_of(bucket, server=faulty, version_aware=versions)
    faulty.add(Listing(inner, versions))
    return list(source.find(""))


WRONG = [
    pytest.param(ETAG + SIZE + TIME, id="no key"),
    pytest.param("<Key></Key>" + ETAG + SIZE, id="empty key"),
    pytest.param("<Key>q/a/x</Key>" + ETAG + SIZE, id="key elsewhere"),
    pytest.param("<Key>p</Key>" + ETAG + SIZE, id="key above"),
    pytest.param(KEY + SIZE + TIME, id="no ETag"),
    pytest.param(KEY + "<ETag></ETag>" + SIZE, id="empty ETag"),
    pytest.param(KEY + "<ETag>a&#10;b</ETag>" + SIZE, id="ETag of two lines"),
    pytest.param(KEY + ETAG + TIME, id="no size"),
    pytest.param(KEY + ETAG + "<Size>-5</Size>", id="negative size"),
    pytest.param(KEY + ETAG + f"<Size>{1 << 63}</Size>", id="size of 64 bits"),
    pytest.param(KEY + ETAG + f"<Size>{1 << 70}</Size>", id="vast size"),
]


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("item", WRONG)
def test_an_item_that_cannot_be(bucket: Bucket, faulty: FaultyS3, item: str, versions: bool) -> None:
    name = "Version" if versions else "Contents"
    latest = "<IsLatest>true</IsLatest>" if versions else ""
    inner = "".join(f"<{name}>{each}{latest}</{name}>" for each in (SOUND, item))
    with pytest.raises(StoreUnavailableError, match="not one of S3"):
        listed(bucket, faulty, inner, versions)


def test_an_item_that_is_wrong_for_a_moment(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillfs.stores.patience.FIRST_PAUSE", 0.01)
    bucket.seed({"p/x": b"1"})
    source = source_of(bucket, server=faulty)
    faulty.add(Listing(f"<Contents>{KEY}</Contents>"), times=2)
    assert [found.key for found in source.find("")] == ["x"]


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_a_time_beyond_all_nanoseconds(bucket: Bucket, faulty: FaultyS3, year: str) -> None:
    bucket.seed({"p/a/SKILL.md": skill_md("a"), "p/a/x": b"123"})
    faulty.add(OfYear(year), "ListObjectsV2")
    states = [found.state for found in source_of(bucket, server=faulty).find("")]
    assert all(state.modified and -(1 << 63) <= state.modified < 1 << 63 for state in states)
    fs = SkillFileSystem(f"{bucket.url}/p", target_options=faulty.target_options, index=":memory:")
    assert fs.info("a/x")["size"] == 3
    assert fs.modified("a/x").year in (1677, 2262)
    assert fs.cat_file("a/x") == b"123"
    assert str(fs.skill_tree(details=True))


def test_no_time_at_all(bucket: Bucket, faulty: FaultyS3) -> None:
    (found,) = listed(bucket, faulty, f"<Contents>{KEY}{ETAG}{SIZE}</Contents>")
    assert found.state.modified == 0


ENDLESS = [
    pytest.param("", False, 1, id="no token"),
    pytest.param("<NextContinuationToken></NextContinuationToken>", False, 1, id="empty token"),
    pytest.param("<NextContinuationToken>t</NextContinuationToken>", False, 2, id="same token"),
    pytest.param("", True, 1, id="no markers"),
    pytest.param("<NextKeyMarker></NextKeyMarker>", True, 1, id="empty marker"),
    pytest.param("<NextVersionIdMarker>v</NextVersionIdMarker>", True, 1, id="no key marker"),
    pytest.param("<NextKeyMarker>p/a/x</NextKeyMarker>", True, 2, id="same key"),
    pytest.param(
        "<NextKeyMarker>p/a/x</NextKeyMarker><NextVersionIdMarker>v</NextVersionIdMarker>",
        True,
        2,
        id="same markers",
    ),
]


@pytest.mark.parametrize(("more", "versions", "pages"), ENDLESS)
def test_a_listing_without_an_end(
    bucket: Bucket, faulty: FaultyS3, more: str, versions: bool, pages: int
) -> None:
    with faulty.recorded() as requests, pytest.raises(StoreUnavailableError, match="not one of S3"):
        listed(bucket, faulty, f"<IsTruncated>true</IsTruncated>{more}", versions)
    asked = {(r.query.get("continuation-token"), r.query.get("key-marker")) for r in requests}
    assert len(asked) == pages


def test_a_listing_in_a_circle(bucket: Bucket, faulty: FaultyS3) -> None:
    def page(request: Request) -> str:
        other = "b" if request.query.get("continuation-token") == "a" else "a"
        return f"<IsTruncated>true</IsTruncated><NextContinuationToken>{other}</NextContinuationToken>"

    with pytest.raises(StoreUnavailableError, match="not one of S3"):
        listed(bucket, faulty, page)


@pytest.mark.parametrize("versions", [False, True])
def test_many_pages(bucket: Bucket, faulty: FaultyS3, versions: bool) -> None:
    bucket.seed({f"p/{n:03}": b"" for n in range(25)})
    for _ in range(5):
        bucket.put("p/012", b"1")  # so that a page ends within the versions of one key
    faulty.page_size = 3
    found = list(source_of(bucket, server=faulty, version_aware=versions).find(""))
    assert [f.key for f in found] == [f"{n:03}" for n in range(25)]


def test_versions_where_there_never_were_any(faulty: FaultyS3, s3_server: Any) -> None:
    bucket = s3_server.new_bucket(versions=False)
    try:
        bucket.seed({"p/a/SKILL.md": skill_md("a"), "p/a/x": "text"})
        options = {**faulty.target_options, "version_aware": True}
        source = source_of(bucket, server=faulty, version_aware=True)
        states = {found.key: found.state for found in source.find("")}
        assert source.get("a/x", 0, 4, states["a/x"]) == b"text"
        fs = SkillFileSystem(f"{bucket.url}/p", target_options=options, index=":memory:")
        assert fs.cat_file("a/x") == b"text"
        # What a real S3 lists there; a GET says nothing of a version.
        item = KEY + states["a/x"].signature.partition(b"\0")[0].decode().join(("<ETag>", "</ETag>"))
        item += "<Size>4</Size><IsLatest>true</IsLatest><VersionId>null</VersionId>"
        faulty.add(Listing(f"<Version>{item}</Version>", versions=True), "ListObjectVersions")
        (found,) = source.find("")
        assert source.get("a/x", 0, 4, found.state) == b"text"
    finally:
        s3_server.drop(bucket)
