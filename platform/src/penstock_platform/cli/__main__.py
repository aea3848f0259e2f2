"""``python -m penstock_platform.cli``: the command ``penstock`` of this very interpreter."""

from penstock_platform.cli.main import main

main()
