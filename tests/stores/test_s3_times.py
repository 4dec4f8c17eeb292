"""Times in the answers of S3 are read as botocore reads them, only sooner."""

from __future__ import annotations

import pytest
from botocore.utils import parse_timestamp

from skillfs.stores.s3 import _time_of
from skillfs.stores.targets import open_target
from tests.servers.s3 import Bucket


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.000Z",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.678901Z",
        "2026-01-02T03:04:05+02:00",
        "Fri, 02 Jan 2026 03:04:05 GMT",
        "Fri, 02-Jan-2026 03:04:05 GMT",
        "1767323045",
        "1767323045.5",
    ],
)
def test_a_time(text: str) -> None:
    assert _time_of(text).timestamp() == parse_timestamp(text).timestamp()


def test_what_is_no_time() -> None:
    for text in ("", "yesterday", "abc,def", "2026-99-99T00:00:00Z"):
        with pytest.raises(ValueError, match="Invalid timestamp"):
            _time_of(text)


def test_the_client_reads_them_so(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(text: str) -> object:
        asked.append(text)
        return _time_of(text)

    monkeypatch.setattr("skillfs.stores.s3._time_of", noted)
    bucket.seed({"a/b.md": "x"})
    found = open_target(bucket.url, None, bucket.server.target_options)
    assert not isinstance(found, str)
    (listed,) = found._source.find("")
    state, _ = found._source.head("a/b.md", 10)
    assert len(asked) == 2  # of the listing and of the object; else botocore has no such place any more
    assert state == listed.state
    assert state.modified > 0
