"""The server of the Model Context Protocol: tools, resources and the Skills extension over a filesystem.

It is built on the low-level server of the official SDK, which has to be installed (`fsspec-skillfs[mcp]`):
nothing is imported here, so that the rest of the package does without.

| module | what |
|---|---|
| `server` | the server of a filesystem: what it declares, its tools, and the guard around every answer |
| `skills` | `skills/list` and `skills/get` of the Skills extension |
| `resources` | `resources/list`, `resources/read`, `resources/directory/read` |
| `listed` | what there is, in order, kept for one revision |
| `changes` | notifications from the change feed |
| `stdio`, `http` | the two ways to a client |
| `connections` | how long a client over HTTP may take |
| `logs` | what the SDK and the web server log |
"""
