"""`python -m limpet` is the command `limpet`."""

from limpet.cli import app

if __name__ == "__main__":
    app(prog_name="limpet")
