/* Strings and binaries of a column that keeps them by slot: text i is heap[starts[i]] and `widths[i]`
 * bytes from there; a start below 0 is a null. */
#include "kernels.h"

enum { AHEAD = 16 }; /* rows whose bytes are asked for beforehand: their misses overlap */

/* Puts the texts one after the other, text i at out[offsets[i]]. */
void perseid_texts_take(const uint8_t *heap, const int64_t *starts, const int32_t *widths,
                        int64_t rows, const int32_t *offsets, uint8_t *out) {
    for (int64_t row = 0; row < rows; row++) {
        if (row + AHEAD < rows && starts[row + AHEAD] >= 0)
            __builtin_prefetch(heap + starts[row + AHEAD]);
        if (starts[row] >= 0 && widths[row] > 0)
            memcpy(out + offsets[row], heap + starts[row], (size_t)widths[row]);
    }
}

/* Whether the text in slots[i] is values[rows[i]]. */
void perseid_texts_equal(const uint8_t *heap, const int64_t *starts, const int32_t *widths,
                         const int64_t *slots, int64_t count, const binary_column *values,
                         const int64_t *rows, uint8_t *equal) {
    for (int64_t i = 0; i < count; i++) {
        if (i + 2 * AHEAD < count) {
            __builtin_prefetch(starts + slots[i + 2 * AHEAD]);
            __builtin_prefetch(widths + slots[i + 2 * AHEAD]);
        }
        if (i + AHEAD < count && starts[slots[i + AHEAD]] >= 0)
            __builtin_prefetch(heap + starts[slots[i + AHEAD]]);
        int64_t start = starts[slots[i]], from = values->offsets[rows[i]];
        int32_t width = values->offsets[rows[i] + 1] - (int32_t)from;
        equal[i] = start >= 0 && widths[slots[i]] == width
            && memcmp(heap + start, values->data + from, (size_t)width) == 0;
    }
}

/* Whether all rows[i] and others[i] of `values` are the same text. */
int32_t perseid_texts_agree(const binary_column *values, const int64_t *rows,
                            const int64_t *others, int64_t count) {
    const int32_t *offsets = values->offsets;
    for (int64_t i = 0; i < count; i++) {
        int32_t width = offsets[rows[i] + 1] - offsets[rows[i]];
        if (offsets[others[i] + 1] - offsets[others[i]] != width
            || memcmp(values->data + offsets[rows[i]], values->data + offsets[others[i]],
                      (size_t)width) != 0)
            return 0;
    }
    return 1;
}
