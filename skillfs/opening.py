"""Opens stores and indexes, and lets all filesystems of a process that name the same ones share them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import threading
import uuid as uuidlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.errors import InvalidArgumentError, StoreUnavailableError, UnreadableError, quoted
from skillfs.index.database import MOST_FORK_SECONDS, Database
from skillfs.stores.local import LocalStore
from skillfs.sync.engine import Engine
from skillfs.sync.scan import SKILL_MD

__all__ = ["STORE_FILE", "data_folder", "open_engine", "store_argument", "store_namespace", "write_store_id"]

STORE_FOLDER = ".skillfs"
STORE_FILE = f"{STORE_FOLDER}/store.json"
"""Where a store keeps its own identity, below its root."""

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
) -> Engine:
    """The engine for a store and an index: the one that is open in this process already, or a new one."""
    rules = IgnoreRules(ignore)
    if fs is not None or target_options:
        raise InvalidArgumentError("only local folders are supported so far")
    store = _path_text(store, "store")
    if isinstance(follow, str | bytes | os.PathLike) or not isinstance(follow, Sequence):
        raise InvalidArgumentError(f"follow takes a list of folders, not {quoted(follow)}")
    local = LocalStore(store, [_path_text(folder, "follow") for folder in follow])
    namespace = store_namespace(local, store_id)
    path = _index_path(local, index, rules)
    key = (os.getpid(), local.url, str(path), namespace, rules.extra, local.followed)
    with _lock:
        engine = _engines.get(key)
        if engine is None:
            title = os.path.basename(local.root) or "/"
            engine = _engines[key] = Engine(local, Database(path), Namespace(namespace), rules, title)
        return engine


def store_argument(store: object, fo: object, target_protocol: str | None) -> str:
    """The store's folder from the arguments that may name it: our own, and those of a chained URL.

    Raises:
        InvalidArgumentError: None names it, two name different ones, or it is none that is supported.
    """
    if store is None:
        store = fo
    elif fo is not None and fo != store:
        raise InvalidArgumentError("store and fo name two stores; pass one of them")
    if store is None:
        raise InvalidArgumentError("which store? pass the folder that holds the skill folders")
    if target_protocol not in (None, "file", "local"):
        raise InvalidArgumentError(
            f"stores over {quoted(target_protocol)} are not supported; only local folders are"
        )
    return _path_text(store, "store")


def _path_text(value: object, argument: str) -> str:
    """A path that a caller gave, as text that the system can take.

    Raises:
        InvalidArgumentError: It is none; naming the argument.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
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


def store_namespace(store: LocalStore, store_id: str | None) -> uuidlib.UUID:
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
    return written if written is not None else uuidlib.uuid5(uuidlib.NAMESPACE_URL, store.url)


def _written_id(store: LocalStore) -> uuidlib.UUID | None:
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


def _index_path(store: LocalStore, index: str | os.PathLike[str] | None, rules: IgnoreRules) -> Path | None:
    if index is None:
        # Another ignore list or another set of followed folders shows another store: it has its own index.
        identity = json.dumps([store.url, rules.extra, store.followed])
        return _private_folder() / (hashlib.sha256(identity.encode()).hexdigest()[:32] + ".sqlite")
    text = _path_text(index, "index")
    if text == ":memory:":
        return None
    path = Path(os.path.realpath(os.path.expanduser(text)))
    for folder in path.parents:
        if not folder.is_relative_to(store.root):
            break
        if (folder / SKILL_MD).exists():
            raise InvalidArgumentError(f"index {quoted(text)} lies in a skill; keep it outside of all skills")
    return path


def _private_folder() -> Path:
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


def write_store_id(store: LocalStore, namespace: uuidlib.UUID) -> bool:
    """Write a store's identity into it, so that copies of the store agree on identities.

    Returns:
        False when it had one already.

    Raises:
        InvalidArgumentError: The store's folder cannot be written.
    """
    folder = Path(store.root) / STORE_FOLDER
    try:
        folder.mkdir(exist_ok=True)
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise InvalidArgumentError(f"{STORE_FOLDER} in the store is a link; replace it by a folder")
        text = json.dumps({"store_id": str(namespace)}, indent=2) + "\n"
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
