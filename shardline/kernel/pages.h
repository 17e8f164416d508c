/* Large pages for large results: otherwise the first touch of new memory takes longer than writing
 * the result. */
#ifndef SHARDLINE_PAGES_H
#define SHARDLINE_PAGES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define SHARDLINE_LARGE ((size_t)1 << 22)

/* A hint to the system, which affects only the time. */
static void shardline_large_pages(void *start, size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    uintptr_t first = ((uintptr_t)start + 4095) & ~(uintptr_t)4095;
    if (size >= SHARDLINE_LARGE)
        madvise((void *)first, (uintptr_t)start + size - first, MADV_HUGEPAGE);
#else
    (void)start, (void)size;
#endif
}

#endif
