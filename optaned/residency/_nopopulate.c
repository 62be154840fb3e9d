/* Keeps a model library from reading what nobody needs yet: preloaded (LD_PRELOAD) into an engine with a block home.
 *
 * Libraries map weights with MAP_POPULATE and advise WILLNEED, so that 600 GB go through the page cache before the first
 * answer. For the files that OPTANED_UNREAD_FILES names ("device:inode" in decimal, separated by commas) both are kept from
 * the kernel; every other call goes through as it came. Knows no model and no budget.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(void *) == 8, "offsets are passed in one register");

enum { MOST = 4096 }; /* shards of a model; K3's have been split into 60 */

struct file {
    uint64_t device, inode;
};
struct range {
    uintptr_t start, end;
};

static struct file files[MOST];
static struct range ranges[MOST];
static int file_count, range_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Before main, so that no thread is there yet. */
__attribute__((constructor)) static void read_list(void) {
    const char *at = getenv("OPTANED_UNREAD_FILES");
    while (at && *at && file_count < MOST) {
        char *end;
        files[file_count].device = strtoull(at, &end, 10);
        if (*end != ':') break;
        files[file_count].inode = strtoull(end + 1, &end, 10);
        file_count++;
        at = *end == ',' ? end + 1 : NULL;
    }
}

static bool is_listed(int fd) {
    struct stat found;
    int before = errno;
    bool listed = false;
    if (file_count && fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode))
        for (int i = 0; i < file_count && !listed; i++)
            listed = files[i].device == found.st_dev && files[i].inode == found.st_ino;
    errno = before;
    return listed;
}

static void remember(uintptr_t start, size_t length) {
    pthread_mutex_lock(&lock);
    if (range_count < MOST) ranges[range_count++] = (struct range){start, start + length};
    pthread_mutex_unlock(&lock);
}

/* A range outlives its mapping here: the worst that comes of it is a piece of advice that is not passed on. */
static bool is_mapped_from_a_listed_file(const void *address, size_t length) {
    uintptr_t start = (uintptr_t)address, end = start + length;
    bool found = false;
    if (!file_count) return false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < range_count && !found; i++) found = start < ranges[i].end && end > ranges[i].start;
    pthread_mutex_unlock(&lock);
    return found;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    bool listed = !(flags & MAP_ANONYMOUS) && is_listed(fd);
    if (listed) flags &= ~MAP_POPULATE;
    void *at = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    if (listed && at != MAP_FAILED) remember((uintptr_t)at, length);
    return at;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset) {
    return mmap(address, length, protection, flags, fd, offset);
}

int madvise(void *address, size_t length, int advice) {
    if (advice == MADV_WILLNEED && is_mapped_from_a_listed_file(address, length)) return 0;
    return (int)syscall(SYS_madvise, address, length, advice);
}

int posix_madvise(void *address, size_t length, int advice) {
    if (advice == POSIX_MADV_DONTNEED) return 0; /* as the C library does: the kernel's would drop what was written */
    if (advice == POSIX_MADV_WILLNEED && is_mapped_from_a_listed_file(address, length)) return 0;
    int before = errno;
    int error = syscall(SYS_madvise, address, length, advice) ? errno : 0;
    errno = before;
    return error;
}

int posix_fadvise(int fd, off_t offset, off_t length, int advice) {
    if (advice == POSIX_FADV_WILLNEED && is_listed(fd)) return 0;
    int before = errno;
    int error = syscall(SYS_fadvise64, fd, offset, length, advice) ? errno : 0;
    errno = before;
    return error;
}

int posix_fadvise64(int fd, off64_t offset, off64_t length, int advice) { return posix_fadvise(fd, offset, length, advice); }
