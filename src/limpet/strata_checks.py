"""What the numbers of a `limpet.Strata` must be; every refusal is in words."""

from typing import Any

import numpy as np

from limpet.errors import InputError, real_array


def read_sizes(name: str, given: Any, hint: str = "") -> np.ndarray:
    """One number above zero, or one per constraint that may break."""
    sizes = real_array(name, given, "a number, or one per constraint that may break")
    if sizes.ndim > 1 or not sizes.size:
        raise InputError(
            f"{name} has shape {sizes.shape}: expected a number, or one per constraint that may"
            " break."
        )
    if not ((sizes > 0) & (sizes < np.inf)).all():
        raise InputError(
            f"{name}={given!r}: expected finite numbers above zero.{hint if 0 in sizes else ''}"
        )
    return sizes


def read_indices(name: str, given: Any) -> tuple[int, ...]:
    """Constraints by number, each once, in order."""
    try:
        listed = [] if isinstance(given, str | bytes) else list(given)
        good = listed == [int(index) for index in listed] and not isinstance(given, str | bytes)
    except (TypeError, ValueError):
        listed, good = [], False
    if not good or any(isinstance(index, bool) or index < 0 for index in listed):
        raise InputError(f"{name}={given!r}: expected a list of constraints, counted from 0.")
    indices = tuple(sorted(int(index) for index in listed))
    if len(set(indices)) < len(indices):
        raise InputError(f"{name}={given!r} has a constraint twice: expected each once.")
    return indices


def read_flags(given: Any) -> bool | tuple[bool, ...]:
    """One flag, or one per constraint that may break."""
    flags = np.asarray(given)
    if flags.dtype != bool or flags.ndim > 1:
        raise InputError(
            f"two_sided={given!r}: expected True or False, or one per constraint that may break."
        )
    return bool(flags) if flags.ndim == 0 else tuple(flags.tolist())


def read_sets(given: Any) -> tuple[tuple[int, ...], ...]:
    """Sets of constraints."""
    try:
        sets = [read_indices("a set in allowed", each) for each in given]
    except TypeError:
        raise InputError(
            f"allowed={given!r}: expected a list of sets of constraints, such as [[], [2], [2, 3]]."
        ) from None
    if not sets:
        raise InputError("allowed=[]: expected at least one set; [[]] allows that none holds.")
    return tuple(sorted(set(sets)))


def check_fit(target: Any, m: int) -> None:
    """Refuse numbers that do not fit the number of constraints."""
    sets = [("always", target.always)] + [("allowed", each) for each in target.allowed or ()]
    for name, indices in sets:
        if indices and indices[-1] >= m:
            raise InputError(
                f"{name} has constraint {indices[-1]}, but q returned m = {m}: expected numbers"
                f" from 0 to {m - 1}."
            )
    if target.at_once is not None and target.at_once <= len(target.always):
        raise InputError(
            f"at_once={target.at_once}, and {len(target.always)} constraints hold always, so that"
            " there is no room for another: expected more."
        )
    count = m - len(target.always)
    if not count:
        raise InputError(
            f"always has all m = {m} constraints, so none may break: expected fewer, or"
            " limpet.Target(q, eps)."
        )
    for name, numbers in (
        ("kappa", target.kappa),
        ("reach", target.reach),
        ("two_sided", target.two_sided),
    ):
        if np.ndim(numbers) and np.shape(numbers) != (count,):
            raise InputError(
                f"{name} has length {np.size(numbers)}, but {count} of {m} constraints may break"
                f" (always={list(target.always)}): expected one number for all, or {count}."
            )
    for each in target.allowed or ():
        if both := sorted(set(each) & set(target.always)):
            raise InputError(
                f"allowed has constraint {both[0]}, which always holds: expected sets of those that"
                " may break."
            )
