"""From a URL, or an instance of fsspec, to a remote store.

A chained URL is taken apart here: what lies in a folder of another filesystem is that folder, and an archive
is read through the source that its file lies in. So the same place has the same URL however it is spelled,
and nothing is opened twice.

What is opened here is used by nobody else and caches no listings: s3fs with a listing cache once gave back
truncated and padded bytes of objects that had been replaced. An instance that is handed in is never changed.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import fsspec
from fsspec import AbstractFileSystem
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations

from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
    quoted,
)
from skillfs.stores.archives import ArchiveSource
from skillfs.stores.containers import Container, FileContainer, SourceContainer
from skillfs.stores.fsspec_source import FsspecSource
from skillfs.stores.remote import RemoteStore
from skillfs.stores.source import RootedSource, Source, remade

__all__ = ["open_source", "open_target"]

_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
_THROUGH = frozenset({*_CACHES, "skill", "generic"})
"""What a store cannot go through: caches give what was true once, `generic` opens any URL that it meets."""

_PATHS_ONLY = frozenset({"file", "local", "memory", "dir", "zip", "tar", "libarchive", "data", "reference"})
"""What follows the `://` of these is no host."""

_READ_ONLY = frozenset({"github", "gist", "git", "reference", "data"})
_PRIVATE = {"use_listings_cache": False, "skip_instance_cache": True}
_NEUTRAL = frozenset({*_PRIVATE, "listings_expiry_time", "max_paths", "asynchronous", "loop", "batch_size"})
"""Options of fsspec that show nobody another store."""

_CHAINING = frozenset({"fo", "target_protocol", "target_options"})
"""Options with which fsspec says what a filesystem lies over."""


class _Folder(NamedTuple):
    """A path in a filesystem; `options` are what it was given that may choose another endpoint or user."""

    fs: AbstractFileSystem
    root: str
    options: Mapping[str, Any]
    own: bool


class _InArchive(NamedTuple):
    """A path in an archive, whose file lies at another place; None where only `ready` is known."""

    kind: type[AbstractArchiveFileSystem]
    options: Mapping[str, Any]
    within: _Where | None
    root: str
    ready: AbstractFileSystem | None = None


_Where: TypeAlias = _Folder | _InArchive


def open_target(url: str, fs: object, options: dict[str, Any]) -> RemoteStore | str:
    """Open the store that a URL names; see `open_source`."""
    source = open_source(url, fs, options)
    return source if isinstance(source, str) else RemoteStore(source)


def open_source(url: str, fs: object, options: dict[str, Any]) -> Source | str:
    """Open the filesystem that a URL names, or take the one that is given.

    Args:
        url: URL, chained or not; with `fs`, a path in it.
        fs: A filesystem of fsspec, or None.
        options: For the filesystem of the URL; of a chained one by protocol, as fsspec takes them.

    Returns:
        Its source; or the path, where it turns out to be a local folder.

    Raises:
        InvalidArgumentError: The URL is of an unknown kind, holds a password or goes through a cache; a
            library is missing; or the options do not fit.
        NotFoundError: There is no such folder.
        IsFileError: It is a file.
    """
    if fs is None:
        _refuse_password(url)
        place = _guarded(lambda: _named(url, options), url)
    else:
        if not isinstance(fs, AbstractFileSystem):
            raise InvalidArgumentError(f"fs is {quoted(fs)}; pass a filesystem of fsspec")
        if options:
            raise InvalidArgumentError("target_options are for a URL; fs has its own already")
        if isinstance(fs, LocalFileSystem) and not url:
            raise InvalidArgumentError("which store? pass the folder that holds the skill folders")
        place = _guarded(lambda: _given(fs, str(fs._strip_protocol(url))), "fs")
    if isinstance(place, _Folder) and isinstance(place.fs, LocalFileSystem):
        return place.root
    source: Source = _guarded(lambda: _source_of(place), url if fs is None else "fs")
    if isinstance(source, RootedSource):
        source.check_root()
    given = (url.rstrip("/"),) if fs is None and "::" not in url else ()
    source.spellings = tuple(dict.fromkeys((*source.spellings, *given)))
    return source


# -- to a place ----------------------------------------------------------------------------------------------


def _links_of(url: str) -> list[str]:
    """The links of a chained URL, each with its protocol."""
    known = fsspec.available_protocols()
    links = []
    for link in url.split("::"):
        if "://" in link:
            links.append(link)
        else:
            links.append(f"{link}://" if link in known else f"file://{link}")
    return links


def _named(url: str, options: Mapping[str, Any]) -> _Where:
    """What a URL names; of a chained one, options under the name of a protocol are for that link."""
    links = _links_of(url)
    protocols = [link.partition("://")[0] for link in links]
    _refuse_detour(set(protocols))
    if len(links) == 1:
        return _linked(links, [dict(options)])
    given = [dict(options.get(protocol) or {}) for protocol in protocols]
    given[0] |= {name: value for name, value in options.items() if name not in protocols}
    return _linked(links, given)


def _linked(links: list[str], options: list[dict[str, Any]]) -> _Where:
    protocol, _, path = links[0].partition("://")
    kind = fsspec.get_filesystem_class(protocol)
    if not (issubclass(kind, AbstractArchiveFileSystem) or kind is DirFileSystem):
        if len(links) == 1:
            return _opened(links[0], protocol, options[0])
        below = {link.partition("://")[0]: given for link, given in zip(links, options, strict=True)}
        return _opened("::".join(links), protocol, {**below, **options[0]})
    within = _linked(links[1:], options[1:]) if len(links) > 1 else _named_by_options(options[0])
    return _joined(kind, options[0], within, path)


def _named_by_options(options: Mapping[str, Any]) -> _Where:
    """The file or folder that is named as fsspec passes it on: `fo`, `target_protocol`, `target_options`."""
    fo = options.get("fo")
    if not isinstance(fo, str | os.PathLike):
        raise InvalidArgumentError(
            "which archive or folder? name it after ::, as in zip://folder::file:///x.zip"
        )
    text = os.fspath(fo)
    protocol = options.get("target_protocol")
    if "://" not in text:
        text = f"{protocol or 'file'}://{text}"
    _refuse_password(text)
    return _named(text, dict(options.get("target_options") or {}))


def _opened(url: str, protocol: str, options: Mapping[str, Any]) -> _Where:
    """What fsspec opens for a URL, for nobody else."""
    private: dict[str, Any] = dict(_PRIVATE)
    if protocol in ("s3", "s3a"):
        private["config_kwargs"] = {**_s3_settings(), **options.get("config_kwargs", {})}
    ours = _ours(protocol)
    if ours is None:
        target, root = fsspec.core.url_to_fs(url, **{**options, **private})
    elif protocol == "ftp":
        # "#" and "?" are characters of names, for a server of files.
        host, _, path = url[6:].partition("/")
        target = ours(**{**ours._get_kwargs_from_urls(f"ftp://{host}/"), **options, **private})
        root = f"/{path.strip('/')}"
    else:
        target = ours(**{**ours._get_kwargs_from_urls(url), **options, **private})
        root = ours._strip_protocol(url)
    return _given(target, str(root), options=options)


def _given(fs: AbstractFileSystem, path: str, *, options: Mapping[str, Any] | None = None) -> _Where:
    """A path in an instance, or in what the instance lies over.

    Args:
        fs: The instance.
        path: As it spells paths.
        options: What it was made with, when it was made here.
    """
    _refuse_detour({fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol))
    if isinstance(fs, DirFileSystem):
        return _joined(DirFileSystem, {}, _given(fs.fs, str(fs.path)), path)
    if isinstance(fs, AsyncFileSystemWrapper):
        return _given(fs.sync_fs, path)
    if getattr(fs, "asynchronous", False):
        raise InvalidArgumentError("fs belongs to an event loop; make one with asynchronous=False")
    if isinstance(fs, AbstractArchiveFileSystem):
        named = _options_of(fs)
        if not isinstance(named.get("fo"), str | os.PathLike):
            return _InArchive(type(fs), {}, None, path, fs)
        return _joined(type(fs), named, _named_by_options(named), path)
    known = options if options is not None and _is_s3(fs) else _described(fs)
    return _Folder(fs, path, known, options is not None)


def _joined(kind: type[AbstractFileSystem], options: Mapping[str, Any], within: _Where, path: str) -> _Where:
    """A path in an archive or folder that lies at a place."""
    kept = {k: v for k, v in options.items() if k not in _NEUTRAL | _CHAINING}
    if issubclass(kind, AbstractArchiveFileSystem):
        return _InArchive(kind, kept, within, path.strip("/"))
    if kept:
        raise InvalidArgumentError(f"a folder takes no option {quoted(next(iter(kept)))}; leave it away")
    below = path.strip("/")
    if any(part in (".", "..") for part in below.split("/")):
        raise InvalidArgumentError('the path in a folder has "." or ".." in it; leave them away')
    root = within.root.rstrip("/")
    return within._replace(root=f"{root}/{below}" if below else within.root)


def _options_of(fs: AbstractFileSystem) -> dict[str, Any]:
    """What an instance was made with, by name."""
    try:
        given = inspect.signature(type(fs).__init__).bind_partial(fs, *fs.storage_args).arguments
    except (TypeError, ValueError):
        return {"args": fs.storage_args, **fs.storage_options}
    return {**dict(list(given.items())[1:]), **fs.storage_options}


def _described(fs: AbstractFileSystem) -> dict[str, Any]:
    """What an instance was made with that may show somebody another store."""
    known = {k: v for k, v in _options_of(fs).items() if k not in _NEUTRAL}
    if isinstance(fs, MemoryFileSystem) and not fs.global_store:
        known["store"] = fs._fs_token  # each has files of its own
    protocol = _protocol_of(fs)
    try:
        registered = fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError):
        registered = None
    if registered is not type(fs) and not type(fs).__module__.startswith("skillfs."):
        known["class"] = f"{type(fs).__module__}.{type(fs).__qualname__}"
    return known


# -- to a source ---------------------------------------------------------------------------------------------


def _source_of(place: _Where) -> Any:
    if isinstance(place, _InArchive):
        within = None if place.within is None else _container_of(place.within)
        return ArchiveSource(place.kind, place.options, within, place.root, place.ready)
    fs, root, options, own = place
    protocol = _protocol_of(fs)
    if _is_s3(fs):
        from skillfs.stores.s3 import S3Source, s3_settings

        if not own:
            settings = {**s3_settings(), **fs.storage_options.get("config_kwargs", {})}
            fs = remade(fs, **_PRIVATE, config_kwargs=settings)
        return S3Source(fs, root, options)
    if any(part in (".", "..") for part in root.split("/")):
        raise InvalidArgumentError('the root has "." or ".." in its path; leave them away')
    if protocol in ("http", "https"):
        from skillfs.stores.http import HttpSource

        return HttpSource(fs if own else remade(fs, **_PRIVATE), root, options)
    ours = _ours(protocol) if type(fs).__module__.startswith("fsspec.") else None
    if ours is not None:
        fs, own = ours(*fs.storage_args, **{**fs.storage_options, **_PRIVATE}), True
    return FsspecSource(fs, root, _url_of(fs, root), options, own=own, writable=protocol not in _READ_ONLY)


def _container_of(place: _Where) -> Container:
    """The file at a place."""
    if isinstance(place, _Folder) and isinstance(place.fs, LocalFileSystem):
        path = os.path.realpath(place.root)
        return FileContainer(path, f"file://{quote(path)}")
    above, _, name = place.root.rstrip("/").rpartition("/")
    if not name:
        raise InvalidArgumentError("which archive? name its file after ::, as in zip://folder::file:///x.zip")
    source: Source = _source_of(place._replace(root=above))
    return SourceContainer(source, name)


def _url_of(fs: AbstractFileSystem, root: str) -> str:
    """The canonical URL of a root, with the host that it is on."""
    options = _options_of(fs)
    if _protocol_of(fs) == "github":
        return f"github://{fs.org}:{fs.repo}@{fs.root}/{root.strip('/')}".rstrip("/")
    host = options.get("host")
    if not isinstance(host, str):
        return str(fs.unstrip_protocol(root)).rstrip("/")
    user = f"{quote(str(options['username']))}@" if options.get("username") else ""
    port = f":{options['port']}" if options.get("port") else ""
    return f"{_protocol_of(fs)}://{user}{host.lower()}{port}/{root.strip('/')}".rstrip("/")


def _ours(protocol: str) -> type[AbstractFileSystem] | None:
    """What is used in place of fsspec's own class."""
    if protocol == "ftp":
        from skillfs.stores.ftp import FtpFileSystem

        return FtpFileSystem
    if protocol == "github":
        from skillfs.stores.github import GithubTree

        return GithubTree
    return None


def _protocol_of(fs: AbstractFileSystem) -> str:
    return fs.protocol if isinstance(fs.protocol, str) else str(fs.protocol[0])


def _is_s3(fs: AbstractFileSystem) -> bool:
    return _protocol_of(fs) in ("s3", "s3a") and type(fs).__module__.startswith("s3fs")


def _s3_settings() -> dict[str, Any]:
    try:
        from skillfs.stores.s3 import s3_settings
    except ImportError:
        return {}  # opening says what is missing
    return s3_settings()


# -- what is refused -----------------------------------------------------------------------------------------


def _refuse_password(url: str) -> None:
    for part in url.split("::"):
        protocol, named, rest = part.partition("://")
        if not named or protocol in _PATHS_ONLY or protocol == "github":
            continue  # github://organisation:repository@branch is how that is written
        if re.match(r"[^/?#]*:[^/?#]*@", rest) or re.match(r"[^/@:]*:(?!\d*/)[^@]*@", rest):
            raise InvalidArgumentError(
                "the store's URL holds a password, which would end in logs; pass it in target_options or the "
                "environment"
            )


def _refuse_detour(protocols: set[str]) -> None:
    through = sorted(protocols & _THROUGH)
    if through:
        raise InvalidArgumentError(
            f"a store cannot go through {quoted(through[0])}; name the filesystem below it"
        )


def _guarded(work: Any, url: str) -> Any:
    """Do something with fsspec, and say what its errors mean, without what they say of hosts and paths."""
    names = [part.partition("://")[0] for part in url.split("::")] if url != "fs" else ["fs"]
    name = next((n for n in names if n not in ("zip", "tar", "dir")), names[0])
    try:
        return work()
    except SkillFSError:
        raise
    except ImportError as error:
        raise _missing(names, error) from error
    except FileNotFoundError as error:
        raise NotFoundError("the store, or a file that it lies in, is not there; name one that is") from error
    except PermissionError as error:
        raise UnreadableError("the store may not be opened with these credentials; pass others") from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            unknown = next((n for n in names if n not in fsspec.available_protocols()), name)
            raise InvalidArgumentError(
                f"no filesystem is known for {quoted(unknown)}; fsspec lists those that are"
            ) from error
        raise InvalidArgumentError(f"the store's URL or options do not fit {quoted(name)}") from error
    except (TypeError, AttributeError, LookupError) as error:
        raise InvalidArgumentError(f"the options do not fit a store over {quoted(name)}") from error
    except Exception as error:
        raise StoreUnavailableError(
            f"the store cannot be opened ({type(error).__name__}); try again"
        ) from error


def _missing(names: list[str], error: ImportError) -> InvalidArgumentError:
    if "s3" in names or "s3a" in names:
        return InvalidArgumentError(
            "a store on S3 needs s3fs; install it with: pip install 'fsspec-skillfs[s3]'"
        )
    for name in names:
        advice = known_implementations.get(name, {}).get("err")
        if advice and (str(error) == advice or error.name is None):
            return InvalidArgumentError(
                f"a store over {quoted(name)} needs a library that is missing: {advice}"
            )
    missing = f"; install {quoted(error.name)}" if error.name else ""
    return InvalidArgumentError(f"a store over {quoted(names[0])} needs a library that is missing{missing}")
