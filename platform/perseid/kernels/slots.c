/* An open-addressing hash table of slots (state/index.py): place p holds hashes[p] and slots[p], which
 * is a slot, EMPTY, or GONE. There is an empty place always. */
#include "kernels.h"

enum { EMPTY = -1, AHEAD = 16 };

/* For each wanted hash the slot of the next key that has it, from its place on, and where that is;
 * -1 where none is left. */
void perseid_slots_find(const int64_t *hashes, const int32_t *slots, int64_t mask,
                        const int64_t *wanted, int64_t count, int64_t *places, int64_t *found) {
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            __builtin_prefetch(hashes + places[i + AHEAD]);
            __builtin_prefetch(slots + places[i + AHEAD]);
        }
        int64_t place = places[i];
        while (slots[place] != EMPTY && !(slots[place] >= 0 && hashes[place] == wanted[i]))
            place = (place + 1) & mask;
        places[i] = place;
        found[i] = slots[place];
    }
}

/* Adds keys that are not there, each with a slot of its own. */
void perseid_slots_insert(int64_t *hashes, int32_t *slots, int64_t mask, const int64_t *added,
                          const int64_t *given, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            __builtin_prefetch(hashes + (added[i + AHEAD] & mask), 1);
            __builtin_prefetch(slots + (added[i + AHEAD] & mask), 1);
        }
        int64_t place = added[i] & mask;
        while (slots[place] != EMPTY) place = (place + 1) & mask;
        hashes[place] = added[i];
        slots[place] = (int32_t)given[i];
    }
}

/* Numbers the different hashes by their first appearance: `numbers` of each row, `firsts`, the row
 * where each came first. `places` is room for a hash table, EMPTY everywhere. Returns how many there
 * are. */
int64_t perseid_slots_number(const int64_t *hashes, int64_t rows, int32_t *places, int64_t mask,
                             int64_t *numbers, int64_t *firsts) {
    int64_t count = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (row + AHEAD < rows) __builtin_prefetch(places + (hashes[row + AHEAD] & mask), 1);
        int64_t place = hashes[row] & mask;
        while (places[place] != EMPTY && hashes[firsts[places[place]]] != hashes[row])
            place = (place + 1) & mask;
        if (places[place] == EMPTY) {
            firsts[count] = row;
            places[place] = (int32_t)count++;
        }
        numbers[row] = places[place];
    }
    return count;
}
