/* Finds the lines of a log that may hold a record, and reads the two commonest records whole.
 *
 * A literal is found by four of its bytes: at every second position of the data they are hashed into a bitmap, so each literal has two such grams
 * one byte apart, chosen where they are rare in logs. What the bitmap lets through is compared in full. A line with a literal is left to the caller unless it
 * is, to the last byte, Megatron's memory line of a rank or its iteration line behind a prefix that the caller has told, with fields whose names
 * the caller has told, and holds no literal of another kind of record; then it becomes a row here. Nothing is guessed: whatever is not of
 * exactly that shape goes back to the caller, who reads every shape there is.
 *
 * The data may hold any bytes. No byte outside [data, data + size) is read, no row outside the given room is written.
 */

#include "log_types.h"
#include "log_records.h"

static uint32_t mixed(uint32_t gram) { return gram * 0x9E3779B1u; }

/* Four bytes at `p`, of which those behind the end are NUL. */
static uint32_t gram_at(const uint8_t *p, const uint8_t *end)
{
    uint32_t gram = 0;
    memcpy(&gram, p, end - p >= 4 ? 4 : (size_t)(end - p));
    return gram;
}

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
    int weight = 0;
    for (int at = 0; at < 5; at++) weight += commonness(p[at]);
    for (size_t at = 0; at + 5 < sizeof COMMON; at++)
        if (memcmp(COMMON + at, p, 4) == 0 || memcmp(COMMON + at, p + 1, 4) == 0) weight += 20;
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

/* All grams that three bytes have with any fourth, behind them or before them. */
static int add_wild(log_scan *scan, const uint8_t *three, int behind, int32_t literal, int32_t offset)
{
    uint8_t bytes[4];
    memcpy(bytes + !behind, three, 3);
    for (int any = 0; any < 256; any++) {
        bytes[behind ? 3 : 0] = (uint8_t)any;
        if (!add_gram(scan, gram_at(bytes, bytes + 4), literal, offset)) return 0;
    }
    return 1;
}

static int add_literal(log_scan *scan, int32_t index)
{
    const uint8_t *p = scan->literals[index], *end = p + scan->lengths[index];
    int32_t length = scan->lengths[index], best = 0;
    if (length == 3) return add_wild(scan, p, 1, index, 0) && add_wild(scan, p, 0, index, -1);
    if (length == 4) return add_gram(scan, gram_at(p, end), index, 0) && add_wild(scan, p + 1, 1, index, 1);
    for (int32_t at = 1; at + 5 <= length; at++)
        if (window_weight(p + at) < window_weight(p + best)) best = at;
    return add_gram(scan, gram_at(p + best, end), index, best) && add_gram(scan, gram_at(p + best + 1, end), index, best + 1);
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

/* ---- finding literals ------------------------------------------------------------------------------------------ */

/* Where a literal of another kind than `passed` begins that has a gram at or after byte *at (where it is then), or `size`. */
static int64_t next_literal(const log_scan *scan, const uint8_t *data, int64_t size, int64_t *at, int32_t passed)
{
    for (int64_t p = *at; p + 3 <= size; p += 2) {
        uint32_t gram;
        if (p + 4 <= size) memcpy(&gram, data + p, 4); else gram = gram_at(data + p, data + size);
        uint32_t hash = mixed(gram), bit = hash >> (32 - BITS);
        if (!(scan->bitmap[bit >> 3] >> (bit & 7) & 1)) continue;
        for (int32_t one = scan->chains[hash >> 20]; one >= 0; one = scan->links[one].next) {
            const link *found = &scan->links[one];
            int32_t literal = found->literal;
            int64_t begin = p - found->offset;
            if (found->gram != gram || begin < 0 || begin + scan->lengths[literal] > size) continue;
            if (passed && scan->kinds[literal] & passed) continue;
            if (memcmp(data + begin, scan->literals[literal], (size_t)scan->lengths[literal])) continue;
            *at = p;
            return begin;
        }
    }
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
