"""Writes binomial_tail.csv: P(Bin(n, alpha) <= k) to 25 digits.

The reference is mpmath's regularised incomplete beta function at 60 digits,
or an exact sum of mpf terms where k is small. SciPy's value stands beside it
for comparison only. Needs mpmath and scipy.

    python binomial_tail.py > binomial_tail.csv
"""
import mpmath as mp
from scipy.stats import binom

mp.mp.dps = 60


def tail(n, k, alpha):
    """Sums pmf(k), pmf(k-1), ... until the terms no longer matter (k below the
    mean), or one minus the terms above (k over it)."""
    a = mp.mpf(alpha)  # the double's exact value
    log_pmf = lambda j: (mp.loggamma(n + 1) - mp.loggamma(j + 1) - mp.loggamma(n - j + 1)
                         + j * mp.log(a) + (n - j) * mp.log1p(-a))
    down = k < n * a
    j = k if down else k + 1
    if j > n:
        return mp.mpf(1)
    term = mp.e ** log_pmf(j)
    total = mp.mpf(0)
    while term > total * mp.mpf(10) ** -40 and 0 <= j <= n:
        total += term
        if down:
            if j == 0:
                break
            term *= mp.mpf(j) * (1 - a) / ((n - j + 1) * a)
            j -= 1
        else:
            if j == n:
                break
            term *= mp.mpf(n - j) * a / ((j + 1) * (1 - a))
            j += 1
    return total if down else 1 - total


def cases():
    for alpha in ("0.1", "0.01", "0.05", "0.2", "0.5", "0.001", "0.9", "0.37"):
        a = float(alpha)
        for n in (1, 2, 5, 10, 44, 45, 100, 367, 1000, 1109, 5000, 10**5, 10**6, 10**7, 10**9):
            sd = (n * a * (1 - a)) ** 0.5
            ks = {0, n // 2, n, int(n * a)}
            for z in (-36, -20, -10, -5, -2.3263, -1, -0.1, 1, 3, 6):
                ks.add(int(n * a + z * sd))
            for k in sorted(k for k in ks if 0 <= k <= n):
                yield n, k, alpha


def extreme_cases():
    """Success probabilities close to 1, where few failures are expected, and
    close to 0."""
    near_0 = ("1e-4", "1e-9", "1e-16")
    near_1 = ("0.99", "0.9999", "0.999999", "0.999999999", "0.9999999999999", "0.9999999999999999")
    for alpha in near_0 + near_1:
        a = float(alpha)
        for n in (2, 44, 1000, 10**6, 10**9):
            sd = (n * a * (1 - a)) ** 0.5
            ks = {0, 1, n // 2, n - 10, n - 3, n - 2, n - 1}
            for z in (-30, -8, -2.3263, 0, 4):
                ks.add(int(n * a + z * sd))
            for k in sorted(k for k in ks if 0 <= k < n):
                yield n, k, alpha


print("n,k,alpha,tail,scipy")
for n, k, alpha in [*cases(), *extreme_cases()]:
    if n >= 10**9 and alpha != "0.1":
        sd = (n * float(alpha) * (1 - float(alpha))) ** 0.5
        if sd > 900 and abs(k - n * float(alpha)) / sd < 0.5:
            continue  # tens of thousands of slow terms: once is enough
    p = tail(n, k, float(alpha))
    if p < mp.mpf(10) ** -300:
        continue
    print(f"{n},{k},{alpha},{mp.nstr(p, 25, min_fixed=1, max_fixed=0)},{binom.cdf(k, n, float(alpha))!r}".replace("np.float64(", "").replace(")", ""))
