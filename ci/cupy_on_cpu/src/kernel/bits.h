// The bits of a register as a number (F, D, H), the bits of a number (UF, UD, UH), and bytes of registers.

typedef unsigned __int128 u128;
typedef __int128 s128;

static inline float F(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
static inline double D(uint64_t x) { double y; memcpy(&y, &x, 8); return y; }
static inline _Float16 H(uint16_t x) { _Float16 y; memcpy(&y, &x, 2); return y; }
static inline uint32_t UF(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
static inline uint64_t UD(double x) { uint64_t y; memcpy(&y, &x, 8); return y; }
static inline uint16_t UH(_Float16 x) { uint16_t y; memcpy(&y, &x, 2); return y; }

// A subnormal number becomes zero with its sign.
static inline float ftz(float x) { uint32_t b = UF(x); return (b & 0x7f800000u) == 0 ? F(b & 0x80000000u) : x; }

// min and max of PTX: NaN only of two NaN, and -0 is less than +0.
static inline double smaller(double a, double b) {
    if (isnan(a) || (a == b && signbit(b))) return b;
    return isnan(b) || a <= b ? a : b;
}
static inline double larger(double a, double b) { return -smaller(-a, -b); }

// Picks 4 of 8 bytes. Bit 3 of a selector copies the sign of the byte instead.
static uint64_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
    uint8_t bytes[8];
    uint32_t result = 0;
    memcpy(bytes, &a, 4);
    memcpy(bytes + 4, &b, 4);
    for (int i = 0; i < 4; i++) {
        int k = (selector >> (4 * i)) & 15;
        uint8_t byte = bytes[k & 7];
        if (k & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= (uint32_t)byte << (8 * i);
    }
    return result;
}
