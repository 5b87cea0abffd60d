"""Every way limpet refuses, and the checks that the argument checks share.

A message names the argument, the value that was given, what was expected and what to do.
"""

import math
import operator
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr


class LimpetError(Exception):
    """Whatever limpet refuses to do."""


class InputError(LimpetError, ValueError):
    """An argument that cannot be used: which one, its value, what was expected."""


class StartError(LimpetError):
    """No point on the surface was found: how close the search came, where, and what to check."""


class StuckError(LimpetError):
    """Chains stopped making draws.

    Attributes
    ----------
    draws : xarray.DataTree or None
        The chains that had finished, if there were any.
    """

    def __init__(self, message: str, draws: "xr.DataTree | None" = None) -> None:
        super().__init__(message)
        self.draws = draws


class StoreError(LimpetError):
    """A store that cannot be made, read, written to or resumed.

    Attributes
    ----------
    draws : xarray.DataTree or None
        If a run was stopped by it: what is in the store, where that can be read.
    """

    draws: "xr.DataTree | None" = None


class ExecutorError(LimpetError):
    """An executor whose workers are lost, differ from this process, or cannot do their task.

    Attributes
    ----------
    draws : xarray.DataTree or None
        What is in the store, where there is one; else the chains that had finished.
    """

    draws: "xr.DataTree | None" = None


class LimpetWarning(UserWarning):
    """Something a user should act on; the draws are returned all the same."""


class InterruptedWarning(LimpetWarning):
    """A signal, or the function `progress`, stopped a run before it had all its draws.

    Attributes
    ----------
    signal : int or None
        The number of the signal; None if it was `progress` that said stop.
    """

    def __init__(self, message: str, signal: int | None = None) -> None:
        super().__init__(message)
        self.signal = signal


class MixingWarning(LimpetWarning):
    """The chains have not mixed well enough for what was asked."""


class SlowPathWarning(LimpetWarning):
    """A model that limpet's own compiler cannot do; XLA can, and takes longer."""


class PrecisionWarning(LimpetWarning):
    """Single precision where double is needed."""


def positive(name: str, value: Any) -> float:
    """A finite number above zero, as a float."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{name}={value!r}: expected a finite number above zero.")
    return number


def zero_or_more(name: str, value: Any) -> float:
    """A finite number that is not negative, as a float."""
    number = _number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{name}={value!r}: expected a finite number, 0 or more.")
    return number


def probability(name: str, value: Any) -> float:
    """A number above zero and at most one, as a float."""
    number = _number(name, value)
    if not 0 < number <= 1:
        raise InputError(f"{name}={value!r}: expected a probability, above 0 and at most 1.")
    return number


def probability_or_zero(name: str, value: Any) -> float:
    """A number from zero to one, as a float."""
    number = _number(name, value)
    if not 0 <= number <= 1:
        raise InputError(f"{name}={value!r}: expected a probability, from 0 to 1.")
    return number


def whole(name: str, value: Any, least: int) -> int:
    """A whole number no smaller than `least` that fits 63 bits, as an int."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InputError(
            f"{name}={value!r}: expected a whole number, not {_kind(value)}."
        ) from None
    if number < least:
        raise InputError(f"{name}={value!r}: expected a whole number, {least} or more.")
    if number >= 2**63:
        raise InputError(f"{name}={value!r}: expected a whole number below 2**63.")
    return number


def count(name: str, value: Any) -> int:
    """A whole number above zero, as an int."""
    return whole(name, value, 1)


def count_or_none(name: str, value: Any) -> int | None:
    """A whole number of at least one, or None, which leaves it to warm-up."""
    return None if value is None else count(name, value)


def real_array(name: str, value: Any, expected: str) -> np.ndarray:
    """Real numbers as an array of doubles; `expected` says what was wanted."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        return array.astype(float)
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r}: expected {expected}.") from None


def warn(message: str | Warning, category: type[Warning]) -> None:
    """Warn at the line outside limpet that led here; what cannot be shown ends no run."""
    ours = os.path.dirname(__file__)
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(ours):
        level, frame = level + 1, frame.f_back
    try:
        warnings.warn(message, category, stacklevel=level)
    except Warning:  # which is an error to this user
        raise
    except Exception:  # standard error is closed
        return


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}={value!r}: expected a number, not {_kind(value)}.") from None


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
