/* Flat JSON objects to columns and back: what nearly every record is.
 *
 * Both kernels stop at the first row that is not plain, and the caller then does the whole batch in
 * the general way, which has the last word on what is valid. So they must be right in what they
 * take, and may take as little as they like. */
#include "kernels.h"

enum kind { STRING = 1, INT64 = 2, FLOAT64 = 3, BOOL = 4, TEXT = 5 };

/* A column that is read. `name` is as it stands in a text, `"word":`. Of strings `cells` are the
 * offsets (one more than rows) and `data` their bytes, which is as long as the whole text; else a
 * number of 8 bytes or a truth of 1 a row. */
typedef struct {
    const uint8_t *name;
    int64_t name_length;
    int32_t kind;
    void *cells;
    uint8_t *data;
    uint8_t *valid; /* a byte a row */
    int32_t end;    /* of `data` */
} read_column;

typedef struct {
    const uint8_t *at, *end;
} cursor;

/* 1 for what ends a plain run of a string: a quote, a backslash, control characters, and bytes that
 * are not ASCII. */
static uint8_t ends_run[256];

__attribute__((constructor)) static void fill_tables(void) {
    for (int c = 0; c < 256; c++) ends_run[c] = c < 0x20 || c >= 0x80 || c == '"' || c == '\\';
}

static void skip_blanks(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t')) c->at++;
}

static int take(cursor *c, uint8_t wanted) {
    if (c->at >= c->end || *c->at != wanted) return 0;
    c->at++;
    return 1;
}

static int take_word(cursor *c, const char *word, int64_t length) {
    if (c->end - c->at < length || memcmp(c->at, word, (size_t)length) != 0) return 0;
    c->at += length;
    return 1;
}

/* Bytes of the UTF-8 character that begins here, 0 where there is none (RFC 3629). */
static int character(const uint8_t *at, const uint8_t *end) {
    uint8_t first = *at;
    int more = first >= 0xC2 && first < 0xE0 ? 1 : first >= 0xE0 && first < 0xF0 ? 2
             : first >= 0xF0 && first < 0xF5 ? 3 : 0;
    if (more == 0 || end - at <= more) return 0;
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < low || at[1] > high) return 0;
    for (int i = 2; i <= more; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return more + 1;
}

/* A string without escapes, the cursor behind its first quote; NULL where it is not one. */
static const uint8_t *take_string(cursor *c, int64_t *length) {
    const uint8_t *start = c->at;
    for (;;) {
        while (c->at < c->end && !ends_run[*c->at]) c->at++;
        if (c->at >= c->end) return NULL;
        if (*c->at == '"') break;
        int bytes = *c->at < 0x80 ? 0 : character(c->at, c->end);
        if (bytes == 0) return NULL;
        c->at += bytes;
    }
    *length = c->at - start;
    c->at++;
    return start;
}

/* A number: its digits as one whole number, and by which power of ten to multiply that. */
typedef struct {
    int64_t digits;
    int32_t power;
    int negative, whole;
} number;

enum { DIGITS_MAX = 18 }; /* fit into 63 bits whatever they are */

static int take_number(cursor *c, number *found) {
    int digits = 0;
    *found = (number){.whole = 1};
    found->negative = take(c, '-');
    const uint8_t *start = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++, digits++) {
        if (digits >= DIGITS_MAX) return 0;
        found->digits = found->digits * 10 + (*c->at - '0');
    }
    if (digits == 0 || (digits > 1 && *start == '0')) return 0;
    if (take(c, '.')) {
        const uint8_t *fraction = c->at;
        for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++, digits++) {
            if (digits >= DIGITS_MAX) return 0;
            found->digits = found->digits * 10 + (*c->at - '0');
        }
        found->power = (int32_t)(fraction - c->at);
        found->whole = 0;
        if (found->power == 0) return 0;
    }
    return c->at >= c->end || (*c->at != 'e' && *c->at != 'E');
}

/* Both factors are exact, so their product or quotient is rounded once (Clinger, 1990). */
static int as_double(const number *found, double *value) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
    if (found->digits > (int64_t)1 << 53) return 0;
    *value = (double)found->digits / tens[-found->power];
    if (found->negative) *value = -*value;
    return 1;
}

static int take_null(cursor *c) { return take_word(c, "null", 4); }

/* The value of a field that no column takes. */
static int skip_value(cursor *c) {
    int64_t length;
    number found;
    if (take(c, '"')) return take_string(c, &length) != NULL;
    if (take_null(c) || take_word(c, "true", 4) || take_word(c, "false", 5)) return 1;
    return take_number(c, &found);
}

static int take_value(cursor *c, read_column *column, int64_t row) {
    column->valid[row] = 1;
    if (column->kind == STRING && take(c, '"')) {
        int64_t length;
        const uint8_t *found = take_string(c, &length);
        if (found == NULL) return 0;
        memcpy(column->data + column->end, found, (size_t)length);
        column->end += (int32_t)length;
        return 1;
    }
    if (take_null(c)) {
        column->valid[row] = 0;
        return 1;
    }
    number found;
    switch (column->kind) {
    case INT64:
        if (!take_number(c, &found) || !found.whole || (found.negative && found.digits == 0)) return 0;
        ((int64_t *)column->cells)[row] = found.negative ? -found.digits : found.digits;
        return 1;
    case FLOAT64:
        return take_number(c, &found) && as_double(&found, (double *)column->cells + row);
    case BOOL:
        ((uint8_t *)column->cells)[row] = (uint8_t)take_word(c, "true", 4);
        return ((uint8_t *)column->cells)[row] || take_word(c, "false", 5);
    default:
        return 0;
    }
}

/* Takes the name of a field and its colon. The column of that name is looked for first where fields
 * in the order of the columns have it; -1: there is none, -2: it is no plain name. */
static int32_t take_name(cursor *c, const read_column *columns, int32_t count, int32_t likely) {
    for (int32_t i = 0; i < count; i++) {
        int32_t index = likely + i < count ? likely + i : likely + i - count;
        if (take_word(c, (const char *)columns[index].name, columns[index].name_length)) return index;
    }
    int64_t length;
    if (!take(c, '"')) return -2;
    const uint8_t *name = take_string(c, &length);
    if (name == NULL) return -2;
    skip_blanks(c);
    if (!take(c, ':')) return -2;
    for (int32_t i = 0; i < count; i++) /* there were blanks in front of the colon */
        if (columns[i].name_length == length + 3 && !memcmp(columns[i].name + 1, name, (size_t)length))
            return i;
    return -1;
}

static int take_object(cursor *c, read_column *columns, int32_t count, int64_t row) {
    uint64_t seen = 0;
    int32_t likely = 0;
    if (!take(c, '{')) return 0;
    skip_blanks(c);
    if (!take(c, '}')) {
        do {
            skip_blanks(c);
            int32_t index = take_name(c, columns, count, likely);
            if (index == -2) return 0;
            skip_blanks(c);
            if (index < 0) {
                if (!skip_value(c)) return 0;
            } else {
                if (seen >> index & 1) return 0;
                seen |= (uint64_t)1 << index;
                if (!take_value(c, columns + index, row)) return 0;
                likely = index + 1 < count ? index + 1 : 0;
            }
            skip_blanks(c);
        } while (take(c, ','));
        if (!take(c, '}')) return 0;
    }
    for (int32_t i = 0; i < count; i++) {
        if (!(seen >> i & 1)) columns[i].valid[row] = 0;
        if (columns[i].kind == STRING) ((int32_t *)columns[i].cells)[row + 1] = columns[i].end;
    }
    return c->at == c->end;
}

/* How many rows were read: less than `rows` where one is not plain. At most 64 columns. */
int64_t perseid_json_read(const binary_column *texts, int64_t rows, read_column *columns,
                          int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (columns[i].kind == STRING) ((int32_t *)columns[i].cells)[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (!is_valid(texts, row)) return row;
        cursor c = {texts->data + texts->offsets[row], texts->data + texts->offsets[row + 1]};
        if (!take_object(&c, columns, count, row)) return row;
    }
    return rows;
}

/* A column that is written. `before` is the text in front of each of its values. */
typedef struct {
    const uint8_t *before;
    int64_t before_length;
    int32_t kind;
    const void *cells;    /* numbers of 8 bytes, or the bits of truths */
    int64_t cells_offset; /* the bit of row 0 */
    binary_column text;   /* strings, or TEXT that is JSON already; of all kinds which are null */
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

/* NULL where the string needs an escape. */
static uint8_t *put_string(uint8_t *out, const uint8_t *text, int64_t length) {
    *out++ = '"';
    for (int64_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] == '"' || text[i] == '\\') return NULL;
        out[i] = text[i];
    }
    out[length] = '"';
    return out + length + 1;
}

static uint8_t *put_value(uint8_t *out, const write_column *column, int64_t row) {
    if (!is_valid(&column->text, row)) return put(out, "null", 4);
    if (column->kind == INT64) return put_int(out, ((const int64_t *)column->cells)[row]);
    if (column->kind == BOOL)
        return bit_is_set(column->cells, column->cells_offset + row) ? put(out, "true", 4)
                                                                     : put(out, "false", 5);
    const uint8_t *text = column->text.data + column->text.offsets[row];
    int64_t length = column->text.offsets[row + 1] - column->text.offsets[row];
    return column->kind == TEXT ? put(out, text, length) : put_string(out, text, length);
}

/* One object a row into `out`, which must have room (json_text.py reckons). Returns the bytes, or
 * -1 less the number of a column with a string that needs an escape. */
int64_t perseid_json_write(const write_column *columns, int32_t count, int64_t rows,
                           int32_t *offsets, uint8_t *out) {
    uint8_t *at = out;
    offsets[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int32_t i = 0; i < count; i++) {
            at = put(at, columns[i].before, columns[i].before_length);
            at = put_value(at, columns + i, row);
            if (at == NULL) return -1 - i;
        }
        *at++ = '}';
        offsets[row + 1] = (int32_t)(at - out);
    }
    return at - out;
}
