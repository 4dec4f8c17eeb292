import uuid as uuidlib
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillfs.core.differing import Identities, State, differences, differing_parts
from skillfs.core.digest import sha256, uuid_text
from skillfs.core.manifest import Manifest, ManifestFile, ManifestSkill, digest_text, part_name, skill_digest
from skillfs.core.manifest_json import parse_part, parse_top, written
from skillfs.core.model import Difference, Kind

STORE, OTHER = uuidlib.UUID(int=1), uuidlib.UUID(int=2)


class Leaf(NamedTuple):
    """What a tree holds at a path: text of a file, or where a link leads; of an empty folder neither."""

    text: str | None = None
    executable: bool = False
    link: str | None = None


Tree = dict[str, Leaf]


def components(path: str) -> list[str]:
    return path.split("/")


def above(path: str) -> list[str]:
    found = []
    while path:
        path = path.rpartition("/")[0]
        found.append(path)
    return found


def skill_of(tree: Tree, path: str) -> str | None:
    for folder in above(path):
        if (f"{folder}/SKILL.md" if folder else "SKILL.md") in tree:
            return folder
    return None


def state(tree: Tree, store: uuidlib.UUID = STORE, known: dict[str, bytes] | None = None) -> State:
    """The state of a tree, put together plainly."""
    skills: dict[str, tuple[list, list, list]] = {}
    outside = []
    for path, leaf in sorted(tree.items()):
        skill = skill_of(tree, path)
        if skill is None:
            if leaf.link is not None:
                outside.append((path, leaf.link))
            continue
        below = path[len(skill) + 1 :] if skill else path
        files, links, folders = skills.setdefault(skill, ([], [], []))
        if leaf.text is not None:
            data = leaf.text.encode()
            files.append(ManifestFile(below, len(data), sha256(data).digest(), leaf.executable))
        elif leaf.link is not None:
            links.append((below, leaf.link))
        else:
            folders.append(below)
    manifest = {}
    for path, (files, links, folders) in skills.items():
        top = f"{path}/" if path else ""
        told = [
            ((f"{inner}/" if inner else "")[len(top) :] + file.path, file.size, file.digest)
            for inner, (held, _, _) in skills.items()
            if inner == path or inner.startswith(top)
            for file in held
        ]
        manifest[path] = ManifestSkill(path, skill_digest(told), tuple(files), tuple(links), tuple(folders))
    return State(manifest, outside, Identities(store, known or {}))


Places = dict[tuple[str, bool], tuple[str | None, bool | None, str | None, str | None]]


def flat(seen: State) -> Places:
    """All that a state tells, by path and whether it is a folder: content, bit, aim of a link, skill."""
    found: Places = {(path, False): (None, None, aim, None) for path, aim in seen.links}
    for path, skill in seen.skills.items():
        top = f"{path}/" if path else ""
        for file in skill.files:
            found[top + file.path, False] = (digest_text(file.digest), file.executable, None, path)
        for below, aim in skill.links:
            found[top + below, False] = (None, None, aim, path)
        for below in skill.folders:
            found[top + below, True] = (None, None, None, path)
    return found


def applied(old: Places, items: tuple[Difference, ...], after: State) -> Places:
    left = dict(old)
    of_uuid = {uuid_text(after.identities.of(path)): path for path in after.skills}
    for item in items:
        if item.kind != "added":
            was = left.pop((item.old_path or item.path, item.entry is Kind.FOLDER))
            assert was[:3] == (item.old_hash, item.old_executable, item.old_link)
    for item in items:
        if item.kind != "removed":
            key = item.path, item.entry is Kind.FOLDER
            assert key not in left
            skill = None if item.skill_folder_uuid is None else of_uuid[item.skill_folder_uuid]
            left[key] = item.hash, item.executable, item.link, skill
    return left


names = st.sampled_from(["a", "b", "c", "SKILL.md"])
texts = st.sampled_from(["", "one", "two", "three"])
leaves = st.one_of(
    st.builds(Leaf, texts, st.booleans()),
    st.builds(Leaf, link=st.sampled_from(["a", "b/c"])),
    st.just(Leaf()),
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree: Tree = {}
    for parts in draw(st.lists(st.lists(names, min_size=1, max_size=4), max_size=12)):
        path, leaf = "/".join(parts), draw(leaves)
        if parts[-1] == "SKILL.md":
            leaf = Leaf(leaf.text or "skill")
        if path in tree or any(folder in tree for folder in above(path)) or "SKILL.md" in parts[:-1]:
            continue
        if any(other.startswith(f"{path}/") for other in tree):
            continue
        tree[path] = leaf
    return tree


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tree, Tree, dict[str, bytes]]:
    """A tree, what became of it, and UUIDs that came along with what moved."""
    old = draw(trees())
    if not old or draw(st.booleans()):
        return old, draw(trees()), {}
    new, known = dict(old), {}
    identities = Identities(STORE, {})
    for _ in range(draw(st.integers(1, 3))):
        source = draw(st.sampled_from(sorted({f for p in old for f in (p, *above(p)) if f})))
        target = "/".join(draw(st.lists(st.sampled_from("abxy"), min_size=1, max_size=3)))
        moving = {p: leaf for p, leaf in new.items() if p == source or p.startswith(f"{source}/")}
        left = {p: leaf for p, leaf in new.items() if p not in moving}
        if any(f in left for f in (target, *above(target))) or any(p.startswith(f"{target}/") for p in left):
            continue
        new = left | {target + p[len(source) :]: leaf for p, leaf in moving.items()}
        for path in {f for p in moving for f in (p, *above(p)) if f == source or f.startswith(f"{source}/")}:
            known[target + path[len(source) :]] = known.pop(path, identities.of(path))
    return old, new, known


@settings(deadline=None)
@given(pairs(), st.sampled_from([STORE, OTHER]))
@example(({"SKILL.md": Leaf("s")}, {"a/SKILL.md": Leaf("s")}, {}), OTHER)  # a skill that was the root
def test_differences_lead_from_the_one_to_the_other(pair, store):
    old, new, known = pair
    before, after = state(old), state(new, store, known)
    items, skills = differences(before, after)
    assert applied(flat(before), items, after) == flat(after)
    assert [item.path for item in items] == sorted((item.path for item in items), key=components)
    for path in before.skills.keys() | after.skills.keys():
        same = before.skills.get(path) == after.skills.get(path)
        assert same == (not [skill for skill in skills if path in (skill.path, skill.old_path)]), path
    for skill in skills:
        now, was = (
            after.skills.get(skill.path),
            before.skills.get(skill.path if skill.old_path is None else skill.old_path),
        )
        assert skill.hash == (None if skill.kind == "removed" else digest_text(now.digest))
        assert skill.old_hash == (None if skill.kind == "added" else digest_text(was.digest))


def below(path: str, folder: str) -> str | None:
    return path[len(folder) :].lstrip("/") if not folder or path.startswith(f"{folder}/") else None


def identified(before: State, after: State, old: set[str], new: set[str]) -> set[tuple[str, str]]:
    """Of paths that went and paths that came, which belong to the same entry."""
    gone = {before.identities.of(path): path for path in old - new}
    return {(gone[uuid], path) for path in new - old if (uuid := after.identities.of(path)) in gone}


@settings(deadline=None)
@given(pairs())
def test_in_one_store_identities_tell_what_moved(pair):
    old, new, known = pair
    before, after = state(old), state(new, STORE, known)
    items, skills = differences(before, after)
    moved = {(skill.old_path, skill.path) for skill in skills if skill.kind == "moved"}
    by_identity = identified(before, after, {*before.skills}, {*after.skills})
    assert by_identity <= moved
    leaves = [
        {path for (path, _), value in flat(side).items() if value[2] is None} for side in (before, after)
    ]
    along = by_identity | identified(before, after, *leaves)
    for source, target in moved | {(item.old_path, item.path) for item in items if item.kind == "moved"}:
        # Or it lies in a skill that moved, where it lay before.
        assert (source, target) in along or any(
            (rest := below(target, there)) is not None and rest == below(source, was) for was, there in moved
        )


@settings(deadline=None)
@given(trees(), st.sampled_from([STORE, OTHER]))
def test_the_same_differs_in_nothing(tree, store):
    assert differences(state(tree), state(tree, store)) == ((), ())


@settings(deadline=None)
@given(pairs(), st.sampled_from([STORE, OTHER]))
def test_parts_that_are_the_same_need_not_be_read(pair, store):
    sides = [state(pair[0]), state(pair[1], store, pair[2])]
    texts = [written(Manifest(tuple(sorted(s.skills.values(), key=lambda k: k.path)))) for s in sides]
    tops = [parse_top(top) for top, _ in texts]
    names = differing_parts(tops[0].parts, tops[1].parts)
    read = [
        State(
            {skill.path: skill for name in some for skill in parse_part(parts[top.parts[name]], name)},
            side.links,
            side.identities,
        )
        for side, some, top, (_, parts) in zip(sides, names, tops, texts, strict=True)
    ]
    assert differences(*read) == differences(*sides)
    for some, top in zip(names, tops, strict=True):
        assert some <= top.parts.keys()
    changed = {d.path for d in differences(*sides)[1]} | {d.old_path for d in differences(*sides)[1]}
    assert names[0] | names[1] == {part_name(path) for path in changed if path is not None}


def tree(**leaves: str | Leaf) -> Tree:
    return {
        k.replace("__", "/").replace("_md", ".md"): v if isinstance(v, Leaf) else Leaf(v)
        for k, v in leaves.items()
    }


def lines(found: tuple[Difference, ...]) -> list[str]:
    return [f"{d.kind} {d.old_path or ''}>{d.path}" if d.old_path else f"{d.kind} {d.path}" for d in found]


OLD = tree(
    pdf__SKILL_md="pdf", pdf__a="a", pdf__sub__SKILL_md="sub", pdf__e=Leaf(), pdf__l=Leaf(link="pdf/a")
)
RENAMED = {path.replace("pdf", "doc", 1): leaf for path, leaf in OLD.items()} | {"doc/l": Leaf(link="doc/a")}


def test_between_stores_a_skill_that_moved_takes_along_what_it_holds():
    items, skills = differences(state(OLD), state(RENAMED, OTHER))
    assert lines(skills) == ["moved pdf>doc", "moved pdf/sub>doc/sub"]
    assert lines(items) == [f"moved {path.replace('doc', 'pdf', 1)}>{path}" for path in sorted(RENAMED)]
    assert next(item for item in items if item.path == "doc/l").old_link == "pdf/a"


def test_where_the_old_path_exists_again_the_path_keeps_it():
    new = RENAMED | tree(pdf__SKILL_md="another")
    known = {
        path: Identities(STORE, {}).of(path.replace("doc", "pdf", 1)) for path in ["doc", "doc/SKILL.md"]
    }
    items, skills = differences(state(OLD), state(new, STORE, known))
    assert lines(skills)[:2] == ["added doc", "added doc/sub"]
    assert "modified pdf" in lines(skills)
    assert "modified pdf/SKILL.md" in lines(items)


def test_content_that_went_or_came_twice_tells_no_move():
    old = tree(s__SKILL_md="s", s__a="same", s__b="same", s__c="alone")
    new = tree(s__SKILL_md="s", s__x="same", s__y="alone")
    items, _ = differences(state(old), state(new, OTHER))
    assert lines(items) == ["removed s/a", "removed s/b", "added s/x", "moved s/c>s/y"]


def test_empty_files_tell_no_move():
    old, new = tree(s__SKILL_md="s", s__a=""), tree(s__SKILL_md="s", s__b="")
    assert lines(differences(state(old), state(new, OTHER))[0]) == ["removed s/a", "added s/b"]


def test_a_file_whose_skill_becomes_another_is_modified():
    old = tree(s__SKILL_md="s", s__in__f="f")
    new = old | tree(s__in__SKILL_md="in")
    items, skills = differences(state(old), state(new))
    assert lines(items) == ["added s/in/SKILL.md", "modified s/in/f"]
    assert items[1].hash == items[1].old_hash
    assert lines(skills) == ["modified s", "added s/in"]


def test_a_bit_alone_makes_a_file_and_its_skill_modified():
    old, new = tree(s__SKILL_md="s", s__f=Leaf("f")), tree(s__SKILL_md="s", s__f=Leaf("f", True))
    items, skills = differences(state(old), state(new))
    assert [(d.kind, d.path, d.old_executable, d.executable) for d in items] == [
        ("modified", "s/f", False, True)
    ]
    assert [(d.kind, d.path) for d in skills] == [("modified", "s")]
    assert skills[0].hash == skills[0].old_hash


def test_bits_that_are_not_known_are_no_difference():
    old, new = state(tree(s__SKILL_md="s", s__f=Leaf("f", True))), state(tree(s__SKILL_md="s", s__f="f"))
    unknown = State(new.skills, new.links, new.identities, modes=False)
    assert differences(old, unknown) == ((), ()) == differences(unknown, old)


@pytest.mark.parametrize("there_first", [True, False])
def test_a_file_in_place_of_a_folder_is_added_and_the_folder_removed(there_first):
    file, folder = tree(s__SKILL_md="s", s__x="x"), tree(s__SKILL_md="s", s__x=Leaf())
    old, new = (file, folder) if there_first else (folder, file)
    items, _ = differences(state(old), state(new))
    assert [(d.kind, d.path, d.entry) for d in items] == [
        ("removed", "s/x", Kind.FILE if there_first else Kind.FOLDER),
        ("added", "s/x", Kind.FOLDER if there_first else Kind.FILE),
    ]
