"""The command `snapshot`: what a store held, kept by its content."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from skillfs.core.manifest import digest_text
from skillfs.faces import output
from skillfs.faces.target import FINE, FOUND_WRONG, Target, json_option

if TYPE_CHECKING:
    from skillfs.core.model import Snapshot

__all__ = ["snapshot"]

_SHORT = 19
"""Characters of a digest in a table: `sha256:` and 12 digits, which can be passed back."""


@click.group(
    invoke_without_command=True, epilog="Example: skillfs -s ./skills snapshot create before-upgrade"
)
@click.pass_context
def snapshot(context: click.Context) -> None:
    """Keep what a store holds now, and have it back.

    A SNAPSHOT is named by its label, by its digest (sha256:… or the first 8 digits or more), or as latest.
    With --at SNAPSHOT before a command, it shows the store as it was. Snapshots lie in the folder or URL of
    --objects, else beside the index; with --objects no store need be named, but for create.
    """
    if context.invoked_subcommand is None:
        output.write(context.get_help() + "\n")


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot create v1")
@click.argument("label", required=False)
@json_option
@click.pass_obj
def create(target: Target, label: str | None, as_json: bool) -> None:
    """Take a snapshot.

    What is stored already is neither read nor stored again. Where nothing has changed since the newest
    snapshot it is that one, which gets the LABEL as well.
    """
    target.alone()
    with target.open() as fs, output.Progress("taking a snapshot") as progress:
        taken = fs.snapshot(label, on_progress=progress if progress.wanted else None)
    if as_json:
        output.write_json(_as_dict(taken))
    else:
        output.write(f"{taken.digest}\n")
        output.note(f"it holds {_counts(taken)}{_labels(taken)}")


@snapshot.command("list", epilog="Example: skillfs -s ./skills snapshot list --json")
@json_option
@click.pass_obj
def list_(target: Target, as_json: bool) -> None:
    """List the snapshots, the newest first."""
    found = target.snapshots().list()
    if as_json:
        output.write_json([_as_dict(one) for one in found])
        return
    output.table(
        ("created", "digest", "labels", "skills", "files", "bytes"),
        [
            [
                one.created.isoformat(timespec="seconds"),
                one.digest[:_SHORT],
                " ".join(one.labels),
                *map(str, (one.skills, one.files, one.size)),
            ]
            for one in found
        ],
    )
    if not found:
        output.note("no snapshots here; take one with: skillfs snapshot create")


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot show v1")
@click.argument("ref", metavar="SNAPSHOT")
@json_option
@click.pass_obj
def show(target: Target, ref: str, as_json: bool) -> None:
    """Show a snapshot and the skills it holds."""
    snapshots = target.snapshots()
    found = snapshots.get(ref)
    skills = [
        {
            "path": skill.path,
            "digest": digest_text(skill.digest),
            "files": len(skill.files),
            "bytes": sum(file.size for file in skill.files),
        }
        for skill in snapshots.manifest(found).skills
    ]
    if as_json:
        output.write_json({**_as_dict(found), "skills": skills, "skill_count": found.skills})
        return
    values = _as_dict(found)
    output.fields(
        {**values, "labels": " ".join(found.labels) or None, "parents": " ".join(found.parents) or None}
    )
    output.write("\n")
    output.table(
        ("path", "digest", "files", "bytes"),
        [
            [
                output.path(str(one["path"]), ()),
                str(one["digest"])[:_SHORT],
                str(one["files"]),
                str(one["bytes"]),
            ]
            for one in skills
        ],
    )


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot restore v1 ./skills-v1")
@click.argument("ref", metavar="SNAPSHOT")
@click.argument("folder")
@click.pass_obj
def restore(target: Target, ref: str, folder: str) -> None:
    """Write a snapshot into a FOLDER that does not exist, or is empty."""
    with output.Progress("writing files") as progress:
        found = target.snapshots().restore(ref, folder, on_progress=progress if progress.wanted else None)
    output.note(f"wrote {_counts(found)}")


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot export v1 pdf.zip --skill name:pdf")
@click.argument("ref", metavar="SNAPSHOT")
@click.argument("destination", metavar="TARGET")
@click.option("--skill", metavar="REF", help="Only this skill, under its own name.")
@json_option
@click.pass_obj
def export(target: Target, ref: str, destination: str, skill: str | None, as_json: bool) -> None:
    """Write a snapshot, or a skill of it, for others.

    TARGET is a folder that does not exist or is empty, a file whose name ends in .zip, or the URL of a store.
    A skills.lock goes with the skills, by which `skillfs verify` checks them.
    """
    with output.Progress("writing files") as progress:
        done = target.snapshots().export(
            ref, destination, skill=skill, on_progress=progress if progress.wanted else None
        )
    if as_json:
        output.write_json(done._asdict())
        return
    counts = (
        f"{output.counted(done.skills, 'skill')}, {output.counted(done.files, 'file')}, "
        f"{output.counted(done.size, 'byte')}"
    )
    output.note(f"wrote {counts}")
    for path in done.left_out:
        output.note(f"left out, as it is a link to a folder: {output.path(path, ())}")


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot remove v1")
@click.argument("ref", metavar="SNAPSHOT")
@click.option("--label", is_flag=True, help="Remove the label alone; the snapshot stays.")
@click.pass_obj
def remove(target: Target, ref: str, label: bool) -> None:
    """Remove a snapshot with all its labels, or a label.

    What nothing else needs of it is removed by `gc`. A damaged record, as fsck names it, is given up by its
    own digest.
    """
    if label:
        target.snapshots().remove_label(ref)
        output.note(f"removed the label {output.printable(ref)}")
        return
    gone = target.snapshots().remove(ref)
    if gone is None:
        output.note("removed a damaged record; skillfs snapshot gc removes what only it needed")
        return
    output.note(f"removed {gone.digest}{_labels(gone)}; skillfs snapshot gc removes what only it needed")


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot gc")
@json_option
@click.pass_obj
def gc(target: Target, as_json: bool) -> None:
    """Remove everything that no snapshot needs.

    Of what fsck has set aside goes what no snapshot needs, and what is there again. While the record of a
    snapshot is damaged or set aside nothing is removed: nobody knows what it needs. Have it back from a copy,
    or give it up by `snapshot remove` and its digest.
    """
    removed = target.snapshots().gc()
    if as_json:
        output.write_json(removed._asdict())
    else:
        output.note(
            f"removed {output.counted(removed.objects, 'object')}, {output.counted(removed.size, 'byte')}"
        )


@snapshot.command(epilog="Example: skillfs -s ./skills snapshot fsck")
@json_option
@click.pass_obj
def fsck(target: Target, as_json: bool) -> int:
    """Read and check everything in the object folder.

    Prints a line for everything that is damaged, missing, set aside before, or needed by no snapshot, and
    exits with 1 when anything is damaged or missing. What is damaged is set aside; the next snapshot of a
    store that still has it writes it anew.
    """
    with output.Progress("checking objects") as progress:
        found = target.snapshots().fsck(on_progress=progress if progress.wanted else None)
    if as_json:
        output.write_json([asdict(finding) for finding in found])
    else:
        rows = [(one.kind, one.name, " ".join(digest[:_SHORT] for digest in one.snapshots)) for one in found]
        output.table(("finding", "object", "needed by"), rows)
        faults = sum(one.is_fault for one in found)
        output.note(f"{output.counted(faults, 'object')} damaged or missing")
    return FOUND_WRONG if any(one.is_fault for one in found) else FINE


def _as_dict(found: Snapshot) -> dict[str, Any]:
    return {**asdict(found), "created": found.created.isoformat()}


def _counts(found: Snapshot) -> str:
    return (
        f"{output.counted(found.skills, 'skill')}, {output.counted(found.files, 'file')}, "
        f"{output.counted(found.size, 'byte')}"
    )


def _labels(found: Snapshot) -> str:
    return f" ({' '.join(found.labels)})" if found.labels else ""
