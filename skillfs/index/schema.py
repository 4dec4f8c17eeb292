"""The tables of an index, and the stamps that say whose they are."""

from __future__ import annotations

__all__ = [
    "APPLICATION_ID",
    "ENTRY_INDEXES",
    "FACTS_SCHEMA",
    "FACTS_VERSION",
    "IDENTITY_SCHEMA",
    "IDENTITY_VERSION",
]

APPLICATION_ID = 0x534B4653  # "SKFS"
IDENTITY_VERSION = 2
FACTS_VERSION = 5

IDENTITY_SCHEMA = """
CREATE TABLE identity (
    namespace BLOB NOT NULL,
    path TEXT NOT NULL,
    uuid BLOB,
    id INTEGER,
    births INTEGER NOT NULL,
    removed REAL,
    PRIMARY KEY (namespace, path)
) STRICT, WITHOUT ROWID;
"""

FACTS_SCHEMA = """
CREATE TABLE facts.meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE facts.entry (
    key INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    visible INTEGER NOT NULL,
    id INTEGER,
    uuid BLOB,
    signature BLOB NOT NULL,
    size INTEGER,
    modified INTEGER NOT NULL,
    content BLOB,
    target TEXT
) STRICT;
CREATE TABLE facts.text (
    key INTEGER PRIMARY KEY,
    md5 BLOB,
    encoding TEXT,
    characters INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    reason TEXT,
    reason_at INTEGER,
    grid BLOB
) STRICT;
CREATE TABLE facts.sha256 (key INTEGER PRIMARY KEY, digest BLOB NOT NULL) STRICT;
CREATE TABLE facts.skill (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    front_matter TEXT NOT NULL,
    head BLOB
) STRICT;
CREATE TABLE facts.problem (
    folder INTEGER NOT NULL,
    name TEXT NOT NULL,
    code TEXT NOT NULL,
    severity TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE TABLE facts.change (
    revision INTEGER NOT NULL,
    kind TEXT NOT NULL,
    uuid BLOB NOT NULL,
    path TEXT NOT NULL,
    old_path TEXT,
    skill BLOB,
    skill_path TEXT,
    old_skill BLOB,
    old_skill_path TEXT,
    content BLOB,
    old_content BLOB
) STRICT;
CREATE INDEX facts.change_revision ON change (revision);
CREATE INDEX facts.skill_name ON skill (name);
CREATE INDEX facts.problem_folder ON problem (folder);
CREATE INDEX facts.text_md5 ON text (md5);
CREATE INDEX facts.sha256_digest ON sha256 (digest);
CREATE INDEX facts.entry_kind ON entry (kind) WHERE kind=1 OR kind=3;
CREATE INDEX facts.entry_on_the_way ON entry (kind) WHERE visible=2;
CREATE INDEX facts.entry_target ON entry (key) WHERE target IS NOT NULL;
CREATE INDEX facts.problem_code ON problem (code);
CREATE INDEX facts.entry_unreadable ON entry (kind) WHERE kind=2 AND content IS NULL;
"""

ENTRY_INDEXES = (
    "CREATE UNIQUE INDEX IF NOT EXISTS facts.entry_name ON entry (parent, name)",
    "CREATE UNIQUE INDEX IF NOT EXISTS facts.entry_id ON entry (id) WHERE id IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS facts.entry_content ON entry (content) WHERE content IS NOT NULL",
)
"""Made after the rows of a first opening: inserting into them row by row costs half as much again."""
