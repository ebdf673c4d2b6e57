/* What the scanner of logs and its caller share, and the tables of words: see log_scan.c. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { BITS = 16, COARSE = 0xF8, CHAINS = 4096, LONGEST_PREFIX = 120, LONGEST_NAME = 64, PREFIXES = 4096, NAMES = 256, MOST_FIELDS = 48, LONGEST_LITERAL = 64 };
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
