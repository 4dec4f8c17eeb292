"""From a URL, or an instance of fsspec, to a remote store.

What is opened here is used by nobody else and caches no listings: s3fs with a listing cache once gave back
truncated and padded bytes of objects that had been replaced.
"""

from __future__ import annotations

import re
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from skillfs.errors import InvalidArgumentError, IsFileError, NotFoundError, StoreUnavailableError, quoted
from skillfs.stores.remote import RemoteStore
from skillfs.stores.source import FsspecSource

__all__ = ["open_target"]

_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
_PRIVATE = {"use_listings_cache": False, "skip_instance_cache": True}


def open_target(url: str, fs: object, options: dict[str, Any]) -> RemoteStore | str:
    """Open the filesystem that a URL names, or take the one that is given.

    Args:
        url: URL, chained or not; with `fs`, a path in it.
        fs: A filesystem of fsspec, or None.
        options: For the filesystem of the URL.

    Returns:
        The store; or the path, where it turns out to be a local folder.

    Raises:
        InvalidArgumentError: The URL is of an unknown kind, holds a password or goes through a cache; a
            library is missing; or the options do not fit.
        NotFoundError: There is no such folder.
        IsFileError: It is a file.
    """
    if fs is not None:
        if not isinstance(fs, AbstractFileSystem):
            raise InvalidArgumentError(f"fs is {quoted(fs)}; pass a filesystem of fsspec")
        if options:
            raise InvalidArgumentError("target_options are for a URL; fs has its own already")
        target: AbstractFileSystem = fs
        root = target._strip_protocol(url)
        options = {"class": type(fs).__qualname__, "args": fs.storage_args, **fs.storage_options}
        own = False
    else:
        target, root = _opened(url, options)
        own = True
    protocols = {target.protocol} if isinstance(target.protocol, str) else set(target.protocol)
    if protocols & (_CACHES | {"skill"}):
        raise InvalidArgumentError(
            f"a store cannot go through {quoted(sorted(protocols)[0])}; name the filesystem below it"
        )
    if isinstance(target, LocalFileSystem):
        return str(root)
    if protocols & {"s3", "s3a"} and type(target).__module__.startswith("s3fs"):
        from skillfs.stores.s3 import S3Source, s3_settings

        if not own:
            own_options = {**target.storage_options, **_PRIVATE}
            own_options["config_kwargs"] = {**s3_settings(), **own_options.get("config_kwargs", {})}
            target = type(target)(*target.storage_args, **own_options)
        return RemoteStore(S3Source(target, root, options))
    source = FsspecSource(target, root, _url_of(target, root), options, own=own)
    _require_folder(target, root)
    return RemoteStore(source)


def _opened(url: str, options: dict[str, Any]) -> tuple[AbstractFileSystem, str]:
    if re.search(r"://[^/?#]*:[^/?#]*@", url):
        raise InvalidArgumentError(
            "the store's URL holds a password, which would end in logs; pass it in target_options or the "
            "environment"
        )
    parts = [part.partition("://")[0] for part in url.split("::")]
    for part in parts:
        if part in _CACHES or part == "skill":
            raise InvalidArgumentError(
                f"a store cannot go through {quoted(part)}; name the filesystem below it"
            )
    private: dict[str, Any] = dict(_PRIVATE)
    if parts[0] in ("s3", "s3a"):
        private["config_kwargs"] = {**_s3_settings(), **options.get("config_kwargs", {})}
    try:
        target, root = fsspec.core.url_to_fs(url, **{**options, **private})
    except ImportError as error:
        if "s3" in parts or "s3a" in parts:
            raise InvalidArgumentError(
                "a store on S3 needs s3fs; install it with: pip install 'fsspec-skillfs[s3]'"
            ) from error
        raise InvalidArgumentError(
            f"a store over {quoted(parts[0])} needs a library that is missing: {error}"
        ) from error
    except FileNotFoundError as error:
        raise NotFoundError(f"the store {quoted(url)} does not exist; create it or name another") from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise InvalidArgumentError(
                f"no filesystem is known for {quoted(parts[0])}; fsspec lists those that are"
            ) from error
        raise InvalidArgumentError(f"the store's URL or options do not fit {quoted(parts[0])}") from error
    except TypeError as error:
        raise InvalidArgumentError(f"the options do not fit a store over {quoted(parts[0])}") from error
    except Exception as error:
        raise StoreUnavailableError(
            f"the store cannot be opened ({type(error).__name__}); try again"
        ) from error
    return target, str(root)


def _s3_settings() -> dict[str, Any]:
    try:
        from skillfs.stores.s3 import s3_settings
    except ImportError:
        return {}  # opening says what is missing
    return s3_settings()


def _url_of(target: AbstractFileSystem, root: str) -> str:
    """The canonical URL of a root: with the archive or other file that the filesystem lies in."""
    url = str(target.unstrip_protocol(root)).rstrip("/")
    inner = target.storage_options.get("target_protocol")
    fo = target.storage_options.get("fo")
    if isinstance(fo, str) and isinstance(inner, str):
        below = fsspec.get_filesystem_class(inner)
        name = str(below._strip_protocol(fo))
        url += "::" + (name if "://" in name else f"{inner}://{name}")
    return url


def _require_folder(target: AbstractFileSystem, root: str) -> None:
    try:
        kind = target.info(root).get("type") if root.strip("/") else "directory"
    except FileNotFoundError as error:
        raise NotFoundError(
            "there is no such folder in the store's filesystem; create it or name another"
        ) from error
    except Exception:
        return  # the first listing says what is wrong
    if kind == "file":
        raise IsFileError("the store is a file; name the folder that holds skill folders")
