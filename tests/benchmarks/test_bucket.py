"""The server of the benchmarks answers as S3 does, and counts what it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import s3fs
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.benchmarks import corpus
from tests.benchmarks.bucket import BUCKET, LIBRARY, Bucket, Endless, put, taken

SKILLS, FILES = 301, 5
CONTENT = corpus.objects(SKILLS, FILES, seed=20, small_files=True)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket("library", skills=SKILLS, files=FILES, small_files=True) as bucket:
        taken(bucket.endpoint)
        yield bucket


@pytest.fixture(scope="module")
def client(bucket: Bucket) -> Iterator[Any]:
    keys = {"aws_access_key_id": "made-up", "aws_secret_access_key": "made-up"}
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    client = boto3.client("s3", endpoint_url=bucket.endpoint, region_name="us-east-1", config=config, **keys)
    yield client
    client.close()


def test_every_skill_has_as_many_files_as_was_asked_for() -> None:
    assert len(CONTENT) == SKILLS * FILES
    assert sum(path.endswith("/SKILL.md") for path in CONTENT) == SKILLS


def test_a_listing_comes_in_pages(client: Any, bucket: Bucket) -> None:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{LIBRARY}/")
    found = [(item["Key"], item["Size"]) for page in pages for item in page.get("Contents", ())]
    assert found == [(f"{LIBRARY}/{path}", len(data)) for path, data in sorted(CONTENT.items())]
    asked = taken(bucket.endpoint)
    assert (asked["LIST"], asked["GET"], asked["HEAD"]) == (2, 0, 0)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_listing_by_folders(client: Any, most: int) -> None:
    top = f"{LIBRARY}/owner-00000/"
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix=top, Delimiter="/", PaginationConfig={"PageSize": most}
    )
    found = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]
    assert found == [f"{top}repo-{number:05d}/" for number in range(10)]


def test_objects_and_parts_of_them(client: Any, bucket: Bucket) -> None:
    path, data = max(CONTENT.items(), key=lambda item: len(item[1]))
    where = {"Bucket": BUCKET, "Key": f"{LIBRARY}/{path}"}
    taken(bucket.endpoint)
    answer = client.get_object(**where)
    assert answer["Body"].read() == data
    etag = answer["ETag"]
    for asked, start, end in (
        ("0-9", 0, 10),
        ("5-5", 5, 6),
        ("3-", 3, len(data)),
        ("-4", len(data) - 4, len(data)),
    ):
        answer = client.get_object(**where, Range=f"bytes={asked}", IfMatch=etag)
        assert answer["Body"].read() == data[start:end]
        assert answer["ContentRange"] == f"bytes {start}-{end - 1}/{len(data)}"
    assert client.head_object(**where)["ContentLength"] == len(data)
    assert taken(bucket.endpoint)["HEAD"] == 1
    for wrong, status in (
        ({"Range": f"bytes={len(data)}-"}, 416),
        ({"IfMatch": '"another"'}, 412),
        ({"Key": "nothing"}, 404),
    ):
        with pytest.raises(ClientError) as error:
            client.get_object(**{**where, **wrong})
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_what_was_put_is_listed(client: Any, bucket: Bucket) -> None:
    key = "elsewhere/new file.md"
    put(bucket.endpoint, key, b"one")
    put(bucket.endpoint, key, b"another")
    (item,) = client.list_objects_v2(Bucket=BUCKET, Prefix="elsewhere/")["Contents"]
    assert (item["Key"], item["Size"]) == (key, 7)
    assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"another"


def test_bytes_and_characters_of_a_text_that_nobody_holds() -> None:
    text = Endless(3)
    whole = b"".join(text.pieces(0, text.size))
    assert len(whole) == text.size == 3 * Endless.BLOCK
    assert len(whole.decode()) == 3 * Endless.CHARACTERS
    for start, end in ((0, 5), (Endless.BLOCK - 3, Endless.BLOCK + 4), (5, text.size)):
        assert b"".join(text.pieces(start, end)) == whole[start:end]
    for start in (0, Endless.CHARACTERS - 5, 2 * Endless.CHARACTERS + 1):
        assert Endless.text(start, 20) == whole.decode()[start : start + 20]


def test_it_is_served_in_ranges(tmp_path: Any) -> None:
    with Bucket("endless", blocks=2) as bucket:
        fs = s3fs.S3FileSystem(**bucket.target_options, skip_instance_cache=True)
        path = f"{BUCKET}/{LIBRARY}/texts/huge.txt"
        assert fs.cat_file(path) == Endless.block(0) + Endless.block(1)
        cut = Endless.block(0)[-10:] + Endless.block(1)[:-5]
        assert fs.cat_file(path, start=Endless.BLOCK - 10, end=2 * Endless.BLOCK - 5) == cut
