// Instructions on matrices whose elements lie in the registers of a warp: mma, ldmatrix, movmatrix.
// Layouts: PTX ISA 9.0, sections "Matrix Fragments for mma.m16n8k4/k8/k16", ldmatrix and movmatrix. With g = lane / 4
// and t = lane % 4, a register of 16-bit elements holds two neighbors: columns 2t and 2t + 1 of row g of an 8x8 matrix.

enum { TILE_WORDS = 10 };
typedef uint32_t Tile[32][TILE_WORDS]; // registers of each lane
static Tile tiles[32][2];              // of each warp: of this exchange and the one before, which lanes may still read

// Waits until all lanes of the warp are at this instruction; returns the registers of all.
static Tile *share(Th *me, const uint32_t *words, int count, unsigned instruction) {
    unsigned warp = me->lin / 32, lane = me->lin % 32;
    if (lanes(warp) != 32) fault(me, 719, "a matrix instruction needs 32 lanes, and the warp has %d", lanes(warp));
    Tile *tile = &tiles[warp][me->exchanges++ & 1];
    memcpy((*tile)[lane], words, count * sizeof *words);
    uint64_t *here = meet(me, instruction, ~0u);
    for (int i = 0; i < 32; i++)
        if (here[i] != instruction) fault(me, 719, "lanes of a warp are at different matrix instructions");
    return tile;
}

// ---- mma: D = A B + C with A of 16 x depth, B of depth x 8, C and D of 16 x 8 -------------------------

enum { F16, BF16, TF32 };

// Register `index` of a lane as an element of this kind; the cores ignore the low 13 bits of a tf32.
static float element(uint32_t word, int upper, int kind) {
    if (kind == TF32) return F(word & ~0x1fffu);
    return kind == F16 ? from_f16(half_of(word, upper)) : from_bf16(half_of(word, upper));
}

static float element_of_a(Tile *tile, int kind, int row, int column) {
    int wide = kind == TF32 ? 4 : 8; // columns of the piece that one register holds for 8 rows
    int lane = row % 8 * 4 + (kind == TF32 ? column % 4 : column % 8 / 2);
    return element((*tile)[lane][row / 8 + 2 * (column / wide)], column & 1, kind);
}

static float element_of_b(Tile *tile, int kind, int first, int row, int column) {
    int high = kind == TF32 ? 4 : 8;
    int lane = column * 4 + (kind == TF32 ? row % 4 : row % 8 / 2);
    return element((*tile)[lane][first + row / high], row & 1, kind);
}

// `words`: the registers of A, B and C of this lane. Each product is exact; it is added in float32, one rounding each,
// in ascending order of k, onto the element of C. Sums in f16 are rounded to f16 once, at the end. The order of sums
// inside of real tensor cores is not documented, and they truncate: last digits differ.
static void mma(Th *me, const uint32_t *words, uint32_t *result, int depth, int kind, int f16_sums,
                unsigned instruction) {
    int n_a = kind == TF32 ? depth / 2 : depth / 4, n_b = n_a / 2;
    const uint32_t *c = words + n_a + n_b;
    Tile *tile = share(me, words, n_a + n_b, instruction);
    int g = me->lin % 32 / 4, t = me->lin % 4;
    float sums[4];
    for (int i = 0; i < 4; i++) {
        int row = g + i / 2 * 8, column = 2 * t + i % 2;
        sums[i] = f16_sums ? from_f16(half_of(c[i / 2], i & 1)) : F(c[i]);
        for (int k = 0; k < depth; k++)
            sums[i] = fmaf(element_of_a(tile, kind, row, k), element_of_b(tile, kind, n_a, k, column), sums[i]);
    }
    if (f16_sums)
        for (int i = 0; i < 2; i++) result[i] = pair(to_f16(sums[2 * i], NEAREST), to_f16(sums[2 * i + 1], NEAREST));
    else
        for (int i = 0; i < 4; i++) result[i] = UF(sums[i]);
}

// ---- ldmatrix, movmatrix: 8x8 matrices of 16-bit elements -------------------------------------------------

// Lane 8 i + r has the address of row r of matrix i, and reads the row when it arrives, before any lane goes on.
static void ldmatrix(Th *me, uint64_t address, uint32_t *result, int matrices, int transpose, unsigned instruction) {
    int lane = me->lin % 32, g = lane / 4, t = lane % 4;
    uint32_t row[4] = {0};
    if (lane < 8 * matrices) {
        aligned(me, address, 16);
        memcpy(row, (void *)address, sizeof row);
    }
    Tile *tile = share(me, row, 4, instruction);
    for (int i = 0; i < matrices; i++) {
        uint32_t *rows[8];
        for (int r = 0; r < 8; r++) rows[r] = (*tile)[8 * i + r];
        if (transpose) result[i] = pair(half_of(rows[2 * t][g / 2], g & 1), half_of(rows[2 * t + 1][g / 2], g & 1));
        else result[i] = rows[g][t];
    }
}

static uint32_t movmatrix(Th *me, uint32_t word, unsigned instruction) {
    int g = me->lin % 32 / 4, t = me->lin % 4;
    Tile *tile = share(me, &word, 1, instruction);
    uint32_t first = (*tile)[8 * t + g / 2][0], second = (*tile)[8 * t + 4 + g / 2][0]; // rows 2t, 2t + 1; column g
    return pair(half_of(first, g & 1), half_of(second, g & 1));
}
