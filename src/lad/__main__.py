"""`python -m lad` is `lad`."""

from lad.cli import main

main()
