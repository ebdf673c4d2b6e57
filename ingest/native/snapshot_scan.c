/* Reads the pickle of a CUDA memory snapshot straight to columns: no object is built, nothing is looked up, nothing is executed.
 *
 * Only opcodes that make plain containers, texts, numbers and references to the memo are known; any other ends the reading. Every length
 * is compared with the bytes that are left, every memo id with the opcodes read so far, and all memory with a budget. There is no recursion:
 * nesting is a matter of two stacks. See snapshot_values.h for what a value is, snapshot_rows.h for what a row must hold.
 */

#include <sys/mman.h>
#include <time.h>

#include "snapshot_export.h"

#define API __attribute__((visibility("default")))

enum { BEHIND = 4 << 20 };   /* pages of a mapped file are given back in pieces of this size once they are read */
enum { WORK = 16 };          /* values looked at for each byte; a snapshot needs less than one */

static inline void push(scan *s, value v) {
    if (s->depth == s->stack_room) ROOM(s, s->stack, s->stack_room, s->depth + 1);
    s->stack[s->depth++] = v;
}

static inline size_t fence(const scan *s) { return s->marks_count ? s->marks[s->marks_count - 1] : 0; }

static size_t pop_mark(scan *s) {
    if (!s->marks_count) fail(s, FAILED_DAMAGED, "is no whole pickle: a group ends that was not begun");
    return s->marks[--s->marks_count];
}

static inline void need(scan *s, size_t values) {
    if (s->depth - fence(s) < values) fail(s, FAILED_DAMAGED, "is no whole pickle: a value is missing");
}

static inline void bytes_left(scan *s, const uint8_t *at, uint64_t count) {
    if ((uint64_t)(s->end - at) < count) fail(s, FAILED_DAMAGED, "ends early: the pickle is cut off");
}

/* Little-endian numbers; compilers make one load of each. */
static inline uint32_t two(const uint8_t *u) { return (uint32_t)(u[0] | u[1] << 8); }
static inline uint32_t four(const uint8_t *u) { return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24; }
static inline uint64_t eight(const uint8_t *u) { return four(u) | (uint64_t)four(u + 4) << 32; }

static inline void memoise(scan *s, uint64_t at) {
    need(s, 1);
    if (at >= s->memo_size) {
        if (at > s->opcodes) fail(s, FAILED_HOSTILE, "asks for a place in the memo that is larger than the number of its instructions");
        ROOM(s, s->memo, s->memo_room, at + 1);
        memset(s->memo + s->memo_size, 0, (at + 1 - s->memo_size) * sizeof *s->memo);
        s->memo_size = at + 1;
    }
    s->memo_count += s->memo[at] == UNSET;
    s->memo[at] = s->stack[s->depth - 1];
}

static inline void recall(scan *s, uint64_t at) {
    if (at >= s->memo_size || s->memo[at] == UNSET) fail(s, FAILED_DAMAGED, "is no whole pickle: it refers to what was not read");
    push(s, s->memo[at]);
}

static const uint8_t *text_opcode(scan *s, const uint8_t *at, uint64_t length) {
    bytes_left(s, at, length);
    push(s, text_of(s, at, length));
    return at + length;
}

/* A whole number of any length, two's complement, little-endian. */
static value long_of(scan *s, const uint8_t *u, uint64_t length) {
    int negative = length && u[length - 1] >> 7;
    while (length && u[length - 1] == (negative ? 0xff : 0)) length--;
    if (length > 8) return made(HUGE_, length & PAYLOAD);
    uint64_t n = negative && length < 8 ? UINT64_MAX << (8 * length) : 0;
    for (size_t i = 0; i < length; i++) n |= (uint64_t)u[i] << (8 * i);
    if (!negative) return n <= INT64_MAX ? number(s, (int64_t)n) : boxed(s, POSITIVE, n);
    if (n == 0) return made(HUGE_, 9);   /* -2^64 */
    return n >> 63 ? number(s, (int64_t)n) : boxed(s, NEGATIVE, 0 - n);
}

static const uint8_t *long_opcode(scan *s, const uint8_t *at, uint64_t length) {
    bytes_left(s, at, length);
    push(s, long_of(s, at, length));
    return at + length;
}

static void float_opcode(scan *s, const uint8_t *at) {
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits = bits << 8 | at[i];
    push(s, boxed(s, FLOAT_, bits));
}

static void tuple(scan *s, size_t from) {
    value v = made(TUPLE, interned(s, &s->contents, s->stack + from, s->depth - from));
    s->depth = from;
    push(s, v);
}

/* The values from `from` on go to the container below them. */
static value target(scan *s, size_t from, unsigned tag) {
    if (from > s->depth || from <= fence(s)) fail(s, FAILED_DAMAGED, "is no whole pickle: a value is missing");
    value v = s->stack[from - 1];
    if (from < s->depth && tag_of(v) != tag) fail(s, FAILED_DAMAGED, tag == LIST ? "appends to what is no list" : "sets items of what is no dictionary");
    return v;
}

static void append(scan *s, size_t from) {
    value list = target(s, from, LIST);
    if (from < s->depth) put(s, list, s->stack + from, s->depth - from);
    s->depth = from;
}

static void set_items(scan *s, size_t from) {
    value dictionary = target(s, from, DICT);
    const value *items = s->stack + from;
    size_t count = s->depth - from;
    int event = 0, key;
    s->depth = from;
    if (!count) return;
    if (count % 2) fail(s, FAILED_DAMAGED, "is no whole pickle: a key without a value");
    for (size_t i = 0; i < count; i += 2) {
        unsigned tag = tag_of(items[i]);
        event |= items[i] == made(TEXT, KEY_action);
        if (tag != TEXT && tag != SMALL && tag != NONE) fail(s, FAILED_DAMAGED, "has a dictionary with a key that is neither a text nor a small number");
    }
    if (event && tag_of(s->objects[payload(dictionary)]) == EMPTY && !event_of(s, items, count, &key))
        s->objects[payload(dictionary)] = made(ROW, s->events.count - 1);
    else
        put(s, dictionary, items, count);
}

/* Pages that were read go back, except the last two pieces. */
static const uint8_t *give_back(const uint8_t *from, const uint8_t *at) {
    size_t piece = (size_t)(at - from) / BEHIND * BEHIND;
    madvise((void *)(uintptr_t)from, piece, MADV_DONTNEED);
    return from + piece;
}

/* Every opcode up to STOP; the value that it leaves. */
static value opcodes(scan *s, int mapped) {
    const uint8_t *at = s->begin + 2, *held = s->begin, *end = s->end;   /* after PROTO, which the caller has checked */
#define ARGUMENT(bytes) (bytes_left(s, at, bytes), at += (bytes), at - (bytes))
    for (;;) {
        s->opcode = at;
        if (at == end) fail(s, FAILED_DAMAGED, "ends early: the pickle is cut off");
        if (mapped && at - held > 2 * BEHIND) held = give_back(held, at);
        s->opcodes++;
        switch (*at++) {
        case 'h': recall(s, *ARGUMENT(1)); break;
        case 'j':
            recall(s, four(ARGUMENT(4)));
            for (; end - at >= 5 && *at == 'j'; at += 5, s->opcodes++) {   /* most opcodes: the frames of a list */
                s->opcode = at;
                recall(s, four(at + 1));
            }
            break;
        case 0x94: memoise(s, s->memo_count); break;
        case 'q': memoise(s, *ARGUMENT(1)); break;
        case 'r': memoise(s, four(ARGUMENT(4))); break;
        case '(':
            ROOM(s, s->marks, s->marks_room, s->marks_count + 1);
            s->marks[s->marks_count++] = s->depth;
            break;
        case 'K': push(s, made(SMALL, *ARGUMENT(1))); break;
        case 'M': push(s, made(SMALL, two(ARGUMENT(2)))); break;
        case 'J': push(s, made(SMALL, (uint64_t)(int64_t)(int32_t)four(ARGUMENT(4)) & PAYLOAD)); break;
        case 0x8a: {
            size_t length = *ARGUMENT(1);
            at = long_opcode(s, at, length);
            break;
        }
        case 0x8b: {
            size_t length = four(ARGUMENT(4));
            if (length > INT32_MAX) fail(s, FAILED_DAMAGED, "is no whole pickle: a number of negative length");
            at = long_opcode(s, at, length);
            break;
        }
        case 0x8c: {
            size_t length = *ARGUMENT(1);
            at = text_opcode(s, at, length);
            break;
        }
        case 'X': {
            size_t length = four(ARGUMENT(4));
            at = text_opcode(s, at, length);
            break;
        }
        case 0x8d: {
            uint64_t length = eight(ARGUMENT(8));
            at = text_opcode(s, at, length);
            break;
        }
        case '}': push(s, container(s, DICT)); break;
        case ']': push(s, container(s, LIST)); break;
        case 'u': set_items(s, pop_mark(s)); break;
        case 's': need(s, 2), set_items(s, s->depth - 2); break;
        case 'e': append(s, pop_mark(s)); break;
        case 'a': need(s, 1), append(s, s->depth - 1); break;
        case ')': tuple(s, s->depth); break;
        case 't': tuple(s, pop_mark(s)); break;
        case 0x85: need(s, 1), tuple(s, s->depth - 1); break;
        case 0x86: need(s, 2), tuple(s, s->depth - 2); break;
        case 0x87: need(s, 3), tuple(s, s->depth - 3); break;
        case 'N': push(s, made(NONE, 0)); break;
        case 0x88: push(s, made(TRUE_, 0)); break;
        case 0x89: push(s, made(FALSE_, 0)); break;
        case 'G': float_opcode(s, ARGUMENT(8)); break;
        case 0x95: {
            uint64_t length = eight(ARGUMENT(8));
            bytes_left(s, at, length);
            break;
        }
        case '.':
            need(s, 1);
            s->at = at;
            return s->stack[s->depth - 1];
        default: fail(s, FAILED_HOSTILE, "");   /* the caller names the opcode */
        }
    }
#undef ARGUMENT
}

#define FREE(pointer) (free(pointer), (pointer) = NULL)

/* What only reading needs; the columns stay. */
static void forget(scan *s) {
    FREE(s->stack), FREE(s->marks), FREE(s->memo);
    s->budget += s->stack_room * sizeof *s->stack + s->marks_room * sizeof *s->marks + s->memo_room * sizeof *s->memo;
}

static void read_all(whole_scan *w, int mapped) {
    scan *s = &w->s;
    if (setjmp(s->leave)) return;
    know_texts(s);
    if (mapped) madvise((void *)(uintptr_t)s->begin, (size_t)(s->end - s->begin), MADV_SEQUENTIAL);
    value top = opcodes(s, mapped);
    s->opcode = NULL;
    if (s->at < s->end) count_unknown(s, OF_OTHERS, -1, s->end - s->at);
    forget(s);
    finish(s, top);
    export_all(w);
}

/* A scan of `size` bytes, whatever comes of it; NULL where there is no memory at all. `mapped`: pages may be given back behind the reader. */
API whole_scan *snapshot_read(const uint8_t *data, uint64_t size, uint64_t memory_bytes, int mapped) {
    whole_scan *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    scan *s = &w->s;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    s->secret[0] = ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)(uintptr_t)s) * 0x9e3779b97f4a7c15ULL | 1;
    s->secret[1] = mixed(s->secret[0] ^ 0xa0761d6478bd642fULL, 0xe7037ed1a0b428dbULL) | 1;
    s->begin = s->opcode = data;
    s->end = data + size;
    s->budget = memory_bytes;
    s->work = WORK * size + (1 << 20);
    read_all(w, mapped);
    w->r.failed = s->failed;
    w->r.failed_at = s->failed_at;
    w->r.reason = s->reason;
    return w;
}

API const result *snapshot_result(const whole_scan *w) { return &w->r; }

/* The kind of a value; its number, bits of a float, or length goes to `content`. */
API int snapshot_kind(const whole_scan *w, value v, uint64_t *content) {
    unsigned tag = tag_of(v);
    *content = tag == SMALL ? (uint64_t)small(v) : tag == POSITIVE || tag == NEGATIVE || tag == FLOAT_ ? w->s.wide[payload(v)] : payload(v);
    return (int)tag;
}

/* The values of a tuple, list or dictionary (key, value, key, ...); NULL and -1 for an event. */
API const value *snapshot_items(whole_scan *w, value v, int64_t *count) {
    *count = -1;
    if (tag_of(v) != TUPLE && tag_of(w->s.objects[payload(v)]) == ROW) return NULL;
    size_t held;
    const value *items = items_of(&w->s, v, &held);
    *count = (int64_t)held;
    return items;
}

API const char *snapshot_text(const whole_scan *w, int64_t text, int64_t *length) {
    *length = w->s.texts[text].length;
    return w->s.letters + w->s.texts[text].start;
}

static void free_interner(interner *in) { free(in->data), free(in->starts), free(in->hashes), free(in->table); }

API void snapshot_free(whole_scan *w) {
    scan *s = &w->s;
    for (size_t i = 0; i < w->owned_count; i++) free(w->owned[i]);
    for (size_t i = 0; i < s->grown_count; i++) free(s->grown[i].items);
    free_interner(&s->contents), free_interner(&s->frames), free_interner(&s->stacks), free_interner(&s->extra_keys);
    void *arrays[] = {
        s->stack, s->marks, s->memo, s->wide, s->objects, s->grown, s->letters, s->texts, s->text_table, s->extras, s->keys, s->rows, s->turned,
        s->events.action, s->events.device, s->events.stack, s->events.pool, s->events.metadata, s->events.context, s->events.address,
        s->events.size, s->events.stream, s->events.time_us, s->segments.device, s->segments.kind, s->segments.pool, s->segments.stack,
        s->segments.expandable, s->segments.address, s->segments.size, s->segments.allocated, s->segments.active, s->segments.requested,
        s->segments.stream, s->blocks.segment, s->blocks.stack, s->blocks.state, s->blocks.address, s->blocks.size, s->blocks.requested,
        s->annotations.device, s->annotations.stage, s->annotations.name, s->annotations.time_us, s->pools.slots, s->frame_of_object.slots,
        s->kind_of_action.slots, s->kind_of_state.slots, s->unknown_of_key.slots, s->stack_of_content, s->actions, s->states, s->fresh_actions,
        s->unknowns, s->column_texts,
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(w);
}
