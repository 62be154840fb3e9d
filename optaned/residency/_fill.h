/* Reading a file's pages into memory that is missing them: threads, direct reads, and the kernel's copy into place.
 *
 * Knows files, pages and threads; knows no expert and no budget.
 */
#ifndef OPTANED_FILL_H
#define OPTANED_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One shard: its direct and its ordinary descriptor, and the region of missing pages that stands for its bytes. */
struct shard {
    int direct_fd, fd;
    uint8_t *base; /* address of file offset 0, whether or not that byte is mapped */
    uint64_t low, high; /* file offsets of the region, whole pages */
    uint64_t file_size;
};

/* Reads that somebody waits for. */
struct batch {
    int pending;
    int error; /* errno of the first one that failed */
};

struct fill_pool;

struct fill_pool *fill_open(int uffd, const struct shard *shards, int threads, size_t chunk_size);
void fill_close(struct fill_pool *pool);

/* Ask for the pages [low, high) of a shard. Pages that are there already stay as they are. */
void fill_start(struct fill_pool *pool, struct batch *batch, int shard, uint64_t low, uint64_t high);

/* Wait for a batch and help with it; returns 0 or an errno. */
int fill_wait(struct fill_pool *pool, struct batch *batch);

uint64_t fill_bytes_read(const struct fill_pool *pool);

#endif
