"""exp and log of doubles, made of operations that processors have for vectors.

The C library's are called for one number at a time, and all registers are saved around each call.
These are within two units of the last place, and right at zero, infinity and NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np

MAGIC = 1.5 * 2.0**52  # added to a double, it leaves the nearest whole number in the last bits
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def exp(x):
    """e^x = 2^k e^r with |r| <= log(2) / 2, where e^r = 1 + 2p / (q - p) (Cephes)."""
    near = jnp.where(x < 720.0, jnp.where(x > -760.0, x, -760.0), 720.0)
    shifted = near * np.log2(np.e) + MAGIC
    k = shifted - MAGIC
    r = (near - k * LN2_HIGH) - k * LN2_LOW
    p = r * polynomial(r * r, 1.0, 3.02994407707441961300e-2, 1.26177193074810590878e-4)
    q = polynomial(
        r * r, 2.0, 2.27265548208155028766e-1, 2.52448340349684104192e-3, 3.00198505138664455042e-6
    )
    whole = _bits(shifted) - MAGIC_BITS
    half = whole >> 1  # in two steps, for 2^k itself may be out of range
    value = (1.0 + 2.0 * p / (q - p)) * _power_of_two(half) * _power_of_two(whole - half)
    return jnp.where(jnp.isnan(x), x, value)


def log(x):
    """Log x = k log 2 + log m with m near 1, by a series in s = (m - 1) / (m + 1) (fdlibm)."""
    tiny = x < 2.0**-1000
    bits = _bits(jnp.where(tiny, x * 2.0**100, x))
    whole = (bits - SQRT_HALF_BITS) >> 52
    f = _double(bits - (whole << 52)) - 1.0
    k = _double(whole + MAGIC_BITS) - MAGIC - jnp.where(tiny, 100.0, 0.0)
    s = f / (2.0 + f)
    z, half = s * s, 0.5 * f * f
    series = z * polynomial(
        z,
        6.666666666666735130e-01,
        3.999999999940941908e-01,
        2.857142874366239149e-01,
        2.222219843214978396e-01,
        1.818357216161805012e-01,
        1.531383769920937332e-01,
        1.479819860511658591e-01,
    )
    value = k * LN2_HIGH - ((half - (s * (half + series) + k * LN2_LOW)) - f)
    value = jnp.where(x < jnp.inf, value, x)
    return jnp.where(x > 0.0, value, jnp.where(x == 0.0, -jnp.inf, jnp.nan))


def logistic(x):
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + jnp.exp(-x))


def polynomial(x, *coefficients):
    """By Horner's rule; the coefficient of the lowest power comes first."""
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _bits(x):
    return jax.lax.bitcast_convert_type(x, jnp.int64)


def _double(bits):
    return jax.lax.bitcast_convert_type(bits, jnp.float64)


def _power_of_two(k):
    return _double((k + 1023) << 52)


MAGIC_BITS = int(np.float64(MAGIC).view(np.int64))
SQRT_HALF_BITS = int(np.float64(np.sqrt(0.5)).view(np.int64))
