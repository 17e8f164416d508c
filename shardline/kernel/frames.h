/* Scan over a buffer of frames, and their checksums, compiled once for each implementation of
 * CRC-32C. A call through a pointer would take as long as the checksum of a small record. */
#ifndef SHARDLINE_FRAMES_H
#define SHARDLINE_FRAMES_H

#include "crc32c.h"

#if defined(_MSC_VER)
#define SHARDLINE_INLINE static __forceinline
#else
#define SHARDLINE_INLINE static inline __attribute__((always_inline))
#endif

enum shardline_stop { AT_END, LENGTH_CRC, OVERSIZED, DATA_CRC, TRUNCATED, TRAILING_BYTES };

/* Position and reason of the end of a scan: at `offset`, a record states `length` bytes, which was
 * compared with `bound`. */
typedef struct {
    uint64_t offset, length, bound;
    int64_t count;
    enum shardline_stop stop;
} shardline_scan_end;

typedef uint32_t (*shardline_crc_update)(uint32_t, const uint8_t *, size_t);

SHARDLINE_INLINE shardline_scan_end shardline_scan_by(shardline_crc_update update,
                                                      const uint8_t *base, uint64_t end,
                                                      uint64_t max_length, int64_t *starts,
                                                      int64_t *lengths) {
    shardline_scan_end state = {0, 0, 0, 0, AT_END};
    while (state.offset < end) {
        const uint8_t *frame = base + state.offset;
        uint64_t remaining = end - state.offset;
        if (remaining < 12) {
            state.stop = TRAILING_BYTES, state.bound = remaining;
            break;
        }
        if (shardline_load32(frame + 8) != shardline_masked(~update(~0u, frame, 8))) {
            state.stop = LENGTH_CRC;
            break;
        }
        state.length = shardline_load64(frame);
        if (state.length > max_length) {
            state.stop = OVERSIZED, state.bound = max_length;
            break;
        }
        if (remaining < 16 || state.length > remaining - 16) {
            state.stop = TRUNCATED, state.bound = remaining;
            break;
        }
        const uint8_t *data = frame + 12;
        if (shardline_load32(data + state.length) !=
            shardline_masked(~update(~0u, data, (size_t)state.length))) {
            state.stop = DATA_CRC;
            break;
        }
        starts[state.count] = (int64_t)(state.offset + 12);
        lengths[state.count] = (int64_t)state.length;
        state.count++;
        state.offset += state.length + 16;
    }
    return state;
}

/* Write the checksums of a frame, given that of its data so far. Returns the next frame. */
SHARDLINE_INLINE uint8_t *shardline_seal_one(shardline_crc_update update, uint8_t *frame,
                                             uint32_t crc, size_t done) {
    size_t length = (size_t)shardline_load64(frame);
    uint8_t *data = frame + 12;
    shardline_store32(frame + 8, shardline_masked(~update(~0u, frame, 8)));
    shardline_store32(data + length, shardline_masked(~update(crc, data + done, length - done)));
    return data + length + 4;
}

static shardline_scan_end shardline_scan_table(const uint8_t *base, uint64_t end,
                                               uint64_t max_length, int64_t *starts,
                                               int64_t *lengths) {
    return shardline_scan_by(shardline_update_table, base, end, max_length, starts, lengths);
}

#ifdef SHARDLINE_HARDWARE
SHARDLINE_TARGET static inline uint32_t shardline_update_short(uint32_t crc, const uint8_t *p,
                                                               size_t n) {
    return n < 3 * SHARDLINE_LANE ? shardline_update_words(crc, p, n)
                                  : shardline_update_hardware(crc, p, n);
}

SHARDLINE_TARGET static shardline_scan_end shardline_scan_hardware(const uint8_t *base,
                                                                   uint64_t end,
                                                                   uint64_t max_length,
                                                                   int64_t *starts,
                                                                   int64_t *lengths) {
    return shardline_scan_by(shardline_update_short, base, end, max_length, starts, lengths);
}

/* The instruction takes three cycles, but one can start each cycle. Therefore three frames run in
 * parallel, up to the end of the shortest. */
SHARDLINE_TARGET static void shardline_seal_hardware(uint8_t *frame, const uint8_t *end) {
    while (frame < end) {
        uint8_t *second = frame + shardline_load64(frame) + 16;
        uint8_t *third = second < end ? second + shardline_load64(second) + 16 : second;
        if (third >= end) {
            frame = shardline_seal_one(shardline_update_short, frame, ~0u, 0);
            continue;
        }
        size_t common = (size_t)shardline_load64(frame), i = 0;
        if (common > shardline_load64(second)) common = (size_t)shardline_load64(second);
        if (common > shardline_load64(third)) common = (size_t)shardline_load64(third);
        uint32_t a = ~0u, b = ~0u, c = ~0u;
        for (; i + 8 <= common; i += 8) {
            a = SHARDLINE_STEP8(a, shardline_load64(frame + 12 + i));
            b = SHARDLINE_STEP8(b, shardline_load64(second + 12 + i));
            c = SHARDLINE_STEP8(c, shardline_load64(third + 12 + i));
        }
        shardline_seal_one(shardline_update_short, frame, a, i);
        shardline_seal_one(shardline_update_short, second, b, i);
        frame = shardline_seal_one(shardline_update_short, third, c, i);
    }
}
#endif

/* Find the intact frames at the start of a buffer. `starts` and `lengths` hold end / 16 items. */
static shardline_scan_end shardline_scan(const uint8_t *base, uint64_t end, uint64_t max_length,
                                         int64_t *starts, int64_t *lengths) {
#ifdef SHARDLINE_HARDWARE
    if (shardline_update == shardline_update_hardware)
        return shardline_scan_hardware(base, end, max_length, starts, lengths);
#endif
    return shardline_scan_table(base, end, max_length, starts, lengths);
}

/* Write both checksums of consecutive frames that already have lengths and data. */
static void shardline_seal(uint8_t *frame, const uint8_t *end) {
#ifdef SHARDLINE_HARDWARE
    if (shardline_update == shardline_update_hardware) {
        shardline_seal_hardware(frame, end);
        return;
    }
#endif
    while (frame < end) frame = shardline_seal_one(shardline_update_table, frame, ~0u, 0);
}

#endif
