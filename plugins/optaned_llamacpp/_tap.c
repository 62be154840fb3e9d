/* Watches the router of a loaded model: the library's evaluation callback, in C.
 *
 * The library asks for each of about 1,400 graph nodes a token whether we want it; in Python that costs a fifth of the
 * speed, here about a hundredth. Knows tensor names and expert ids; knows no file and no memory of experts.
 *
 * The callback runs on the thread that decodes, while the library's compute threads stand still. Counts are taken by
 * another thread, under a lock that is held for microseconds.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The head of the library's tensor, up to its name. Its headers are not there when this is built, so the layout is
 * declared here and compared with what the library's own functions say before it is used (`tap_describe`). */
struct tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
    struct tensor *view_src;
    size_t view_offs;
    void *data;
    char name[64];
};

enum { TYPE_I32 = 26, DECODE = 0, PREFILL = 1, MOST_LAYERS = 1 << 16 };

static const char PREFIX[] = "ffn_moe_topk-";

typedef void (*on_choice_fn)(void *, int, const int32_t *, int, int, size_t, int);
typedef bool (*is_host_fn)(void *);
typedef void (*tensor_get_fn)(const struct tensor *, void *, size_t, size_t);

struct tap {
    pthread_mutex_t lock;
    int32_t layers, rows, experts;
    int32_t *row_of_layer; /* -1: a layer without routed experts */
    uint32_t *counts[2];
    uint64_t tokens[2];
    int32_t is_prefill; /* written by the decoding thread before each call */
    on_choice_fn on_choice;
    void *on_choice_data;
    is_host_fn is_host;
    tensor_get_fn tensor_get;
    uint8_t *copied; /* ids that lay in a device's memory */
    size_t copied_size;
    int32_t *trace; /* records of (layer, n_used, ids…); NULL while nobody traces */
    size_t trace_size, trace_used;
    uint64_t trace_dropped;
};

struct tap *tap_new(const int32_t *row_of_layer, int32_t layers, int32_t rows, int32_t experts, void *is_host, void *get) {
    struct tap *tap = calloc(1, sizeof *tap);
    if (!tap || layers < 0 || layers > MOST_LAYERS) {
        free(tap);
        return NULL;
    }
    pthread_mutex_init(&tap->lock, NULL);
    tap->layers = layers, tap->rows = rows, tap->experts = experts;
    tap->is_host = (is_host_fn)is_host;
    tap->tensor_get = (tensor_get_fn)get;
    size_t cells = (size_t)rows * (size_t)experts;
    tap->row_of_layer = malloc((size_t)layers * sizeof *row_of_layer);
    tap->counts[DECODE] = calloc(cells, sizeof(uint32_t));
    tap->counts[PREFILL] = calloc(cells, sizeof(uint32_t));
    if (!tap->row_of_layer || !tap->counts[DECODE] || !tap->counts[PREFILL]) abort();
    memcpy(tap->row_of_layer, row_of_layer, (size_t)layers * sizeof *row_of_layer);
    return tap;
}

void tap_free(struct tap *tap) {
    pthread_mutex_destroy(&tap->lock);
    free(tap->row_of_layer);
    free(tap->counts[DECODE]);
    free(tap->counts[PREFILL]);
    free(tap->copied);
    free(tap->trace);
    free(tap);
}

int32_t *tap_prefill_flag(struct tap *tap) { return &tap->is_prefill; }

void tap_set_hook(struct tap *tap, void *function, void *data) {
    pthread_mutex_lock(&tap->lock);
    tap->on_choice = (on_choice_fn)function;
    tap->on_choice_data = data;
    pthread_mutex_unlock(&tap->lock);
}

/* What we see in a tensor of the library's making, for comparison with what the library says of it. */
void tap_describe(const struct tensor *t, int64_t *type, int64_t *ne, uint64_t *nb, void **data, char *name) {
    *type = t->type;
    memcpy(ne, t->ne, sizeof t->ne);
    for (int i = 0; i < 4; i++) nb[i] = t->nb[i];
    *data = t->data;
    memcpy(name, t->name, sizeof t->name);
}

/* Row of a router's choice, or -1 for every other node. Names are compared whole: views carry a suffix. */
static int row_of(const struct tap *tap, const char *name, int *layer) {
    if (memcmp(name, PREFIX, sizeof PREFIX - 1) != 0) return -1;
    const char *digit = name + sizeof PREFIX - 1;
    int number = 0, length = 0;
    for (; *digit >= '0' && *digit <= '9' && length < 6; digit++, length++) number = number * 10 + (*digit - '0');
    if (*digit || !length || number >= tap->layers) return -1;
    *layer = number;
    return tap->row_of_layer[number];
}

/* The ids, copied here first when they lie in a device's memory. NULL when there is no way to read them. */
static const uint8_t *readable(struct tap *tap, const struct tensor *t, size_t size) {
    void *buffer = t->view_src ? t->view_src->buffer : t->buffer;
    if (!buffer || !tap->is_host || tap->is_host(buffer)) return t->data;
    if (!tap->tensor_get) return NULL;
    if (size > tap->copied_size) {
        free(tap->copied);
        tap->copied = malloc(size);
        tap->copied_size = tap->copied ? size : 0;
        if (!tap->copied) return NULL;
    }
    tap->tensor_get(t, tap->copied, 0, size);
    return tap->copied;
}

static void keep(struct tap *tap, int layer, const int32_t *ids, int used) {
    size_t needed = (size_t)used + 2;
    if (tap->trace_used + needed > tap->trace_size) {
        tap->trace_dropped++;
        return;
    }
    int32_t *record = tap->trace + tap->trace_used;
    record[0] = layer;
    record[1] = used;
    memcpy(record + 2, ids, (size_t)used * sizeof *ids);
    tap->trace_used += needed;
}

/* The library's callback: with `ask` it wants to know whether we want this node, without it the node is computed. */
bool tap_eval(struct tensor *t, bool ask, void *data) {
    struct tap *tap = data;
    int layer = 0;
    int row = row_of(tap, t->name, &layer);
    if (ask) return row >= 0;
    if (row < 0 || t->type != TYPE_I32 || t->ne[0] <= 0 || t->ne[1] <= 0) return true;
    int used = (int)t->ne[0], tokens = (int)t->ne[1];
    size_t stride = t->nb[1];
    const uint8_t *ids = readable(tap, t, stride * (size_t)(tokens - 1) + (size_t)used * sizeof(int32_t));
    if (!ids) return true;
    int kind = tap->is_prefill ? PREFILL : DECODE;
    pthread_mutex_lock(&tap->lock);
    uint32_t *counts = tap->counts[kind] + (size_t)row * (size_t)tap->experts;
    for (int token = 0; token < tokens; token++) {
        const int32_t *chosen = (const int32_t *)(ids + (size_t)token * stride);
        for (int i = 0; i < used; i++)
            if (chosen[i] >= 0 && chosen[i] < tap->experts) counts[chosen[i]]++;
        if (tap->trace) keep(tap, layer, chosen, used);
    }
    if (row == 0) tap->tokens[kind] += (uint64_t)tokens;
    on_choice_fn on_choice = tap->on_choice;
    void *hook_data = tap->on_choice_data;
    pthread_mutex_unlock(&tap->lock);
    /* Outside the lock: filling a missing expert takes milliseconds. */
    if (on_choice) on_choice(hook_data, layer, (const int32_t *)ids, used, tokens, stride, kind == PREFILL);
    return true;
}

/* Copy the counts out and start again from zero. */
void tap_take_counts(struct tap *tap, uint32_t *decode, uint32_t *prefill, uint64_t *tokens) {
    size_t size = (size_t)tap->rows * (size_t)tap->experts * sizeof(uint32_t);
    uint32_t *out[2] = {decode, prefill};
    pthread_mutex_lock(&tap->lock);
    for (int kind = DECODE; kind <= PREFILL; kind++) {
        memcpy(out[kind], tap->counts[kind], size);
        memset(tap->counts[kind], 0, size);
        tokens[kind] = tap->tokens[kind];
        tap->tokens[kind] = 0;
    }
    pthread_mutex_unlock(&tap->lock);
}

/* Keep records in a buffer of `size` numbers, or with 0 stop keeping them. False when there is no memory. */
bool tap_trace(struct tap *tap, size_t size) {
    int32_t *buffer = size ? malloc(size * sizeof *buffer) : NULL;
    pthread_mutex_lock(&tap->lock);
    int32_t *before = tap->trace;
    tap->trace = buffer;
    tap->trace_size = buffer ? size : 0;
    tap->trace_used = tap->trace_dropped = 0;
    pthread_mutex_unlock(&tap->lock);
    free(before);
    return !size || buffer;
}

/* Copy up to `size` numbers of whole records out; returns how many. What did not fit the buffer was dropped, and is
 * counted in `dropped`. */
size_t tap_take_trace(struct tap *tap, int32_t *out, size_t size, uint64_t *dropped) {
    pthread_mutex_lock(&tap->lock);
    size_t used = tap->trace_used <= size ? tap->trace_used : 0;
    if (used) memcpy(out, tap->trace, used * sizeof *out);
    *dropped = tap->trace_dropped;
    tap->trace_used = tap->trace_dropped = 0;
    pthread_mutex_unlock(&tap->lock);
    return used;
}
