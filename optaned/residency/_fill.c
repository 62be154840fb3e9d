/* See _fill.h. Each thread reads a chunk into a buffer of its own, past the page cache, and lets the kernel copy it to where
 * it is missing: the copy appears page by page, whole, so that no reader ever sees a page that is half there. */
#include "_fill.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, QUEUE = 1 << 12 };

struct job {
    struct batch *batch;
    int shard;
    uint64_t low, high;
};

struct fill_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    const struct shard *shards;
    int uffd, threads;
    size_t chunk_size;
    bool stopping;
    unsigned head, tail; /* of the queue; they wrap */
    struct job queue[QUEUE];
    _Atomic uint64_t bytes_read;
    pthread_t *ids;
};

static void *new_buffer(size_t size) {
    void *buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return buffer == MAP_FAILED ? NULL : buffer;
}

/* The thread's buffer, kept: callers of `fill_wait` and the fault thread help too. */
static _Thread_local uint8_t *my_buffer;
static _Thread_local size_t my_size;

static uint8_t *buffer_of_thread(size_t size) {
    if (my_size < size) {
        if (my_buffer) munmap(my_buffer, my_size);
        my_buffer = new_buffer(size);
        my_size = my_buffer ? size : 0;
    }
    return my_buffer;
}

static int read_chunk(const struct shard *shard, uint8_t *to, uint64_t low, uint64_t high) {
    uint64_t at = low, end = high < shard->file_size ? high : shard->file_size;
    while (at < end) {
        /* A direct read wants whole blocks: it is asked for whole pages and stops at the end of the file by itself. */
        bool direct = at % PAGE == 0;
        ssize_t got = pread(direct ? shard->direct_fd : shard->fd, to + (at - low), high - at, (off_t)at);
        if (got < 0 && errno == EINVAL && direct) /* a device with larger blocks than pages */
            got = pread(shard->fd, to + (at - low), high - at, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return EIO; /* shorter than it was: truncated under us */
        at += (uint64_t)got;
    }
    if (at < high) memset(to + (at - low), 0, high - at); /* past the end a mapped page is zero */
    return 0;
}

static int copy_in(int uffd, uint8_t *to, const uint8_t *from, size_t size) {
    size_t at = 0;
    while (at < size) {
        struct uffdio_copy copy = {.dst = (uintptr_t)(to + at), .src = (uintptr_t)(from + at), .len = size - at};
        if (ioctl(uffd, UFFDIO_COPY, &copy) == 0) return 0;
        if (copy.copy > 0) at += (size_t)copy.copy;
        else if (errno == EEXIST) at += PAGE; /* shared with a neighbour that is resident: the same bytes */
        else if (errno != EAGAIN && errno != EINTR) return errno;
    }
    return 0;
}

static int run(struct fill_pool *pool, const struct job *job) {
    const struct shard *shard = &pool->shards[job->shard];
    uint8_t *buffer = buffer_of_thread(pool->chunk_size);
    if (!buffer) return ENOMEM;
    int error = read_chunk(shard, buffer, job->low, job->high);
    if (error) return error;
    atomic_fetch_add_explicit(&pool->bytes_read, job->high - job->low, memory_order_relaxed);
    return copy_in(pool->uffd, shard->base + job->low, buffer, job->high - job->low);
}

/* With the lock held: take the oldest job, run it unlocked, count it off. False when there is none. */
static bool run_one(struct fill_pool *pool) {
    if (pool->head == pool->tail) return false;
    struct job job = pool->queue[pool->head++ % QUEUE];
    pthread_mutex_unlock(&pool->lock);
    int error = run(pool, &job);
    pthread_mutex_lock(&pool->lock);
    if (error && !job.batch->error) job.batch->error = error;
    if (--job.batch->pending == 0) pthread_cond_broadcast(&pool->done);
    return true;
}

static void *work(void *data) {
    struct fill_pool *pool = data;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping)
        if (!run_one(pool)) pthread_cond_wait(&pool->work, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    if (my_buffer) munmap(my_buffer, my_size);
    return NULL;
}

struct fill_pool *fill_open(int uffd, const struct shard *shards, int threads, size_t chunk_size) {
    struct fill_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->uffd = uffd;
    pool->shards = shards;
    pool->chunk_size = chunk_size;
    pool->ids = calloc((size_t)threads, sizeof *pool->ids);
    while (pool->ids && pool->threads < threads && !pthread_create(&pool->ids[pool->threads], NULL, work, pool))
        pool->threads++;
    return pool; /* with no thread at all those who wait do the work */
}

void fill_close(struct fill_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads; i++) pthread_join(pool->ids[i], NULL);
    free(pool->ids);
    free(pool);
}

void fill_start(struct fill_pool *pool, struct batch *batch, int shard, uint64_t low, uint64_t high) {
    pthread_mutex_lock(&pool->lock);
    /* Equal parts: a tail of a few pages costs the disk nearly as much as a whole chunk. */
    uint64_t parts = (high - low + pool->chunk_size - 1) / pool->chunk_size;
    uint64_t part = ((high - low) / PAGE + parts - 1) / parts * PAGE;
    for (uint64_t at = low; at < high;) {
        uint64_t end = high - at > part ? at + part : high;
        if (pool->tail - pool->head == QUEUE) {
            run_one(pool);
            continue;
        }
        pool->queue[pool->tail++ % QUEUE] = (struct job){batch, shard, at, end};
        batch->pending++;
        at = end;
        pthread_cond_signal(&pool->work);
    }
    pthread_mutex_unlock(&pool->lock);
}

int fill_wait(struct fill_pool *pool, struct batch *batch) {
    pthread_mutex_lock(&pool->lock);
    while (batch->pending)
        if (!run_one(pool)) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return batch->error;
}

uint64_t fill_bytes_read(const struct fill_pool *pool) { return atomic_load(&pool->bytes_read); }
