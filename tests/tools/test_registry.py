"""What tools declare, what they accept, and how they are exported."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from skillfs import InvalidArgumentError, SkillFileSystem
from skillfs.tools import TOOLS, Tool, answer, call, schemas
from skillfs.tools.parameters import MOST_BASE_PATHS, Parameter, checked, schema_of
from tests.conftest import skill_md, write

NAMES = [
    "skill_tree", "skill_get_content", "skill_search", "skill_outline", "skill_changes", "read_file",
    "list_files",
]  # fmt: skip
MADE_UP = (
    Parameter("text", "string", "A string.", required=True),
    Parameter("count", "integer", "An integer.", default=3, least=1, most=9),
    Parameter("free", "integer", "Any integer."),
    Parameter("flag", "boolean", "A boolean.", default=False),
    Parameter("ref", "reference", "A reference."),
    Parameter("refs", "references", "References."),
    Parameter("secret", "string", "Hidden.", default="x", hidden=True),
)

every_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
# No floats: to a JSON schema 1.0 is an integer, and here it is none.
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.integers()
    | st.sampled_from(["", "7", "true", "a", "\0", "./"])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def accepted(parameters: tuple[Parameter, ...], arguments: object) -> bool:
    try:
        checked("tool", parameters, arguments)
    except InvalidArgumentError:
        return False
    return True


# -- what they declare -------------------------------------------------------------------------------------


def test_the_tools_there_are() -> None:
    assert list(TOOLS) == NAMES
    assert all(name == tool.name for name, tool in TOOLS.items())


@every_tool
def test_a_function_takes_what_is_declared(tool: Tool) -> None:
    first, *others = inspect.signature(tool.function).parameters.values()
    assert first.name == "fs"
    assert [p.name for p in others] == [p.name for p in tool.parameters]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is p.empty for p in others)


@every_tool
def test_everything_is_described(tool: Tool) -> None:
    assert tool.title
    assert 40 < len(tool.description) <= 1_024
    for parameter in tool.parameters:
        assert parameter.description.endswith((".", ")"))
        assert parameter.required is False or parameter.default is None
        if parameter.default is not None:
            parameter.check(parameter.default)


@every_tool
def test_base_paths_can_be_fixed_for_every_tool(tool: Tool) -> None:
    assert "basePathIds" in {p.name for p in tool.parameters}


# -- what they accept --------------------------------------------------------------------------------------


@given(
    arguments=st.dictionaries(
        st.sampled_from(["text", "count", "free", "flag", "ref", "refs", "secret", "Text", ""]),
        values,
        max_size=4,
    )
    | values
)
def test_the_schema_and_the_check_agree(arguments: object) -> None:
    validator = Draft202012Validator(schema_of(MADE_UP))
    assert accepted(MADE_UP, arguments) == validator.is_valid(arguments)


@given(data=st.data())
def test_the_schema_and_the_check_of_real_tools_agree(data: st.DataObject) -> None:
    tool = data.draw(st.sampled_from(list(TOOLS.values())))
    likely = {p.name: _fitting(p) | values for p in tool.parameters}
    needed = {p.name: likely.pop(p.name) for p in tool.parameters if p.required}
    arguments = data.draw(st.fixed_dictionaries(needed, optional=likely) | st.dictionaries(st.text(), values))
    assert accepted(tool.parameters, arguments) == Draft202012Validator(tool.schema()).is_valid(arguments)


def _fitting(parameter: Parameter) -> st.SearchStrategy[Any]:
    match parameter.type:
        case "integer":
            return st.integers(parameter.least, parameter.most)
        case "boolean":
            return st.booleans()
        case "references":
            return st.lists(st.text(max_size=3) | st.integers(), max_size=3)
    return st.text(max_size=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs text"),
        ({"text": None}, "text must be a string, not null"),
        ({"text": 7}, "text must be a string"),
        ({"text": "a", "count": None}, "count must be an integer, not null; leave it out"),
        ({"text": "a", "count": "7"}, 'count must be an integer, not "7"'),
        ({"text": "a", "count": True}, "count must be an integer, not a bool"),
        ({"text": "a", "count": 1e3}, "count must be an integer, not a float"),
        ({"text": "a", "count": 1.0}, "count must be an integer"),
        ({"text": "a", "count": 0}, "count must be 1 or more"),
        ({"text": "a", "count": 10}, "count must be 9 or less"),
        ({"text": "a", "flag": 1}, "flag must be true or false"),
        ({"text": "a", "flag": "true"}, "flag must be true or false"),
        ({"text": "a", "ref": True}, "ref must be a string or an integer id"),
        ({"text": "a", "refs": "a"}, "refs must be a list"),
        ({"text": "a", "refs": ["a", None]}, "refs must be a list of .* holds null"),
        ({"text": "a", "refs": [["a"]]}, "refs must be a list of .* holds a list"),
        ({"text": "a", "refs": ["a"] * (MOST_BASE_PATHS + 1)}, "refs holds over 10,000"),
        ({"text": "a", "flags": True}, 'takes no argument "flags"; did you mean flag'),
        ({"text": "a", "": 1}, 'takes no argument ""; it takes text, count'),
        ({"text": "a", "secret": "b"}, 'takes no argument "secret"'),
        ({"text": "a", 5: "b"}, "takes no argument 5"),
        ({"text": "a", "\ud800": 1}, r'takes no argument "\\ud800"'),
        ([], "takes an object of named arguments, not a list"),
        (None, "takes an object of named arguments"),
        ("{}", "takes an object of named arguments"),
    ],
)
def test_what_is_refused_is_named(arguments: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        checked("tool", MADE_UP, arguments)
    caught.value.message.encode()


def test_what_is_left_out_has_its_default() -> None:
    assert checked("tool", MADE_UP, {"text": "a", "refs": [1, "b"]}) == {
        "text": "a", "count": 3, "free": None, "flag": False, "ref": None, "refs": [1, "b"], "secret": "x",
    }  # fmt: skip


def test_an_unknown_tool_is_named() -> None:
    fs = SkillFileSystem.__new__(SkillFileSystem)  # nothing is asked of it
    with pytest.raises(InvalidArgumentError, match="did you mean skill_tree"):
        answer(fs, "skill_trees", {})
    with pytest.raises(InvalidArgumentError, match="there are skill_tree, "):
        call(fs, "zzz", {})
    with pytest.raises(InvalidArgumentError, match="no tool a list"):
        answer(fs, [], {})  # type: ignore[arg-type]


# -- exports -----------------------------------------------------------------------------------------------


def test_export_for_mcp() -> None:
    for tool, found in zip(TOOLS.values(), schemas("mcp"), strict=True):
        assert list(found) == ["name", "title", "description", "inputSchema", "annotations"]
        assert (found["name"], found["description"]) == (tool.name, tool.description)
        assert found["annotations"]["readOnlyHint"] is True
        assert found["inputSchema"] == tool.schema()


def test_export_for_anthropic() -> None:
    for tool, found in zip(TOOLS.values(), schemas("anthropic"), strict=True):
        assert found == {"name": tool.name, "description": tool.description, "input_schema": tool.schema()}


def test_export_for_openai() -> None:
    for tool, found in zip(TOOLS.values(), schemas("openai"), strict=True):
        function = {"name": tool.name, "description": tool.description, "parameters": tool.schema()}
        assert found == {"type": "function", "function": function}


@every_tool
def test_schemas_are_schemas(tool: Tool) -> None:
    schema = tool.schema()
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert json.loads(json.dumps(schema)) == schema
    for parameter in tool.parameters:
        if parameter.default is not None and not parameter.hidden:
            assert schema["properties"][parameter.name]["default"] == parameter.default


def test_a_schema_tells_bounds_and_defaults() -> None:
    schema = schema_of(MADE_UP)
    assert schema["required"] == ["text"]
    assert schema["properties"]["count"] == {
        "type": "integer", "description": "An integer.", "minimum": 1, "maximum": 9, "default": 3,
    }  # fmt: skip
    assert "secret" not in schema["properties"]


@pytest.mark.parametrize("format", ["mcp", "anthropic", "openai"])
def test_what_is_done_to_an_export_stays_there(format: Any) -> None:
    def spoil(value: Any) -> None:
        if isinstance(value, dict):
            for each in value.values():
                spoil(each)
            value.clear()
        elif isinstance(value, list):
            for each in value:
                spoil(each)
            value.append("spoilt")

    before = json.dumps(schemas(format))
    spoil(schemas(format))
    assert json.dumps(schemas(format)) == before


@pytest.mark.parametrize("format", ["MCP", "", None, 3])
def test_an_unknown_format_is_refused(format: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="use one of mcp, anthropic, openai"):
        schemas(format)


# -- fixed arguments ---------------------------------------------------------------------------------------


@pytest.fixture
def fs(root: Any, open_fs: Callable[..., SkillFileSystem]) -> SkillFileSystem:
    write(root, {"a/SKILL.md": skill_md("a"), "b/SKILL.md": skill_md("b")})
    return open_fs()


@pytest.mark.parametrize("format", ["mcp", "anthropic", "openai"])
def test_what_is_fixed_is_in_no_schema(format: Any) -> None:
    assert "basePathIds" in json.dumps(schemas(format))
    assert "basePathIds" not in json.dumps(schemas(format, fixed={"basePathIds": ["a"]}))


def test_what_is_fixed_cannot_be_set(fs: SkillFileSystem) -> None:
    fixed = {"basePathIds": ["a"]}
    drawn = call(fs, "skill_tree", {}, fixed=fixed)
    assert "a/  [skill" in drawn
    assert "b/" not in drawn
    for bases in (["b"], ["a"], None):
        with pytest.raises(InvalidArgumentError, match="basePathIds"):
            call(fs, "skill_tree", {"basePathIds": bases}, fixed=fixed)
    assert "a/" not in call(fs, "skill_tree", {}, fixed={"basePathIds": []})


def test_a_misspelt_name_cannot_be_fixed(fs: SkillFileSystem) -> None:
    for fixed in ({"basePathIDs": ["a"]}, {"": 1}):
        with pytest.raises(InvalidArgumentError, match="cannot be fixed"):
            schemas("mcp", fixed=fixed)
        with pytest.raises(InvalidArgumentError, match="cannot be fixed"):
            call(fs, "skill_tree", {}, fixed=fixed)


@pytest.mark.parametrize("value", [None, "a", [None], [["a"]]])
def test_what_is_fixed_is_checked(fs: SkillFileSystem, value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="basePathIds"):
        call(fs, "skill_tree", {}, fixed={"basePathIds": value})
    with pytest.raises(InvalidArgumentError, match="basePathIds"):
        schemas("mcp", fixed={"basePathIds": value})


def test_what_is_fixed_is_checked_by_the_tool_too(fs: SkillFileSystem) -> None:
    # A server calls it, and checks the names once, when it begins.
    for bases in (None, "a", [None]):
        with pytest.raises(InvalidArgumentError, match="basePathIds must be a list"):
            TOOLS["skill_tree"].answer(fs, {}, {"basePathIds": bases})


def test_what_is_fixed_suits_every_tool_that_takes_it(fs: SkillFileSystem) -> None:
    for tool in TOOLS:  # a search gives 100 hits at most
        with pytest.raises(
            InvalidArgumentError, match="not suit skill_search: maxResults must be 100 or less"
        ):
            answer(fs, tool, {}, fixed={"maxResults": 500})
    assert schemas("mcp", fixed={"maxResults": 100})


def test_what_is_fixed_for_one_tool_does_not_disturb_others(fs: SkillFileSystem) -> None:
    assert call(fs, "skill_changes", {}, fixed={"withFiles": False, "basePathIds": ["a"]})
