"""The one JSON object in a text: found in prose and fences, mended where that is safe, refused elsewhere."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs import InvalidArgumentError, SkillFSError
from skillfs.tools.json_text import MOST_CHARACTERS, MOST_LEVELS, JsonObject, Repair, find_object

PAYLOAD = '{"action": "read_file", "properties": [{"name": "filePath", "value": "a/b"}]}'
VALUE = json.loads(PAYLOAD)


def found(text: str) -> JsonObject:
    return find_object(text, "action", ("thinking", "sequential"))


def refused(text: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        found(text)
    return caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        PAYLOAD,
        f"\n\t {PAYLOAD} \r\n",
        f"```json\n{PAYLOAD}\n```",
        f'~~~~ {{.json title="x"}}\r\n{PAYLOAD}\r\n~~~~\r\n',
        f"I'd like {{x}}, {{}} and {{ a: 1 }}:\n```\n{PAYLOAD}\n```\nThanks {{y}}!",
        f"```python\nd = {{'a': [1, 2}}, {{**x}}\n```\n\n```json\n{PAYLOAD}",
        f'```json\n{{"name": "other", "properties": {{}}}}\n```\n{PAYLOAD}',
        f'{{"name": "breaks off", // a comment\n}}\n{PAYLOAD}',
        f'He wrote {{" and "{{" and then {PAYLOAD}',
        f"[{PAYLOAD}]",
        f"({PAYLOAD},)",
        f"\ufeff{PAYLOAD}",
        f"\ufeff\ufeff prose {PAYLOAD}\ufeff",
        "".join(f"{token}\r\n" for token in PAYLOAD.split(" ")),
    ],
)
def test_it_is_found(text: str) -> None:
    assert found(text) == JsonObject(VALUE, ())


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), json_values, max_size=4).map(
    lambda members: {**members, "action": "read_file"}
)
odd_strings = st.lists(st.sampled_from([*'{}[],:"\\`~\n\t ', "```", ",}", ',"', "action"]), max_size=30).map(
    "".join
)
odd_objects = st.dictionaries(st.text(max_size=3), odd_strings, max_size=3).map(
    lambda m: {"action": "x", **m}
)
prose = st.text(st.characters(codec="utf-8", exclude_characters='\0"'), max_size=40)


@given(objects | odd_objects, prose, prose, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_any_object_survives_prose_and_fences(
    value: dict[str, Any], before: str, behind: str, indent: Any, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for around in (text, f"{before}{text}{behind}", f"{before}\n```json {{x}}\n{text}\n```\n{behind}"):
        assert found(around) == JsonObject(value, ())


@given(st.text() | st.text("{}[]\",:\\ \n'ab1-.eE+tnulfase\ufeff\0\ud800", max_size=60))
def test_any_text_is_answered_or_refused(text: str) -> None:
    try:
        answer = found(text)
    except SkillFSError as error:
        error.message.encode()
    else:
        assert "action" in answer.value


def written(value: object, comma: Callable[[bool], str]) -> str:
    """JSON in which a function chooses what stands behind every member, told whether it is the last."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {written(each, comma)}" for name, each in value.items()]
    else:
        parts = [written(each, comma) for each in value]
    inside = "".join(part + comma(number == len(parts)) for number, part in enumerate(parts, 1))
    return f"{{{inside}}}" if isinstance(value, dict) else f"[{inside}]"


texts_only = st.recursive(
    odd_strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), texts_only, max_size=3), st.data())
def test_what_is_mended_equals_the_original(members: dict[str, Any], data: st.DataObject) -> None:
    value = {"action": "x", **members}
    wrong = []

    def comma(last: bool) -> str:
        if not data.draw(st.booleans()):
            return "" if last else ", "
        wrong.append("trailing comma" if last else "missing comma")
        return data.draw(st.sampled_from([",", " , ", ",\n"] if last else [" ", "\n", ""]))

    answer = found(f"Here: {written(value, comma)}.")
    assert answer.value == value
    assert sorted(repair.fault for repair in answer.repairs) == sorted(wrong)


def test_repairs_tell_where() -> None:
    text = '```\r\n{"action": "x"\r\n "b": [{"c": 1} {"d": [1,],}],\r}\n```'
    assert found(text) == JsonObject(
        {"action": "x", "b": [{"c": 1}, {"d": [1]}]},
        (
            Repair("missing comma", 2, 15),
            Repair("missing comma", 3, 16),
            Repair("trailing comma", 3, 25),
            Repair("trailing comma", 3, 27),
            Repair("trailing comma", 3, 30),
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: a JSON object was expected, not the end of the text"),
        ("\n\n nothing here", 'line 3, column 2: a JSON object was expected, not "n"'),
        ('"action"', "line 1, column 1: a JSON object"),
        ("{}", 'the object at line 1, column 1 has no member "action"'),
        ('see {"properties": []}', 'the object at line 1, column 5 has no member "action"'),
        ('{"a": 1} {"b": 2}', 'the object at line 1, column 1 has no member "action"'),
        ('{"call": {"action": "read_file"}}', 'the object at line 1, column 1 has no member "action"'),
        ("{'action': 'x'}", "line 1, column 2: a name in double quotes was expected, not \"'\""),
        ('{"b": 1, // x\n"a": {x}}, {action: 1}', "line 2, column 13: a name in double quotes"),
        ("\ufeff{'action': 'x'}", "line 1, column 2: a name in double quotes was expected"),
        ('{"action": 1 {"b": 1}}', "column 14: a comma or the end of the object or list was"),
        ("{“action”: 1}", 'line 1, column 2: a name in double quotes was expected, not "“"'),
        ('{"action" "x"}', r'line 1, column 11: a ":" was expected, not "\""'),
        ('{"action": NaN}', 'line 1, column 12: a value (text in double quotes, say) was expected, not "N"'),
        ('{"action": -Infinity}', 'column 12: a value (text in double quotes, say) was expected, not "-"'),
        ('{"action": "x", /* y */ "b": 1}', 'column 17: a name in double quotes was expected, not "/"'),
        ('{"action": "x",, "b": 1}', 'column 16: a name in double quotes was expected, not ","'),
        ('{,"action": "x"}', 'column 2: a name in double quotes was expected, not ","'),
        ('{"action": [1 2]}', 'column 15: a comma or the end of the object or list was expected, not "2"'),
        ('{"action": 01}', 'column 13: a comma or the end of the object or list was expected, not "1"'),
        ('{"action": [1}', 'column 14: a comma or the end of the object or list was expected, not "}"'),
        ('{"action": }', 'column 12: a value (text in double quotes, say) was expected, not "}"'),
        ('{"action": "x"', "column 15: a comma or the end of the object or list was expected, not the end"),
        ('{"action": "x', "column 14: the text ends inside a string"),
        ('{"action": "x\ny"}', "column 14: a line break or another control character stands in a string"),
        ('{"action": "x\\y"}', "column 14: there is no such escape in JSON"),
        ('{"action": "\\u12"}', "column 13: there is no such escape in JSON"),
        ('{"action": "\\ud800"}', "column 12: the string holds an unpaired surrogate"),
        ('{"action": 1,\n "b": {"c": 1, "c": 2}}', 'line 2, column 16: the name "c" stands twice'),
        ('{"action": 1, "\\u0061ction": 2}', 'column 15: the name "action" stands twice in one object'),
        ('{"action": 1e999}', "column 12: the number is larger than any"),
        ('{"action": ' + "9" * 641 + "}", "column 12: the number has over 640 digits"),
        ('{"action": "x"}\0', "the text holds NUL at line 1, column 16"),
        ("a\r\rb\ud83dc", "the text holds an unpaired surrogate at line 3, column 2"),
        (PAYLOAD + "\n" + PAYLOAD, "two objects have a member \"action\", at line 1, column 1 and at line 2"),
        ('{"thinking": \'x\'} ' + PAYLOAD, "line 1, column 14: a value"),
        (PAYLOAD + '{"sequential": x}', "line 1, column 93: a value"),
        (PAYLOAD + "{'action': 1}" + PAYLOAD, "at line 1, column 1 and at line 1, column 91"),
        (PAYLOAD + ', "thinking": "x"}', "line 1, column 80: a member stands behind the end of the object"),
        (PAYLOAD + '}]\n"thinking" : "x"', "line 2, column 1: a member stands behind the end of the object"),
        (PAYLOAD + " {action: 1}", "line 1, column 80: a name in double quotes was expected, not \"a\""),
        ("{'action' : 'x'}\n" + PAYLOAD, "line 1, column 2: a name in double quotes was expected, not \"'\""),
        (PAYLOAD + "{“action”: 1}", "column 79: a name in double quotes was expected, not \"“\""),
        (PAYLOAD + '{\u00a0"action": 1}', "column 79: a name in double quotes was expected, not \"\\u00a0\""),
        (" " * (MOST_CHARACTERS + 1), "the text has over 1,048,576 characters"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_place(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize(
    "prose",
    ["{action}", "the {action} of it: {x}", "{ 'action' }", "{actions: 1}", "action: {}", "}", '"said"'],
)
def test_what_only_speaks_of_one_is_prose(prose: str) -> None:
    assert found(f"{prose} {PAYLOAD} {prose}").value == json.loads(PAYLOAD)
    inside = json.dumps({"action": prose, "thinking": "{action: 1} {'action': 1}"})
    assert found(inside).value == json.loads(inside)


def test_many_broken_objects_take_no_more_memory_than_one() -> None:
    tracemalloc.start()
    try:
        refused('{"a":1,' * 10_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


def test_what_breaks_off_is_never_replaced_by_what_it_holds() -> None:
    inner = '{"action": "list_files"}'
    assert "column 39" in refused('{"thinking": {"action": "list_files"} x}')
    assert "column 43: a comma" in refused('{"thinking": "I send {", "action": "read" x, "b": ' + inner)


@pytest.mark.parametrize(
    "value", ["9" * 640, "-" + "9" * 639, "0", "-0", "1E400", "1.5e-7", "[" * 90 + "]" * 90]
)
def test_values_of_any_size_are_read_or_refused(value: str) -> None:
    text = f'{{"action": {value}}}'
    if value == "1E400":
        assert "larger than any" in refused(text)
    else:
        assert found(text).value == json.loads(text)


def test_deep_nesting_is_refused_and_not_gone_into() -> None:
    for opening in ("[", '{"a":'):
        assert f"it nests over {MOST_LEVELS} levels" in refused('{"action": ' + opening * 100_000)
        assert "levels" in refused('{"a": ' + opening * 100_000)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "unit",
    [
        *("{", "{}", "{ ", '"', '{"', '{"a" ', '{"\\"', '{"a":', '{"a":1}', '{"a{":1,', '{"action":'),
        *('{"a":["{",":[",', "{'action'", "word "),
    ],
)
def test_no_text_takes_longer_than_its_length_tells(unit: str) -> None:
    # 0.1 to 0.4 s; looking at every brace again would be minutes.
    refused((unit * 250_000)[:250_000])
