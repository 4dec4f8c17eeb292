from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skillfs.sync.motion import in_motion
from skillfs.sync.reconcile import parent_of

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
MOVES = st.dictionaries(PATHS, PATHS, max_size=6)


def test_what_nothing_was_moved_to_or_from_is_not_in_motion() -> None:
    motion = in_motion({"a/x": "b/x"}, {})
    assert not any(path in motion for path in ("", "a", "b", "a/x", "b/x"))


def test_folders_that_are_tied_by_earlier_moves_wait_together() -> None:
    motion = in_motion({"d/y": "a/y", "e/z": "d/z", "f/q": "g/q"}, {"b/x": "a/x"})
    assert all(path in motion for path in ("a", "b", "d", "e", "b/x/below", "e/z/below"))
    assert not any(path in motion for path in ("", "f", "g", "f/q", "a/other", "c"))


@given(MOVES, MOVES)
def test_no_move_has_one_end_in_motion(moves: dict[str, str], later: dict[str, str]) -> None:
    motion = in_motion(moves, later)
    for new, old in moves.items():
        assert (parent_of(new) in motion.folders) == (parent_of(old) in motion.folders)
    for pair in later.items():
        for path in pair:
            assert parent_of(path) in motion
            assert path in motion
            assert f"{path}/below" in motion
