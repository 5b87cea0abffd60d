// Random numbers for the yardsticks: xoshiro256++, and normal numbers by a ziggurat.

#pragma once

#include <cmath>
#include <cstdint>

using u64 = std::uint64_t;

static inline u64 rotl(u64 x, int k) { return (x << k) | (x >> (64 - k)); }

// xoshiro256++ by Blackman and Vigna, seeded by splitmix64
struct Random {
    u64 s[4];
    explicit Random(u64 seed) {
        for (auto &word : s) {
            u64 z = (seed += 0x9e3779b97f4a7c15);
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
            z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
            word = z ^ (z >> 31);
        }
    }
    u64 bits() {
        const u64 result = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
        s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t, s[3] = rotl(s[3], 45);
        return result;
    }
    double uniform() { return (double(bits() >> 11) + 0.5) * 0x1p-53; }
    double normal();
};

// Marsaglia and Tsang's ziggurat with 256 layers
struct Ziggurat {
    double x[257], y[257];
    Ziggurat() {
        const double r = 3.6541528853610088, v = 0.00492867323399;
        x[0] = v / std::exp(-r * r / 2), x[1] = r, x[256] = 0;
        for (int i = 2; i < 256; ++i) {
            const double last = x[i - 1];
            x[i] = std::sqrt(-2 * std::log(v / last + std::exp(-last * last / 2)));
        }
        for (int i = 0; i <= 256; ++i) y[i] = std::exp(-x[i] * x[i] / 2);
    }
};
static const Ziggurat zig;

inline double Random::normal() {
    for (;;) {
        const u64 u = bits();
        const int i = u & 255;
        const double sign = u & 256 ? 1 : -1;
        const double z = double(u >> 11) * 0x1p-53 * zig.x[i];
        if (z < zig.x[i + 1]) return sign * z;
        if (i == 0) {
            double a, b;
            do a = -std::log(uniform()) / zig.x[1], b = -std::log(uniform());
            while (2 * b < a * a);
            return sign * (zig.x[1] + a);
        }
        if (zig.y[i] + uniform() * (zig.y[i + 1] - zig.y[i]) < std::exp(-z * z / 2)) return sign * z;
    }
}
