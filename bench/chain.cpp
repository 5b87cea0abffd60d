// The yardstick for stiff chains: slides with their reverse checks, written by hand for this model.
//
// N beads in space, the first at the origin, and N - 1 bonds q_i = |r_i - r_(i-1)|^2 - 1. A Hard
// move of limpet.SAS and nothing else: C++17, loops over beads, four chains in the lanes of a
// vector, three diagonals for every matrix. Newton goes on until all four lanes have landed.
//
//     chain BEADS STEPS SIZE SEED    prints one JSON object; SIZE is that of the slides

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "random.h"

constexpr int LANES = 4, CAP = 8;
constexpr double TOLERANCE = 1e-12, REVERSE = 1e-8;
typedef double Lanes __attribute__((vector_size(8 * LANES)));
typedef long long Flags __attribute__((vector_size(8 * LANES)));

struct Vec { Lanes a, b, c; };
static inline Vec operator+(Vec u, Vec v) { return {u.a + v.a, u.b + v.b, u.c + v.c}; }
static inline Vec operator-(Vec u, Vec v) { return {u.a - v.a, u.b - v.b, u.c - v.c}; }
static inline Vec operator*(Lanes s, Vec v) { return {s * v.a, s * v.b, s * v.c}; }
static inline Lanes dot(Vec u, Vec v) { return u.a * v.a + u.b * v.b + u.c * v.c; }
template <class Function> static inline Lanes each(Function f, Lanes v) {
    for (int k = 0; k < LANES; ++k) v[k] = f(v[k]);
    return v;
}
static inline Lanes root(Lanes v) { return each([](double x) { return std::sqrt(x); }, v); }
static inline Vec choose(Flags f, Vec u, Vec v) { return {f ? u.a : v.a, f ? u.b : v.b, f ? u.c : v.c}; }
static inline bool any(Flags f) { return f[0] | f[1] | f[2] | f[3]; }

using Beads = std::vector<Vec>;     // of each bond: the bead at its end, or the bond itself
using Numbers = std::vector<Lanes>; // of each bond

static long bonds;

// the bonds themselves, of which gradients of q are made: 2 d at the bond's end, -2 d where it begins
static void differences(const Beads &x, Beads &d) {
    d[0] = x[0];
    for (long i = 1; i < bonds; ++i) d[i] = x[i] - x[i - 1];
}

// G a: the gradients with coefficients a, added to x
static void add_along(const Beads &d, const Numbers &a, Lanes times, Beads &x) {
    for (long i = 0; i + 1 < bonds; ++i) x[i] = x[i] + (2 * times * a[i]) * d[i] - (2 * times * a[i + 1]) * d[i + 1];
    x[bonds - 1] = x[bonds - 1] + (2 * times * a[bonds - 1]) * d[bonds - 1];
}

// G^T v: how fast each q changes along v
static void across(const Beads &d, const Beads &v, Numbers &a) {
    a[0] = 2 * dot(d[0], v[0]);
    for (long i = 1; i < bonds; ++i) a[i] = 2 * dot(d[i], v[i] - v[i - 1]);
}

// the Gram matrix of the gradients as L D L^T: the diagonal D, and L below its ones
struct Factor {
    Numbers diagonal, below;
    Factor() : diagonal(bonds), below(bonds) {}
    Lanes make(const Beads &d) {  // returns the log determinant
        Lanes log_det = {}, product = Lanes{} + 1;
        diagonal[0] = 4 * dot(d[0], d[0]);
        for (long i = 0;; ++i) {
            product *= diagonal[i];
            if (i % 32 == 31 || i + 1 == bonds) {  // 8 to the 32 has room in a double
                log_det += each([](double x) { return std::log(x); }, product);
                product = Lanes{} + 1;
            }
            if (i + 1 == bonds) return log_det;
            const Lanes off = -4 * dot(d[i], d[i + 1]);
            below[i] = off / diagonal[i];
            diagonal[i + 1] = 8 * dot(d[i + 1], d[i + 1]) - below[i] * off;
        }
    }
    void solve(Numbers &a) const {
        for (long i = 1; i < bonds; ++i) a[i] -= below[i - 1] * a[i - 1];
        a[bonds - 1] /= diagonal[bonds - 1];
        for (long i = bonds - 2; i >= 0; --i) a[i] = a[i] / diagonal[i] - below[i] * a[i + 1];
    }
};

struct Slider {
    Beads d;  // at the present point
    Numbers values, upper;
    long updates = 0;
    Slider() : d(bonds), values(bonds), upper(bonds) {}

    // v less its part along the normals
    void tangent(const Beads &normals, const Factor &K, Beads &v) {
        across(normals, v, values);
        K.solve(values);
        add_along(normals, values, Lanes{} - 1, v);
    }

    // Newton along the normals, from x; which lanes landed
    Flags project(const Beads &normals, Lanes length, Beads &x) {
        // |q_i| <= TOLERANCE |grad q_i| length, squared; the first bond has but one end that moves
        const Lanes square = 8 * TOLERANCE * TOLERANCE * length * length;
        for (int made = 0;; ++made) {
            differences(x, d);
            Flags far = {};
            for (long i = 0; i < bonds; ++i) {
                values[i] = dot(d[i], d[i]) - 1;
                far |= ~(values[i] * values[i] <= square * dot(normals[i], normals[i]));
            }
            if (made == CAP || !any(far)) return ~far;
            ++updates;
            // G(x)^T normals has three diagonals; lanes that have landed stay
            Lanes inverse = 1 / (4 * dot(d[0], normals[0]));
            for (long i = 0; i + 1 < bonds; ++i) {
                const Lanes lower = -4 * dot(d[i + 1], normals[i]);
                upper[i] = -4 * dot(d[i], normals[i + 1]) * inverse;
                values[i] *= inverse;
                values[i + 1] -= lower * values[i];
                inverse = 1 / (8 * dot(d[i + 1], normals[i + 1]) - lower * upper[i]);
            }
            values[bonds - 1] *= inverse;
            for (long i = bonds - 2; i >= 0; --i) values[i] -= upper[i] * values[i + 1];
            add_along(normals, values, far ? Lanes{} - 1 : Lanes{}, x);
        }
    }
};

static Lanes square(const Beads &v) {
    Lanes sum = {};
    for (long i = 0; i < bonds; ++i) sum += dot(v[i], v[i]);
    return sum;
}

int main(int count, char **given) {
    if (count != 5) return std::fprintf(stderr, "usage: chain BEADS STEPS SIZE SEED\n"), 2;
    bonds = std::atol(given[1]) - 1;
    const long steps = std::atol(given[2]);
    const double h = std::atof(given[3]);
    std::vector<Random> random;
    for (int k = 0; k < LANES; ++k) random.emplace_back(std::atol(given[4]) * 1000003 + k);
    const auto normal = [&] {
        Lanes z;
        for (int k = 0; k < LANES; ++k) z[k] = random[k].normal();
        return z;
    };

    Beads x(bonds), y(bonds), v(bonds), back(bonds), here(bonds), there(bonds);
    for (long i = 0; i < bonds; ++i)  // a zigzag
        x[i] = {Lanes{} + 0.8 * double(i + 1), Lanes{} + (i % 2 ? 0.0 : 0.6), Lanes{}};
    differences(x, here);
    Factor K, K_there;
    Slider slider;
    Lanes log_det = K.make(here), accepted = {};
    const Lanes reach = root(square(x));
    const auto began = std::clock();
    for (long step = 0; step < steps; ++step) {
        for (Vec &each : v) each = {h * normal(), h * normal(), h * normal()};
        slider.tangent(here, K, v);
        for (long i = 0; i < bonds; ++i) y[i] = x[i] + v[i];
        const Lanes length = root(square(x)) + reach;
        Flags sound = slider.project(here, length, y);
        differences(y, there);
        const Lanes log_det_there = K_there.make(there);
        for (long i = 0; i < bonds; ++i) back[i] = x[i] - y[i];
        slider.tangent(there, K_there, back);
        const Lanes change = (square(v) - square(back)) / (2 * h * h) - (log_det_there - log_det) / 2;
        for (long i = 0; i < bonds; ++i) back[i] = y[i] + back[i];
        sound &= slider.project(there, root(square(y)) + reach, back);
        for (long i = 0; i < bonds; ++i) back[i] = back[i] - x[i];
        sound &= root(square(back)) <= REVERSE * length;
        Flags taken;
        for (int k = 0; k < LANES; ++k) taken[k] = sound[k] && random[k].uniform() < std::exp(change[k]) ? -1 : 0;
        for (long i = 0; i < bonds; ++i) x[i] = choose(taken, y[i], x[i]), here[i] = choose(taken, there[i], here[i]);
        for (long i = 0; i < bonds; ++i) {
            K.diagonal[i] = taken ? K_there.diagonal[i] : K.diagonal[i];
            K.below[i] = taken ? K_there.below[i] : K.below[i];
        }
        log_det = taken ? log_det_there : log_det;
        accepted += taken ? Lanes{} + 1 : Lanes{};
    }
    const double seconds = double(std::clock() - began) / CLOCKS_PER_SEC;  // of the processor
    double shares = 0, end_to_end = 0;
    for (int k = 0; k < LANES; ++k) {
        shares += accepted[k] / double(steps) / LANES;
        end_to_end += dot(x[bonds - 1], x[bonds - 1])[k] / LANES;
    }
    std::printf("{\"seconds\": %.9f, \"updates\": %.3f, \"accepted\": %.4f, \"end_to_end\": %.3f}\n",
                seconds / double(steps * LANES), double(slider.updates) / double(steps), shares, end_to_end);
}
