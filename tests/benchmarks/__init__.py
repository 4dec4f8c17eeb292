"""Benchmarks: what skillfs costs beside the floor of the machine and beside other tools on the same work.

Run from the root of a checkout::

    python -m tests.benchmarks                              # everything, 10,000 skills
    python -m tests.benchmarks --list                       # names of the rows
    python -m tests.benchmarks --only re-opening tree       # some rows
    python -m tests.benchmarks --skills 1000 --rounds 5     # a smaller corpus, more rounds
    python -m tests.benchmarks --peers ~/peers --json r.json

The corpus is made once from a seed, in `--corpus DIR` (by default below the system's folder for temporary
files), and used again while its stamp matches. At 10,000 skills it is some 117,000 files in 66,000 folders,
1.44 GB, and the whole folder takes 9 GB with the state that the peers need. Nothing outside it is written,
but for the virtual environments of `--peers`.

Peers are optional. `git`, `rclone`, `fdfind` and `bindfs` are used when they are on the path (on Debian:
`apt-get install git rclone fd-find bindfs`). With `--peers DIR`, `deepagents`, `pydantic-ai-skills`,
`fastmcp`, `skills-ref` and `fusepy` are installed with pip, each into a virtual environment of its own in
that folder, unless they are there already; without it they are reported as not installed.

How it is measured: floor, peers and skillfs take turns, A B C A B C, each turn in a fresh process, on a warm
page cache; the median of the turns is shown. Costs are CPU seconds, user and system, of the process and its
children, from after the imports to the end of the work; costs of single calls are the median wall time of
many calls within a turn. Rely on the ratios: all of a row's figures come from one run, side by side.

The rows that begin with `s3-` need no corpus on disk: a server in a process of its own, on the loopback
interface, holds 10,000 keys and a text of 20 MB, costs next to nothing itself, and counts what it is asked
and what it sends. Peers there are `rclone` and `s3fs`, which comes with the tests; the plainest program is
written with boto3. "15 ms away" is the wall time when every answer comes 15 ms later.

The rows that begin with `mcp-` make small stores of their own, and need the `mcp` package, which comes with
the tests: the floor is a tool of the same SDK that answers what it has at hand.

The rows that begin with `mount-` need the kernel's FUSE with `fusermount3` (on Debian: `fuse3`), and
`fsspec.fuse`, by `fusepy`, needs libfuse 2 (`libfuse2`). They tell wall time, for most of what is waited for
there is another process: the server of the mount point, whose CPU seconds and peak memory the notes tell.
The plainest programs have no mount point at all, and on S3 ask for what is read on one connection.

Look-ups and trees are timed on the main corpus; `--lookups-skills 86000` makes a second one of a million
small files for them, which takes some minutes and 7 GB.

The modules: `corpus` makes the files and `bucket` is the server; `floors`, `peers` and `rows` hold what is
timed on disk, `searching` and `history` what is timed there of search and of snapshots, `remote` what is
timed on S3, `mcp_calls` what is timed over MCP, `mounting` what is timed at the mount points that
`mount_points` makes; `measure` is the clockwork that runs in every process; `harness` has the taking of
turns, the targets and the table.
"""
