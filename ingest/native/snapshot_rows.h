/* Events, segments, blocks and annotations out of dictionaries: each value of the type that the format declares, or a reason why not.
 *
 * An event becomes a row of columns as soon as its dictionary is filled, so that a trace never stands in memory as dictionaries. What is
 * wrong with an event is told only where it is used as one: keys that this version does not know may hold anything.
 */

#ifndef SNAPSHOT_ROWS_H
#define SNAPSHOT_ROWS_H

#include <stdio.h>

#include "snapshot_values.h"

/* Texts that are known, in the order of their numbers; the first ten are the keys of an event. */
#define KNOWN(X)                                                                                                                         \
    X(action) X(addr) X(device_free) X(size) X(stream) X(time_us) X(compile_context) X(user_metadata) X(pool_id) X(frames)              \
    X(device) X(address) X(total_size) X(allocated_size) X(active_size) X(requested_size) X(segment_type) X(segment_pool_id)            \
    X(is_expandable) X(blocks) X(state) X(history) X(real_size) X(stage) X(name) X(filename) X(line)                                    \
    X(segments) X(device_traces) X(allocator_settings) X(external_annotations)

#define AS_NUMBER(word) KEY_##word,
enum { KNOWN(AS_NUMBER) KEYS, NO_TEXT = KEYS, NO_CONTEXT, FIRST_ACTION };
enum { EVENT_KEYS = KEY_frames + 1, MOST_SLOTS = 12 };
enum { ACTIONS = 9, OOM = 7, FIRST_STATE = FIRST_ACTION + ACTIONS, STATES = 3, PENDING = 1, INACTIVE = 2, OTHER_PENDING = FIRST_STATE + STATES };
enum { MOST_KINDS = 1000, LARGEST_POOL = 8, MOST_UNKNOWN = 4096, MOST_NUMBER_KEYS = 64, EVENT_COLUMNS = 10 };
enum { OF_TOP, OF_EVENT, OF_SEGMENT, OF_BLOCK, OF_ANNOTATION, OF_FRAME, OF_ACTION, OF_STATE, OF_OTHERS, OF_NOTHING };    /* what an unknown name names */

#define AS_TEXT(word) #word,
static const char *const known_texts[] = {
    KNOWN(AS_TEXT) "", "N/A",
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot",
    "active_allocated", "active_pending_free", "inactive", "active_awaiting_free",
};

static void know_texts(scan *s) {
    for (size_t i = 0; i < sizeof known_texts / sizeof *known_texts; i++) text_of(s, (const uint8_t *)known_texts[i], strlen(known_texts[i]));
}

static inline int absent(value v) { return v == UNSET || tag_of(v) == NONE; }

/* ---- events ---- */

static void room_for_event(scan *s) {
    event_rows *e = &s->events;
    if (e->count < e->room) return;
    if (e->count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million events");
    size_t need = e->count + 1, room;
#define COLUMN(name) (room = e->room, ROOM(s, e->name, room, need))
    COLUMN(action), COLUMN(address), COLUMN(size), COLUMN(stream), COLUMN(time_us), COLUMN(stack), COLUMN(pool), COLUMN(metadata), COLUMN(context);
#undef COLUMN
    e->room = room;
}

/* The number of a kind of action or state: those known, then others in the order of their first use here. */
static int64_t kind_of(scan *s, numbers *known, int32_t **others, size_t *count, size_t *room, value name, int first, int kinds) {
    int64_t at = (int64_t)payload(name) - first;
    if (at >= 0 && at < kinds) return at;
    int64_t *kind = number_at(s, known, payload(name) + 1, -1);
    if (*kind < 0) {
        if (*count >= INT16_MAX - 100) fail(s, FAILED_DAMAGED, "names more than 1,000 kinds of action or block state");
        ROOM(s, *others, *room, *count + 1);
        (*others)[*count] = (int32_t)payload(name);
        *kind = kinds + (int64_t)(*count)++;
    }
    return *kind;
}

static void further_keys(scan *s, size_t count) {
    extra *last = s->extras_count ? &s->extras[s->extras_count - 1] : NULL;
    if (!count && !last) return;
    uint32_t set = (uint32_t)interned(s, &s->extra_keys, s->keys, count);
    if (last && last->keys == set) return;
    ROOM(s, s->extras, s->extras_room, s->extras_count + 1);
    s->extras[s->extras_count++] = (extra){(int64_t)s->events.count, set};
}

static inline const char *number_in(const scan *s, value v, int wrap, int64_t least, int64_t if_absent, int64_t *n) {
    *n = if_absent;
    if (absent(v)) return NULL;
    int wrong = whole(s, v, wrap, n);
    if (wrong == 1) return "has something else than a whole number as";
    return wrong || *n < least ? "has a number that cannot be as" : NULL;
}

static inline const char *text_in(value v, int32_t *text) {
    *text = -1;
    if (absent(v)) return NULL;
    if (tag_of(v) != TEXT) return "has something else than a text as";
    *text = (int32_t)payload(v);
    return NULL;
}

/* A list of frames stays the number of the list until everything is read: it may be filled later. A pool: a tuple, or -2 less a list. */
static inline const char *list_in(value v, int32_t *list) {
    *list = absent(v) ? -1 : (int32_t)payload(v);
    return absent(v) || tag_of(v) == LIST ? NULL : "has something else than a list as";
}

static inline const char *pool_in(value v, int32_t *pool) {
    *pool = absent(v) ? -1 : tag_of(v) == TUPLE ? (int32_t)payload(v) : -2 - (int32_t)payload(v);
    return absent(v) || tag_of(v) == TUPLE || tag_of(v) == LIST ? NULL : "has no pair of numbers as";
}

/* Make a row of an event. NULL, or what is wrong with it and with which key; then there is no row. */
static const char *event_of(scan *s, const value *items, size_t count, int *key) {
    value slots[EVENT_KEYS] = {0};
    size_t others = 0;
    for (size_t i = 0; i < count; i += 2) {
        if (tag_of(items[i]) != TEXT) return *key = KEY_action, "has a key that is no text beside";
        uint64_t at = payload(items[i]);
        if (at < EVENT_KEYS) {
            slots[at] = items[i + 1];
            continue;
        }
        if (!others) s->stamp++;
        if (s->texts[at].stamp == s->stamp) continue;
        s->texts[at].stamp = s->stamp;
        ROOM(s, s->keys, s->keys_room, others + 1);
        s->keys[others++] = at;
    }
    room_for_event(s);
    event_rows *e = &s->events;
    size_t row = e->count;
    const char *wrong;
#define TAKE(name, expression) if ((*key = KEY_##name, wrong = expression)) return wrong
    *key = KEY_action;
    if (absent(slots[KEY_action])) return "has no";
    if (tag_of(slots[KEY_action]) != TEXT) return "has something else than a text as";
    int64_t action = kind_of(s, &s->kind_of_action, &s->actions, &s->actions_count, &s->actions_room, slots[KEY_action], FIRST_ACTION, ACTIONS);
    int known = action < ACTIONS;
    e->action[row] = (int16_t)action;
    TAKE(addr, number_in(s, slots[KEY_addr], 1, INT64_MIN, 0, &e->address[row]));
    if (known && action != OOM && absent(slots[KEY_addr])) return "has no";
    int64_t device_free;
    TAKE(device_free, number_in(s, slots[KEY_device_free], 0, INT64_MIN, 0, &device_free));
    if (action == OOM && absent(slots[KEY_device_free])) return "has no";
    if (action == OOM) e->address[row] = device_free;
    TAKE(size, number_in(s, slots[KEY_size], 0, 0, 0, &e->size[row]));
    if (known && absent(slots[KEY_size])) return "has no";
    TAKE(stream, number_in(s, slots[KEY_stream], 1, INT64_MIN, 0, &e->stream[row]));
    TAKE(time_us, number_in(s, slots[KEY_time_us], 0, 0, -1, &e->time_us[row]));
    TAKE(frames, list_in(slots[KEY_frames], &e->stack[row]));
    TAKE(pool_id, pool_in(slots[KEY_pool_id], &e->pool[row]));
    TAKE(user_metadata, text_in(slots[KEY_user_metadata], &e->metadata[row]));
    TAKE(compile_context, text_in(slots[KEY_compile_context], &e->context[row]));
#undef TAKE
    if (e->metadata[row] == NO_TEXT) e->metadata[row] = -1;
    if (e->context[row] == NO_TEXT || e->context[row] == NO_CONTEXT) e->context[row] = -1;
    further_keys(s, others);
    e->count++;
    return NULL;
}

/* ---- dictionaries of other kinds, read when the whole file is ---- */

static void count_unknown(scan *s, int section, int64_t text, int64_t count) {
    if (section == OF_NOTHING) return;
    if (s->unknowns_count >= MOST_UNKNOWN) section = OF_OTHERS, text = 0;
    int64_t *at = number_at(s, &s->unknown_of_key, ((uint64_t)(section + 1) << 32) | (uint64_t)(text + 3), -1);
    if (*at < 0) {
        ROOM(s, s->unknowns, s->unknowns_room, s->unknowns_count + 1);
        *at = (int64_t)s->unknowns_count;
        s->unknowns[s->unknowns_count++] = (unknown){section, (int32_t)text, 0};
    }
    s->unknowns[*at].count += count;
}

static _Noreturn void wrong(scan *s, const char *what, size_t row, const char *problem, int key) {
    char sentence[sizeof s->reason];
    snprintf(sentence, sizeof sentence, key < 0 ? "%s %zu %s" : "%s %zu %s `%s`", what, row, problem, key < 0 ? "" : known_texts[key]);
    fail(s, FAILED_DAMAGED, sentence);
}

/* The values of the keys named, UNSET where a key is absent or None; other keys are counted once each. */
static void take_slots(scan *s, value dictionary, const int *keys, size_t wanted, value *slots, int section) {
    size_t count, number_keys = 0, none_keys = 0;
    const value *items = items_of(s, dictionary, &count);
    value seen[MOST_NUMBER_KEYS];
    int32_t slot_of[KEYS];
    memset(slot_of, -1, sizeof slot_of);
    for (size_t i = 0; i < wanted; i++) slot_of[keys[i]] = (int32_t)i, slots[i] = UNSET;
    s->stamp++;
    spend(s, count);
    for (size_t i = 0; i < count; i += 2) {
        value key = items[i];
        if (tag_of(key) == TEXT) {
            uint64_t at = payload(key);
            if (at < KEYS && slot_of[at] >= 0) slots[slot_of[at]] = tag_of(items[i + 1]) == NONE ? UNSET : items[i + 1];
            else if (s->texts[at].stamp != s->stamp) {
                s->texts[at].stamp = s->stamp;
                count_unknown(s, section, (int64_t)at, 1);
            }
        } else if (tag_of(key) == NONE) {
            if (!none_keys++) count_unknown(s, section, -2, 1);
        } else {
            size_t j = 0;
            while (j < number_keys && seen[j] != key) j++;
            if (j < number_keys) continue;
            if (number_keys >= MOST_NUMBER_KEYS) fail(s, FAILED_DAMAGED, "has a dictionary with many numbers as keys");
            seen[number_keys++] = key;
            count_unknown(s, section, -1, 1);
        }
    }
}

static const value *listed(scan *s, value v, const char *name, size_t *count) {
    *count = 0;
    if (absent(v)) return NULL;
    if (tag_of(v) == LIST) {
        const value *items = items_of(s, v, count);
        spend(s, *count);
        return items;
    }
    char sentence[sizeof s->reason];
    snprintf(sentence, sizeof sentence, "`%s` is something else than a list", name);
    fail(s, FAILED_DAMAGED, sentence);
}

typedef struct { scan *s; const char *what; size_t row; const value *slots; const int *keys; } reading;

static int64_t number_of(const reading *r, int slot, int wrap, int64_t least, int64_t most, int needed, int64_t if_absent) {
    int64_t n;
    if (needed && absent(r->slots[slot])) wrong(r->s, r->what, r->row, "has no", r->keys[slot]);
    const char *problem = number_in(r->s, r->slots[slot], wrap, least, if_absent, &n);
    if (problem) wrong(r->s, r->what, r->row, problem, r->keys[slot]);
    if (n < least || n > most) wrong(r->s, r->what, r->row, "has a number that cannot be as", r->keys[slot]);
    return n;
}

static int32_t taken(const reading *r, int slot, const char *(*as)(value, int32_t *)) {
    int32_t found;
    const char *problem = as(r->slots[slot], &found);
    if (problem) wrong(r->s, r->what, r->row, problem, r->keys[slot]);
    return found;
}

#endif
