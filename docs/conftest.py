"""Only the pages are tested here: not the scripts, nor what is built of the pages."""

collect_ignore_glob = ["*.py", "_build"]
