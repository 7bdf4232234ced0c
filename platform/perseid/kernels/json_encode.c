/* Columns to JSON objects. */
#include "kernels.h"

enum kind { STRING = 1, INT64 = 2, BOOL = 4, JSON = 6 };
enum { LONGEST_ESCAPE = 6 };

/* A column that is written. `before` is the text in front of each of its values. */
typedef struct {
    const uint8_t *before;
    int64_t before_length;
    int32_t kind;
    const void *cells;    /* numbers of 8 bytes, or the bits of truths */
    int64_t cells_offset; /* the bit of row 0 */
    binary_column text;   /* strings, or values that are JSON already; of all kinds which are null */
} write_column;

static uint8_t *put(uint8_t *out, const void *bytes, int64_t length) {
    memcpy(out, bytes, (size_t)length);
    return out + length;
}

static uint8_t *put_int(uint8_t *out, int64_t value) {
    uint8_t digits[20];
    int first = 20;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do digits[--first] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *out++ = '-';
    return put(out, digits + first, 20 - first);
}

/* The next byte from `at` on that a string must escape, or `end`. */
static const uint8_t *next_special(const uint8_t *at, const uint8_t *end) {
    for (; end - at >= 8; at += 8) {
        uint64_t word = read64(at), found = special_bytes(word) & ~word & HIGH_BITS;
        if (found) return at + __builtin_ctzll(found) / 8;
    }
    while (at < end && *at >= 0x20 && *at != '"' && *at != '\\') at++;
    return at;
}

static uint8_t *put_escape(uint8_t *out, uint8_t byte) {
    static const char short_forms[] = "\bb\ff\nn\rr\tt\"\"\\\\", hex[] = "0123456789abcdef";
    *out++ = '\\';
    for (const char *form = short_forms; *form; form += 2)
        if (byte == (uint8_t)*form) {
            *out++ = (uint8_t)form[1];
            return out;
        }
    out = put(out, "u00", 3);
    *out++ = (uint8_t)hex[byte >> 4];
    *out++ = (uint8_t)hex[byte & 15];
    return out;
}

static uint8_t *put_string(uint8_t *out, const uint8_t *at, const uint8_t *end) {
    *out++ = '"';
    for (;;) {
        const uint8_t *special = next_special(at, end);
        out = put(out, at, special - at);
        if (special == end) break;
        out = put_escape(out, *special);
        at = special + 1;
    }
    *out++ = '"';
    return out;
}

static uint8_t *put_value(uint8_t *out, const write_column *column, int64_t row) {
    if (!is_valid(&column->text, row)) return put(out, "null", 4);
    if (column->kind == INT64) return put_int(out, ((const int64_t *)column->cells)[row]);
    if (column->kind == BOOL)
        return bit_is_set(column->cells, column->cells_offset + row) ? put(out, "true", 4)
                                                                     : put(out, "false", 5);
    const uint8_t *text = column->text.data + column->text.offsets[row];
    const uint8_t *end = column->text.data + column->text.offsets[row + 1];
    return column->kind == JSON ? put(out, text, end - text) : put_string(out, text, end);
}

/* By how many bytes escapes make this text longer at most. */
int64_t perseid_json_escapes(const uint8_t *text, int64_t length) {
    int64_t more = 0;
    const uint8_t *end = text + length;
    for (const uint8_t *at = text; (at = next_special(at, end)) != end; at++)
        more += LONGEST_ESCAPE - 1;
    return more;
}

/* One object a row into `out`, which must have room (json_encode.py computes it). Returns the bytes. */
int64_t perseid_json_encode(const write_column *columns, int32_t count, int64_t rows,
                            int32_t *offsets, uint8_t *out) {
    uint8_t *at = out;
    offsets[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int32_t i = 0; i < count; i++) {
            at = put(at, columns[i].before, columns[i].before_length);
            at = put_value(at, columns + i, row);
        }
        *at++ = '}';
        offsets[row + 1] = (int32_t)(at - out);
    }
    return at - out;
}
