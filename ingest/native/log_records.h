/* Reads a whole memory or iteration line of Megatron into a row, or says that it is none of exactly that shape: see log_scan.c. */

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
        if (as < FIRST_COLUMN || as >= COLUMNS) return 0;
        int64_t bit = INT64_C(1) << (as - FIRST_COLUMN);
        if ((g->row.has & bit) || (as < AS_FLOAT && !f->is_integer)) return 0;
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
