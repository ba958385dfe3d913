// Exchanges inside a warp: the lanes of a mask meet; each gets the values of all.

typedef struct {
    uint32_t mask;
    int arrived, unread;
    unsigned turn;
    uint64_t value[2][32]; // of this turn and the one before, which some lanes may not have read yet
} Meeting;
enum { MEETINGS = 8 };
static Meeting meetings[32][MEETINGS];

static inline int lanes(unsigned warp) {
    unsigned rest = n_threads - warp * 32;
    return rest < 32 ? rest : 32;
}

static inline uint32_t all_lanes(unsigned warp) { return lanes(warp) == 32 ? ~0u : (1u << lanes(warp)) - 1; }

// The meeting of the lanes of `mask`: the one that they used before, or one that nobody uses.
static Meeting *meeting_of(Th *me, unsigned warp, uint32_t mask) {
    for (int i = 0; i < MEETINGS; i++)
        if (meetings[warp][i].mask == mask) return &meetings[warp][i];
    for (int i = 0; i < MEETINGS; i++)
        if (!meetings[warp][i].arrived && !meetings[warp][i].unread) return &meetings[warp][i];
    fault(me, 719, "more than %d groups of lanes of one warp exchange values at once", MEETINGS);
    return 0;
}

// Waits until all lanes of `mask` are here; returns the value of each lane.
static uint64_t *meet(Th *me, uint64_t value, uint32_t mask) {
    unsigned warp = me->lin / 32, lane = me->lin % 32;
    mask &= all_lanes(warp);
    Meeting *meeting = meeting_of(me, warp, mask);
    meeting->mask = mask;
    unsigned turn = meeting->turn;
    meeting->value[turn & 1][lane] = value;
    if (++meeting->arrived >= __builtin_popcount(mask)) {
        meeting->unread += meeting->arrived - 1;
        meeting->arrived = 0;
        meeting->turn++;
        progress++;
    } else {
        while (meeting->turn == turn) yield_(me);
        meeting->unread--;
    }
    return meeting->value[turn & 1];
}
