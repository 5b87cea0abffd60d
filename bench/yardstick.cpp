// The yardstick: the Surface Augmented Sampler written by hand for one model, ellipsoid-sphere.
//
// Scalar C++17, one chain after the other, early exits everywhere; the same algorithm as
// limpet.SAS with the paper's settings, and draws kept in memory. What a user would gain by giving
// up limpet for a program of their own is the ratio of the two.
//
//     yardstick STEPS CHAINS BETA SEED    prints one JSON object

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "random.h"

struct Vec { double a, b, c; };
static inline Vec operator+(Vec u, Vec v) { return {u.a + v.a, u.b + v.b, u.c + v.c}; }
static inline Vec operator-(Vec u, Vec v) { return {u.a - v.a, u.b - v.b, u.c - v.c}; }
static inline Vec operator*(double s, Vec v) { return {s * v.a, s * v.b, s * v.c}; }
static inline double dot(Vec u, Vec v) { return u.a * v.a + u.b * v.b + u.c * v.c; }

// q and its two gradients, divided by eps
struct Point { Vec x; double q1, q2; Vec g1, g2; };
static double inverse_eps;

static inline Point at(Vec x) {
    const double w = inverse_eps;
    return {x,
            w * (x.a * x.a + x.b * x.b + (x.c - 1) * (x.c - 1) - 2),
            w * (x.a * x.a / 2 + (x.b + 1) * (x.b + 1) / 3 + x.c * x.c / 5 - 1),
            {2 * w * x.a, 2 * w * x.b, 2 * w * (x.c - 1)},
            {w * x.a, 2 * w / 3 * (x.b + 1), 2 * w / 5 * x.c}};
}

// K = G^T G and products with its inverse
struct Gram {
    double k11, k12, k22, det;
    explicit Gram(const Point &p)
        : k11(dot(p.g1, p.g1)), k12(dot(p.g1, p.g2)), k22(dot(p.g2, p.g2)), det(k11 * k22 - k12 * k12) {}
    Vec raised(const Point &p, double r1, double r2) const {  // G K^-1 r
        return ((k22 * r1 - k12 * r2) / det) * p.g1 + ((k11 * r2 - k12 * r1) / det) * p.g2;
    }
    Vec tangent(const Point &p, Vec v) const { return v - raised(p, dot(p.g1, v), dot(p.g2, v)); }
};

static const int cap = 5;

static double reach;  // how far from the origin chains begin

// Newton along the normals at p, to limpet's tolerance: |q_i| <= 2e-11 |grad q_i| (|x| + |x_0|)
static inline bool project(Vec start, const Point &p, Point &end) {
    const double tolerance = 2e-11 * (std::sqrt(dot(p.x, p.x)) + reach);
    const double tolerance1 = tolerance * std::sqrt(dot(p.g1, p.g1));
    const double tolerance2 = tolerance * std::sqrt(dot(p.g2, p.g2));
    end = at(start);
    for (int update = 0;; ++update) {
        if (std::fabs(end.q1) <= tolerance1 && std::fabs(end.q2) <= tolerance2) return true;
        if (update == cap) return false;
        const double a11 = dot(end.g1, p.g1), a12 = dot(end.g1, p.g2);
        const double a21 = dot(end.g2, p.g1), a22 = dot(end.g2, p.g2), det = a11 * a22 - a12 * a21;
        const double s = (a22 * end.q1 - a12 * end.q2) / det, t = (a11 * end.q2 - a21 * end.q1) / det;
        end = at(end.x - s * p.g1 - t * p.g2);
        if (!std::isfinite(end.q1)) return false;
    }
}

static inline bool returned(const Point &end, Vec x) {
    const Vec miss = end.x - x;
    return std::sqrt(dot(miss, miss)) <= 1e-8 * (std::sqrt(dot(x, x)) + reach);
}

enum Move { HARD, OFF, ON, SOFT };

int main(int count, char **given) {
    if (count != 5) return std::fprintf(stderr, "usage: yardstick STEPS CHAINS BETA SEED\n"), 2;
    const long steps = std::atol(given[1]), chains = std::atol(given[2]);
    const double eps = std::sqrt(0.5 / std::atof(given[3]));
    inverse_eps = 1 / eps;
    const double hrd = 1, sft = 0.7 * eps, tan = eps, on = eps;  // sigma_prp is eps: one, here

    double proposals[4] = {}, accepted[4] = {};
    std::vector<Vec> draws;
    draws.reserve(chains * steps / 4);
    const auto began = std::chrono::steady_clock::now();
    for (long chain = 0; chain < chains; ++chain) {
        Random random(std::atol(given[4]) * 1000003 + chain);
        Point x;
        project({1, 0.3, 0.1}, at({1, 0.3, 0.1}), x);
        reach = std::sqrt(dot(x.x, x.x));
        Gram K(x);
        bool is_on = true;
        for (long step = 0; step < steps; ++step) {
            const Move move = is_on ? (random.uniform() < 0.2 ? OFF : HARD)
                                    : (random.uniform() < 0.8 ? ON : SOFT);
            const Vec z{random.normal(), random.normal(), random.normal()};
            Point y, foot, back;
            double ratio = -INFINITY;
            switch (move) {
            case HARD: {
                const Vec v = hrd * K.tangent(x, z);
                if (!project(x.x + v, x, y)) break;
                const Gram Ky(y);
                const Vec w = Ky.tangent(y, x.x - y.x);
                if (!project(y.x + w, y, back) || !returned(back, x.x)) break;
                ratio = 0.5 * std::log(K.det / Ky.det) + (dot(v, v) - dot(w, w)) / (2 * hrd * hrd);
                break;
            }
            case OFF: case ON: {
                const Point *s, *a;  // on the surface and off it
                Vec slide;
                if (move == OFF) {
                    // r = L^-1 G^T z is standard normal and independent of the tangent part of z
                    const double l11 = std::sqrt(K.k11), l21 = K.k12 / l11, l22 = std::sqrt(K.k22 - l21 * l21);
                    const double r1 = dot(x.g1, z) / l11, r2 = (dot(x.g2, z) - l21 * r1) / l22;
                    y = at(x.x + tan * K.tangent(x, z) + K.raised(x, r1, r2));
                    if (!project(y.x, y, foot)) break;
                    slide = Gram(foot).tangent(foot, x.x - foot.x);
                    if (!project(foot.x + slide, foot, back) || !returned(back, x.x)) break;
                    s = &x, a = &y;
                } else {
                    if (!project(x.x, x, foot)) break;
                    slide = on * Gram(foot).tangent(foot, z);
                    if (!project(foot.x + slide, foot, y)) break;
                    s = &y, a = &x;
                }
                const Gram Kf(foot), Ks(*s);
                const Vec kick = a->x - s->x, along = Ks.tangent(*s, kick);
                const double c1 = dot(s->g1, kick), c2 = dot(s->g2, kick);
                const double cross = dot(foot.g1, s->g1) * dot(foot.g2, s->g2)
                                     - dot(foot.g1, s->g2) * dot(foot.g2, s->g1);
                const double E = -(a->q1 * a->q1 + a->q2 * a->q2) / 2 + (c1 * c1 + c2 * c2) / 2
                                 + dot(along, along) / (2 * tan * tan) - dot(slide, slide) / (2 * on * on)
                                 + std::log(std::fabs(cross) / std::sqrt(Kf.det * Ks.det));
                ratio = move == OFF ? E : -E;
                break;
            }
            case SOFT:
                y = at(x.x + sft * z);
                ratio = (x.q1 * x.q1 + x.q2 * x.q2 - y.q1 * y.q1 - y.q2 * y.q2) / 2;
            }
            proposals[move] += 1;
            const double probability = ratio < 0 ? std::exp(ratio) : 1;
            accepted[move] += probability;
            if (random.uniform() < probability) {
                x = y;
                is_on = move == HARD || move == ON;
                if (is_on) K = Gram(x);
            }
            if (!is_on) draws.push_back(x.x);
        }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    double square = 0;
    for (const Vec &x : draws) square += x.a * x.a;
    std::printf("{\"steps\": %ld, \"seconds\": %.6f, \"draws\": %zu, \"mean_square\": %.5f, \"hard\": %.5f,"
                " \"off\": %.5f, \"on\": %.5f, \"soft\": %.5f}\n",
                chains * steps, seconds, draws.size(), square / double(draws.size()),
                accepted[HARD] / proposals[HARD], accepted[OFF] / proposals[OFF],
                accepted[ON] / proposals[ON], accepted[SOFT] / proposals[SOFT]);
}
