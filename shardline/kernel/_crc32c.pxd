# C functions of crc32c.h for Cython.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "crc32c.h" nogil:
    const char *shardline_crc_source
    void shardline_crc32c_init(int allow_hardware)
    uint32_t shardline_crc32c(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t shardline_masked(uint32_t crc)
    uint32_t shardline_step(uint32_t crc, uint8_t byte)
    uint32_t shardline_multiply(uint32_t a, uint32_t b)
    uint32_t shardline_power(uint64_t size)
    uint32_t shardline_load32(const uint8_t *data)
    uint64_t shardline_load64(const uint8_t *data)
    void shardline_store32(uint8_t *data, uint32_t value)
    void shardline_store64(uint8_t *data, uint64_t value)
