#!/usr/bin/env python3
"""Write references/unicode-table.md and references/blocks.md from Python's own Unicode database."""

from __future__ import annotations

import unicodedata
from pathlib import Path

REFERENCES = Path(__file__).resolve().parent.parent / "references"

# First and last code point and name, as in the Unicode file Blocks.txt; a selection: scripts and symbols
# that turn up in source text, interface strings and documents. Ideographs and Hangul syllables have no
# names worth a table.
BLOCKS = (
    (0x0000, 0x007F, "Basic Latin"),
    (0x0080, 0x00FF, "Latin-1 Supplement"),
    (0x0100, 0x017F, "Latin Extended-A"),
    (0x0180, 0x024F, "Latin Extended-B"),
    (0x0250, 0x02AF, "IPA Extensions"),
    (0x02B0, 0x02FF, "Spacing Modifier Letters"),
    (0x0300, 0x036F, "Combining Diacritical Marks"),
    (0x0370, 0x03FF, "Greek and Coptic"),
    (0x0400, 0x04FF, "Cyrillic"),
    (0x0500, 0x052F, "Cyrillic Supplement"),
    (0x0530, 0x058F, "Armenian"),
    (0x0590, 0x05FF, "Hebrew"),
    (0x0600, 0x06FF, "Arabic"),
    (0x0900, 0x097F, "Devanagari"),
    (0x0E00, 0x0E7F, "Thai"),
    (0x10A0, 0x10FF, "Georgian"),
    (0x1AB0, 0x1AFF, "Combining Diacritical Marks Extended"),
    (0x1D00, 0x1D7F, "Phonetic Extensions"),
    (0x1DC0, 0x1DFF, "Combining Diacritical Marks Supplement"),
    (0x1E00, 0x1EFF, "Latin Extended Additional"),
    (0x1F00, 0x1FFF, "Greek Extended"),
    (0x2000, 0x206F, "General Punctuation"),
    (0x2070, 0x209F, "Superscripts and Subscripts"),
    (0x20A0, 0x20CF, "Currency Symbols"),
    (0x20D0, 0x20FF, "Combining Diacritical Marks for Symbols"),
    (0x2100, 0x214F, "Letterlike Symbols"),
    (0x2150, 0x218F, "Number Forms"),
    (0x2190, 0x21FF, "Arrows"),
    (0x2200, 0x22FF, "Mathematical Operators"),
    (0x2300, 0x23FF, "Miscellaneous Technical"),
    (0x2400, 0x243F, "Control Pictures"),
    (0x2440, 0x245F, "Optical Character Recognition"),
    (0x2460, 0x24FF, "Enclosed Alphanumerics"),
    (0x2500, 0x257F, "Box Drawing"),
    (0x2580, 0x259F, "Block Elements"),
    (0x25A0, 0x25FF, "Geometric Shapes"),
    (0x2600, 0x26FF, "Miscellaneous Symbols"),
    (0x2700, 0x27BF, "Dingbats"),
    (0x27C0, 0x27EF, "Miscellaneous Mathematical Symbols-A"),
    (0x27F0, 0x27FF, "Supplemental Arrows-A"),
    (0x2800, 0x28FF, "Braille Patterns"),
    (0x2900, 0x297F, "Supplemental Arrows-B"),
    (0x2980, 0x29FF, "Miscellaneous Mathematical Symbols-B"),
    (0x2A00, 0x2AFF, "Supplemental Mathematical Operators"),
    (0x2B00, 0x2BFF, "Miscellaneous Symbols and Arrows"),
    (0x2C60, 0x2C7F, "Latin Extended-C"),
    (0x2DE0, 0x2DFF, "Cyrillic Extended-A"),
    (0x2E00, 0x2E7F, "Supplemental Punctuation"),
    (0x2E80, 0x2EFF, "CJK Radicals Supplement"),
    (0x2F00, 0x2FDF, "Kangxi Radicals"),
    (0x2FF0, 0x2FFF, "Ideographic Description Characters"),
    (0x3000, 0x303F, "CJK Symbols and Punctuation"),
    (0x3040, 0x309F, "Hiragana"),
    (0x30A0, 0x30FF, "Katakana"),
    (0x3100, 0x312F, "Bopomofo"),
    (0x3130, 0x318F, "Hangul Compatibility Jamo"),
    (0x3190, 0x319F, "Kanbun"),
    (0x31C0, 0x31EF, "CJK Strokes"),
    (0x3200, 0x32FF, "Enclosed CJK Letters and Months"),
    (0x3300, 0x33FF, "CJK Compatibility"),
    (0x4DC0, 0x4DFF, "Yijing Hexagram Symbols"),
    (0xA640, 0xA69F, "Cyrillic Extended-B"),
    (0xA700, 0xA71F, "Modifier Tone Letters"),
    (0xA720, 0xA7FF, "Latin Extended-D"),
    (0xFB00, 0xFB4F, "Alphabetic Presentation Forms"),
    (0xFE00, 0xFE0F, "Variation Selectors"),
    (0xFE10, 0xFE1F, "Vertical Forms"),
    (0xFE20, 0xFE2F, "Combining Half Marks"),
    (0xFE30, 0xFE4F, "CJK Compatibility Forms"),
    (0xFE50, 0xFE6F, "Small Form Variants"),
    (0xFF00, 0xFFEF, "Halfwidth and Fullwidth Forms"),
    (0xFFF0, 0xFFFF, "Specials"),
    (0x1D400, 0x1D7FF, "Mathematical Alphanumeric Symbols"),
    (0x1F000, 0x1F02F, "Mahjong Tiles"),
    (0x1F030, 0x1F09F, "Domino Tiles"),
    (0x1F0A0, 0x1F0FF, "Playing Cards"),
    (0x1F100, 0x1F1FF, "Enclosed Alphanumeric Supplement"),
    (0x1F200, 0x1F2FF, "Enclosed Ideographic Supplement"),
    (0x1F300, 0x1F5FF, "Miscellaneous Symbols and Pictographs"),
    (0x1F600, 0x1F64F, "Emoticons"),
    (0x1F650, 0x1F67F, "Ornamental Dingbats"),
    (0x1F680, 0x1F6FF, "Transport and Map Symbols"),
    (0x1F700, 0x1F77F, "Alchemical Symbols"),
    (0x1F780, 0x1F7FF, "Geometric Shapes Extended"),
    (0x1F800, 0x1F8FF, "Supplemental Arrows-C"),
    (0x1F900, 0x1F9FF, "Supplemental Symbols and Pictographs"),
    (0x1FA70, 0x1FAFF, "Symbols and Pictographs Extended-A"),
    (0xE0000, 0xE007F, "Tags"),
)

# The database has no names for controls; these are the ones met in files.
CONTROLS = {
    0x00: "NULL", 0x07: "BELL", 0x08: "BACKSPACE", 0x09: "CHARACTER TABULATION", 0x0A: "LINE FEED",
    0x0B: "LINE TABULATION", 0x0C: "FORM FEED", 0x0D: "CARRIAGE RETURN", 0x1B: "ESCAPE", 0x7F: "DELETE",
    0x85: "NEXT LINE",
}  # fmt: skip


# Invisible in spite of their category: the grapheme joiner and two fillers.
BLANK_LETTERS = "\u034f\u3164\uffa0"


def shown(character: str) -> str:
    """Return the character in a form that cannot disturb the line it stands on."""
    category = unicodedata.category(character)
    if category[0] in "CZ" or 0xFE00 <= ord(character) <= 0xFE0F or character in BLANK_LETTERS:
        return "–"
    if category[0] == "M":
        return "◌" + character
    return character


def row(code: int) -> str | None:
    """Return the table's line for a code point, or None if nothing is assigned to it."""
    character = chr(code)
    category = unicodedata.category(character)
    name = unicodedata.name(character, "")
    if not name:
        if category != "Cc":
            return None
        name = f"<control> {CONTROLS.get(code, '')}".rstrip()
    return f"U+{code:04X}\t{shown(character)}\t{category}\t{name}\n"


def main() -> None:
    """Write both files."""
    parts = [
        f"# Unicode {unicodedata.unidata_version}: code point, character, category, name\n\n"
        "Tab-separated, in the order of code points, one heading per block. A dash (–) stands in for characters that\n"
        "are invisible or would disturb the line; combining marks sit on a dotted circle (◌).\n"
    ]
    position, line = len(parts[0]), parts[0].count("\n") + 1
    index = [
        "# Where each block starts in unicode-table.md\n\n"
        "`start` and `length` count characters (code points), `line` counts from 1 and is the heading's line.\n\n"
        "| block | from | to | rows | start | length | line |\n|---|---|---|---|---|---|---|\n"
    ]
    for first, last, name in BLOCKS:
        rows = [text for code in range(first, last + 1) if (text := row(code)) is not None]
        heading = f"\n## {name} (U+{first:04X}–U+{last:04X})\n\n"
        section = heading[1:] + "".join(rows)
        position, line = position + 1, line + 1
        index.append(
            f"| {name} | U+{first:04X} | U+{last:04X} | {len(rows)} | {position} | {len(section)} | {line} |\n"
        )
        parts.append("\n" + section)
        position, line = position + len(section), line + section.count("\n")
    REFERENCES.mkdir(exist_ok=True)
    for file_name, text in (("unicode-table.md", "".join(parts)), ("blocks.md", "".join(index))):
        (REFERENCES / file_name).write_text(text, encoding="utf-8", newline="\n")
        print(f"{file_name}: {len(text)} characters, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
