/* Finds the lines of a log that may hold a record, and reads the two commonest records whole.
 *
 * A literal is found by three of its bytes: every second position of the data is hashed into a bitmap, so each literal has two such triples one
 * byte apart, chosen where they are rare in logs. What the bitmap lets through is compared in full. A line with a literal is left to the caller unless it
 * is, to the last byte, Megatron's memory line of a rank or its iteration line behind a prefix that the caller has told, with fields whose names
 * the caller has told, and holds no literal of another kind of record; then it becomes a row here. Nothing is guessed: whatever is not of
 * exactly that shape goes back to the caller, who reads every shape there is.
 *
 * The data may hold any bytes. No byte outside [data, data + size) is read, no row outside the given room is written.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { BITS = 16, CHAINS = 4096, LONGEST_PREFIX = 120, LONGEST_NAME = 64, PREFIXES = 4096, NAMES = 256, MOST_FIELDS = 48, LONGEST_LITERAL = 64 };
enum { FOR_MEMORY = 1, FOR_ITERATION = 2 };                         /* a literal that these lines have anyway */
enum { WHY_LINE = 0, WHY_PREFIX = 1, WHY_NAME = 2, WHY_ROOM = 3 };    /* why the caller is asked */
enum { READ_UNTIMED = 1, READ_TIMED = 2 };
enum { AS_NEVER = -1, AS_OTHER = 0, AS_LOSS = 1, AS_INTEGER = 2, AS_FLOAT = 6 };
enum { INTEGERS = 4, FLOATS = 5, COLUMNS = AS_FLOAT + FLOATS, FIRST_COLUMN = AS_INTEGER };

typedef struct { int64_t line, iteration, rank, run_index, allocated, max_allocated, reserved, max_reserved, device_used, rounding, valid; } memory_row;

typedef struct {
    int64_t line, iteration, train_iterations, run_index, prefix, timestamp_us, has;   /* has: bit of each column, bit 63 of the timestamp */
    int64_t integers[INTEGERS];
    double floats[FLOATS];
    int64_t losses, others;                                                            /* how many entries belong to this row */
} iteration_row;

typedef struct { double value; int64_t name; } loss_entry;
typedef struct { int64_t name, begin, length; } other_entry;

typedef struct {
    int64_t lines;                                   /* newlines before the present byte */
    int64_t run_index, iteration, first, last;       /* -1: none */
    int64_t progressed, announced;
    int64_t why, word, word_length;                  /* why the caller is asked, and the prefix or name that is not known, as a slice of the data */
    int64_t readable;                                /* READ_...: what may be read here now */
    int64_t nul;                                     /* where the next NUL of this data stands; -1: not looked for yet */
    int64_t memory_count, memory_room, iteration_count, iteration_room, loss_count, loss_room, other_count, other_room, text_used, text_room;
    memory_row *memory;
    iteration_row *iterations;
    loss_entry *losses;
    other_entry *others;
    char *text;
    struct prefix_table *prefixes;
} log_state;

typedef struct { uint32_t gram; int32_t literal, offset, next; } link;
typedef struct { uint16_t length; int8_t as, ends; int32_t id; char bytes[LONGEST_PREFIX]; } word;
struct prefix_table { int64_t count; word words[2 * PREFIXES]; };

typedef struct {
    uint8_t bitmap[(1 << BITS) / 8];
    int32_t chains[CHAINS];
    link *links;
    int32_t link_count, link_room, literal_count;
    uint8_t (*literals)[LONGEST_LITERAL];
    int32_t *lengths, *kinds;
    int32_t nul;                                     /* whether a NUL makes a line one for the caller */
    int32_t records;                                 /* whether records are read here at all */
    int64_t name_count;
    word names[2 * NAMES];                           /* open addressing; length 0 is free */
} log_scan;

static uint32_t gram_at(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16; }
static uint32_t mixed(uint32_t gram) { return gram * 0x9E3779B1u; }

/* ---- building ---------------------------------------------------------------------------------------------- */

static int commonness(uint8_t c)
{
    if (c == ' ' || (c >= '0' && c <= '9')) return 9;
    if (memchr("etaoinsr", c, 8)) return 7;
    if (c >= 'a' && c <= 'z') return 5;
    return memchr(":.-_/[]", c, 7) ? 5 : 3;
}

static int window_weight(const uint8_t *p)
{
    static const char COMMON[] = "NCCL INFO megatron torch/distributed iteration memory";
    int weight = commonness(p[0]) + commonness(p[1]) + commonness(p[2]) + commonness(p[3]);
    for (size_t at = 0; at + 4 < sizeof COMMON; at++)
        if (memcmp(COMMON + at, p, 4) == 0) weight += 20;
    return weight;
}

static int add_gram(log_scan *scan, uint32_t gram, int32_t literal, int32_t offset)
{
    if (scan->link_count == scan->link_room) {
        int32_t room = scan->link_room ? 2 * scan->link_room : 1024;
        link *grown = realloc(scan->links, (size_t)room * sizeof *grown);
        if (!grown) return 0;
        scan->links = grown, scan->link_room = room;
    }
    uint32_t hash = mixed(gram);
    int32_t *head = &scan->chains[hash >> 20];
    scan->bitmap[hash >> (32 - BITS) >> 3] |= (uint8_t)(1u << (hash >> (32 - BITS) & 7));
    scan->links[scan->link_count] = (link){gram, literal, offset, *head};
    *head = scan->link_count++;
    return 1;
}

static int add_literal(log_scan *scan, int32_t index)
{
    const uint8_t *p = scan->literals[index];
    int32_t length = scan->lengths[index], best = 0;
    if (length == 3) {                               /* its second triple has any last byte */
        for (uint32_t last = 0; last < 256; last++)
            if (!add_gram(scan, (uint32_t)p[1] | (uint32_t)p[2] << 8 | last << 16, index, 1)) return 0;
        return add_gram(scan, gram_at(p), index, 0);
    }
    for (int32_t at = 1; at + 4 <= length; at++)
        if (window_weight(p + at) < window_weight(p + best)) best = at;
    return add_gram(scan, gram_at(p + best), index, best) && add_gram(scan, gram_at(p + best + 1), index, best + 1);
}

API void log_scan_free(log_scan *scan)
{
    if (!scan) return;
    free(scan->links), free(scan->literals), free(scan->lengths), free(scan->kinds), free(scan);
}

/* `blob` holds the literals one after the other; each has 3 to 64 bytes. NULL where that is not so or memory is out. */
API log_scan *log_scan_new(const uint8_t *blob, const int32_t *lengths, const int32_t *kinds, int32_t count, int32_t nul, int32_t records)
{
    log_scan *scan = count < 0 || count > 65536 ? NULL : calloc(1, sizeof *scan);
    if (!scan) return NULL;
    scan->literals = calloc((size_t)count + 1, sizeof *scan->literals);
    scan->lengths = calloc((size_t)count + 1, sizeof *scan->lengths);
    scan->kinds = calloc((size_t)count + 1, sizeof *scan->kinds);
    scan->literal_count = count, scan->nul = nul, scan->records = records;
    memset(scan->chains, 0xff, sizeof scan->chains);
    int fine = scan->literals && scan->lengths && scan->kinds;
    for (int32_t at = 0; fine && at < count; blob += lengths[at++]) {
        fine = lengths[at] >= 3 && lengths[at] <= LONGEST_LITERAL;
        if (!fine) break;
        memcpy(scan->literals[at], blob, (size_t)lengths[at]);
        scan->lengths[at] = lengths[at], scan->kinds[at] = kinds[at];
        fine = add_literal(scan, at);
    }
    if (fine) return scan;
    log_scan_free(scan);
    return NULL;
}

/* ---- words: prefixes and names the caller has told ----------------------------------------------------------- */

static word *slot_of(word *words, uint32_t size, const uint8_t *p, size_t length)
{
    uint64_t head = 0, tail = 0, hash;
    size_t part = length < 8 ? length : 8;
    memcpy(&head, p, part), memcpy(&tail, p + length - part, part);
    hash = (head * 0x9E3779B97F4A7C15u) ^ ((tail + length) * 0xC2B2AE3D27D4EB4Fu);
    hash ^= hash >> 29;
    hash *= 0x9E3779B97F4A7C15u;
    for (uint32_t at = (uint32_t)(hash >> 40) & (size - 1);; at = (at + 1) & (size - 1))
        if (!words[at].length || (words[at].length == length && memcmp(words[at].bytes, p, length) == 0)) return &words[at];
}

static int tell(word *words, uint32_t size, int64_t *count, const uint8_t *p, int64_t length, int32_t longest, int32_t id, int32_t as, int32_t ends)
{
    if (length < 1 || length > longest || *count >= size / 2) return 0;
    word *slot = slot_of(words, size, p, (size_t)length);
    *count += !slot->length;
    slot->length = (uint16_t)length, slot->id = id, slot->as = (int8_t)as, slot->ends = (int8_t)ends;
    memcpy(slot->bytes, p, (size_t)length);
    return 1;
}

/* A prefix the caller knows; id < 0: lines behind it are never read here. 0 where there is no room. */
API int32_t log_scan_prefix(log_state *state, const uint8_t *p, int64_t length, int32_t id)
{
    return tell(state->prefixes->words, 2 * PREFIXES, &state->prefixes->count, p, length, LONGEST_PREFIX, id, 0, 0);
}

/* Bytes of a table of prefixes, all zero at first; the caller holds it, one a log. */
API int64_t log_scan_prefix_bytes(void) { return sizeof(struct prefix_table); }

/* A field's name, what becomes of it (AS_...), and whether a line whose last field it is lacks nothing. 0 where there is no room. */
API int32_t log_scan_name(log_scan *scan, const uint8_t *p, int64_t length, int32_t id, int32_t as, int32_t ends)
{
    return tell(scan->names, 2 * NAMES, &scan->name_count, p, length, LONGEST_NAME, id, as, ends);
}

/* ---- finding literals ------------------------------------------------------------------------------------------ */

/* Where a literal whose kind is not within `passed` begins whose triple stands at or after `at`, or `size`; *end: its last byte's successor. */
static int64_t next_literal(const log_scan *scan, const uint8_t *data, int64_t size, int64_t *at, int32_t passed)
{
    int64_t p = *at;
    for (; p + 3 <= size; p += 2) {
        uint32_t gram = gram_at(data + p), hash = mixed(gram), bit = hash >> (32 - BITS);
        if (!(scan->bitmap[bit >> 3] >> (bit & 7) & 1)) continue;
        for (int32_t one = scan->chains[hash >> 20]; one >= 0; one = scan->links[one].next) {
            const link *found = &scan->links[one];
            int32_t literal = found->literal;
            int64_t begin = p - found->offset;
            if (found->gram != gram || begin < 0 || begin + scan->lengths[literal] > size) continue;
            if ((scan->kinds[literal] & passed) == passed && passed) continue;
            if (memcmp(data + begin, scan->literals[literal], (size_t)scan->lengths[literal])) continue;
            *at = p;
            return begin;
        }
    }
    /* a last literal of three bytes whose second triple would end behind the data */
    if (p + 2 == size && p >= 1)
        for (int32_t literal = 0; literal < scan->literal_count; literal++)
            if (scan->lengths[literal] == 3 && !((scan->kinds[literal] & passed) == passed && passed) && memcmp(data + p - 1, scan->literals[literal], 3) == 0)
                return *at = p, p - 1;
    *at = size;
    return size;
}

static int64_t newlines(const uint8_t *p, const uint8_t *end)
{
    int64_t count = 0;
    while (end - p >= 32) {
        uint8_t sums[32] = {0};
        int rounds = (int)((end - p) / 32 < 255 ? (end - p) / 32 : 255);
        for (int round = 0; round < rounds; round++, p += 32)
            for (int lane = 0; lane < 32; lane++) sums[lane] += p[lane] == '\n';
        for (int lane = 0; lane < 32; lane++) count += sums[lane];
    }
    for (; p < end; p++) count += *p == '\n';
    return count;
}

/* ---- reading records --------------------------------------------------------------------------------------------- */

typedef struct { const uint8_t *at, *end; } reader;

static int said(reader *r, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, text, length)) return 0;
    r->at += length;
    return 1;
}

static void blanks(reader *r) { while (r->at < r->end && *r->at == ' ') r->at++; }
static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static int whole(reader *r, int most, int64_t *value)
{
    const uint8_t *begin = r->at;
    for (*value = 0; r->at < r->end && is_digit(*r->at); r->at++) {
        if (r->at - begin >= most) return 0;
        *value = 10 * *value + (*r->at - '0');
    }
    return r->at > begin;
}

__extension__ typedef unsigned __int128 wide;
static const uint64_t TENS[] = {1u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u, 10000000000u, 100000000000u,
                                1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u, 10000000000000000u, 100000000000000000u};

typedef struct { int64_t bytes; int decimals, exact, padded; } mebibytes;

/* A printed number of MiB with its point as bytes, half to even, as decimal arithmetic gives them. */
static int size_of(reader *r, mebibytes *size)
{
    uint64_t value = 0;
    int digits = 0, decimals = -1;
    for (; r->at < r->end && (is_digit(*r->at) || (*r->at == '.' && decimals < 0 && digits)); r->at++) {
        if (*r->at == '.') { decimals = 0; continue; }
        if (++digits > 17) return 0;
        value = 10 * value + (uint64_t)(*r->at - '0');
        if (decimals >= 0) decimals++;
    }
    if (decimals < 1 || digits - decimals > 9) return 0;
    wide scaled = (wide)value << 20, ten = TENS[decimals], quotient = scaled / ten, rest = scaled % ten, gap = rest < ten - rest ? rest : ten - rest;
    quotient += 2 * rest > ten || (2 * rest == ten && (quotient & 1));
    *size = (mebibytes){(int64_t)quotient, decimals, gap * 1000 < ten, decimals == 2 && r->at[-1] == '0'};
    return 1;
}

/* The prefix before `record`: its id, or -1 with the reason noted where the caller has not told it or forbids it. */
static int64_t prefix_of(log_state *state, const uint8_t *data, const uint8_t *line, const uint8_t *record)
{
    size_t length = (size_t)(record - line);
    int blank = 1;
    for (const uint8_t *p = line; p < record; p++) {
        blank = blank && *p == ' ';
        if (*p < 32 && *p != '\t' && *p != 27) return -1;
    }
    if (blank && length <= 8) return 0;
    if (length > LONGEST_PREFIX) return -1;
    const word *known = slot_of(state->prefixes->words, 2 * PREFIXES, line, length);
    if (known->length) return known->id;
    state->why = WHY_PREFIX, state->word = line - data, state->word_length = (int64_t)length;
    return -1;
}

static int read_memory(log_state *state, const uint8_t *data, const uint8_t *line, const uint8_t *end)
{
    const uint8_t *head = memmem(line, (size_t)(end - line < 160 ? end - line : 160), "[Rank ", 6);
    if (!head) return 0;
    static const char *const LABELS[] = {"allocated: ", " | max allocated: ", " | reserved: ", " | max reserved: ", " | total device memory used: "};
    reader r = {head + 6, end};
    memory_row row = {.line = state->lines + 1, .run_index = state->run_index, .device_used = -1};
    mebibytes sizes[5];
    int count = 0, rounded = 1, exact = 1, padded = 0, any = 0, fits = 1;
    if (!whole(&r, 9, &row.rank) || !said(&r, "] (after ") || !whole(&r, 15, &row.iteration) || !said(&r, " iterations) memory (MB) | ")) return 0;
    while (count < 5 && said(&r, LABELS[count])) {
        mebibytes *size = &sizes[count++];
        if (!size_of(&r, size)) return 0;
        rounded &= size->decimals == 2, exact &= size->exact, padded |= size->padded;
        any |= size->bytes != 0, fits &= size->bytes <= INT64_C(1) << 50;
    }
    blanks(&r);
    if (count < 4 || r.at < r.end || !(rounded || (exact && !padded))) return 0;
    if (prefix_of(state, data, line, head) < 0) return 0;
    row.allocated = sizes[0].bytes, row.max_allocated = sizes[1].bytes, row.reserved = sizes[2].bytes, row.max_reserved = sizes[3].bytes;
    if (count == 5) row.device_used = sizes[4].bytes;
    row.rounding = rounded ? 5243 : 0, row.valid = any && fits;
    state->memory[state->memory_count++] = row;
    state->progressed = 1;
    return 1;
}

/* days since 1970-01-01 of a day of the proleptic Gregorian calendar */
static int64_t days(int64_t y, int64_t m, int64_t d)
{
    y -= m <= 2;
    int64_t era = y / 400, of_era = y - era * 400, of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int fixed(reader *r, int digits, int64_t *value)
{
    const uint8_t *begin = r->at;
    return whole(r, digits, value) && r->at - begin == digits;
}

/* `[YYYY-MM-DD hh:mm:ss]`, with six digits of a second or none */
static int stamp(reader *r, int64_t *moment)
{
    static const int64_t LENGTHS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t y, mo, d, h, mi, s, us = 0;
    if (!said(r, "[") || !fixed(r, 4, &y) || !said(r, "-") || !fixed(r, 2, &mo) || !said(r, "-") || !fixed(r, 2, &d) || !said(r, " ")) return 0;
    if (!fixed(r, 2, &h) || !said(r, ":") || !fixed(r, 2, &mi) || !said(r, ":") || !fixed(r, 2, &s)) return 0;
    if (said(r, ".") && !fixed(r, 6, &us)) return 0;
    if (!said(r, "]") || y < 1900 || mo < 1 || mo > 12 || d < 1 || h > 23 || mi > 59 || s > 59) return 0;
    int64_t leap = mo == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    if (d > LENGTHS[mo - 1] + leap) return 0;
    *moment = ((days(y, mo, d) * 24 + h) * 60 + mi) * INT64_C(60000000) + s * 1000000 + us;
    return 1;
}

typedef struct { double value; int64_t integer; int is_integer, is_loss; } figure;

/* A printed number whose value as a double is exact to the last bit by one multiplication or division (15 digits, powers up to 22). */
static int number(reader *r, figure *f)
{
    static const double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const uint8_t *begin = r->at;
    int negative = said(r, "-"), before = 0, after = -1, exponential = 0;
    int64_t mantissa = 0, exponent = 0;
    for (; r->at < r->end && (is_digit(*r->at) || (*r->at == '.' && after < 0 && before)); r->at++) {
        if (*r->at == '.') { after = 0; continue; }
        if (before + (after > 0 ? after : 0) >= 15) return 0;
        mantissa = 10 * mantissa + (*r->at - '0');
        if (after < 0) before++; else after++;
    }
    if (!before || after == 0) return 0;
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        exponential = *r->at++ == 'E' ? 2 : 1;
        int minus = said(r, "-");
        int64_t digits;
        if (!minus) { if (!said(r, "+")) exponential = 1; }
        if (!whole(r, 3, &digits)) return 0;
        exponent = minus ? -digits : digits;
    }
    f->is_integer = after < 0 && !exponential && !negative, f->integer = mantissa;
    f->is_loss = before == 1 && after == 6 && exponential == 2;
    exponent -= after > 0 ? after : 0;
    if (exponent > 22 || exponent < -22) return 0;
    f->value = exponent < 0 ? (double)mantissa / POWERS[-exponent] : (double)mantissa * POWERS[exponent];
    if (negative) f->value = -f->value;
    return r->at > begin;
}

static int is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || (c && memchr("_.()/%- ", c, 8));
}

static int is_letter(uint8_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

typedef struct { const log_scan *scan; log_state *state; const uint8_t *data; iteration_row row; int64_t seen[MOST_FIELDS]; int fields, ends; } reading;

static int keep(reading *g, const word *name, const figure *f, const uint8_t *text, int64_t length)
{
    int as = name->as == AS_OTHER && f->is_loss ? AS_LOSS : name->as;
    for (int at = 0; at < g->fields; at++)
        if (g->seen[at] == name->id) return 0;
    g->seen[g->fields++] = name->id, g->ends = name->ends;
    log_state *s = g->state;
    if (as == AS_LOSS) {
        if (s->loss_count + g->row.losses >= s->loss_room) return 0;
        s->losses[s->loss_count + g->row.losses++] = (loss_entry){f->value, name->id};
    } else if (as == AS_OTHER) {
        if (s->other_count + g->row.others >= s->other_room || length > s->text_room - s->text_used) return 0;
        memcpy(s->text + s->text_used, text, (size_t)length);
        s->others[s->other_count + g->row.others++] = (other_entry){name->id, s->text_used, length};
        s->text_used += length;
    } else {
        int64_t bit = INT64_C(1) << (as - FIRST_COLUMN);
        if (as < FIRST_COLUMN || as >= COLUMNS || (g->row.has & bit) || (as < AS_FLOAT && !f->is_integer)) return 0;
        g->row.has |= bit;
        if (as < AS_FLOAT) g->row.integers[as - AS_INTEGER] = f->integer; else g->row.floats[as - AS_FLOAT] = f->value;
    }
    return 1;
}

/* ` name: value ` up to the bar */
static int field(reading *g, reader *r)
{
    blanks(r);
    if (r->at == r->end || g->fields >= MOST_FIELDS) return 0;
    const uint8_t *begin = r->at;
    if (!is_letter(*begin)) return 0;
    while (r->at < r->end && is_name(*r->at)) {
        if (*r->at == ' ' && r->at[-1] == ' ') return 0;
        r->at++;
    }
    int64_t length = r->at - begin;
    if (r->at == r->end || *r->at != ':' || r->at[-1] == ' ' || length > LONGEST_NAME) return 0;
    r->at++;
    blanks(r);
    const uint8_t *text = r->at;
    figure f;
    if (!number(r, &f)) return 0;
    const uint8_t *stop = r->at;
    blanks(r);
    if (r->at == r->end || *r->at++ != '|') return 0;
    const word *name = slot_of((word *)g->scan->names, 2 * NAMES, begin, (size_t)length);
    if (name->length) return name->as != AS_NEVER && keep(g, name, &f, text, stop - text);
    g->state->why = WHY_NAME, g->state->word = begin - g->data, g->state->word_length = length;
    return 0;
}

static int read_fields(reading *g, reader *r)
{
    for (;;) {
        reader rest = *r;
        blanks(&rest);
        if (rest.at == rest.end) return g->ends;
        if (!field(g, r)) return 0;
    }
}

static int read_iteration(const log_scan *scan, log_state *state, const uint8_t *data, const uint8_t *line, const uint8_t *end)
{
    const uint8_t *word_at = memmem(line, (size_t)(end - line < 200 ? end - line : 200), "iteration ", 10), *record = word_at;
    if (!word_at) return 0;
    reading g = {scan, state, data, {.line = state->lines + 1, .run_index = state->run_index}, {0}, 0, 0};
    reader r = {line, end};
    if (word_at - line >= 22 && word_at[-1] == ' ' && word_at[-2] == ']') {
        int64_t length = word_at[-9] == '.' ? 29 : 22;
        if (word_at - line < length) return 0;
        record = word_at - length;
        r.at = record;
        if (!stamp(&r, &g.row.timestamp_us) || r.at + 1 != word_at) return 0;
        if (!(state->readable & READ_TIMED)) return 0;
        g.row.has |= INT64_MIN;
    }
    r.at = word_at + 10;
    blanks(&r);
    if (!whole(&r, 15, &g.row.iteration)) return 0;
    blanks(&r);
    if (!said(&r, "/")) return 0;
    blanks(&r);
    if (!whole(&r, 15, &g.row.train_iterations) || !said(&r, " |")) return 0;
    int64_t n = g.row.iteration, text_used = state->text_used;
    if (state->first >= 0 && n < state->last && (n <= state->first || state->announced)) return 0;   /* a new attempt begins */
    g.row.prefix = prefix_of(state, data, line, record);
    if (g.row.prefix < 0 || !read_fields(&g, &r)) {
        state->text_used = text_used;
        return 0;
    }
    state->iterations[state->iteration_count++] = g.row;
    state->loss_count += g.row.losses, state->other_count += g.row.others;
    state->iteration = n, state->progressed = 1;
    if (state->first < 0) state->first = n;
    if (n > state->last) state->last = n;
    return 1;
}

static int has_room(const log_state *s)
{
    return s->memory_count < s->memory_room && s->iteration_count < s->iteration_room && s->loss_count + MOST_FIELDS <= s->loss_room &&
           s->other_count + MOST_FIELDS <= s->other_room && s->text_used + 32 * MOST_FIELDS <= s->text_room;
}

/* Whether the line is of one of the two shapes, alone, and was read. */
static int read_line(const log_scan *scan, log_state *state, const uint8_t *data, const uint8_t *line, const uint8_t *end, int64_t from)
{
    while (end > line && end[-1] == '\r') end--;
    int memory = memmem(line, (size_t)(end - line < 240 ? end - line : 240), "memory (MB) |", 13) != NULL;
    int64_t at = from, size = end - data;
    if (next_literal(scan, data, size, &at, memory ? FOR_MEMORY : FOR_ITERATION) < size) return 0;
    return memory ? read_memory(state, data, line, end) : read_iteration(scan, state, data, line, end);
}

static int64_t next_nul(const log_scan *scan, log_state *state, const uint8_t *data, int64_t size, int64_t at)
{
    if (!scan->nul) return size;
    if (state->nul < at) {
        const uint8_t *nul = memchr(data + at, 0, (size_t)(size - at));
        state->nul = nul ? nul - data : size;
    }
    return state->nul;
}

/* Passes over lines that hold no record and reads those it can, from byte `at` on, where a line begins. Returns where the line begins that the
 * caller must read (`why` says what is not known), or `size`; with WHY_ROOM the rows must be taken first. */
API int64_t log_scan_next(const log_scan *scan, log_state *state, const uint8_t *data, int64_t size, int64_t at)
{
    state->why = WHY_LINE;
    if (at < 0 || at >= size) return size;
    int64_t limit = next_nul(scan, state, data, size, at), gram = at;
    while (at < size) {
        if (!has_room(state)) {
            state->why = WHY_ROOM;
            return at;
        }
        int64_t found = next_literal(scan, data, limit, &gram, 0), begin = at;
        if (found > at) {
            const uint8_t *before = memrchr(data + at, '\n', (size_t)(found - at));
            begin = before ? before - data + 1 : at;
        }
        if (found == size) {                         /* the rest holds nothing; an unfinished last line is the caller's */
            state->lines += newlines(data + at, data + begin);
            return begin;
        }
        state->lines += newlines(data + at, data + begin);
        const uint8_t *stop = memchr(data + found, '\n', (size_t)(size - found));
        if (!stop || !scan->records || !state->readable || stop - data > limit || !read_line(scan, state, data, data + begin, stop, begin)) return begin;
        state->lines++;
        at = stop - data + 1;
        gram = at;
    }
    return size;
}
