/*
 * Preloaded into a command under torture. It does two things that strace cannot:
 *
 * Short writes. strace's `retval=` answers without doing the call, so it can only lie about bytes
 * that never arrived. Here the chosen write() or pwrite() on a regular file of the folder really
 * writes its first half, at least one byte, and says so.
 *
 * Aim. strace picks a call by its name and number, never by its file: "every write from the 3rd on
 * fails" would also take away stderr, and "every openat" the modules that a command imports late.
 * So a write() to anything outside the folder leaves here as pwritev2, and an open() for reading as
 * openat2: the same deed under a name at which nobody aims.
 *
 * SHARDLINE_SWEEP_FOLDER   the folder, an absolute path; without it nothing is changed
 * SHARDLINE_SWEEP_SHORT    "write 3": the 3rd write() in the folder is short; "write 3+": from then on
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static char short_call[16];
static long short_from;
static int short_on;
static atomic_long writes, positioned_writes;

__attribute__((constructor)) static void read_settings(void)
{
    const char *where = getenv("SHARDLINE_SWEEP_FOLDER");
    const char *which = getenv("SHARDLINE_SWEEP_SHORT");
    char after = 0;

    if (where)
        snprintf(folder, sizeof folder, "%s", where);
    if (which)
        sscanf(which, "%15s %ld%c", short_call, &short_from, &after);
    short_on = after == '+';
}

static int in_folder(int fd)
{
    char link[32], path[PATH_MAX];
    size_t length = strlen(folder);
    int before = errno;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = before;
    if (size < 0)
        return 0;
    path[size] = 0;
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static size_t allowed(const char *call, atomic_long *count, int fd, size_t size)
{
    struct stat found;

    if (strcmp(call, short_call) || fstat(fd, &found) || !S_ISREG(found.st_mode))
        return size;
    long number = atomic_fetch_add(count, 1) + 1;
    if (number < short_from || (number > short_from && !short_on))
        return size;
    return size > 1 ? size / 2 : size;
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (*folder && !in_folder(fd)) {
        struct iovec piece = {(void *)data, size};
        ssize_t written = pwritev2(fd, &piece, 1, -1, 0);

        if (written >= 0 || (errno != ENOSYS && errno != EOPNOTSUPP))
            return written;
    } else if (*folder) {
        size = allowed("write", &writes, fd, size);
    }
    return syscall(SYS_write, fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    if (*folder && in_folder(fd))
        size = allowed("pwrite64", &positioned_writes, fd, size);
    return syscall(SYS_pwrite64, fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite(fd, data, size, offset);
}

static int opened(int at, const char *path, int flags, mode_t mode)
{
#ifdef SYS_openat2
    if (*folder && (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC))) {
        struct {
            uint64_t flags, mode, resolve;
        } how = {(unsigned)flags, 0, 0};
        long fd = syscall(SYS_openat2, at, path, &how, sizeof how);

        /* What openat2 does not know, or is not allowed, goes the ordinary way. */
        if (fd >= 0 || (errno != ENOSYS && errno != EINVAL && errno != EPERM))
            return (int)fd;
    }
#endif
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

#define MODE_OF(flags)                                                                             \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, mode_t);                                                               \
        va_end(rest);                                                                              \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return opened(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return opened(at, path, flags, mode);
}

DIR *opendir(const char *path)
{
    int fd = opened(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC, 0);

    return fd < 0 ? NULL : fdopendir(fd);
}
