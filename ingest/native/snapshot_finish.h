/* From the values of a whole pickle to columns: segments and their blocks, events of each device in the order of the file, annotations.
 *
 * Stacks, frames and texts are numbered in the order in which the Python reader meets them, so that both give the same columns: blocks,
 * segments, then each device's events, column by column, then annotations.
 */

#ifndef SNAPSHOT_FINISH_H
#define SNAPSHOT_FINISH_H

#include "snapshot_rows.h"

/* ---- texts, stacks and pools by number ---- */

static int32_t column_text(scan *s, int64_t at) {
    if (at < 0) return -1;
    known_text *t = &s->texts[at];
    if (t->column < 0) {
        const uint8_t *u = (const uint8_t *)s->letters + t->start;
        for (size_t i = 0; i + 1 < t->length; i++)
            if (u[i] == 0xed && u[i + 1] >= 0xa0) fail(s, FAILED_DAMAGED, "a text is no valid UTF-8");
        ROOM(s, s->column_texts, s->column_texts_room, s->column_texts_count + 1);
        s->column_texts[s->column_texts_count] = (int32_t)at;
        t->column = (int32_t)s->column_texts_count++;
    }
    return t->column;
}

static int64_t frame_of(scan *s, value v) {
    if (tag_of(v) != DICT) fail(s, FAILED_DAMAGED, "a frame is something else than a dictionary");
    int64_t *known = number_at(s, &s->frame_of_object, payload(v) + 1, -1);
    if (*known >= 0) return *known;
    static const int keys[] = {KEY_name, KEY_filename, KEY_line};
    value slots[3];
    int64_t line;
    int32_t name, filename;
    take_slots(s, v, keys, 3, slots, OF_FRAME);
    if (number_in(s, slots[2], 0, INT64_MIN, 0, &line)) fail(s, FAILED_DAMAGED, "a frame has no whole number of 64 bits as `line`");
    if (text_in(slots[0], &name) || text_in(slots[1], &filename)) fail(s, FAILED_DAMAGED, "a frame has something else than a text as its name");
    name = column_text(s, name);
    filename = column_text(s, filename);
    uint64_t words[4] = {(uint64_t)(name + 1), (uint64_t)(filename + 1), (uint64_t)line, absent(slots[2])};
    int64_t at = (int64_t)interned(s, &s->frames, words, 4);
    *number_at(s, &s->frame_of_object, payload(v) + 1, -1) = at;
    return at;
}

static int32_t stack_of(scan *s, int32_t list) {
    if (list < 0) return -1;
    uint64_t body = s->objects[list];
    int32_t *known = NULL;
    if (tag_of(body) == GROWN) known = &s->grown[payload(body)].stack;
    if (tag_of(body) == FILLED) {
        if (s->stacks_known < s->contents.count) {
            ROOM(s, s->stack_of_content, s->content_room, s->contents.count);
            while (s->stacks_known < s->contents.count) s->stack_of_content[s->stacks_known++] = -1;
        }
        known = &s->stack_of_content[payload(body)];
    }
    if (known && *known >= 0) return *known;
    size_t count;
    const value *items = items_of(s, made(LIST, (uint64_t)list), &count);
    spend(s, count);
    ROOM(s, s->keys, s->keys_room, count);
    for (size_t i = 0; i < count; i++) s->keys[i] = (uint64_t)frame_of(s, items[i]);
    int32_t stack = (int32_t)interned(s, &s->stacks, s->keys, count);
    if (known) *known = stack;
    return stack;
}

static int32_t pool_text(scan *s, int32_t pool) {
    if (pool == -1) return -1;
    value v = pool >= 0 ? made(TUPLE, (uint64_t)pool) : made(LIST, (uint64_t)(-2 - (int64_t)pool));
    int64_t *known = number_at(s, &s->pools, v, -1);
    if (*known >= 0) return (int32_t)*known;
    char letters[LARGEST_POOL * 24];
    size_t count, used = 0;
    const value *parts = items_of(s, v, &count);
    if (count > LARGEST_POOL) fail(s, FAILED_DAMAGED, "a pool id is no pair of numbers");
    for (size_t i = 0; i < count; i++) {
        unsigned tag = tag_of(parts[i]);
        if (tag != SMALL && tag != POSITIVE && tag != NEGATIVE) fail(s, FAILED_DAMAGED, "a pool id is no pair of numbers");
        int negative = tag == NEGATIVE || (tag == SMALL && small(parts[i]) < 0);
        unsigned long long size = tag != SMALL ? s->wide[payload(parts[i])] : negative ? 0 - (uint64_t)small(parts[i]) : (uint64_t)small(parts[i]);
        used += (size_t)snprintf(letters + used, sizeof letters - used, "%s%s%llu", i ? "," : "", negative ? "-" : "", size);
    }
    int32_t found = column_text(s, (int64_t)payload(text_of(s, (const uint8_t *)letters, used)));
    *number_at(s, &s->pools, v, -1) = found;
    return found;
}

/* ---- segments and blocks ---- */

static void room_for_block(scan *s) {
    block_rows *b = &s->blocks;
    if (b->count < b->room) return;
    if (b->count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million blocks");
    size_t need = b->count + 1, room;
#define COLUMN(name) (room = b->room, ROOM(s, b->name, room, need))
    COLUMN(segment), COLUMN(stack), COLUMN(state), COLUMN(address), COLUMN(size), COLUMN(requested);
#undef COLUMN
    b->room = room;
}

/* Python takes a size of None for a fault, not for an absent one. */
static void check_real_size(scan *s, value entry, size_t row) {
    size_t count;
    const value *items = items_of(s, entry, &count), *last = NULL;
    spend(s, count);
    for (size_t i = 0; i < count; i += 2)
        if (items[i] == made(TEXT, KEY_real_size)) last = &items[i + 1];
    if (last && tag_of(*last) == NONE) wrong(s, "history of block", row, "has no whole number as", KEY_real_size);
}

/* One block of a segment; `next` is where it begins if it does not say. `stack` stays a list here. */
static void block(scan *s, value v, int64_t *next) {
    static const int keys[] = {KEY_address, KEY_size, KEY_requested_size, KEY_state, KEY_frames, KEY_history};
    static const int old_keys[] = {KEY_real_size, KEY_frames};
    value slots[6], old[2] = {UNSET, UNSET};
    room_for_block(s);
    block_rows *b = &s->blocks;
    size_t row = b->count, count;
    if (tag_of(v) != DICT) wrong(s, "block", row, "is no dictionary", -1);
    take_slots(s, v, keys, 6, slots, OF_BLOCK);
    reading r = {s, "block", row, slots, keys};
    b->size[row] = number_of(&r, 1, 0, 0, INT64_MAX, 1, 0);
    if (tag_of(slots[3]) != TEXT) wrong(s, "block", row, "has no text as", KEY_state);
    if (payload(slots[3]) == OTHER_PENDING) slots[3] = made(TEXT, FIRST_STATE + PENDING);
    b->state[row] = (int16_t)kind_of(s, &s->kind_of_state, &s->states, &s->states_count, &s->states_room, slots[3], FIRST_STATE, STATES);
    if (b->state[row] >= STATES) count_unknown(s, OF_STATE, (int64_t)payload(slots[3]), 1);
    b->address[row] = number_of(&r, 0, 1, INT64_MIN, INT64_MAX, 0, *next);
    *next = (int64_t)((uint64_t)*next + (uint64_t)b->size[row]);
    const value *history = b->state[row] == INACTIVE ? NULL : listed(s, slots[5], "history", &count);
    if (history && count) {
        if (tag_of(history[0]) != DICT) fail(s, FAILED_DAMAGED, "a block's history holds something else than dictionaries");
        check_real_size(s, history[0], row);
        take_slots(s, history[0], old_keys, 2, old, OF_NOTHING);
    }
    reading of_history = {s, "history of block", row, old, old_keys};
    int64_t before = number_of(&of_history, 0, 0, 0, INT64_MAX, 0, 0);
    b->requested[row] = number_of(&r, 2, 0, 0, INT64_MAX, 0, before);
    b->segment[row] = (int32_t)s->segments.count;
    b->stack[row] = absent(slots[4]) ? taken(&of_history, 1, list_in) : taken(&r, 4, list_in);
    b->count++;
}

static void room_for_segment(scan *s) {
    segment_rows *g = &s->segments;
    if (g->count < g->room) return;
    if (g->count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million segments");
    size_t need = g->count + 1, room;
#define COLUMN(name) (room = g->room, ROOM(s, g->name, room, need))
    COLUMN(device), COLUMN(kind), COLUMN(pool), COLUMN(stack), COLUMN(expandable), COLUMN(address), COLUMN(size), COLUMN(allocated), COLUMN(active);
    COLUMN(requested), COLUMN(stream);
#undef COLUMN
    g->room = room;
}

/* One segment with its blocks; a total that it does not say is summed from them. Stack, kind and pool are resolved later. */
static void segment(scan *s, value v) {
    static const int keys[] = {KEY_device, KEY_address, KEY_total_size, KEY_allocated_size, KEY_active_size, KEY_requested_size, KEY_stream,
                               KEY_segment_type, KEY_segment_pool_id, KEY_is_expandable, KEY_frames, KEY_blocks};
    value slots[MOST_SLOTS];
    room_for_segment(s);
    segment_rows *g = &s->segments;
    size_t row = g->count, count, first = s->blocks.count;
    if (tag_of(v) != DICT) wrong(s, "segment", row, "is no dictionary", -1);
    take_slots(s, v, keys, MOST_SLOTS, slots, OF_SEGMENT);
    reading r = {s, "segment", row, slots, keys};
    g->device[row] = (int32_t)number_of(&r, 0, 0, 0, INT32_MAX, 1, 0);
    g->address[row] = number_of(&r, 1, 1, INT64_MIN, INT64_MAX, 1, 0);
    g->size[row] = number_of(&r, 2, 0, 0, INT64_MAX, 1, 0);
    int64_t next = g->address[row];
    const value *blocks = listed(s, slots[11], "blocks", &count);
    for (size_t i = 0; i < count; i++) block(s, blocks[i], &next);
    uint64_t sums[3] = {0};
    for (size_t i = first; i < s->blocks.count; i++) {
        if (s->blocks.state[i] == 0) sums[0] += (uint64_t)s->blocks.size[i];
        if (s->blocks.state[i] != INACTIVE) sums[1] += (uint64_t)s->blocks.size[i], sums[2] += (uint64_t)s->blocks.requested[i];
    }
    g->allocated[row] = number_of(&r, 3, 0, 0, INT64_MAX, 0, (int64_t)sums[0]);
    g->active[row] = number_of(&r, 4, 0, 0, INT64_MAX, 0, (int64_t)sums[1]);
    g->requested[row] = number_of(&r, 5, 0, 0, INT64_MAX, 0, (int64_t)sums[2]);
    g->stream[row] = number_of(&r, 6, 1, INT64_MIN, INT64_MAX, 0, 0);
    g->kind[row] = taken(&r, 7, text_in);
    g->pool[row] = taken(&r, 8, pool_in);
    if (!absent(slots[9]) && slots[9] != made(TRUE_, 0) && slots[9] != made(FALSE_, 0)) wrong(s, "segment", row, "has no true or false as", keys[9]);
    g->expandable[row] = absent(slots[9]) ? -1 : slots[9] == made(TRUE_, 0);
    g->stack[row] = taken(&r, 10, list_in);
    g->count++;
}

static void segments(scan *s, value list) {
    size_t count;
    const value *items = listed(s, list, "segments", &count);
    for (size_t i = 0; i < count; i++) segment(s, items[i]);
    if (s->states_count > MOST_KINDS - STATES) fail(s, FAILED_DAMAGED, "names more than 1,000 kinds of block state");
    for (size_t i = 0; i < s->blocks.count; i++) s->blocks.stack[i] = stack_of(s, s->blocks.stack[i]);
    for (size_t i = 0; i < s->segments.count; i++) s->segments.stack[i] = stack_of(s, s->segments.stack[i]);
    for (size_t i = 0; i < s->segments.count; i++) s->segments.kind[i] = column_text(s, s->segments.kind[i]);
    for (size_t i = 0; i < s->segments.count; i++) s->segments.pool[i] = pool_text(s, s->segments.pool[i]);
}

/* ---- events ---- */

/* A dictionary of a trace that made no row when it was filled makes one here, or tells why not. */
static void late_event(scan *s, value v, size_t device, size_t at) {
    char what[60];
    size_t count;
    int key;
    snprintf(what, sizeof what, "event of device %zu", device);
    if (tag_of(v) != DICT) wrong(s, what, at, "is no dictionary", -1);
    const value *items = items_of(s, v, &count);
    const char *problem = event_of(s, items, count, &key);
    if (problem) wrong(s, what, at, problem, key);
    s->objects[payload(v)] = made(ROW, s->events.count - 1);
}

static inline size_t row_of(scan *s, value v, size_t device, size_t at) {
    if (tag_of(v) != DICT || tag_of(s->objects[payload(v)]) != ROW) late_event(s, v, device, at);
    return payload(s->objects[payload(v)]);
}

static void count_keys(scan *s, const int64_t *rows, size_t first, size_t count) {
    for (size_t i = 0; s->extras_count && i < count; i++) {
        int64_t row = rows ? rows[i] : (int64_t)(first + i);
        size_t low = 0, high = s->extras_count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (s->extras[middle].row <= row) low = middle + 1;
            else high = middle;
        }
        if (!low) continue;
        uint32_t set = s->extras[low - 1].keys;
        int64_t same = 1;
        if (!rows) {   /* a run of rows with the same keys is counted at once */
            int64_t until = low < s->extras_count ? s->extras[low].row : INT64_MAX;
            int64_t end = (int64_t)(first + count);
            same = (until < end ? until : end) - row;
            i += (size_t)same - 1;
        }
        spend(s, s->extra_keys.starts[set + 1] - s->extra_keys.starts[set]);
        for (uint64_t k = s->extra_keys.starts[set]; k < s->extra_keys.starts[set + 1]; k++) count_unknown(s, OF_EVENT, (int64_t)s->extra_keys.data[k], same);
    }
}

/* The rows that the traces name, one after the other, where they are not already so. */
static void gather(scan *s, const int64_t *rows, size_t count) {
    event_rows *e = &s->events;
    if (count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million events");
#define COLUMN(name)                                                                                                  \
    do {                                                                                                              \
        size_t room = 0;                                                                                              \
        void *old = e->name, *fresh = more(s, NULL, &room, count + 1, sizeof *e->name);                               \
        e->name = fresh;                                                                                              \
        for (size_t i = 0; i < count; i++) memcpy((char *)fresh + i * sizeof *e->name, (char *)old + (size_t)rows[i] * sizeof *e->name, sizeof *e->name); \
        free(old);                                                                                                    \
        s->budget += e->room * sizeof *e->name;                                                                       \
    } while (0)
    COLUMN(action); COLUMN(address); COLUMN(size); COLUMN(stream); COLUMN(time_us); COLUMN(stack); COLUMN(pool); COLUMN(metadata); COLUMN(context);
#undef COLUMN
    e->count = count;
    e->room = count;
}

static void move_down(event_rows *e, size_t first, size_t count) {
#define COLUMN(name) memmove(e->name, e->name + first, count * sizeof *e->name)
    if (first && count) COLUMN(action), COLUMN(address), COLUMN(size), COLUMN(stream), COLUMN(time_us), COLUMN(stack), COLUMN(pool), COLUMN(metadata), COLUMN(context);
#undef COLUMN
    e->count = count;
}

/* Kinds of action in the order of their first use in the traces; those that only unused dictionaries name go. */
static void number_actions(scan *s) {
    event_rows *e = &s->events;
    if (!s->actions_count) return;
    size_t count = 0, room = 0;
    int16_t *turned = ROOM(s, s->turned, room, s->actions_count);
    memset(turned, -1, s->actions_count * sizeof *turned);
    room = 0;
    int32_t *fresh = ROOM(s, s->fresh_actions, room, s->actions_count);
    for (size_t i = 0; i < e->count; i++) {
        if (e->action[i] < ACTIONS) continue;
        int at = e->action[i] - ACTIONS;
        if (turned[at] < 0) fresh[count] = s->actions[at], turned[at] = (int16_t)(ACTIONS + count++);
        e->action[i] = turned[at];
    }
    free(s->actions);
    s->actions = fresh;
    s->fresh_actions = NULL;
    s->actions_count = count;
    if (count > MOST_KINDS - ACTIONS) fail(s, FAILED_DAMAGED, "names more than 1,000 kinds of action");
    for (size_t i = 0; i < e->count; i++)
        if (e->action[i] >= ACTIONS) count_unknown(s, OF_ACTION, s->actions[e->action[i] - ACTIONS], 1);
}

static void events(scan *s, value list) {
    event_rows *e = &s->events;
    size_t devices, total = 0, first = 0, room = 0;
    const value *traces = listed(s, list, "device_traces", &devices);
    int in_order = 1;
    for (size_t device = 0; device < devices; device++) {
        size_t count;
        const value *trace = listed(s, traces[device], "trace", &count);
        for (size_t i = 0; i < count; i++, total++) {
            size_t row = row_of(s, trace[i], device, i);
            if (!total) first = row;
            in_order &= row == first + total;
        }
    }
    if (total >= MOST || devices >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million events");
    ROOM(s, e->device, room, total + 1);
    room = 0;
    int64_t *rows = in_order ? NULL : ROOM(s, s->rows, room, total);
    size_t at = 0;
    for (size_t device = 0; device < devices; device++) {
        size_t count;
        const value *trace = listed(s, traces[device], "trace", &count);
        for (size_t i = 0; i < count; i++, at++) {
            e->device[at] = (int32_t)device;
            if (rows) rows[at] = (int64_t)payload(s->objects[payload(trace[i])]);
        }
    }
    count_keys(s, rows, first, total);
    if (rows) gather(s, rows, total);
    else move_down(e, first, total);
    s->devices = (int64_t)devices;
    number_actions(s);
    for (size_t from = 0, to; from < e->count; from = to) {
        for (to = from; to < e->count && e->device[to] == e->device[from]; to++) e->stack[to] = stack_of(s, e->stack[to]);
        for (size_t i = from; i < to; i++) e->pool[i] = pool_text(s, e->pool[i]);
        for (size_t i = from; i < to; i++) e->metadata[i] = column_text(s, e->metadata[i]);
        for (size_t i = from; i < to; i++) e->context[i] = column_text(s, e->context[i]);
    }
}

/* ---- annotations and the whole ---- */

static void annotations(scan *s, value list) {
    static const int keys[] = {KEY_device, KEY_stage, KEY_name, KEY_time_us};
    annotation_rows *a = &s->annotations;
    size_t count;
    const value *items = listed(s, list, "external_annotations", &count);
    if (count >= MOST) fail(s, FAILED_SIZE, "holds more than two thousand million annotations");
    size_t room = 0;
#define COLUMN(name) (room = 0, ROOM(s, a->name, room, count + 1))
    COLUMN(device), COLUMN(stage), COLUMN(name), COLUMN(time_us);
#undef COLUMN
    for (size_t i = 0; i < count; i++) {
        value slots[4];
        if (tag_of(items[i]) != DICT) wrong(s, "annotation", i, "is no dictionary", -1);
        take_slots(s, items[i], keys, 4, slots, OF_ANNOTATION);
        reading r = {s, "annotation", i, slots, keys};
        a->device[i] = (int32_t)number_of(&r, 0, 0, 0, INT32_MAX, 1, 0);
        a->stage[i] = taken(&r, 1, text_in);
        a->name[i] = taken(&r, 2, text_in);
        a->time_us[i] = absent(slots[3]) ? -1 : number_of(&r, 3, 0, 0, INT64_MAX, 1, 0);
    }
    a->count = count;
    for (size_t i = 0; i < count; i++) a->stage[i] = column_text(s, a->stage[i]);
    for (size_t i = 0; i < count; i++) a->name[i] = column_text(s, a->name[i]);
}

/* Whether a list is the bare list of segments of `torch.cuda.memory_snapshot()`. */
static int bare_segments(scan *s, value v) {
    if (tag_of(v) != LIST) return 0;
    size_t count, held;
    const value *items = items_of(s, v, &count);
    for (size_t i = 0; i < count; i++) {
        int found = 0;
        if (tag_of(items[i]) != DICT) return 0;
        const value *pairs = items_of(s, items[i], &held);
        spend(s, held);
        for (size_t j = 0; j < held; j += 2) found |= pairs[j] == made(TEXT, KEY_blocks);
        if (!found) return 0;
    }
    return 1;
}

static void finish(scan *s, value top) {
    static const int keys[] = {KEY_segments, KEY_device_traces, KEY_external_annotations, KEY_allocator_settings};
    value slots[4] = {top, UNSET, UNSET, UNSET};
    s->settings = UNSET;
    if (!bare_segments(s, top)) {
        if (tag_of(top) != DICT) fail(s, FAILED_SHAPE, "is a pickle but no memory snapshot: no dictionary with lists `segments` or `device_traces`");
        if (tag_of(s->objects[payload(top)]) == ROW) fail(s, FAILED_SHAPE, "is a pickle but no memory snapshot: a single event");
        take_slots(s, top, keys, 4, slots, OF_TOP);
        if (tag_of(slots[0]) != LIST && tag_of(slots[1]) != LIST)
            fail(s, FAILED_SHAPE, "is a pickle but no memory snapshot: a dictionary without lists `segments` or `device_traces`");
        size_t count;
        const value *items = items_of(s, top, &count);   /* a None as settings counts as one, unlike none at all */
        for (size_t i = 0; i < count; i += 2)
            if (items[i] == made(TEXT, KEY_allocator_settings)) s->settings = items[i + 1];
    }
    segments(s, slots[0]);
    events(s, slots[1]);
    annotations(s, slots[2]);
}

#endif
