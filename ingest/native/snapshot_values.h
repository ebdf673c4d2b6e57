/* Values of a pickle in eight bytes each: a tag and 56 bits, small numbers inline, everything else an index.
 *
 * Texts, tuples, and what a list or dictionary holds at its first filling are kept once, by content: a trace of a million events holds hundreds
 * of thousands of lists of frames and a few hundred different ones. Hashes are keyed by chance, so that a file cannot choose collisions.
 * All memory is counted against a budget. A failure leaves by longjmp; everything allocated hangs on the scan and is freed with it.
 */

#ifndef SNAPSHOT_VALUES_H
#define SNAPSHOT_VALUES_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t value;

enum { UNSET, NONE, FALSE_, TRUE_, SMALL, POSITIVE, NEGATIVE, HUGE_, FLOAT_, TEXT, TUPLE, LIST, DICT };   /* tags; UNSET is no value */
enum { EMPTY, FILLED, GROWN, ROW };                              /* what a list or dictionary is: an interned content, an own one, an event */
enum { FAILED_DAMAGED = 1, FAILED_HOSTILE, FAILED_SHAPE, FAILED_SIZE };
enum { BITS = 56 };

#define PAYLOAD ((1ULL << BITS) - 1)
#define MOST ((size_t)INT32_MAX - 1)

typedef struct { uint64_t *data, *starts; uint32_t *hashes, *table; size_t used, data_room, count, start_room, hash_room, table_size; } interner;
typedef struct { uint64_t start; uint32_t length, hash, stamp; int32_t column; } known_text;
typedef struct { value *items; size_t count, room; int32_t stack; } grown_list;
typedef struct { uint64_t key; int64_t number; } numbered;
typedef struct { numbered *slots; size_t size, count; } numbers;              /* key to number, keys are not 0 */
typedef struct { int32_t section, text; int64_t count; } unknown;        /* text: -1 a number as key, -2 None as key */
typedef struct { int64_t row; uint32_t keys; } extra;                     /* from this row on events have these further keys */

typedef struct {
    int16_t *action;
    int32_t *device, *stack, *pool, *metadata, *context;
    int64_t *address, *size, *stream, *time_us;
    size_t count, room;
} event_rows;

typedef struct {
    int32_t *device, *kind, *pool, *stack;
    int8_t *expandable;
    int64_t *address, *size, *allocated, *active, *requested, *stream;
    size_t count, room;
} segment_rows;

typedef struct { int32_t *segment, *stack; int16_t *state; int64_t *address, *size, *requested; size_t count, room; } block_rows;
typedef struct { int32_t *device, *stage, *name; int64_t *time_us; size_t count, room; } annotation_rows;

typedef struct {
    jmp_buf leave;
    int failed;
    char reason[200];
    int64_t failed_at;

    const uint8_t *begin, *end, *opcode, *at;                    /* opcode: the one being read, NULL when all are; at: after the last */
    uint64_t budget, work, secret[2];                             /* bytes that may still be taken, values that may still be looked at */

    value *stack;
    size_t depth, stack_room;
    size_t *marks, marks_count, marks_room;
    value *memo;
    size_t memo_size, memo_room, memo_count, opcodes;

    uint64_t *wide;
    size_t wide_count, wide_room;
    uint64_t *objects;
    size_t objects_count, objects_room;
    grown_list *grown;
    size_t grown_count, grown_room;
    interner contents, frames, stacks, extra_keys;

    char *letters;
    size_t letters_used, letters_room;
    known_text *texts;
    size_t texts_count, texts_room;
    uint32_t *text_table;
    size_t text_table_size;
    uint32_t stamp;

    event_rows events;
    extra *extras;
    size_t extras_count, extras_room;
    uint64_t *keys;
    size_t keys_room;
    segment_rows segments;
    block_rows blocks;
    annotation_rows annotations;
    int64_t devices;
    value settings;                                              /* UNSET where the file has none */
    int64_t *rows;                                               /* of the traces, where they are not in order */
    int16_t *turned;

    numbers pools, frame_of_object, kind_of_action, kind_of_state, unknown_of_key;
    int32_t *stack_of_content;
    size_t stacks_known, content_room;
    int32_t *actions, *states, *fresh_actions;                             /* texts of the kinds beyond those known */
    size_t actions_count, actions_room, states_count, states_room;
    unknown *unknowns;
    size_t unknowns_count, unknowns_room;
    int32_t *column_texts;
    size_t column_texts_count, column_texts_room;
} scan;

static _Noreturn void fail(scan *s, int kind, const char *reason) {
    s->failed = kind;
    s->failed_at = s->opcode ? s->opcode - s->begin : -1;
    strncpy(s->reason, reason, sizeof s->reason - 1);
    longjmp(s->leave, 1);
}

/* Room for `need` elements of `size` bytes; contents are kept, new ones are not set. */
static void *more(scan *s, void *old, size_t *room, size_t need, size_t size) {
    if (need <= *room) return old;
    size_t wanted = *room < 32 ? 64 : *room * 2;
    if (wanted < need) wanted = need;
    size_t added = (wanted - *room) * size;
    if (wanted > SIZE_MAX / size || added > s->budget) fail(s, FAILED_SIZE, "asks for more memory than reading it may take");
    void *grown = realloc(old, wanted * size);
    if (grown == NULL) fail(s, FAILED_SIZE, "asks for more memory than there is");
    s->budget -= added;
    *room = wanted;
    return grown;
}

/* A file of a megabyte can name one large list a hundred thousand times; the same things are not looked at for ever. */
static inline void spend(scan *s, uint64_t values) {
    if (values > s->work) fail(s, FAILED_HOSTILE, "names the same lists and dictionaries again and again, as no snapshot does");
    s->work -= values;
}

#define ROOM(s, array, room, need) ((array) = more((s), (array), &(room), (need), sizeof *(array)))

static inline unsigned tag_of(value v) { return (unsigned)(v >> BITS); }
static inline uint64_t payload(value v) { return v & PAYLOAD; }
static inline value made(unsigned tag, uint64_t content) { return ((uint64_t)tag << BITS) | content; }
static inline int64_t small(value v) { return (int64_t)(v << 8) >> 8; }

static inline uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static value boxed(scan *s, unsigned tag, uint64_t content) {
    ROOM(s, s->wide, s->wide_room, s->wide_count + 1);
    s->wide[s->wide_count] = content;
    return made(tag, s->wide_count++);
}

static inline value number(scan *s, int64_t n) {
    if (n >= -(1LL << (BITS - 1)) && n < 1LL << (BITS - 1)) return made(SMALL, (uint64_t)n & PAYLOAD);
    return n < 0 ? boxed(s, NEGATIVE, 0 - (uint64_t)n) : boxed(s, POSITIVE, (uint64_t)n);
}

/* 0 and the number; 1 where the value is none; 2 where it has more than 64 bits, or 64 and is not to be wrapped. */
static inline int whole(const scan *s, value v, int wrap, int64_t *n) {
    uint64_t size;
    switch (tag_of(v)) {
    case SMALL: *n = small(v); return 0;
    case POSITIVE: size = s->wide[payload(v)]; *n = (int64_t)size; return size > INT64_MAX && !wrap ? 2 : 0;
    case NEGATIVE: size = s->wide[payload(v)]; *n = (int64_t)(0 - size); return size > 1ULL << 63 ? 2 : 0;
    case HUGE_: return 2;
    default: return 1;
    }
}

/* ---- contents by content ---- */

static uint64_t hash_words(const scan *s, const uint64_t *words, size_t count) {
    uint64_t hash = s->secret[0] ^ count;
    for (size_t i = 0; i < count; i++) hash = mixed(hash ^ words[i], s->secret[1]);
    return hash;
}

static void rehash(scan *s, uint32_t **table, size_t *size, const void *hashes, size_t stride, size_t count) {
    size_t wanted = *size ? *size * 2 : 1024;
    if (wanted * sizeof **table > s->budget) fail(s, FAILED_SIZE, "asks for more memory than reading it may take");
    uint32_t *fresh = calloc(wanted, sizeof *fresh);
    if (fresh == NULL) fail(s, FAILED_SIZE, "asks for more memory than there is");
    s->budget -= (wanted - *size) * sizeof *fresh;
    for (size_t i = 0; i < count; i++) {
        uint32_t hash;
        memcpy(&hash, (const char *)hashes + i * stride, sizeof hash);
        size_t place = hash & (wanted - 1);
        while (fresh[place]) place = (place + 1) & (wanted - 1);
        fresh[place] = (uint32_t)i + 1;
    }
    free(*table);
    *table = fresh;
    *size = wanted;
}

/* The number of a sequence of words, the same for the same words. */
static size_t interned(scan *s, interner *in, const uint64_t *words, size_t count) {
    uint32_t hash = (uint32_t)hash_words(s, words, count);
    if (in->count * 3 >= in->table_size * 2) rehash(s, &in->table, &in->table_size, in->hashes, sizeof *in->hashes, in->count);
    size_t place = hash & (in->table_size - 1);
    for (; in->table[place]; place = (place + 1) & (in->table_size - 1)) {
        size_t known = in->table[place] - 1;
        size_t length = in->starts[known + 1] - in->starts[known];
        if (in->hashes[known] == hash && length == count && (!count || !memcmp(in->data + in->starts[known], words, count * sizeof *words))) return known;
    }
    if (in->count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million different things");
    ROOM(s, in->starts, in->start_room, in->count + 2);
    ROOM(s, in->hashes, in->hash_room, in->count + 1);
    ROOM(s, in->data, in->data_room, in->used + count);
    if (count) memcpy(in->data + in->used, words, count * sizeof *words);
    in->starts[in->count] = in->used;
    in->used += count;
    in->starts[in->count + 1] = in->used;
    in->hashes[in->count] = hash;
    in->table[place] = (uint32_t)in->count + 1;
    return in->count++;
}

/* ---- texts ---- */

static uint64_t hash_letters(const scan *s, const uint8_t *letters, size_t count) {
    uint64_t hash = s->secret[1] ^ count, word;
    for (; count >= 8; letters += 8, count -= 8) {
        memcpy(&word, letters, 8);
        hash = mixed(hash ^ word, s->secret[0]);
    }
    word = 0;
    if (count) memcpy(&word, letters, count);
    return mixed(hash ^ word, s->secret[0]);
}

/* Length of the UTF-8 at the begin of `count` bytes that is one character, surrogates included as Python's pickle has them; 0 for none. */
static size_t character(const uint8_t *u, size_t count) {
    if (u[0] < 0x80) return 1;
    size_t length = u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf5 ? 4 : 0;
    if (!length || count < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f)) return 0;
    return length;
}

static void check_utf8(scan *s, const uint8_t *letters, size_t count) {
    for (size_t i = 0, length; i < count; i += length)
        if (!(length = character(letters + i, count - i))) fail(s, FAILED_DAMAGED, "holds a text that is no valid UTF-8");
}

static value text_of(scan *s, const uint8_t *letters, size_t count) {
    uint32_t hash = (uint32_t)hash_letters(s, letters, count);
    if (s->texts_count * 3 >= s->text_table_size * 2)
        rehash(s, &s->text_table, &s->text_table_size, s->texts ? &s->texts->hash : NULL, sizeof *s->texts, s->texts_count);
    size_t place = hash & (s->text_table_size - 1);
    for (; s->text_table[place]; place = (place + 1) & (s->text_table_size - 1)) {
        const known_text *known = &s->texts[s->text_table[place] - 1];
        if (known->hash == hash && known->length == count && (!count || !memcmp(s->letters + known->start, letters, count)))
            return made(TEXT, s->text_table[place] - 1);
    }
    if (s->texts_count >= MOST || count > INT32_MAX) fail(s, FAILED_SIZE, "holds a text of more than 2 GiB, or that many texts");
    check_utf8(s, letters, count);
    ROOM(s, s->texts, s->texts_room, s->texts_count + 1);
    ROOM(s, s->letters, s->letters_room, s->letters_used + count);
    if (count) memcpy(s->letters + s->letters_used, letters, count);
    s->texts[s->texts_count] = (known_text){.start = s->letters_used, .length = (uint32_t)count, .hash = hash, .column = -1};
    s->letters_used += count;
    s->text_table[place] = (uint32_t)s->texts_count + 1;
    return made(TEXT, s->texts_count++);
}

/* ---- lists and dictionaries ---- */

static value container(scan *s, unsigned tag) {
    if (s->objects_count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million lists and dictionaries");
    ROOM(s, s->objects, s->objects_room, s->objects_count + 1);
    s->objects[s->objects_count] = made(EMPTY, 0);
    return made(tag, s->objects_count++);
}

/* The values of a tuple, list or dictionary (key, value, key, ...); valid until something is added. Fails for an event. */
static const value *items_of(scan *s, value v, size_t *count) {
    uint64_t body = tag_of(v) == TUPLE ? made(FILLED, payload(v)) : s->objects[payload(v)];
    switch (tag_of(body)) {
    case FILLED: {
        size_t at = payload(body);
        *count = s->contents.starts[at + 1] - s->contents.starts[at];
        return s->contents.data + s->contents.starts[at];
    }
    case GROWN: *count = s->grown[payload(body)].count; return s->grown[payload(body)].items;
    case ROW: fail(s, FAILED_DAMAGED, "uses an event of the trace as something else");
    default: *count = 0; return NULL;
    }
}

/* Append to a list or dictionary. The first filling is interned, later ones make the content its own. */
static void put(scan *s, value target, const value *items, size_t count) {
    uint64_t *body = &s->objects[payload(target)];
    if (tag_of(*body) == EMPTY) {
        *body = made(FILLED, interned(s, &s->contents, items, count));
        return;
    }
    if (tag_of(*body) == ROW) fail(s, FAILED_DAMAGED, "changes an event of the trace after it was filled");
    if (tag_of(*body) == FILLED) {
        ROOM(s, s->grown, s->grown_room, s->grown_count + 1);
        grown_list *own = &s->grown[s->grown_count];
        *own = (grown_list){.stack = -1};
        s->grown_count++;
        size_t held;
        const value *first = items_of(s, target, &held);
        ROOM(s, own->items, own->room, held + count);
        memcpy(own->items, first, held * sizeof *first);
        own->count = held;
        *body = made(GROWN, s->grown_count - 1);
    }
    grown_list *own = &s->grown[payload(*body)];
    ROOM(s, own->items, own->room, own->count + count);
    memcpy(own->items + own->count, items, count * sizeof *items);
    own->count += count;
}

/* ---- numbers by key ---- */

static int64_t *number_at(scan *s, numbers *in, uint64_t key, int64_t absent) {
    if (in->count * 3 >= in->size * 2) {
        numbers fresh = {.size = in->size ? in->size * 2 : 64, .count = in->count};
        size_t bytes = fresh.size * sizeof *fresh.slots;
        if (bytes > s->budget || !(fresh.slots = calloc(fresh.size, sizeof *fresh.slots))) fail(s, FAILED_SIZE, "asks for more memory than reading it may take");
        s->budget -= bytes - in->size * sizeof *in->slots;
        for (size_t i = 0; i < in->size; i++) {
            if (!in->slots[i].key) continue;
            size_t place = mixed(in->slots[i].key ^ s->secret[0], s->secret[1]) & (fresh.size - 1);
            while (fresh.slots[place].key) place = (place + 1) & (fresh.size - 1);
            fresh.slots[place] = in->slots[i];
        }
        free(in->slots);
        *in = fresh;
    }
    size_t place = mixed(key ^ s->secret[0], s->secret[1]) & (in->size - 1);
    while (in->slots[place].key && in->slots[place].key != key) place = (place + 1) & (in->size - 1);
    if (!in->slots[place].key) {
        in->slots[place] = (numbered){key, absent};
        in->count++;
    }
    return &in->slots[place].number;
}

#endif
