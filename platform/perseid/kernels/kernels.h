/* What the kernels share: Arrow's columns as C sees them.
 *
 * Every kernel is a loop over the rows of one batch. It allocates nothing that outlives it, keeps no
 * state, and calls no Python, so it runs while other threads of the process do. Sizes are checked by
 * the Python module that calls it (the name of which is that of the .c file). */
#ifndef PERSEID_KERNELS_H
#define PERSEID_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Strings or binaries: value i is data[offsets[i]] up to data[offsets[i + 1]]. */
typedef struct {
    const int32_t *offsets;
    const uint8_t *data;
    const uint8_t *valid; /* a bit a row, or NULL where nothing is null */
    int64_t valid_offset; /* the bit of row 0 */
} binary_column;

static inline int bit_is_set(const uint8_t *bits, int64_t index) {
    return bits == NULL || (bits[index >> 3] >> (index & 7) & 1);
}

static inline int is_valid(const binary_column *column, int64_t row) {
    return bit_is_set(column->valid, column->valid_offset + row);
}

static inline uint64_t read64(const uint8_t *at) {
    uint64_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

/* Marks by their high bits which of 8 bytes a JSON string cannot hold as they are: quotes,
 * backslashes, control characters. Marks of bytes that are not ASCII, and of those after the first
 * right mark, may be wrong. */
#define HIGH_BITS 0x8080808080808080u

static inline uint64_t special_bytes(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u;
    return (word - ones * 0x20) | ((word ^ ones * '"') - ones) | ((word ^ ones * '\\') - ones);
}

#endif
