"""The command `limpet`: what it can be told to do.

`commands.py` has a function for each; `problems.py` runs the files that say what to sample;
`terminal.py` is how the command speaks and ends.
"""

try:
    from limpet.cli.commands import app
except KeyboardInterrupt:  # Ctrl-C before there is a command to end
    raise SystemExit(130) from None

__all__ = ["app"]
