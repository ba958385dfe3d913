// Numbers of 16 bits: f16 and bf16, and tf32, the operands of tensor cores.
// Arithmetic is in float64 and rounded once. A sum, difference or product of two halves is exact there or far from a
// tie. That of fma is rounded to odd first (Boldo and Melquiond, 2008): the second rounding then sees its side.

enum { NEAREST, TO_ZERO, DOWN, UP }; // rn, rz, rm, rp
enum { CANONICAL_NAN_16 = 0x7fff, CANONICAL_NAN_32 = 0x7fffffff };

static inline double from_f16(uint16_t x) { return H(x); }
static inline double from_bf16(uint16_t x) { return F((uint32_t)x << 16); }
static inline uint16_t ftz_f16(uint16_t x) { return x & 0x7c00 ? x : x & 0x8000; } // subnormals to zero
static inline uint16_t ftz_bf16(uint16_t x) { return x & 0x7f80 ? x : x & 0x8000; }

static inline uint16_t half_of(uint32_t word, int upper) { return upper ? word >> 16 : word; }
static inline uint32_t pair(uint16_t lower, uint16_t upper) { return lower | (uint32_t)upper << 16; }

// x lies between two neighbors: returns `nearest` if its last bit is set, else the one on the other side of x.
static double odd(double nearest, int above, int exact) { // above: the exact number is greater than nearest
    uint64_t b = UD(nearest);
    if (exact || b & 1) return nearest;
    return D(above == (nearest > 0) ? b + 1 : b - 1);
}

static double odd_fma(double a, double b, double c) { // a * b must be exact, as that of halves is
    double product = a * b, sum = product + c;
    if (!isfinite(sum)) return sum;
    double seen = sum - product; // Knuth's two-sum: product + c = sum + rest
    double rest = (product - (sum - seen)) + (c - seen);
    return odd(sum, rest > 0, rest == 0);
}

static double odd_integer(s128 x) {
    double nearest = (double)x;
    s128 back = (s128)nearest;
    return odd(nearest, x > back, x == back);
}

// The number of 16 bits next to `nearest`, which has the value `got`, on that side of x that the mode wants.
static uint16_t directed(uint16_t nearest, double got, double x, int mode) {
    int toward_less = mode == DOWN || (mode == TO_ZERO && x > 0);
    if (mode == NEAREST || isnan(x) || got == x || (got < x) == toward_less) return nearest;
    int grow = toward_less == (nearest >> 15); // of the magnitude
    return grow ? nearest + 1 : nearest - 1;
}

static uint16_t to_f16(double x, int mode) {
    if (isnan(x)) return CANONICAL_NAN_16;
    uint16_t nearest = UH((_Float16)x);
    return directed(nearest, from_f16(nearest), x, mode);
}

static uint16_t to_bf16(double x, int mode) {
    if (isnan(x)) return CANONICAL_NAN_16;
    float f = (float)x; // rounded to odd: 24 bits then keep on which side of a tie of 8 bits x was
    uint32_t b = UF(f);
    if ((double)f != x && !(b & 1)) b += (fabs((double)f) < fabs(x)) ? 1 : -1;
    uint16_t nearest = (b + 0x7fff + (b >> 16 & 1)) >> 16;
    return directed(nearest, from_bf16(nearest), x, mode);
}

// float32 to 10 bits of fraction; the 13 bits below are zero. Of ties, rna takes the greater magnitude, rn the even
// one.
static uint32_t to_tf32(float x, int ties_away, int mode) {
    if (isnan(x)) return CANONICAL_NAN_32;
    uint32_t b = UF(x);
    if (isinf(x) || mode == TO_ZERO) return b & ~0x1fffu;
    return (b + (ties_away ? 0x1000 : 0xfff + (b >> 13 & 1))) & ~0x1fffu;
}

static inline double relu(double x) { return x < 0 ? 0 : x; } // NaN stays
static inline double clamp(double x) { return x > 0 ? fmin(x, 1) : 0; } // .sat: NaN becomes 0
