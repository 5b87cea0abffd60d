// Holmes-Cerfon's Stratification Sampler (arXiv 1912.10176) on a chain of sticky spheres, plainly,
// to count its steps per effective draw of the number of bonds. Its arguments: spheres, stickiness,
// steps, sizes of a step along a stratum, off it, and sideways, the share of steps along, and a seed.
// It prints the number of bonds every `THIN` steps, and then how often each move was accepted.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using Vec = std::vector<double>;
using Mat = std::vector<Vec>;  // rows are vectors

static const int THIN = 10, NEWTON = 20;
static const double TOLERANCE = 1e-11, RETURNED = 1e-6;

static int N, n;  // spheres, coordinates
static std::vector<std::pair<int, int>> pairs;  // those of the chain first

static double dot(const Vec &a, const Vec &b) {
    double s = 0;
    for (size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
    return s;
}

static double q(const Vec &x, int k) {
    double s = -1;
    for (int c = 0; c < 3; ++c) {
        double d = x[3 * pairs[k].first + c] - x[3 * pairs[k].second + c];
        s += d * d;
    }
    return s / 2;
}

static Vec grad(const Vec &x, int k) {
    Vec g(n, 0.0);
    for (int c = 0; c < 3; ++c) {
        double d = x[3 * pairs[k].first + c] - x[3 * pairs[k].second + c];
        g[3 * pairs[k].first + c] = d;
        g[3 * pairs[k].second + c] = -d;
    }
    return g;
}

// An orthonormal basis of all vectors orthogonal to the rows of G, and log det(G G^T) / 2.
static Mat tangent(const Mat &G, double &log_volume) {
    Mat basis, all;
    log_volume = 0;
    auto reduce = [&](Vec v) {
        for (int twice = 0; twice < 2; ++twice)
            for (auto &b : all) {
                double s = dot(b, v);
                for (int i = 0; i < n; ++i) v[i] -= s * b[i];
            }
        return v;
    };
    for (auto &g : G) {
        Vec v = reduce(g);
        double size = std::sqrt(dot(v, v));
        log_volume += std::log(size);
        for (auto &each : v) each /= size;
        all.push_back(v);
    }
    // the unit vectors that have most left, one after the other
    std::vector<bool> used(n, false);
    while ((int)all.size() < n) {
        int best = -1;
        double most = 0;
        for (int i = 0; i < n; ++i) {
            if (used[i]) continue;
            double left = 1;
            for (auto &b : all) left -= b[i] * b[i];
            if (left > most) most = left, best = i;
        }
        used[best] = true;
        Vec v(n, 0.0);
        v[best] = 1;
        v = reduce(v);
        double size = std::sqrt(dot(v, v));
        for (auto &each : v) each /= size;
        all.push_back(v);
        basis.push_back(v);
    }
    return basis;
}

static bool solve(Mat A, Vec b, Vec &out) {
    int m = b.size();
    for (int k = 0; k < m; ++k) {
        int best = k;
        for (int i = k + 1; i < m; ++i)
            if (std::fabs(A[i][k]) > std::fabs(A[best][k])) best = i;
        if (std::fabs(A[best][k]) < 1e-14) return false;
        std::swap(A[k], A[best]);
        std::swap(b[k], b[best]);
        for (int i = k + 1; i < m; ++i) {
            double share = A[i][k] / A[k][k];
            for (int j = k; j < m; ++j) A[i][j] -= share * A[k][j];
            b[i] -= share * b[k];
        }
    }
    out.assign(m, 0.0);
    for (int k = m - 1; k >= 0; --k) {
        out[k] = b[k];
        for (int j = k + 1; j < m; ++j) out[k] -= A[k][j] * out[j];
        out[k] /= A[k][k];
    }
    return true;
}

static double log_det(Mat A) {
    int m = A.size();
    double sum = 0;
    for (int k = 0; k < m; ++k) {
        int best = k;
        for (int i = k + 1; i < m; ++i)
            if (std::fabs(A[i][k]) > std::fabs(A[best][k])) best = i;
        std::swap(A[k], A[best]);
        sum += std::log(std::fabs(A[k][k]));
        for (int i = k + 1; i < m; ++i) {
            double share = A[i][k] / A[k][k];
            for (int j = k; j < m; ++j) A[i][j] -= share * A[k][j];
        }
    }
    return sum;
}

// y = start + columns^T a, with q = 0 for all that are on.
static bool project(const Vec &start, const Mat &columns, const std::vector<int> &on, Vec &y,
                    Vec &a) {
    int m = on.size();
    a.assign(m, 0.0);
    y = start;
    for (int turn = 0; turn < NEWTON; ++turn) {
        Vec values(m), step;
        double miss = 0;
        for (int i = 0; i < m; ++i) {
            values[i] = q(y, on[i]);
            miss = std::max(miss, std::fabs(values[i]));
        }
        if (miss < TOLERANCE) return true;
        Mat A(m, Vec(m));
        for (int i = 0; i < m; ++i) {
            Vec g = grad(y, on[i]);
            for (int j = 0; j < m; ++j) A[i][j] = dot(g, columns[j]);
        }
        if (!solve(A, values, step)) return false;
        for (int j = 0; j < m; ++j) {
            a[j] -= step[j];
            for (int i = 0; i < n; ++i) y[i] -= step[j] * columns[j][i];
        }
    }
    return false;
}

struct Place {
    std::vector<int> on;
    Mat G, T;
    double log_volume;
};

static Place place(const Vec &x, const std::vector<int> &on) {
    Place p;
    p.on = on;
    for (int k : on) p.G.push_back(grad(x, k));
    p.T = tangent(p.G, p.log_volume);
    return p;
}

// The unit vector along which q_k grows fastest in a tangent space, and the steepness.
static Vec uphill(const Mat &T, const Vec &g, double &slope) {
    Vec u(n, 0.0);
    for (auto &t : T) {
        double s = dot(t, g);
        for (int i = 0; i < n; ++i) u[i] += s * t[i];
    }
    slope = std::sqrt(dot(u, u));
    for (auto &each : u) each /= slope;
    return u;
}

static Vec difference(const Vec &a, const Vec &b) {
    Vec d(n);
    for (int i = 0; i < n; ++i) d[i] = a[i] - b[i];
    return d;
}

static Vec part(const Mat &T, const Vec &v) {
    Vec p(n, 0.0);
    for (auto &t : T) {
        double s = dot(t, v);
        for (int i = 0; i < n; ++i) p[i] += s * t[i];
    }
    return p;
}

static Mat without(const Mat &T, const Vec &u) {  // a basis of T less one of its directions
    Mat basis;
    std::vector<Vec> all{u};
    Mat rest = T;
    while ((int)basis.size() + 1 < (int)T.size()) {
        int best = 0;
        double most = -1;
        std::vector<Vec> left;
        for (auto &t : rest) {
            Vec v = t;
            for (int twice = 0; twice < 2; ++twice)
                for (auto &b : all) {
                    double s = dot(b, v);
                    for (int i = 0; i < n; ++i) v[i] -= s * b[i];
                }
            left.push_back(v);
        }
        for (size_t i = 0; i < left.size(); ++i)
            if (dot(left[i], left[i]) > most) most = dot(left[i], left[i]), best = i;
        Vec v = left[best];
        double size = std::sqrt(most);
        for (auto &each : v) each /= size;
        all.push_back(v);
        basis.push_back(v);
        rest.erase(rest.begin() + best);
    }
    return basis;
}

static double log_normal(double square, double size, int d) {
    return -square / (2 * size * size) - d * std::log(size) - d * 0.5 * std::log(2 * M_PI);
}

static Mat products(const Mat &A, const Mat &B) {
    Mat C(A.size(), Vec(B.size()));
    for (size_t i = 0; i < A.size(); ++i)
        for (size_t j = 0; j < B.size(); ++j) C[i][j] = dot(A[i], B[j]);
    return C;
}

int main(int argc, char **argv) {
    N = std::atoi(argv[1]);
    n = 3 * N;
    double kappa = std::atof(argv[2]);
    long steps = std::atol(argv[3]);
    double along = std::atof(argv[4]), off = std::atof(argv[5]), sideways = std::atof(argv[6]);
    double share = std::atof(argv[7]);
    std::mt19937_64 rng(std::atoi(argv[8]));
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    for (int i = 0; i + 1 < N; ++i) pairs.push_back({i, i + 1});
    for (int i = 0; i < N; ++i)
        for (int j = i + 2; j < N; ++j) pairs.push_back({i, j});
    int fixed = N - 1, m = pairs.size();
    Vec x(n);
    for (int i = 0; i < N; ++i) x[3 * i] = 0.8 * i, x[3 * i + 1] = 0.6 * (i % 2);
    std::vector<int> on;
    for (int k = 0; k < fixed; ++k) on.push_back(k);
    Place here = place(x, on);
    long tried[3] = {0, 0, 0}, accepted[3] = {0, 0, 0};

    auto apart = [&](const Vec &y, const std::vector<int> &on) {
        for (int k = fixed; k < m; ++k)
            if (std::find(on.begin(), on.end(), k) == on.end() && q(y, k) <= 0) return false;
        return true;
    };
    auto near = [&](const Vec &y, const Place &p) {  // what may be lost: within reach
        std::vector<int> found;
        for (int k = fixed; k < m; ++k) {
            if (std::find(p.on.begin(), p.on.end(), k) != p.on.end()) continue;
            double slope;
            uphill(p.T, grad(y, k), slope);
            if (q(y, k) < off * slope) found.push_back(k);
        }
        return found;
    };
    // log density of Gain's v, and of Lose's direction v, both from a place without constraint k
    auto log_gain = [&](const Vec &v, const Vec &u, int d) -> double {
        double s = dot(v, u), square = dot(v, v) - s * s;
        if (s <= 0 || s >= off) return -INFINITY;
        return -std::log(off) + log_normal(square, sideways * s, d);
    };
    auto log_lose = [&](const Vec &v, const Vec &u, int d) -> double {  // u is downhill
        double size = std::sqrt(dot(v, v)), cosine = dot(v, u) / size;
        if (cosine <= 0) return -INFINITY;
        double t = (1 - cosine * cosine) / (cosine * cosine);
        return log_normal(t, sideways, d) - (d + 1) * std::log(cosine);
    };

    for (long step = 0; step < steps; ++step) {
        double choice = uniform(rng);
        int move = choice < share ? 0 : choice < (1 + share) / 2 ? 1 : 2;
        ++tried[move];
        Vec y, a, back;
        if (move == 0) {
            Vec v(n, 0.0);
            for (auto &t : here.T) {
                double z = along * normal(rng);
                for (int i = 0; i < n; ++i) v[i] += z * t[i];
            }
            Vec start(n);
            for (int i = 0; i < n; ++i) start[i] = x[i] + v[i];
            if (project(start, here.G, on, y, a) && apart(y, on)) {
                Place there = place(y, on);
                Vec w = part(there.T, difference(x, y));
                double log_ratio = here.log_volume - there.log_volume +
                                   (dot(v, v) - dot(w, w)) / (2 * along * along);
                Vec again(n);
                for (int i = 0; i < n; ++i) again[i] = y[i] + w[i];
                if (std::log(uniform(rng)) < log_ratio && project(again, there.G, on, back, a)) {
                    Vec miss = difference(back, x);
                    if (dot(miss, miss) < RETURNED * RETURNED) {
                        x = y, here = there;
                        ++accepted[0];
                    }
                }
            }
        } else if (move == 1 && (int)on.size() > fixed) {  // Gain a dimension: a bond breaks
            int at = fixed + int(uniform(rng) * (on.size() - fixed)), k = on[at];
            std::vector<int> less = on;
            less.erase(less.begin() + at);
            Place base = place(x, less);
            double slope;
            Vec u = uphill(base.T, grad(x, k), slope);
            int d = here.T.size();
            double s = off * uniform(rng);
            Vec v(n);
            for (int i = 0; i < n; ++i) v[i] = s * u[i];
            for (auto &t : here.T) {
                double z = sideways * s * normal(rng);
                for (int i = 0; i < n; ++i) v[i] += z * t[i];
            }
            Vec start(n);
            for (int i = 0; i < n; ++i) start[i] = x[i] + v[i];
            if (project(start, base.G, less, y, a) && apart(y, less)) {
                Place there = place(y, less);
                std::vector<int> close = near(y, there);
                if (std::find(close.begin(), close.end(), k) != close.end()) {
                    double steep;
                    Vec down = uphill(there.T, grad(y, k), steep);
                    for (auto &each : down) each = -each;
                    Vec w = part(there.T, difference(x, y));
                    double alpha = std::sqrt(dot(w, w));
                    Vec unit = w;
                    for (auto &each : unit) each /= alpha;
                    double forward = log_gain(v, u, d) + log_det(products(base.T, there.T)) -
                                     std::log(double(on.size() - fixed));
                    double reverse = log_lose(w, down, d) - d * std::log(alpha) +
                                     log_det(products(without(there.T, unit), here.T)) -
                                     std::log(double(close.size()));
                    double log_ratio = reverse - forward - std::log(kappa) + here.log_volume -
                                       there.log_volume;
                    Mat columns = there.G;
                    columns.push_back(unit);
                    std::vector<int> all = less;
                    all.push_back(k);
                    if (std::log(uniform(rng)) < log_ratio && project(y, columns, all, back, a)) {
                        Vec miss = difference(back, x);
                        if (dot(miss, miss) < RETURNED * RETURNED) {
                            x = y, here = there, on = less;
                            ++accepted[1];
                        }
                    }
                }
            }
        } else if (move == 2) {  // Lose a dimension: a bond forms
            std::vector<int> close = near(x, here);
            if (!close.empty()) {
                int k = close[int(uniform(rng) * close.size())];
                double slope;
                Vec down = uphill(here.T, grad(x, k), slope);
                for (auto &each : down) each = -each;
                int d = here.T.size() - 1;
                Vec w = down;
                for (auto &t : without(here.T, down)) {
                    double z = sideways * normal(rng);
                    for (int i = 0; i < n; ++i) w[i] += z * t[i];
                }
                double size = std::sqrt(dot(w, w));
                for (auto &each : w) each /= size;
                Mat columns = here.G;
                columns.push_back(w);
                std::vector<int> more = on;
                more.push_back(k);
                // the point is reached with a positive alpha only
                if (project(x, columns, more, y, a) && a.back() > 0) {
                    std::vector<int> sorted = more;
                    if (apart(y, sorted)) {
                        Place there = place(y, sorted), base = place(y, on);
                        double steep;
                        Vec u = uphill(base.T, grad(y, k), steep);
                        Vec v = part(base.T, difference(x, y));
                        double alpha = a.back();
                        double forward = log_lose(w, down, d) - d * std::log(alpha) +
                                         log_det(products(without(here.T, w), there.T)) -
                                         std::log(double(close.size()));
                        double reverse = log_gain(v, u, d) + log_det(products(base.T, here.T)) -
                                         std::log(double(more.size() - fixed));
                        double log_ratio = reverse - forward + std::log(kappa) + here.log_volume -
                                           there.log_volume;
                        Vec again(n);
                        for (int i = 0; i < n; ++i) again[i] = y[i] + v[i];
                        if (std::log(uniform(rng)) < log_ratio &&
                            project(again, base.G, on, back, a)) {
                            Vec miss = difference(back, x);
                            if (dot(miss, miss) < RETURNED * RETURNED) {
                                x = y, here = there, on = sorted;
                                ++accepted[2];
                            }
                        }
                    }
                }
            }
        }
        if (step % THIN == THIN - 1) std::printf("%zu\n", on.size());
    }
    const char *names[3] = {"along", "gain", "lose"};
    for (int k = 0; k < 3; ++k)
        std::fprintf(stderr, "%s: %ld of %ld accepted\n", names[k], accepted[k], tried[k]);
}
