"""Opens stores and indexes, and lets all filesystems of a process that name the same ones share them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sqlite3
import stat
import threading
import uuid as uuidlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.errors import (
    InvalidArgumentError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
    no_handle_left,
    quoted,
)
from skillfs.index.connections import MOST_FORK_SECONDS
from skillfs.index.database import Database
from skillfs.index.journal import Journal
from skillfs.stores.base import Store
from skillfs.stores.local import LocalStore
from skillfs.stores.remote import RemoteStore
from skillfs.sync.engine import Engine, Mark
from skillfs.sync.scan import SKILL_MD

__all__ = [
    "STORE_FILE",
    "data_folder",
    "default_index",
    "index_file",
    "is_url",
    "open_engine",
    "open_store",
    "private_folder",
    "shared_engine",
    "store_argument",
    "store_namespace",
    "write_store_id",
]

STORE_FOLDER = ".skillfs"
STORE_FILE = f"{STORE_FOLDER}/store.json"
"""Where a store keeps its own identity, below its root."""

E = TypeVar("E", bound=Engine)

_MOST_BYTES = 65_536
_engines: WeakValueDictionary[tuple[object, ...], Engine] = WeakValueDictionary()
_lock = threading.Lock()
_forking: int | None = None  # the thread that holds the lock for a fork


def _hold_for_fork() -> None:
    """A thread that is opening a store while another forks is not there to let go in the child."""
    global _forking
    if _lock.acquire(timeout=MOST_FORK_SECONDS):
        _forking = threading.get_ident()


def _go_on_in_parent() -> None:
    global _forking
    if _forking == threading.get_ident():
        _forking = None
        _lock.release()


def _go_on_in_child() -> None:
    global _forking, _lock
    _forking = None
    _lock = threading.Lock()


os.register_at_fork(before=_hold_for_fork, after_in_parent=_go_on_in_parent, after_in_child=_go_on_in_child)


def open_engine(
    store: object,
    *,
    fs: object = None,
    target_options: Mapping[str, object] | None = None,
    index: str | os.PathLike[str] | None,
    store_id: str | None,
    ignore: Sequence[str],
    follow: Sequence[str | os.PathLike[str]],
) -> tuple[Engine, tuple[Mark, Store] | None]:
    """The engine for a store and an index: the one that is open in this process already, or a new one.

    Args:
        store: See `open_store`.
        fs: See `open_store`.
        target_options: See `open_store`.
        index: Path of the index, or `":memory:"`; None for the usual one.
        store_id: The store's identity; None for its own.
        ignore: Patterns beside the built-in ones.
        follow: See `open_store`.

    Returns:
        The engine; and of a remote store what it showed just now, which its first `sync` is to begin with.

    Raises:
        InvalidArgumentError: An argument is malformed.
        SkillFSError: As for `open_store`.
    """
    rules = IgnoreRules(ignore)
    opened = open_store(store, fs=fs, target_options=target_options, follow=follow)
    path = _index_path(opened, index, rules)
    look = None
    marks: dict[Engine | None, Mark] = {}
    if isinstance(opened, RemoteStore):
        with _lock:
            own = (os.getpid(), opened.url, opened.account, str(path))
            shared = [engine for key, engine in _engines.items() if key[: len(own)] == own]
        marks = {engine: engine.mark() for engine in shared}
        marks[None] = Mark(0, _revision_of(path))
        look = opened.look()
        if store_id is None and not look.exists(Place(0, STORE_FILE)):
            namespace = _derived_id(opened)  # the listing says that it has none of its own
        else:
            namespace = store_namespace(opened, store_id)
    else:
        namespace = store_namespace(opened, store_id)
    key = (os.getpid(), opened.url, opened.account, str(path), namespace, rules.extra, opened.followed)
    with _lock:
        engine = _engines.get(key)
        if engine is None:
            engine = Engine(opened, Database(path), Namespace(namespace), rules, opened.title)
            _engines[key] = engine
        else:
            # A link to the root is another spelling of it, whoever was the first to open it.
            both = (*engine.store.spellings, *opened.spellings)
            engine.store.spellings = tuple(dict.fromkeys(both))
    return engine, None if look is None else (marks.get(engine, marks[None]), look)


def shared_engine(key: tuple[object, ...], make: Callable[[], E]) -> E:
    """The engine that is open in this process under a key, or a new one."""
    with _lock:
        engine = _engines.get((os.getpid(), *key))
        if engine is None:
            engine = _engines[(os.getpid(), *key)] = make()
        return cast("E", engine)


def _revision_of(path: Path | None) -> int:
    """The revision of an index; 0 where there is none, or none that can be read."""
    if path is None or not os.path.exists(path):  # unlike `Path.exists`, whatever the permissions
        return 0
    with contextlib.suppress(sqlite3.Error, SkillFSError):
        return Journal(Database(path)).revision()
    return 0


def store_argument(store: object, fo: object, target_protocol: str | None) -> object:
    """The store from the arguments that may name it: our own, and those of a chained URL.

    Raises:
        InvalidArgumentError: None names it, or two name different ones.
    """
    if store is None:
        store = fo
    elif fo is not None and fo != store:
        raise InvalidArgumentError("store and fo name two stores; pass one of them")
    if store is None:
        raise InvalidArgumentError("which store? pass the folder that holds the skill folders")
    if target_protocol in (None, "file", "local"):
        return store  # as it is: `open_store` says what is wrong with it, and a `Path` is always local
    text = _path_text(store, "store", empty=target_protocol is not None)
    return text if _SCHEME.match(text) else f"{target_protocol}://{text}"


def open_store(
    store: object,
    *,
    fs: object = None,
    target_options: Mapping[str, object] | None = None,
    follow: Sequence[str | os.PathLike[str]] = (),
) -> LocalStore | RemoteStore:
    """Open a store.

    Args:
        store: A local folder, or as text a URL of any filesystem that fsspec knows, chained or not; with
            `fs`, a path in that.
        fs: A filesystem of fsspec.
        target_options: Options for the filesystem of the URL, as fsspec takes them.
        follow: Folders outside a local store into which its links may lead.

    Raises:
        InvalidArgumentError: An argument is malformed, or a library is missing.
        NotFoundError: There is no such folder.
        IsFileError: It is a file.
        UnreadableError: It may not be read.
    """
    if isinstance(follow, str | bytes | os.PathLike) or not isinstance(follow, Sequence):
        raise InvalidArgumentError(f"follow takes a list of folders, not {quoted(follow)}")
    text = "" if store is None and fs is not None else _path_text(store, "store", empty=fs is not None)
    if fs is None and (isinstance(store, os.PathLike) or not is_url(text)):
        if target_options:
            raise InvalidArgumentError(
                f"a local store takes no option {quoted(next(iter(target_options)))}; leave it away"
            )
        return LocalStore(_plain(text), [_path_text(folder, "follow") for folder in follow])
    from skillfs.stores.targets import open_target

    found = open_target(text, fs, dict(target_options or {}))
    if isinstance(found, str):
        return LocalStore(_plain(found), [_path_text(folder, "follow") for folder in follow])
    if follow:
        raise InvalidArgumentError("follow is for the links of a local store; leave it away")
    return found


_SCHEME = re.compile(r"([A-Za-z0-9][A-Za-z0-9+._-]*)://")
_LOCAL = ("file", "local")


def is_url(text: str) -> bool:
    """Whether a store is named by a URL that is not of a local folder.

    It begins with a protocol and `://`, or is chained and begins with a protocol that fsspec knows: the names
    of local folders may hold `://`, `::` and `@` wherever they like, after `./` at the start too.
    """
    if named := _SCHEME.match(text):
        return named[1] not in _LOCAL
    first, chained, _ = text.partition("::")
    if not chained:
        return False
    from fsspec import available_protocols

    return first in available_protocols() and first not in _LOCAL


def _plain(path: str) -> str:
    """A local path in which nothing looks like a protocol."""
    scheme = _SCHEME.match(path)
    rest = path[scheme.end() :] if scheme and scheme[1] in _LOCAL else path
    return re.sub("/{2,}", "/", rest)


def _path_text(value: object, argument: str, *, empty: bool = False) -> str:
    """A path that a caller gave, as text that the system can take.

    Raises:
        InvalidArgumentError: It is none; naming the argument.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or (not text and not empty) or "\0" in text:
        raise InvalidArgumentError(f"{argument} is {quoted(value)}; pass a path, as text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{argument} is {quoted(text)}, which is not valid Unicode") from None
    return text


def data_folder() -> Path:
    """The folder for what skillfs keeps for this user, readable by nobody else."""
    from platformdirs import user_data_path

    return Path(user_data_path("skillfs", appauthor=False))


def store_namespace(store: LocalStore | RemoteStore, store_id: str | None) -> uuidlib.UUID:
    """The identity of a store: as given, as its `.skillfs/store.json` says, or derived from its URL.

    Raises:
        InvalidArgumentError: What was given, or what the file says, is no UUID; or it is no file, or lies
            behind a link.
        UnreadableError: The file may not be read.
        StoreUnavailableError: It cannot be read now.
    """
    if store_id is not None:
        try:
            return uuidlib.UUID(str(store_id))
        except ValueError:
            raise InvalidArgumentError(f"store_id is {quoted(store_id)}; pass a UUID") from None
    written = _written_id(store)
    return written if written is not None else _derived_id(store)


def _derived_id(store: Store) -> uuidlib.UUID:
    return uuidlib.uuid5(uuidlib.NAMESPACE_URL, store.url)


def _written_id(store: Store) -> uuidlib.UUID | None:
    try:
        with store.open(Place(0, STORE_FILE)) as handle:
            data = handle.read(0, _MOST_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        if error.errno in (errno.ELOOP, errno.EISDIR):
            raise InvalidArgumentError(
                f"{STORE_FILE} in the store is a folder or a link, or lies behind one; replace it by a file"
            ) from error
        # To go on without it would give every entry another identity.
        if (full := no_handle_left(error)) is not None:
            raise full from error
        if error.errno in (errno.EACCES, errno.EPERM):
            message = f"{STORE_FILE} may not be read by this user; mend its permissions"
            raise UnreadableError(message) from error
        raise StoreUnavailableError(f"{STORE_FILE} cannot be read now; try again") from error
    try:
        return uuidlib.UUID(json.loads(data)["store_id"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidArgumentError(
            f"{STORE_FILE} in the store holds no store_id that is a UUID; mend it, or remove it "
            "and run: skillfs init"
        ) from None


def _index_path(
    store: LocalStore | RemoteStore, index: str | os.PathLike[str] | None, rules: IgnoreRules
) -> Path | None:
    if index is None:
        if store.url.startswith("memory:"):
            return None  # what ends with the process needs no index that outlives it
        # Another ignore list or another set of followed folders shows another store: it has its own index.
        return default_index(store.url, store.account, rules.extra, store.followed)
    path = index_file(index)
    for folder in () if path is None else path.parents:
        if isinstance(store, RemoteStore) or not folder.is_relative_to(store.root):
            break
        if os.path.isfile(folder / SKILL_MD):
            raise InvalidArgumentError(
                f"index {quoted(os.fspath(index))} lies in a skill; keep it outside of all skills"
            )
    return path


def default_index(
    url: str, account: str = "", ignore: Sequence[str] = (), followed: Sequence[str] = ()
) -> Path:
    """The index file of a store for which none is named.

    Another endpoint, or another user, who may see another bucket under the same name, has its own.
    """
    identity = json.dumps([url, ignore, followed, *([account] if account else [])])
    return private_folder() / (hashlib.sha256(identity.encode()).hexdigest()[:32] + ".sqlite")


def index_file(index: str | os.PathLike[str]) -> Path | None:
    """The index file that was named; None for `":memory:"`.

    Raises:
        InvalidArgumentError: It is no path, or relative to a folder that is gone.
    """
    text = _path_text(index, "index")
    if text == ":memory:":
        return None
    try:
        return Path(os.path.realpath(os.path.expanduser(text)))
    except OSError as error:
        raise InvalidArgumentError(
            f"index {quoted(text)} is relative, and the working folder is not there any more; "
            "change to another, or pass an absolute path"
        ) from error


def private_folder() -> Path:
    """The folder of the indexes, which only their user can enter, whoever made it and when."""
    folder = data_folder()
    indexes = folder / "indexes"
    # Where this fails, opening the index in it says what is wrong.
    with contextlib.suppress(OSError):
        indexes.mkdir(mode=0o700, parents=True, exist_ok=True)
        for own in (folder, indexes):
            if stat.S_IMODE(own.stat().st_mode) != 0o700:
                own.chmod(0o700)
    return indexes


def write_store_id(store: LocalStore | RemoteStore, namespace: uuidlib.UUID) -> bool:
    """Write a store's identity into it, so that copies of the store agree on identities.

    Returns:
        False when it had one already.

    Raises:
        InvalidArgumentError: The store's folder cannot be written.
    """
    text = json.dumps({"store_id": str(namespace)}, indent=2) + "\n"
    if isinstance(store, RemoteStore):
        sink = store.create(Place(0, STORE_FILE), exclusive=True)
        try:
            sink.write(text.encode())
            sink.commit()
        except FileExistsError:
            return False
        except PermissionError as error:
            raise InvalidArgumentError(
                f"{STORE_FILE} cannot be written with these credentials; pass others"
            ) from error
        return True
    folder = Path(store.root) / STORE_FOLDER
    try:
        folder.mkdir(exist_ok=True)
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise InvalidArgumentError(f"{STORE_FOLDER} in the store is a link; replace it by a folder")
        temporary = folder / f".store.json.{os.getpid()}"
        temporary.write_text(text)
        try:
            os.link(temporary, folder / "store.json")
        finally:
            temporary.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        raise InvalidArgumentError(
            f"{STORE_FILE} cannot be written ({error.strerror}); check the store's permissions"
        ) from error
    return True
