/* Hashes of keys: Kafka's partitioner (murmur2) and Spark's (XXH64). */
#include "kernels.h"

static uint32_t read32(const uint8_t *at) {
    uint32_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

/* What a null is hashed as: no bytes, whatever lies under it. */
static uint32_t length_of(const binary_column *values, int64_t row) {
    if (!is_valid(values, row)) return 0;
    return (uint32_t)(values->offsets[row + 1] - values->offsets[row]);
}

/* murmur2 as Kafka's Java client has it. */
static uint32_t murmur2(const uint8_t *data, uint32_t length) {
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28c ^ length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t k = read32(data) * m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    switch (length) {
    case 3: h ^= (uint32_t)data[2] << 16; /* fall through */
    case 2: h ^= (uint32_t)data[1] << 8;  /* fall through */
    case 1: h = (h ^ data[0]) * m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

void perseid_murmur2(const binary_column *keys, int64_t rows, uint32_t *hashes) {
    for (int64_t row = 0; row < rows; row++)
        hashes[row] = murmur2(keys->data + keys->offsets[row], length_of(keys, row));
}

static const uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F, P3 = 0x165667B19E3779F9,
                      P4 = 0x85EBCA77C2B2AE63, P5 = 0x27D4EB2F165667C5;

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static uint64_t lane(uint64_t sum, uint64_t word) { return rotate(sum + word * P2, 31) * P1; }

/* https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */
static uint64_t xxh64(const uint8_t *data, uint64_t length, uint64_t seed) {
    const uint8_t *end = data + length;
    uint64_t h = seed + P5;
    if (length >= 32) {
        uint64_t sums[4] = {seed + P1 + P2, seed + P2, seed, seed - P1};
        for (; end - data >= 32; data += 32)
            for (int i = 0; i < 4; i++) sums[i] = lane(sums[i], read64(data + 8 * i));
        h = rotate(sums[0], 1) + rotate(sums[1], 7) + rotate(sums[2], 12) + rotate(sums[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ lane(0, sums[i])) * P1 + P4;
    }
    h += length;
    for (; end - data >= 8; data += 8) h = rotate(h ^ lane(0, read64(data)), 27) * P1 + P4;
    if (end - data >= 4) {
        h = rotate(h ^ read32(data) * P1, 23) * P2 + P3;
        data += 4;
    }
    for (; data < end; data++) h = rotate(h ^ *data * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

/* In place: each row's seed becomes its hash. */
void perseid_xxh64(const binary_column *values, int64_t rows, uint64_t *hashes) {
    for (int64_t row = 0; row < rows; row++)
        hashes[row] = xxh64(values->data + values->offsets[row], length_of(values, row), hashes[row]);
}
