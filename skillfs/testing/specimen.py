"""The tree that every store is tried with: a little of everything that is met in skill folders."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["BIG", "INVISIBLE", "MALFORMED", "SMALL", "SPECIMEN", "skill_md"]


def skill_md(name: str, description: str = "Something to do.", body: str = "# Title\n") -> str:
    """The text of a flawless `SKILL.md`."""
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


# Eleven bytes a line, so that every 4,096th byte falls elsewhere in it, within characters of two, three and
# four bytes too.
_BIG = "é数😀a\n" * 27_300

_TEXTS: dict[str, str | bytes] = {
    "empty.txt": "",
    "one-character.txt": "é",
    "no-final-newline.txt": "one\ntwo",
    "only-newlines.txt": "\n\n\n",
    "crlf.md": "# Title\r\n\r\none\r\ntwo\r\n",
    "lone-returns.txt": "one\rtwo\r",
    "other-separators.txt": "a\x1cb\x85c\u2028d\u2029e\x0bf\x0cg\n",
    "byte-order-mark.md": b"\xef\xbb\xbf# Title\n",
    "utf-16-le.txt": "\ufeffé数😀\nzwei\n".encode("utf-16-le"),
    "utf-16-be.txt": "\ufeffé数😀\nzwei\n".encode("utf-16-be"),
    "utf-32.txt": "\ufeffé数😀\n".encode("utf-32-le"),
    "utf-16-cut.txt": "\ufeffé数".encode("utf-16-le")[:-1],
    "latin-1.txt": "Gr\xfc\xdfe\n".encode("latin-1"),
    "bad-at-the-end.md": b"# Good for long\n" * 600 + b"\xff\n",
    "cut-character.txt": "数".encode()[:-1],
    "surrogate.txt": b"\xed\xa0\x80",
    "nul.txt": b"text\0text",
    "random.bin": random.Random(7).randbytes(100_000),
    "markers.txt": (
        "=== FILE METADATA ===\nuuid: x\n=== FILE CONTENT ===\nno\n=== END OF FILE ===\n\n=== END OF FILE ==="
    ),
    "big.md": _BIG,
    "big-ascii.txt": "".join(f"line {number}\n" for number in range(4_000)),
}

_NAMES = (
    *("a b.md", " blank-first.md", "blank-last.md ", "100%.md", "%41.md", "q?x=1.md", "[x].md", "*.md"),
    *("{a,b}.md", "~tilde.md", "$HOME.md", "back\\slash.md", 'quote".md', "+plus.md", "#hash.md"),
    *("a&b<c>.md", "x;y=z.md"),
    *("2024", "no-extension", "two..dots.md", "日本語/数据.md", "😀.md", "Case.md", "case.md", "z/SKILL.txt"),
    # One composed, one decomposed, and two that differ in that alone.
    *("caf\u00e9.md", "nai\u0308ve.md", "\u00c5.md", "A\u030a.md"),
    "n" * 250 + ".md",
)

_BROKEN: dict[str, str | bytes] = {
    "missing": "# No front matter\n\nThe first paragraph\nof two lines.\n\nAnother.\n",
    "unclosed": "---\nname: unclosed\ndescription: Never ends.\n",
    "only-a-fence": "---\n",
    "empty-block": "---\n---\n# Title\n",
    "yaml": "---\nname: [yaml\ndescription: }\n---\nText.\n",
    "colon": "---\nname: colon\ndescription: Use when: this is needed\n---\n",
    "twice": "---\nname: twice\nname: other\ndescription: Two names.\n---\n",
    "nameless": "---\ndescription: Without a name.\n---\n",
    "bad-name": "---\nname: Bad Name/\ndescription: A name that is none.\n---\n",
    "elsewhere": skill_md("another-folder"),
    "wordless": "---\nname: wordless\n---\nThe first paragraph.\n",
    "wordy": skill_md("wordy", "x" * 1_100),
    "unknown": "---\nname: unknown\ndescription: A key too many.\ncolour: green\n---\n",
    "wrong-type": "---\nname: wrong-type\ndescription:\n  - a list\nmetadata: none\n---\n",
    "alias": "---\nname: &a alias\ndescription: *a\n---\n",
    "tag": "---\nname: !!python/object/apply:os.getcwd []\ndescription: x\n---\n",
    "scalars": "---\nname: no\ndescription: 1.10\nmetadata:\n  version: 2024-01-01\n  on: yes\n---\n",
    "crlf": skill_md("crlf").replace("\n", "\r\n"),
    "byte-order-mark": b"\xef\xbb\xbf" + skill_md("byte-order-mark").encode(),
    "utf-16": skill_md("utf-16").encode("utf-16"),
    "latin-1": skill_md("latin-1", "Gr\xfc\xdfe").encode("latin-1"),
    "empty": "",
    "binary": bytes(range(256)) * 8,
    "large": skill_md("large", body="# Title\n" + "A long text, é and all.\n" * 5_000),
    "large-block": "---\nname: large-block\ndescription: x\n"
    + "".join(f"k{n}: v\n" for n in range(9_000))
    + "---\n",
    "unseen": skill_md("unseen", "Zero\u200bwidth\U000e0041 and \u202eturned."),
    "multiline": "---\nname: multiline\ndescription: >\n  Folded\n  text.\n---\n",
}

_FILES: dict[str, str | bytes] = {
    # A skill with everything.
    "pdf/SKILL.md": (
        "---\nname: pdf\ndescription: Reads PDF files, and fills <forms> & tables.\nlicense: MIT\n"
        "compatibility: Needs Python\nallowed-tools: Bash(pdf:*) Read\nmetadata:\n  author: somebody\n"
        '  version: "1.10"\n---\n# PDF\n\n## Tables\n\nText.\n'
    ),
    "pdf/references/guide.md": "# Guide\n\nÜber alles.\n",
    "pdf/references/deep/er/notes.md": "notes\n",
    "pdf/scripts/run.py": "print('run')\n",
    "pdf/.hidden": "hidden\n",
    "pdf/.config/settings.md": "settings\n",
    "pdf/.env.example": "KEY=\n",
    **{f"pdf/texts/{name}": content for name, content in _TEXTS.items()},
    **{f"names/{name}": f"content of {number}\n" for number, name in enumerate(_NAMES)},
    "names/SKILL.md": skill_md("names"),
    # Skills in skills, in folders, with the same content and the same name.
    "suite/SKILL.md": skill_md("suite", "Holds others."),
    "suite/own.md": "own\n",
    "suite/inner/SKILL.md": skill_md("inner"),
    "suite/inner/data.md": "same\n",
    "suite/inner/deeper/still/SKILL.md": skill_md("still"),
    "suite/inner/deeper/still/data.md": "same\n",
    "suite/inner/deeper/beside.md": "beside\n",
    "office/word/SKILL.md": skill_md("word", "Writes letters."),
    "office/word/same.md": "same\n",
    "office/excel/SKILL.md": skill_md("excel", "Counts."),
    "office/notes.txt": "in no skill\n",
    "old/word/SKILL.md": skill_md("word", "Wrote letters."),
    # Names that read as an id, and as something else.
    "8004/SKILL.md": skill_md("8004"),
    "8004/2024": "digits\n",
    "md5:x/SKILL.md": skill_md("md5-x"),
    **{f"broken/{name}/SKILL.md": content for name, content in _BROKEN.items()},
    "broken/lower/skill.md": skill_md("lower"),
    # What nobody sees.
    "README.md": "in no skill\n",
    "loose/notes.md": "in no skill\n",
    "loose/deep/er/x.md": "in no skill\n",
    "pdf/.env": "SECRET=1\n",
    "pdf/key.pem": "secret\n",
    "pdf/id_rsa": "secret\n",
    "pdf/node_modules/left/index.md": "ignored\n",
    "pdf/.git/HEAD": "ignored\n",
    "pdf/__pycache__/run.pyc": b"ignored",
    "pdf/draft.md~": "ignored\n",
    "node_modules/kit/SKILL.md": skill_md("kit"),
}

SPECIMEN: Mapping[str, bytes] = MappingProxyType(
    {path: text.encode() if isinstance(text, str) else text for path, text in _FILES.items()}
)
"""Path to content of every file."""

BIG = "pdf/texts/big.md"
"""Path of a text that is longer than one block, with characters of every length in UTF-8."""

SMALL = {
    "a/SKILL.md": skill_md("a").encode(),
    "a/one.md": b"one\n",
    "a/two.md": b"two\n" * 2_000,
    "a/sub/only.md": b"only\n",
    "b/SKILL.md": skill_md("b").encode(),
    "b/three.md": b"three\n",
    "loose/four.md": b"four\n",
}
"""What tests of changes begin with; no two files have the same content, so no store takes one for a move."""


INVISIBLE = (
    *("README.md", "loose", "loose/notes.md", "office/notes.txt", "broken/lower", "broken/lower/skill.md"),
    *("pdf/.env", "pdf/key.pem", "pdf/id_rsa", "pdf/node_modules", "pdf/node_modules/left/index.md"),
    *("pdf/.git/HEAD", "pdf/__pycache__", "pdf/draft.md~", "node_modules/kit/SKILL.md"),
    *("none", "pdf/none", "pdf/none/", "pdf/SKILL.md/none", "pdf/skill.md", "PDF/SKILL.md", "pd", "pdf/S"),
    *("name:none", "name:kit", 7, "123456789", "0" * 32, "6a1f6f0e-6f0f-5b0e-9c58-2d1f0a0c9b1d"),
    *("https://example.org/pdf/SKILL.md", "s3://other/pdf/SKILL.md", "memory://pdf/SKILL.md", "file:///etc"),
    *("/etc/passwd", "md5:y", "pdf/SKILL.md?versionId=1", "pdf/%53KILL.md"),
)
"""References to what cannot be seen, and to nothing."""

MALFORMED = (
    *("name:", "..", "pdf/..", "pdf/../names", "pdf//SKILL.md", "//pdf", "pdf/./SKILL.md", "pdf/\0"),
    "pdf/\n",
    *(
        "pdf/\x1b[0m",
        "pdf/" + "x" * 256,
        "x/" * 2_100,
        "pdf/\ud800",
        "skill://pdf/%2e%2e/x",
        "skill://%2Fetc",
    ),
    *(None, True, 1.5, b"pdf", ["pdf"], -1),
)
"""References that are none, or that only look like one."""
