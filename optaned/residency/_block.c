/* Residency of a model whose home is a block device: exactly what the router chose is read, before it is needed.
 *
 * The tensors' part of each shard's mapping is replaced by anonymous memory in which every page is missing, registered with
 * userfaultfd. Pages are filled from the file and given back with MADV_DONTNEED. Whatever reads a missing page waits for the
 * fault thread, which fills it: so no read is ever answered with other bytes than the file's, whoever reads, whether or
 * not anybody announced it. One mapping stays one mapping, however many experts are resident.
 *
 * The unit of residency is a piece: a part of a tensor that belongs to one expert, or to the trunk. Pieces are sorted by
 * place; a page that two pieces share is there while either is resident. Knows pieces, experts as lists of pieces and a
 * budget; knows no tensor, no router and no clock but for its own statistics.
 */
#include "_fill.h"
#include "_warmth.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum { PAGE = 4096, NONE = -1 };
/* How far memory may be over its budget while victims wait to be dropped. */
enum { MOST_DOOMED = 16 << 20 };
enum state { HOME, CACHED, STREAMED, PINNED };

struct piece {
    uint64_t offset, size;
    int32_t shard, expert; /* flat number; NONE: trunk */
    uint8_t state, loading, doomed;
    int32_t newer, older; /* neighbours in the list of streamed pieces */
};

struct list {
    int32_t newest, oldest;
    uint64_t bytes;
};

/* What the store says of itself; the Python side reads the same fields in the same order. */
struct stats {
    uint64_t hit_experts, missed_experts, hit_bytes, missed_bytes;
    uint64_t prefill_hit_bytes, prefill_missed_bytes;
    uint64_t bytes_read, waited_ns, faults, evicted_bytes, errors;
    uint64_t pinned_bytes, cached_bytes, streamed_bytes, budget_bytes, overflows;
};

struct store {
    pthread_mutex_t lock;
    int uffd, stop_fd;
    pthread_t fault_thread;
    bool watching;
    struct fill_pool *pool;
    struct shard *shards;
    int32_t shard_count, piece_count, layers, rows, experts, parts; /* experts of one layer */
    struct piece *pieces;
    int32_t *row_of_layer, *first, *members; /* pieces of part k of flat expert f: members[first[f*parts+k] …] */
    uint64_t budget, stream_reserve, pinned, *row_bytes;
    struct list streamed;
    struct warmth *warmth;
    int32_t *held, *place, *cached_pieces, held_count; /* experts with cached pieces, where in `held`, how many */
    uint64_t cached_bytes;
    int32_t *victims;
    float *scores;
    uint32_t epoch; /* of the choice at hand: what it uses is no victim */
    uint32_t *expert_epoch;
    uint32_t *chosen_epoch, *chosen_count; /* by expert, of the choice at hand */
    int32_t *chosen, *wanted, *plan; /* experts; pieces to fill now; pieces to stream in the order of their use */
    int32_t plan_count;
    int32_t *doomed, doomed_count; /* pieces that went home and still hold their memory */
    uint64_t doomed_bytes;
    struct stats stats;
};

static uint64_t floor_page(uint64_t at) { return at & ~(uint64_t)(PAGE - 1); }
static uint64_t ceil_page(uint64_t at) { return floor_page(at + PAGE - 1); }
static uint64_t end_of(const struct piece *p) { return p->offset + p->size; }
/* Whole pages, those shared with a neighbour too: an estimate from above. */
static uint64_t span(const struct piece *p) { return ceil_page(end_of(p)) - floor_page(p->offset); }

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void unlink_piece(struct store *s, int32_t i) {
    struct piece *p = &s->pieces[i];
    if (p->state == STREAMED) {
        *(p->newer == NONE ? &s->streamed.newest : &s->pieces[p->newer].older) = p->older;
        *(p->older == NONE ? &s->streamed.oldest : &s->pieces[p->older].newer) = p->newer;
        s->streamed.bytes -= span(p);
    } else if (p->state == PINNED) {
        s->pinned -= span(p);
    } else if (p->state == CACHED) {
        s->cached_bytes -= span(p);
        if (--s->cached_pieces[p->expert] == 0) { /* the last of the held ones takes its place */
            int32_t last = s->held[--s->held_count];
            s->held[s->place[p->expert]] = last;
            s->place[last] = s->place[p->expert];
        }
    }
    p->state = HOME;
    p->newer = p->older = NONE;
}

/* Give a piece at home a state. */
static void link_piece(struct store *s, int32_t i, int state) {
    struct piece *p = &s->pieces[i];
    p->state = (uint8_t)state;
    if (state == STREAMED) {
        p->older = s->streamed.newest;
        *(p->older == NONE ? &s->streamed.oldest : &s->pieces[p->older].newer) = i;
        s->streamed.newest = i;
        s->streamed.bytes += span(p);
    } else if (state == PINNED) {
        s->pinned += span(p);
    } else if (state == CACHED) {
        s->cached_bytes += span(p);
        if (s->cached_pieces[p->expert]++ == 0) {
            s->place[p->expert] = s->held_count;
            s->held[s->held_count++] = p->expert;
        }
    }
}

static void restate(struct store *s, int32_t i, int state) {
    unlink_piece(s, i);
    link_piece(s, i, state);
}

/* ---- giving memory back ------------------------------------------------------------------------------------------ */

/* Does another resident piece need this page? Tiny experts share one by the dozen, so look past the next neighbour. */
static bool page_is_shared(const struct store *s, int32_t i, uint64_t page) {
    const struct piece *me = &s->pieces[i];
    for (int32_t j = i - 1; j >= 0; j--) {
        const struct piece *p = &s->pieces[j];
        if (p->shard != me->shard || end_of(p) <= page) break;
        if (p->state != HOME) return true;
    }
    for (int32_t j = i + 1; j < s->piece_count; j++) {
        const struct piece *p = &s->pieces[j];
        if (p->shard != me->shard || p->offset >= page + PAGE) break;
        if (p->state != HOME) return true;
    }
    return false;
}

static void drop_pages(struct store *s, int32_t i) {
    struct piece *p = &s->pieces[i];
    uint64_t low = floor_page(p->offset), high = ceil_page(end_of(p));
    if (page_is_shared(s, i, low)) low += PAGE;
    if (low < high && page_is_shared(s, i, high - PAGE)) high -= PAGE;
    if (low < high) madvise(s->shards[p->shard].base + low, high - low, MADV_DONTNEED);
}

/* Its memory is given back by `drop_doomed`: when the reads that take its place are on their way, not before. */
static void send_home(struct store *s, int32_t i) {
    s->stats.evicted_bytes += span(&s->pieces[i]);
    unlink_piece(s, i);
    if (s->pieces[i].doomed) return;
    s->pieces[i].doomed = 1;
    s->doomed[s->doomed_count++] = i;
    s->doomed_bytes += span(&s->pieces[i]);
}

/* Before the lock is let go: whoever takes a piece in must not lose pages that it believes to be there. */
static void drop_doomed(struct store *s) {
    for (int32_t at = 0; at < s->doomed_count; at++) {
        struct piece *p = &s->pieces[s->doomed[at]];
        p->doomed = 0;
        if (p->state == HOME) drop_pages(s, s->doomed[at]); /* else it was wanted again meanwhile */
    }
    s->doomed_count = 0;
    s->doomed_bytes = 0;
}

static void let_go(struct store *s) {
    drop_doomed(s);
    pthread_mutex_unlock(&s->lock);
}

static uint64_t used(const struct store *s) { return s->pinned + s->cached_bytes + s->streamed.bytes; }

/* Drop the streamed piece that came first of those that are there. False when there is none. */
static bool drop_streamed(struct store *s) {
    for (int32_t i = s->streamed.oldest; i != NONE; i = s->pieces[i].newer) {
        if (s->pieces[i].loading) continue;
        send_home(s, i);
        return true;
    }
    return false;
}

static uint64_t send_expert_home(struct store *s, int32_t flat) {
    uint64_t freed = 0;
    for (int32_t m = s->first[flat * s->parts]; m < s->first[(flat + 1) * s->parts]; m++) {
        struct piece *p = &s->pieces[s->members[m]];
        if (p->state != CACHED || p->loading) continue;
        freed += span(p);
        send_home(s, s->members[m]);
    }
    return freed;
}

/* Let the coldest experts go until so much is free; what is used now stays. One look at all that are held (15,000 of K3's
 * in 100 GB: 0.1 ms), then the coldest of them again and again: a layer misses a handful. */
static void evict_coldest(struct store *s, uint64_t size) {
    int32_t count = s->held_count;
    for (int32_t i = 0; i < count; i++) {
        int32_t flat = s->victims[i] = s->held[i];
        s->scores[i] = s->expert_epoch[flat] == s->epoch ? INFINITY : warmth_of(s->warmth, flat);
    }
    for (uint64_t freed = 0; freed < size;) {
        int32_t coldest = 0;
        for (int32_t i = 1; i < count; i++)
            if (s->scores[i] < s->scores[coldest]) coldest = i;
        if (!count || s->scores[coldest] == INFINITY) return;
        s->scores[coldest] = INFINITY;
        freed += send_expert_home(s, s->victims[coldest]);
    }
}

/* What decoding and plans may fill: all but the reserve for streaming. */
static uint64_t capacity(const struct store *s) { return s->budget > s->stream_reserve ? s->budget - s->stream_reserve : 0; }

/* Make room, as far as it can be made: streamed pieces go first. */
static void make_room(struct store *s, uint64_t size, uint64_t most) {
    while (used(s) + size > most && drop_streamed(s)) {
    }
    if (used(s) + size > most) evict_coldest(s, used(s) + size - most);
}

/* ---- filling ----------------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y); /* pieces are numbered by place */
}

/* Read pieces that are marked as loading; called with the lock held, which is let go meanwhile. Neighbours are one read. */
static int fill(struct store *s, int32_t *pieces, int32_t count, bool sorted) {
    struct batch batch = {0, 0};
    if (!count) return 0;
    if (sorted) qsort(pieces, (size_t)count, sizeof *pieces, by_place);
    if (s->doomed_bytes > MOST_DOOMED) drop_doomed(s);
    for (int32_t i = 0; i < count;) {
        const struct piece *p = &s->pieces[pieces[i]];
        int32_t shard = p->shard;
        uint64_t low = floor_page(p->offset), high = ceil_page(end_of(p));
        for (i++; i < count; i++) {
            const struct piece *next = &s->pieces[pieces[i]];
            if (next->shard != shard || floor_page(next->offset) > high || next->offset < low) break;
            if (ceil_page(end_of(next)) > high) high = ceil_page(end_of(next));
        }
        fill_start(s->pool, &batch, shard, low, high);
    }
    let_go(s);
    int error = fill_wait(s->pool, &batch);
    pthread_mutex_lock(&s->lock);
    for (int32_t i = 0; i < count; i++) {
        s->pieces[pieces[i]].loading = 0;
        if (error) send_home(s, pieces[i]); /* a part may have come in; it is read again when it is needed */
    }
    if (error) s->stats.errors++;
    return error;
}

/* Mark a piece at home as on its way in. */
static void take_in(struct store *s, int32_t i, int state) {
    link_piece(s, i, state);
    s->pieces[i].loading = 1;
}

/* ---- the router's choice ----------------------------------------------------------------------------------------- */

/* Collect the experts of a choice, each once; returns how many. */
static int32_t distinct(struct store *s, const int32_t *ids, int used_count, int tokens, size_t stride) {
    int32_t count = 0;
    for (int t = 0; t < tokens; t++) {
        const int32_t *row = (const int32_t *)((const uint8_t *)ids + (size_t)t * stride);
        for (int k = 0; k < used_count; k++) {
            int32_t e = row[k];
            if (e < 0 || e >= s->experts) continue;
            if (s->chosen_epoch[e] != s->epoch) {
                s->chosen_epoch[e] = s->epoch;
                s->chosen_count[e] = 0;
                s->chosen[count++] = e;
            }
            s->chosen_count[e]++;
        }
    }
    return count;
}

/* Decoding: what is missing is read into the place of the coldest. What finds no room is streamed through the fault thread,
 * as in prefill. */
static int32_t choose_for_decode(struct store *s, int row, int32_t chosen) {
    int32_t wanted = 0;
    uint64_t missing = 0;
    if (row == 0) warmth_tick(s->warmth);
    for (int32_t c = 0; c < chosen; c++) { /* first all hits, so that no miss evicts one of them */
        int32_t flat = row * s->experts + s->chosen[c];
        bool hit = true;
        warmth_use(s->warmth, flat, s->chosen_count[s->chosen[c]]);
        s->expert_epoch[flat] = s->epoch;
        for (int32_t m = s->first[flat * s->parts]; m < s->first[(flat + 1) * s->parts]; m++) {
            struct piece *p = &s->pieces[s->members[m]];
            if (p->state == HOME) {
                hit = false;
                missing += span(p);
                s->stats.missed_bytes += p->size;
                continue;
            }
            s->stats.hit_bytes += p->size;
            if (p->state == STREAMED) restate(s, s->members[m], CACHED);
        }
        *(hit ? &s->stats.hit_experts : &s->stats.missed_experts) += 1;
    }
    if (missing) make_room(s, missing, capacity(s));
    for (int32_t part = 0; part < s->parts; part++)
        for (int32_t c = 0; c < chosen; c++) {
            int32_t cell = (row * s->experts + s->chosen[c]) * s->parts + part;
            for (int32_t m = s->first[cell]; m < s->first[cell + 1]; m++) {
                int32_t i = s->members[m];
                if (s->pieces[i].state != HOME) continue;
                if (used(s) + span(&s->pieces[i]) <= capacity(s)) {
                    take_in(s, i, CACHED);
                    s->wanted[wanted++] = i;
                } else {
                    s->plan[s->plan_count++] = i;
                }
            }
        }
    return wanted;
}

static bool whole_expert_is_home(const struct store *s, int32_t flat) {
    for (int32_t m = s->first[flat * s->parts]; m < s->first[(flat + 1) * s->parts]; m++)
        if (s->pieces[s->members[m]].state != HOME) return false;
    return true;
}

/* Prefill wants nearly every expert once. It may use what decoding does not: a layer's fair share of a cache that is not yet
 * full goes to the experts that this prompt chose most; all else is streamed in the order of its use. */
static int32_t choose_for_prefill(struct store *s, int row, int32_t chosen, int tokens) {
    int32_t wanted = 0;
    uint64_t cap = capacity(s);
    uint64_t fair = (cap > s->pinned ? cap - s->pinned : 0) / (uint64_t)s->rows;
    uint64_t held = 0;
    for (int32_t cell = row * s->experts * s->parts; cell < (row + 1) * s->experts * s->parts; cell++)
        for (int32_t m = s->first[cell]; m < s->first[cell + 1]; m++) {
            struct piece *p = &s->pieces[s->members[m]];
            if (p->state == CACHED) held += span(p);
        }
    for (;;) {
        int32_t best = NONE;
        uint64_t size = 0;
        for (int32_t c = 0; c < chosen; c++) {
            int32_t e = s->chosen[c];
            if (s->chosen_count[e] && (best == NONE || s->chosen_count[e] > s->chosen_count[best]) &&
                whole_expert_is_home(s, row * s->experts + e))
                best = e;
        }
        if (best == NONE) break;
        int32_t flat = row * s->experts + best;
        float share = (float)s->chosen_count[best] / (float)tokens;
        s->chosen_count[best] = 0;
        for (int32_t m = s->first[flat * s->parts]; m < s->first[(flat + 1) * s->parts]; m++)
            size += span(&s->pieces[s->members[m]]);
        if (held + size > fair || used(s) + size > cap) break;
        held += size;
        warmth_expect(s->warmth, flat, share / 2); /* a prompt is not yet an answer */
        for (int32_t m = s->first[flat * s->parts]; m < s->first[(flat + 1) * s->parts]; m++) {
            take_in(s, s->members[m], CACHED);
            s->wanted[wanted++] = s->members[m];
            s->stats.prefill_missed_bytes += s->pieces[s->members[m]].size;
        }
    }
    for (int32_t part = 0; part < s->parts; part++)
        for (int32_t e = 0; e < s->experts; e++) {
            if (s->chosen_epoch[e] != s->epoch) continue;
            int32_t cell = (row * s->experts + e) * s->parts + part;
            for (int32_t m = s->first[cell]; m < s->first[cell + 1]; m++) {
                struct piece *p = &s->pieces[s->members[m]];
                if (p->state == HOME) {
                    s->plan[s->plan_count++] = s->members[m];
                    s->stats.prefill_missed_bytes += p->size;
                } else if (!p->loading) {
                    s->stats.prefill_hit_bytes += p->size;
                    if (p->state == STREAMED) restate(s, s->members[m], STREAMED);
                }
            }
        }
    return wanted;
}

/* Take pieces of the plan in, from a place in it on, as far as the room for streaming goes: half of it at a time, so that
 * what is being read now stays. Returns how many were added to `wanted`. */
static int32_t stream_from(struct store *s, int32_t *wanted, int32_t at, uint64_t most) {
    int32_t count = 0;
    uint64_t taken = 0;
    for (; at < s->plan_count; at++) {
        int32_t i = s->plan[at];
        uint64_t size = span(&s->pieces[i]);
        if (s->pieces[i].state != HOME) continue;
        if (count && taken + size > most) break;
        while (used(s) + size > s->budget && drop_streamed(s)) {
        }
        taken += size;
        take_in(s, i, STREAMED);
        wanted[count++] = i;
    }
    return count;
}

static uint64_t stream_room(const struct store *s) {
    uint64_t taken = s->pinned + s->cached_bytes;
    return s->budget > taken ? s->budget - taken : 0;
}

/* The tap's hook. Runs on the decoding thread, before the chosen experts are read. */
static void on_choice(void *data, int layer, const int32_t *ids, int used_count, int tokens, size_t stride, int is_prefill) {
    struct store *s = data;
    if (layer < 0 || layer >= s->layers || s->row_of_layer[layer] < 0) return;
    int row = s->row_of_layer[layer];
    uint64_t began = now_ns();
    pthread_mutex_lock(&s->lock);
    s->epoch++;
    s->plan_count = 0;
    int32_t chosen = distinct(s, ids, used_count, tokens, stride);
    int32_t wanted = is_prefill ? choose_for_prefill(s, row, chosen, tokens) : choose_for_decode(s, row, chosen);
    if (s->plan_count) {
        if (!is_prefill) s->stats.overflows++;
        wanted += stream_from(s, s->wanted + wanted, 0, stream_room(s));
    }
    if (wanted) {
        fill(s, s->wanted, wanted, true); /* what could not be read is at home, and is tried again when it faults */
        s->stats.waited_ns += now_ns() - began;
    }
    let_go(s);
}

/* ---- faults: the way home for every read that nobody announced ------------------------------------------------------ */

/* First piece that ends after an offset. */
static int32_t piece_at(const struct store *s, int32_t shard, uint64_t offset) {
    int32_t low = 0, high = s->piece_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct piece *p = &s->pieces[middle];
        if (p->shard < shard || (p->shard == shard && end_of(p) <= offset)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int32_t place_in_plan(const struct store *s, int32_t piece) {
    for (int32_t at = 0; at < s->plan_count; at++)
        if (s->plan[at] == piece) return at;
    return NONE;
}

/* Fill one page by itself: padding between tensors, or a race that was over before we looked. */
static int fill_page(struct store *s, int32_t shard, uint64_t page) {
    struct batch batch = {0, 0};
    let_go(s);
    fill_start(s->pool, &batch, shard, page, page + PAGE);
    int error = fill_wait(s->pool, &batch);
    struct uffdio_range range = {.start = (uintptr_t)(s->shards[shard].base + page), .len = PAGE};
    ioctl(s->uffd, UFFDIO_WAKE, &range); /* who waits for a page that was there already is woken by nobody else */
    pthread_mutex_lock(&s->lock);
    return error;
}

/* With the lock held: bring in the page that somebody waits for. Returns 0 or an errno. */
static int serve_fault(struct store *s, int32_t shard, uint64_t page, int32_t *wanted) {
    int32_t home = NONE;
    for (int32_t i = piece_at(s, shard, page); i < s->piece_count; i++) {
        const struct piece *p = &s->pieces[i];
        if (p->shard != shard || p->offset >= page + PAGE) break;
        if (p->loading) return 0; /* on its way; the copy wakes whoever waits */
        if (p->state == HOME && (home == NONE || place_in_plan(s, i) != NONE)) home = i;
        if (p->state != HOME) return fill_page(s, shard, page);
    }
    s->stats.faults++;
    if (home == NONE) return fill_page(s, shard, page);
    int32_t at = place_in_plan(s, home);
    if (at == NONE) {
        s->plan_count = 0; /* nobody announced this: a plan of one */
        s->plan[s->plan_count++] = home;
        at = 0;
    }
    int32_t count = stream_from(s, wanted, at, stream_room(s) / 2);
    return fill(s, wanted, count, false);
}

static void give_up(const struct store *s, int32_t shard, int error) {
    (void)s;
    fprintf(stderr, "optaned: shard %d cannot be read (%s); a wrong weight is worse than no answer\n", shard, strerror(error));
    abort();
}

static void fault(struct store *s, uint64_t address, int32_t *wanted) {
    for (int32_t shard = 0; shard < s->shard_count; shard++) {
        const struct shard *at = &s->shards[shard];
        if (!at->base) continue;
        uint64_t page = floor_page(address - (uintptr_t)at->base);
        if (address < (uintptr_t)at->base + at->low || page >= at->high) continue;
        int error = 0;
        for (int attempt = 0; attempt < 5; attempt++) {
            pthread_mutex_lock(&s->lock);
            error = serve_fault(s, shard, page, wanted);
            if (error == ENOMEM) { /* memory is short: live with less */
                s->budget -= s->budget / 8;
                make_room(s, 0, s->budget);
            }
            let_go(s);
            if (!error) return;
        }
        give_up(s, shard, error);
    }
}

static void *watch(void *data) {
    struct store *s = data;
    int32_t *wanted = malloc((size_t)(s->piece_count + 1) * sizeof *wanted);
    if (!wanted) abort();
    for (;;) {
        struct pollfd fds[2] = {{.fd = s->uffd, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0) continue;
        if (fds[1].revents) break;
        struct uffd_msg message;
        if (read(s->uffd, &message, sizeof message) != (ssize_t)sizeof message) continue;
        if (message.event == UFFD_EVENT_PAGEFAULT) fault(s, message.arg.pagefault.address, wanted);
    }
    free(wanted);
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

/* Put the file back under a region: reads go to the page cache again. */
static void restore(const struct shard *at) {
    mmap(at->base + at->low, at->high - at->low, PROT_READ, MAP_SHARED | MAP_FIXED, at->fd, (off_t)at->low);
}

static int replace(struct store *s, struct shard *at) {
    uint8_t *start = at->base + at->low;
    size_t length = at->high - at->low;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    struct uffdio_register missing = {.range = {(uintptr_t)start, length}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    /* A mmap with MAP_FIXED that fails may have unmapped what was there: put it back in either case. */
    if (mmap(start, length, PROT_READ, flags, -1, 0) == MAP_FAILED || ioctl(s->uffd, UFFDIO_REGISTER, &missing)) {
        int error = errno;
        restore(at);
        return error;
    }
    /* A child would see zeros where pages are missing: it sees nothing instead. A huge page would be filled by halves. */
    madvise(start, length, MADV_DONTFORK);
    madvise(start, length, MADV_NOHUGEPAGE);
    madvise(start, length, MADV_DONTDUMP);
    return 0;
}

static int open_shard(struct shard *at, const char *path) {
    struct stat found;
    at->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (at->fd < 0 || fstat(at->fd, &found)) return errno;
    at->file_size = (uint64_t)found.st_size;
    at->direct_fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (at->direct_fd < 0) at->direct_fd = dup(at->fd); /* tmpfs and the like: there is no disk to go round */
    return 0;
}

static void *copy_of(const void *from, size_t size) {
    void *to = malloc(size ? size : 1);
    if (!to) abort();
    return size ? memcpy(to, from, size) : to;
}

static void *zeros(size_t count, size_t size) {
    void *to = calloc(count ? count : 1, size);
    if (!to) abort();
    return to;
}

void block_close(struct store *s) {
    if (s->watching) { /* it may be bringing in what a reader, served by the first page of it, no longer waits for */
        uint64_t one = 1;
        if (write(s->stop_fd, &one, sizeof one) < 0) abort();
        pthread_join(s->fault_thread, NULL);
    }
    if (s->pool) fill_close(s->pool);
    for (int32_t i = 0; i < s->shard_count; i++)
        if (s->shards[i].base) restore(&s->shards[i]); /* then uffd: closed over missing pages they would read as zeros */
    for (int32_t i = 0; i < s->shard_count; i++) {
        if (s->shards[i].fd > 0) close(s->shards[i].fd);
        if (s->shards[i].direct_fd > 0) close(s->shards[i].direct_fd);
    }
    if (s->uffd >= 0) close(s->uffd);
    if (s->stop_fd >= 0) close(s->stop_fd);
    pthread_mutex_destroy(&s->lock);
    free(s->shards);
    free(s->pieces);
    free(s->row_of_layer);
    free(s->first);
    free(s->members);
    free(s->row_bytes);
    free(s->chosen_epoch);
    free(s->chosen_count);
    free(s->chosen);
    free(s->wanted);
    free(s->plan);
    free(s->doomed);
    warmth_free(s->warmth);
    free(s->held);
    free(s->place);
    free(s->cached_pieces);
    free(s->victims);
    free(s->scores);
    free(s->expert_epoch);
    free(s);
}

static int open_uffd(void) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0) return -errno;
    if (ioctl(fd, UFFDIO_API, &api)) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

/* 0, or the errno of the kernel's refusal to let this process handle its own faults. */
int block_refusal(void) {
    int fd = open_uffd();
    if (fd < 0) return -fd;
    close(fd);
    return 0;
}

struct opening {
    int32_t shards, pieces, layers, rows, experts, parts, threads;
    uint64_t budget, stream_reserve, chunk_size;
    const char *const *paths; /* by shard; NULL: not a block home, left alone */
    const uint64_t *bases, *lows, *highs;
    const uint64_t *offsets, *sizes; /* by piece, sorted by (shard, offset) */
    const int32_t *piece_shards, *row_of_layer, *first, *members;
};

/* Take the shards' mappings over. Nothing may read the model meanwhile. NULL with `error` set, and nothing changed, when
 * it cannot be done. */
struct store *block_open(const struct opening *o, int *error) {
    struct store *s = zeros(1, sizeof *s);
    size_t flats = (size_t)o->rows * (size_t)o->experts, cells = flats * (size_t)o->parts;
    size_t pieces = (size_t)o->pieces, experts = (size_t)o->experts;
    pthread_mutex_init(&s->lock, NULL);
    s->shard_count = o->shards, s->piece_count = o->pieces, s->layers = o->layers;
    s->rows = o->rows, s->experts = o->experts, s->parts = o->parts;
    s->epoch = 1; /* experts begin at 0: used in no choice */
    s->budget = o->budget, s->stream_reserve = o->stream_reserve;
    s->streamed = (struct list){NONE, NONE, 0};
    s->warmth = warmth_new((int32_t)flats);
    s->held = zeros(flats, sizeof(int32_t));
    s->place = zeros(flats, sizeof(int32_t));
    s->cached_pieces = zeros(flats, sizeof(int32_t));
    s->victims = zeros(flats, sizeof(int32_t));
    s->scores = zeros(flats, sizeof(float));
    s->expert_epoch = zeros(flats, sizeof(uint32_t));
    s->shards = zeros((size_t)o->shards, sizeof *s->shards);
    s->pieces = zeros(pieces, sizeof *s->pieces);
    s->row_of_layer = copy_of(o->row_of_layer, (size_t)o->layers * sizeof(int32_t));
    s->first = copy_of(o->first, (cells + 1) * sizeof(int32_t));
    s->members = copy_of(o->members, (size_t)o->first[cells] * sizeof(int32_t));
    s->chosen_epoch = zeros(experts, sizeof(uint32_t));
    s->chosen_count = zeros(experts, sizeof(uint32_t));
    s->chosen = zeros(experts, sizeof(int32_t));
    s->wanted = zeros(pieces, sizeof(int32_t));
    s->plan = zeros(pieces, sizeof(int32_t));
    s->doomed = zeros(pieces, sizeof(int32_t));
    for (size_t i = 0; i < pieces; i++)
        s->pieces[i] = (struct piece){o->offsets[i], o->sizes[i], o->piece_shards[i], NONE, HOME, 0, 0, NONE, NONE};
    for (size_t cell = 0; cell < cells; cell++)
        for (int32_t m = s->first[cell]; m < s->first[cell + 1]; m++)
            s->pieces[s->members[m]].expert = (int32_t)(cell / (size_t)o->parts);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    s->uffd = open_uffd();
    *error = s->uffd < 0 ? -s->uffd : 0;
    for (int32_t i = 0; i < s->shard_count && !*error; i++)
        if (o->paths[i]) *error = open_shard(&s->shards[i], o->paths[i]);
    if (!*error && !(s->pool = fill_open(s->uffd, s->shards, o->threads, o->chunk_size))) *error = ENOMEM;
    if (!*error) {
        *error = pthread_create(&s->fault_thread, NULL, watch, s);
        s->watching = !*error;
    }
    for (int32_t i = 0; i < s->shard_count && !*error; i++) {
        struct shard *at = &s->shards[i];
        if (!o->paths[i]) continue;
        at->low = o->lows[i], at->high = o->highs[i];
        at->base = (uint8_t *)(uintptr_t)o->bases[i];
        *error = replace(s, at);
        if (*error) at->base = NULL;
    }
    if (*error) {
        block_close(s);
        return NULL;
    }
    return s;
}

/* ---- what others may ask for ------------------------------------------------------------------------------------- */

void *block_hook(void) { return (void *)on_choice; }

/* Bring pieces in, in this order, as far as they fit; `pinned` ones stay. Returns how many are resident, or -errno. */
int32_t block_bring(struct store *s, const int32_t *pieces, int32_t count, int32_t pinned) {
    int32_t *batch = zeros((size_t)count, sizeof *batch), resident = 0, error = 0;
    uint64_t cap = capacity(s);
    pthread_mutex_lock(&s->lock);
    for (int32_t at = 0; at < count && !error;) {
        int32_t filling = 0;
        uint64_t size = 0;
        bool full = false;
        for (; at < count && size < (64u << 20); at++) { /* the lock is not held for a whole trunk */
            struct piece *p = &s->pieces[pieces[at]];
            if (p->loading) continue;
            if (p->state != HOME) {
                if (pinned && p->state != PINNED) restate(s, pieces[at], PINNED);
                resident++;
                continue;
            }
            if (used(s) + span(p) > cap && pinned) make_room(s, span(p), cap);
            if (used(s) + span(p) > cap) {
                full = true;
                break;
            }
            take_in(s, pieces[at], pinned || p->expert == NONE ? PINNED : CACHED);
            size += span(p);
            batch[filling++] = pieces[at];
        }
        error = fill(s, batch, filling, true);
        if (!error) resident += filling;
        if (full) break;
    }
    let_go(s);
    free(batch);
    return error ? -error : resident;
}

/* Let pieces go home, or with `only_unpin` let them be victims again. */
void block_release(struct store *s, const int32_t *pieces, int32_t count, int32_t only_unpin) {
    pthread_mutex_lock(&s->lock);
    for (int32_t at = 0; at < count; at++) {
        struct piece *p = &s->pieces[pieces[at]];
        if (p->state == HOME || p->loading) continue;
        if (!only_unpin) send_home(s, pieces[at]);
        else if (p->state == PINNED && p->expert != NONE) restate(s, pieces[at], CACHED);
    }
    let_go(s);
}

/* Live with more or less memory from now on. */
void block_resize(struct store *s, uint64_t budget, uint64_t stream_reserve) {
    pthread_mutex_lock(&s->lock);
    s->budget = budget;
    s->stream_reserve = stream_reserve;
    make_room(s, 0, budget);
    let_go(s);
}

/* Say how often experts are expected to be used, in uses a token: from saved heat, say. */
void block_expect(struct store *s, const int32_t *flats, const float *uses, int32_t count) {
    pthread_mutex_lock(&s->lock);
    for (int32_t i = 0; i < count; i++) warmth_expect(s->warmth, flats[i], uses[i]);
    pthread_mutex_unlock(&s->lock);
}

void block_resident(struct store *s, uint8_t *out) {
    pthread_mutex_lock(&s->lock);
    for (int32_t i = 0; i < s->piece_count; i++) out[i] = s->pieces[i].state != HOME && !s->pieces[i].loading;
    let_go(s);
}

void block_stats(struct store *s, struct stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->bytes_read = fill_bytes_read(s->pool);
    out->pinned_bytes = s->pinned;
    out->cached_bytes = s->cached_bytes;
    out->streamed_bytes = s->streamed.bytes;
    out->budget_bytes = s->budget;
    let_go(s);
}
