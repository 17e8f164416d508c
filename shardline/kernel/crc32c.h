/* CRC-32C with the CPU's instruction (x86-64 with SSE4.2, arm64 with CRC) or a table.
 * shardline_crc32c_init chooses once at run time.
 *
 * The instruction takes three cycles, but one can start each cycle. Long buffers are therefore cut
 * into three parallel lanes. Moving the CRC of a lane past the bytes that follow it is a
 * multiplication by a constant, with a table. */
#ifndef SHARDLINE_CRC32C_H
#define SHARDLINE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#include <nmmintrin.h>
#if defined(_MSC_VER)
#include <intrin.h>
#define SHARDLINE_TARGET
#else
#define SHARDLINE_TARGET __attribute__((target("sse4.2")))
#endif
#define SHARDLINE_STEP8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define SHARDLINE_STEP4(crc, word) (_mm_crc32_u32((crc), (word)))
#define SHARDLINE_STEP1(crc, byte) (_mm_crc32_u8((crc), (byte)))
#define SHARDLINE_HARDWARE "sse4.2"
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#define SHARDLINE_TARGET __attribute__((target("+crc")))
#define SHARDLINE_STEP8(crc, word) (__crc32cd((crc), (word)))
#define SHARDLINE_STEP4(crc, word) (__crc32cw((crc), (word)))
#define SHARDLINE_STEP1(crc, byte) (__crc32cb((crc), (byte)))
#define SHARDLINE_HARDWARE "arm-crc"
#endif

#define SHARDLINE_LANE 256
#define SHARDLINE_LONG_LANE 4096

static uint32_t shardline_bytes[8][256];     /* table: slicing by eight */
static uint32_t shardline_lane[4][256];      /* moves a CRC past SHARDLINE_LANE bytes */
static uint32_t shardline_long_lane[4][256]; /* moves a CRC past SHARDLINE_LONG_LANE bytes */
static uint32_t (*shardline_update)(uint32_t, const uint8_t *, size_t);
static const char *shardline_crc_source = "table";

/* Multiply two polynomials over GF(2), bits reversed, modulo the CRC's polynomial. */
static uint32_t shardline_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if (a >> bit & 1) product ^= b;
        b = (b >> 1) ^ ((b & 1) ? 0x82F63B78u : 0);
    }
    return product;
}

/* x^(8 * bytes): the factor for a CRC when that many bytes follow. */
static uint32_t shardline_power(uint64_t bytes) {
    uint32_t power = 0x40000000u >> 7, result = 0x80000000u;
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) result = shardline_multiply(power, result);
        power = shardline_multiply(power, power);
    }
    return result;
}

static inline uint32_t shardline_load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint64_t shardline_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline void shardline_store32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static inline void shardline_store64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t shardline_step(uint32_t crc, uint8_t byte) {
    return (crc >> 8) ^ shardline_bytes[0][(crc ^ byte) & 0xFF];
}

static uint32_t shardline_update_table(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = shardline_load32(p) ^ crc, high = shardline_load32(p + 4);
        crc = shardline_bytes[7][low & 0xFF] ^ shardline_bytes[6][low >> 8 & 0xFF] ^
              shardline_bytes[5][low >> 16 & 0xFF] ^ shardline_bytes[4][low >> 24] ^
              shardline_bytes[3][high & 0xFF] ^ shardline_bytes[2][high >> 8 & 0xFF] ^
              shardline_bytes[1][high >> 16 & 0xFF] ^ shardline_bytes[0][high >> 24];
    }
    for (; n; n--) crc = shardline_step(crc, *p++);
    return crc;
}

#ifdef SHARDLINE_HARDWARE
static inline uint32_t shardline_moved(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][crc >> 8 & 0xFF] ^ table[2][crc >> 16 & 0xFF] ^
           table[3][crc >> 24];
}

SHARDLINE_TARGET static inline uint32_t shardline_three_lanes(uint32_t crc, const uint8_t *p,
                                                              size_t lane,
                                                              uint32_t table[4][256]) {
    uint32_t b = 0, c = 0;
    for (size_t i = 0; i < lane; i += 8) {
        crc = SHARDLINE_STEP8(crc, shardline_load64(p + i));
        b = SHARDLINE_STEP8(b, shardline_load64(p + lane + i));
        c = SHARDLINE_STEP8(c, shardline_load64(p + 2 * lane + i));
    }
    crc = shardline_moved(table, crc) ^ b;
    return shardline_moved(table, crc) ^ c;
}

SHARDLINE_TARGET static inline uint32_t shardline_update_words(uint32_t crc, const uint8_t *p,
                                                               size_t n) {
    for (; n >= 8; n -= 8, p += 8) crc = SHARDLINE_STEP8(crc, shardline_load64(p));
    if (n >= 4) {
        crc = SHARDLINE_STEP4(crc, shardline_load32(p));
        n -= 4, p += 4;
    }
    for (; n; n--) crc = SHARDLINE_STEP1(crc, *p++);
    return crc;
}

SHARDLINE_TARGET static uint32_t shardline_update_hardware(uint32_t crc, const uint8_t *p,
                                                           size_t n) {
    for (; n >= 3 * SHARDLINE_LONG_LANE; n -= 3 * SHARDLINE_LONG_LANE) {
        crc = shardline_three_lanes(crc, p, SHARDLINE_LONG_LANE, shardline_long_lane);
        p += 3 * SHARDLINE_LONG_LANE;
    }
    for (; n >= 3 * SHARDLINE_LANE; n -= 3 * SHARDLINE_LANE) {
        crc = shardline_three_lanes(crc, p, SHARDLINE_LANE, shardline_lane);
        p += 3 * SHARDLINE_LANE;
    }
    return shardline_update_words(crc, p, n);
}

static int shardline_has_instruction(void) {
#if defined(_M_X64) && defined(_MSC_VER)
    int info[4];
    __cpuid(info, 1);
    return info[2] >> 20 & 1;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 7 & 1) != 0; /* HWCAP_CRC32 */
#else
    return 1; /* all arm64 machines that run macOS have it */
#endif
}
#endif

static void shardline_lane_table(uint32_t table[4][256], size_t bytes) {
    uint32_t power = shardline_power(bytes);
    for (int k = 0; k < 4; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            table[k][byte] = shardline_multiply(power, byte << (8 * k));
}

/* Fill the tables and choose. `allow_hardware` 0 selects the table. */
static void shardline_crc32c_init(int allow_hardware) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ ((value & 1) ? 0x82F63B78u : 0);
        shardline_bytes[0][byte] = value;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = shardline_bytes[k - 1][byte];
            shardline_bytes[k][byte] = (value >> 8) ^ shardline_bytes[0][value & 0xFF];
        }
    shardline_lane_table(shardline_lane, SHARDLINE_LANE);
    shardline_lane_table(shardline_long_lane, SHARDLINE_LONG_LANE);
    shardline_update = shardline_update_table;
    shardline_crc_source = "table";
#ifdef SHARDLINE_HARDWARE
    if (allow_hardware && shardline_has_instruction()) {
        shardline_update = shardline_update_hardware;
        shardline_crc_source = SHARDLINE_HARDWARE;
    }
#else
    (void)allow_hardware;
#endif
}

static inline uint32_t shardline_crc32c(uint32_t crc, const uint8_t *p, size_t n) {
    return ~shardline_update(~crc, p, n);
}

/* Mask a CRC as TFRecord stores it. */
static inline uint32_t shardline_masked(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

#endif
