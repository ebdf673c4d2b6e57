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

/* Four bytes at `p` (those behind the end are NUL), the outer two coarsened to five bits: a short literal has few grams even so. */
static uint32_t gram_at(const uint8_t *p, const uint8_t *end)
{
    uint8_t bytes[4] = {0};
    uint32_t gram;
    memcpy(bytes, p, end - p >= 4 ? 4 : (size_t)(end - p));
    bytes[0] &= COARSE, bytes[3] &= COARSE;
    memcpy(&gram, bytes, 4);
    return gram;
}

/* ---- building ---------------------------------------------------------------------------------------------- */

/* What logs are full of: grams of it are avoided. */
static const char COMMON[] =
    "NCCL INFO comm 0x rank nranks nRanks cudaDev busId Init COMPLETE Using network NET/IB Channel 00/0 via P2P/CUMEM Setting affinity for GPU set by "
    "environment to each process to be default torch/distributed/run.py site-packages/torch/nn/parallel UserWarning: When using it is recommended "
    "to set the variable CUDA_DEVICE_MAX_CONNECTIONS maximum performance warnings.warn( megatron/core/tensor_parallel/layers.py INFO:megatron.core."
    "optimizer forward-backward ..........: (0.00, 00.00) total number of samples parameters building training iteration loading memory version "
    "parallel distributed initialized started ********** ---------- ========== retrying process group options model layer";

static int commonness(uint8_t c)
{
    if (c == ' ' || (c >= '0' && c <= '9')) return 9;
    if (memchr("etaoinsr", c, 8)) return 7;
    if (c >= 'a' && c <= 'z') return 5;
    return memchr(":.-_/[]", c, 7) ? 5 : 3;
}

static int gram_weight(const uint8_t *p)
{
    const uint8_t *common = (const uint8_t *)COMMON, *end = common + sizeof COMMON - 1;
    int weight = commonness(p[0]) + commonness(p[1]) + commonness(p[2]) + commonness(p[3]);
    for (uint32_t gram = gram_at(p, p + 4); common + 4 <= end; common++)
        if (gram_at(common, end) == gram) return weight + 40;
    return weight;
}

static int window_weight(const uint8_t *p) { return gram_weight(p) + gram_weight(p + 1); }

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
    for (int any = 0; any < 256; any += 256 - COARSE) {
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

/* Whether the gram at `p` may be one of a literal. */
static inline uint32_t maybe(const log_scan *scan, const uint8_t *p, uint32_t mask)
{
    uint32_t gram;
    memcpy(&gram, p, 4);
    uint32_t bit = mixed(gram & mask) >> (32 - BITS);
    return scan->bitmap[bit >> 3] >> (bit & 7) & 1;
}

/* Where a literal of another kind than `passed` begins that has its gram at `p`, or -1. */
static int64_t literal_at(const log_scan *scan, const uint8_t *data, int64_t size, int64_t p, int32_t passed)
{
    uint32_t gram = gram_at(data + p, data + size);
    for (int32_t one = scan->chains[mixed(gram) >> 20]; one >= 0; one = scan->links[one].next) {
        const link *found = &scan->links[one];
        int32_t literal = found->literal, length = scan->lengths[literal];
        int64_t begin = p - found->offset;
        if (found->gram != gram || begin < 0 || begin + length > size || (passed & scan->kinds[literal])) continue;
        if (memcmp(data + begin, scan->literals[literal], (size_t)length) == 0) return begin;
    }
    return -1;
}

/* Where a literal of another kind than `passed` begins that has a gram at or after byte *at (where it is then), or `size`. */
static int64_t next_literal(const log_scan *scan, const uint8_t *data, int64_t size, int64_t *at, int32_t passed)
{
    static const uint8_t MASK[4] = {COARSE, 255, 255, COARSE};
    uint32_t mask;
    memcpy(&mask, MASK, 4);
    for (int64_t p = *at; p + 3 <= size; p += 2) {
        if (p + 4 <= size && !maybe(scan, data + p, mask)) continue;
        int64_t begin = literal_at(scan, data, size, p, passed);
        if (begin < 0) continue;
        *at = p;
        return begin;
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
