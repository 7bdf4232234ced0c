/* JSON objects to columns.
 *
 * The kernel takes what it is sure of and leaves out each record with anything else: the caller reads
 * those in its general way, which has the last word on what is valid. So the kernel must be right in
 * what it takes, and may take as little as it likes. */
#include "kernels.h"

#include <float.h>

enum kind { STRING = 1, INT64 = 2, FLOAT64 = 3, BOOL = 4, TIMESTAMP = 5 };
enum { DEPTH_MAX = 64, NAME_MAX_BYTES = 256 };

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

static int has(const cursor *c, uint8_t wanted) { return c->at < c->end && *c->at == wanted; }

static int take(cursor *c, uint8_t wanted) {
    if (!has(c, wanted)) return 0;
    c->at++;
    return 1;
}

static int take_word(cursor *c, const void *word, int64_t length) {
    if (c->end - c->at < length || memcmp(c->at, word, (size_t)length) != 0) return 0;
    c->at += length;
    return 1;
}

static void skip_blanks(cursor *c) {
    while (has(c, ' ') || has(c, '\t') || has(c, '\n') || has(c, '\r')) c->at++;
}

static int take_between(cursor *c, uint8_t wanted) {
    skip_blanks(c);
    if (!take(c, wanted)) return 0;
    skip_blanks(c);
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

/* Up to a quote, a backslash, or a byte that no string may have. */
static void skip_run(cursor *c) {
    for (;;) {
        while (c->end - c->at >= 8) {
            uint64_t word = read64(c->at), found = (special_bytes(word) | word) & HIGH_BITS;
            c->at += found ? __builtin_ctzll(found) / 8 : 8;
            if (found) break;
        }
        while (c->at < c->end && *c->at >= 0x20 && *c->at < 0x80 && *c->at != '"' && *c->at != '\\')
            c->at++;
        if (c->at >= c->end || *c->at < 0x80) return;
        while (c->at < c->end && *c->at >= 0x80) {
            int bytes = character(c->at, c->end);
            if (bytes == 0) return;
            c->at += bytes;
        }
    }
}

static int take_hex(cursor *c, uint32_t *found) {
    *found = 0;
    if (c->end - c->at < 4) return 0;
    for (int i = 0; i < 4; i++) {
        uint8_t digit = *c->at++, letter = digit | 0x20;
        if (digit >= '0' && digit <= '9') *found = *found << 4 | (uint32_t)(digit - '0');
        else if (letter >= 'a' && letter <= 'f') *found = *found << 4 | (uint32_t)(letter - 'a' + 10);
        else return 0;
    }
    return 1;
}

/* The character of `\u`, of two of them for a surrogate pair; a half of a pair is none. */
static int take_code(cursor *c, uint32_t *code) {
    uint32_t low;
    if (!take_hex(c, code)) return 0;
    if (*code < 0xD800 || *code > 0xDFFF) return 1;
    if (*code > 0xDBFF || !take_word(c, "\\u", 2) || !take_hex(c, &low)) return 0;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return low >= 0xDC00 && low <= 0xDFFF;
}

static uint8_t *put_code(uint8_t *out, uint32_t code) {
    if (code < 0x80) {
        *out++ = (uint8_t)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
    *out++ = (uint8_t)(first[more] | code >> 6 * more);
    while (more-- > 0) *out++ = (uint8_t)(0x80 | (code >> 6 * more & 0x3F));
    return out;
}

/* After a backslash; NULL where it is no escape. */
static uint8_t *take_escape(cursor *c, uint8_t *out) {
    uint32_t code;
    if (c->at >= c->end) return NULL;
    switch (*c->at++) {
    case '"': *out++ = '"'; return out;
    case '\\': *out++ = '\\'; return out;
    case '/': *out++ = '/'; return out;
    case 'b': *out++ = '\b'; return out;
    case 'f': *out++ = '\f'; return out;
    case 'n': *out++ = '\n'; return out;
    case 'r': *out++ = '\r'; return out;
    case 't': *out++ = '\t'; return out;
    case 'u': return take_code(c, &code) ? put_code(out, code) : NULL;
    default: return NULL;
    }
}

/* The rest of a string after its first quote, decoded into `out`, which needs as many bytes as the
 * text has. Where the result ends, or NULL where it is no string. */
static uint8_t *take_string(cursor *c, uint8_t *out) {
    for (;;) {
        const uint8_t *run = c->at;
        skip_run(c);
        memcpy(out, run, (size_t)(c->at - run));
        out += c->at - run;
        if (take(c, '"')) return out;
        if (!has(c, '\\')) return NULL;
        while (take(c, '\\'))
            if ((out = take_escape(c, out)) == NULL) return NULL;
    }
}

static int skip_string(cursor *c) {
    uint8_t unused[4]; /* of one character */
    for (;;) {
        skip_run(c);
        if (take(c, '"')) return 1;
        if (!take(c, '\\') || take_escape(c, unused) == NULL) return 0;
    }
}

/* A number: its digits as one whole number, and by which power of ten to multiply that. */
typedef struct {
    uint64_t digits;
    int32_t power;
    int negative, whole;
} number;

enum { DIGITS_MAX = 19, EXPONENT_DIGITS_MAX = 2 }; /* 19 digits fit into 64 bits whatever they are */

/* Digits, of which `*used` so far count; their number, or -1 where they are too many. */
static int take_digits(cursor *c, uint64_t *found, int *used) {
    const uint8_t *start = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (*found != 0 || *c->at != '0') ++*used;
        if (*used > DIGITS_MAX) return -1;
        *found = *found * 10 + (uint64_t)(*c->at - '0');
    }
    return (int)(c->at - start);
}

static int take_exponent(cursor *c, int32_t *power) {
    uint64_t found = 0;
    int used = 0, negative = take(c, '-');
    if (!negative) take(c, '+');
    int digits = take_digits(c, &found, &used);
    if (digits <= 0 || digits > EXPONENT_DIGITS_MAX) return 0;
    *power += negative ? -(int32_t)found : (int32_t)found;
    return 1;
}

static int take_number(cursor *c, number *found) {
    int used = 0;
    *found = (number){.whole = 1};
    found->negative = take(c, '-');
    const uint8_t *start = c->at;
    int digits = take_digits(c, &found->digits, &used);
    if (digits <= 0 || (digits > 1 && *start == '0')) return 0;
    if (take(c, '.')) {
        int places = take_digits(c, &found->digits, &used);
        if (places <= 0) return 0;
        found->power = -places;
        found->whole = 0;
    }
    if (!take(c, 'e') && !take(c, 'E')) return 1;
    found->whole = 0;
    return take_exponent(c, &found->power);
}

#define EXACT_MAX ((uint64_t)1 << 53) /* a double has all whole numbers up to it */
static const long double TENS[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                   1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                   1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                   1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
enum { TENS_EXACT = 27, TENS_OF_DOUBLE = 22 }; /* 64 and 53 bits hold them exactly */

/* Two exact factors give a result that is rounded once (Clinger, 1990). Where they need the longer
 * type, it is rounded a second time: right unless the first result is next to the middle of two
 * doubles. */
static int as_double(const number *found, double *value) {
    int32_t power = found->power;
    if (found->digits <= EXACT_MAX && power >= -TENS_OF_DOUBLE && power <= TENS_OF_DOUBLE) {
        double ten = (double)TENS[power < 0 ? -power : power];
        *value = power < 0 ? (double)found->digits / ten : (double)found->digits * ten;
    } else {
        if (power < -TENS_EXACT || power > TENS_EXACT) return 0;
        long double digits = (long double)found->digits, ten = TENS[power < 0 ? -power : power];
        long double close = power < 0 ? digits / ten : digits * ten;
        *value = (double)(close - close * LDBL_EPSILON);
        if (*value != (double)(close + close * LDBL_EPSILON)) return 0;
    }
    if (found->negative) *value = -*value;
    return 1;
}

/* Whole numbers such as 5.0 or 1e3 count while a double holds them exactly. */
static int as_whole(const number *found, uint64_t *digits) {
    int32_t power = found->power;
    for (*digits = found->digits; power < 0 && *digits % 10 == 0; power++) *digits /= 10;
    for (; power > 0 && *digits <= EXACT_MAX; power--) *digits *= 10;
    return power == 0 && *digits <= EXACT_MAX;
}

static int as_int64(const number *found, int64_t *value) {
    uint64_t digits = found->digits, most = (uint64_t)INT64_MAX + (found->negative ? 1 : 0);
    if (!found->whole && !as_whole(found, &digits)) return 0;
    if (digits > most || (found->negative && digits == 0)) return 0;
    *value = (int64_t)(found->negative ? -digits : digits);
    return 1;
}

/* Two digits, or -1. */
static int pair(const uint8_t *at) {
    if (at[0] < '0' || at[0] > '9' || at[1] < '0' || at[1] > '9') return -1;
    return (at[0] - '0') * 10 + (at[1] - '0');
}

/* Days since 1970, https://howardhinnant.github.io/date_algorithms.html#days_from_civil */
static int64_t days(int64_t year, int month, int day) {
    year -= month <= 2;
    int64_t of_era = year % 400, of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return year / 400 * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* The microseconds that a zone is before UTC: nothing, Z, or an offset such as +01:30. */
static int take_zone(cursor *c, int64_t *offset) {
    *offset = 0;
    if (has(c, '"') || take(c, 'Z')) return 1;
    int before = take(c, '-');
    if ((!before && !take(c, '+')) || c->end - c->at < 5 || c->at[2] != ':') return 0;
    int hours = pair(c->at), minutes = pair(c->at + 3);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return 0;
    c->at += 5;
    *offset = (hours * 60 + minutes) * (before ? -60000000LL : 60000000LL);
    return 1;
}

/* A time as ISO 8601 has it, after its quote: date, time and at most six decimals, in microseconds
 * since 1970; of the years 1 to 9999 in UTC. */
static int take_time(cursor *c, int64_t *value) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const uint8_t *t = c->at;
    if (c->end - t < 20 || t[4] != '-' || t[7] != '-' || (t[10] != 'T' && t[10] != ' ')) return 0;
    if (t[13] != ':' || t[16] != ':') return 0;
    int century = pair(t), rest = pair(t + 2), month = pair(t + 5), day = pair(t + 8);
    int hour = pair(t + 11), minute = pair(t + 14), second = pair(t + 17);
    int year = century * 100 + rest;
    if (century < 0 || rest < 0 || year < 1 || month < 1 || month > 12 || day < 1) return 0;
    int leap = month == 2 && (year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    if (day > lengths[month - 1] + leap) return 0;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return 0;
    c->at += 19;
    uint64_t decimals = 0;
    int used = 0, places = 6;
    if (take(c, '.')) {
        const uint8_t *start = c->at;
        if (take_digits(c, &decimals, &used) <= 0 || c->at - start > 6) return 0;
        places -= (int)(c->at - start);
        while (places-- > 0) decimals *= 10;
    }
    int64_t offset, since = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    if (!take_zone(c, &offset) || !take(c, '"')) return 0;
    *value = since * 1000000 + (int64_t)decimals - offset;
    return *value >= -62135596800000000 && *value < 253402300800000000;
}

static int skip_value(cursor *c, int depth);

static int skip_nested(cursor *c, int depth) {
    uint8_t close = *c->at++ == '{' ? '}' : ']';
    skip_blanks(c);
    if (take(c, close)) return 1;
    do {
        skip_blanks(c);
        if (close == '}' && !(take(c, '"') && skip_string(c) && take_between(c, ':'))) return 0;
        if (!skip_value(c, depth)) return 0;
        skip_blanks(c);
    } while (take(c, ','));
    return take(c, close);
}

/* The value of a field that no column takes. */
static int skip_value(cursor *c, int depth) {
    number found;
    if (take(c, '"')) return skip_string(c);
    if (has(c, '{') || has(c, '[')) return depth < DEPTH_MAX && skip_nested(c, depth + 1);
    if (take_word(c, "null", 4) || take_word(c, "true", 4) || take_word(c, "false", 5)) return 1;
    return take_number(c, &found);
}

static void put_null(read_column *column, int64_t row) {
    column->valid[row] = 0;
    if (column->kind == BOOL) ((uint8_t *)column->cells)[row] = 0;
    else if (column->kind != STRING) ((int64_t *)column->cells)[row] = 0;
}

static int take_value(cursor *c, read_column *column, int64_t row) {
    if (take_word(c, "null", 4)) {
        put_null(column, row);
        return 1;
    }
    column->valid[row] = 1;
    number found;
    uint8_t *end;
    switch (column->kind) {
    case STRING:
        end = take(c, '"') ? take_string(c, column->data + column->end) : NULL;
        if (end != NULL) column->end = (int32_t)(end - column->data);
        return end != NULL;
    case INT64:
        return take_number(c, &found) && as_int64(&found, (int64_t *)column->cells + row);
    case FLOAT64:
        return take_number(c, &found) && as_double(&found, (double *)column->cells + row);
    case TIMESTAMP:
        return take(c, '"') && take_time(c, (int64_t *)column->cells + row);
    default:
        ((uint8_t *)column->cells)[row] = (uint8_t)take_word(c, "true", 4);
        return ((uint8_t *)column->cells)[row] || take_word(c, "false", 5);
    }
}

/* Takes the name of a field and its colon. First `likely` is tried, the column that has it where
 * fields have the order of the columns; -1: no column has it, -2: it is no name. */
static int32_t take_name(cursor *c, const read_column *columns, int32_t count, int32_t likely) {
    if (count && take_word(c, columns[likely].name, columns[likely].name_length)) return likely;
    uint8_t decoded[NAME_MAX_BYTES];
    if (!take(c, '"')) return -2;
    const uint8_t *name = c->at;
    if (!skip_string(c)) return -2;
    int64_t length = c->at - 1 - name;
    if (memchr(name, '\\', (size_t)length) != NULL) {
        if (length > NAME_MAX_BYTES) return -2;
        cursor again = {name, c->at};
        length = take_string(&again, decoded) - decoded;
        name = decoded;
    }
    if (!take_between(c, ':')) return -2;
    for (int32_t i = 0; i < count; i++)
        if (columns[i].name_length == length + 3 && !memcmp(columns[i].name + 1, name, (size_t)length))
            return i;
    return -1;
}

static int take_fields(cursor *c, read_column *columns, int32_t count, int64_t row, uint64_t *seen) {
    int32_t likely = 0;
    do {
        skip_blanks(c);
        int32_t index = take_name(c, columns, count, likely);
        if (index == -2) return 0;
        skip_blanks(c);
        if (index < 0) {
            if (!skip_value(c, 0)) return 0;
        } else {
            if (*seen >> index & 1) return 0;
            *seen |= (uint64_t)1 << index;
            if (!take_value(c, columns + index, row)) return 0;
            likely = index + 1 < count ? index + 1 : 0;
        }
        skip_blanks(c);
    } while (take(c, ','));
    return 1;
}

static int take_object(cursor *c, read_column *columns, int32_t count, int64_t row) {
    uint64_t seen = 0;
    if (!take_between(c, '{')) return 0;
    if (!has(c, '}') && !take_fields(c, columns, count, row, &seen)) return 0;
    if (!take_between(c, '}') || c->at != c->end) return 0;
    for (int32_t i = 0; i < count; i++) {
        if (!(seen >> i & 1)) put_null(columns + i, row);
        if (columns[i].kind == STRING) ((int32_t *)columns[i].cells)[row + 1] = columns[i].end;
    }
    return 1;
}

/* A row for each text that is taken, one after the other, and in `taken` which those are. Returns how
 * many there are. At most 64 columns. */
int64_t perseid_json_decode(const binary_column *texts, int64_t count, read_column *columns,
                            int32_t column_count, uint8_t *taken) {
    int64_t row = 0;
    for (int32_t i = 0; i < column_count; i++)
        if (columns[i].kind == STRING) ((int32_t *)columns[i].cells)[0] = 0;
    for (int64_t text = 0; text < count; text++) {
        cursor c = {texts->data + texts->offsets[text], texts->data + texts->offsets[text + 1]};
        taken[text] = is_valid(texts, text) && take_object(&c, columns, column_count, row);
        row += taken[text];
        for (int32_t i = 0; i < column_count && !taken[text]; i++) /* what it wrote is undone */
            if (columns[i].kind == STRING) columns[i].end = ((int32_t *)columns[i].cells)[row];
    }
    return row;
}
