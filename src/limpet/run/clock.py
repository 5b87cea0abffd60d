"""Where the time of a run goes: wall-clock seconds by phase, which add up to the whole."""

# phases in order: the name in `attrs`, and what to call it
PHASES = {
    "start_seconds": "search",
    "compile_seconds": "compile",
    "warmup_seconds": "warm-up",
    "seconds": "draws",
}


def times_of(tiles: list[dict]) -> dict[str, float]:
    """The times of a run from those of its tiles: of the one that took longest, and their sum.

    Tiles run side by side, so that times of several do not add up to anything.
    """
    longest = max(tiles, key=lambda tile: sum(float(tile[name]) for name in PHASES))
    times = {name: float(longest[name]) for name in PHASES}
    return times | {"wall_seconds": sum(times.values())}


def account(times: dict[str, float]) -> str:
    """Where the time went, in words: "6.2 s: search 1.1, compile 2.9, warm-up 1.5, draws 0.7"."""
    parts = ", ".join(f"{word} {times[name]:.1f}" for name, word in PHASES.items())
    return f"{times['wall_seconds']:,.1f} s: {parts}"
