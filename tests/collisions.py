"""Contents that differ and share a hash that was never meant to withstand that."""

import hashlib

import xxhash

__all__ = ["MD5_PAIR", "XXH3_PAIR"]


def _xxh3(one: int, two: int) -> bytes:
    """256 bytes whose XXH3-128 depends on the sum of two numbers alone.

    XXH3 multiplies the two halves of each 8 bytes, with its secret added by exclusive or: where the lower
    half is the secret's own, the product is 0, and the upper half counts only in a sum over the stripes.
    """
    data = bytearray(b"." * 256)
    data[0:4], data[4:8] = bytes.fromhex("b8fe6c39"), one.to_bytes(4, "little")
    data[64:68], data[68:72] = bytes.fromhex("7c01812c"), two.to_bytes(4, "little")
    return bytes(data)


XXH3_PAIR = (_xxh3(0x41414142, 0x42424241), _xxh3(0x41414141, 0x42424242))

# Published by Xiaoyun Wang, Dengguo Feng, Xuejia Lai and Hongbo Yu in 2004.
_FIRST = (
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f89"
    "55ad340609f4b30283e488832571415a085125e8f7cdc99fd91dbdf280373c5b"
    "d8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
)
_SECOND = (
    "d131dd02c5e6eec4693d9a0698aff95c2fcab50712467eab4004583eb8fb7f89"
    "55ad340609f4b30283e4888325f1415a085125e8f7cdc99fd91dbd7280373c5b"
    "d8823e3156348f5bae6dacd436c919c6dd53e23487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080280d1ec69821bcb6a8839396f965ab6ff72a70"
)
MD5_PAIR = (bytes.fromhex(_FIRST), bytes.fromhex(_SECOND))

assert XXH3_PAIR[0] != XXH3_PAIR[1]
assert xxhash.xxh3_128_digest(XXH3_PAIR[0]) == xxhash.xxh3_128_digest(XXH3_PAIR[1])
assert MD5_PAIR[0] != MD5_PAIR[1]
assert len({hashlib.md5(data, usedforsecurity=False).digest() for data in MD5_PAIR}) == 1
