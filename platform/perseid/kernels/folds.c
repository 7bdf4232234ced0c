/* Folds over rows whose keys are numbered. */
#include "kernels.h"

/* The sum of each row's key up to it. `held` is what the keys have after all rows, and so again at
 * the end. Returns how many rows were done: less than `rows` where a sum does not fit. */
int64_t perseid_running_sums(const int64_t *keys, const int64_t *amounts, int64_t rows,
                             int64_t *held, int64_t *sums) {
    for (int64_t row = 0; row < rows; row++) /* back to the begin, modulo 2^64 */
        held[keys[row]] = (int64_t)((uint64_t)held[keys[row]] - (uint64_t)amounts[row]);
    for (int64_t row = 0; row < rows; row++) {
        if (__builtin_add_overflow(held[keys[row]], amounts[row], &held[keys[row]])) return row;
        sums[row] = held[keys[row]];
    }
    return rows;
}
