/* See _warmth.h. Both parts decay by halves; ages beyond the tables are as good as for ever. */
#include "_warmth.h"

#include <math.h>
#include <stdlib.h>

enum { AGES = 1024, HALF_LIFE = 64, RECENT_HALF_LIFE = 8 };
static const float RECENT = 0.05f; /* what "used in this very token" is worth, in uses a token */

struct warmth {
    int32_t experts;
    uint32_t tick;
    float *frequency; /* uses a token, as of the tick `seen` */
    uint32_t *seen, *used;
    float slow[AGES], fast[AGES];
};

struct warmth *warmth_new(int32_t experts) {
    struct warmth *w = calloc(1, sizeof *w);
    size_t count = experts > 0 ? (size_t)experts : 1;
    if (!w) abort();
    w->experts = experts;
    w->tick = AGES; /* so that "never used" is as old as can be */
    w->frequency = calloc(count, sizeof *w->frequency);
    w->seen = calloc(count, sizeof *w->seen);
    w->used = calloc(count, sizeof *w->used);
    if (!w->frequency || !w->seen || !w->used) abort();
    for (int age = 0; age < AGES; age++) {
        w->slow[age] = exp2f(-(float)age / HALF_LIFE);
        w->fast[age] = RECENT * exp2f(-(float)age / RECENT_HALF_LIFE);
    }
    return w;
}

void warmth_free(struct warmth *w) {
    free(w->frequency);
    free(w->seen);
    free(w->used);
    free(w);
}

static uint32_t age(const struct warmth *w, uint32_t since) {
    uint32_t ticks = w->tick - since;
    return ticks < AGES ? ticks : AGES - 1;
}

static float frequency(const struct warmth *w, int32_t expert) {
    return w->frequency[expert] * w->slow[age(w, w->seen[expert])];
}

void warmth_tick(struct warmth *w) { w->tick++; }

void warmth_use(struct warmth *w, int32_t expert, uint32_t times) {
    w->frequency[expert] = frequency(w, expert) + (float)times * (1.0f - w->slow[1]);
    w->seen[expert] = w->used[expert] = w->tick;
}

void warmth_expect(struct warmth *w, int32_t expert, float uses_per_token) {
    float known = frequency(w, expert);
    w->frequency[expert] = known > uses_per_token ? known : uses_per_token;
    w->seen[expert] = w->tick;
}

float warmth_of(const struct warmth *w, int32_t expert) {
    return frequency(w, expert) + w->fast[age(w, w->used[expert])];
}
