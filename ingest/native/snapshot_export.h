/* The columns as Arrow lays them out, and what the caller asks of a finished scan. */

#ifndef SNAPSHOT_EXPORT_H
#define SNAPSHOT_EXPORT_H

#include "snapshot_finish.h"

enum { SEGMENT_COLUMNS = 11, BLOCK_COLUMNS = 6, ANNOTATION_COLUMNS = 4, FRAME_COLUMNS = 3, MOST_OWNED = 64 };

typedef struct { const void *data; const uint8_t *valid; int64_t nulls; } column;   /* valid: NULL where no value is absent */

typedef struct {
    int64_t failed, failed_at;                                       /* failed_at: byte, -1 where the fault is in what the file says */
    const char *reason;
    int64_t devices, event_count, segment_count, block_count, annotation_count, stack_count, stacked_frames, frame_count, text_count, letters;
    int64_t unknown_count, action_count, state_count;
    uint64_t settings;
    column events[EVENT_COLUMNS], segments[SEGMENT_COLUMNS], blocks[BLOCK_COLUMNS], annotations[ANNOTATION_COLUMNS], frames[FRAME_COLUMNS];
    const int32_t *stack_offsets, *stack_frames, *text_offsets;
    const char *text_letters;
    const unknown *unknowns;
    const int32_t *actions, *states;                                  /* texts */
} result;

typedef struct { scan s; result r; void *owned[MOST_OWNED]; size_t owned_count; } whole_scan;

static void *owned(whole_scan *w, size_t count, size_t size) {
    size_t room = 0;
    void *array = more(&w->s, NULL, &room, count + 1, size);
    w->owned[w->owned_count++] = array;
    return array;
}

static uint8_t *no_bits(whole_scan *w, size_t count) {
    uint8_t *bits = owned(w, count / 8 + 1, 1);
    memset(bits, 0, count / 8 + 1);
    return bits;
}

/* A column in which -1 is no value. */
#define NULLABLE(name, type)                                            \
    static column name(whole_scan *w, type *data, size_t count) {       \
        column c = {.data = data};                                      \
        for (size_t i = 0; i < count; i++) c.nulls += data[i] < 0;      \
        if (!c.nulls) return c;                                         \
        uint8_t *valid = no_bits(w, count);                             \
        for (size_t i = 0; i < count; i++) {                            \
            valid[i / 8] |= (uint8_t)((data[i] >= 0) << (i % 8));       \
            if (data[i] < 0) data[i] = 0;                               \
        }                                                               \
        c.valid = valid;                                                \
        return c;                                                       \
    }
NULLABLE(nullable32, int32_t)
NULLABLE(nullable64, int64_t)
#undef NULLABLE

static column flags(whole_scan *w, const int8_t *data, size_t count) {
    uint8_t *set = no_bits(w, count), *valid = no_bits(w, count);
    column c = {set, valid, 0};
    for (size_t i = 0; i < count; i++) {
        set[i / 8] |= (uint8_t)((data[i] == 1) << (i % 8));
        valid[i / 8] |= (uint8_t)((data[i] >= 0) << (i % 8));
        c.nulls += data[i] < 0;
    }
    return c;
}

static void export_stacks(whole_scan *w) {
    const interner *stacks = &w->s.stacks, *frames = &w->s.frames;
    if (stacks->used > MOST) fail(&w->s, FAILED_SIZE, "holds more than two thousand million different frames of stacks");
    int32_t *offsets = owned(w, stacks->count + 1, sizeof *offsets), *rows = owned(w, stacks->used, sizeof *rows);
    offsets[0] = 0;
    for (size_t i = 0; i < stacks->count; i++) offsets[i + 1] = (int32_t)stacks->starts[i + 1];
    for (size_t i = 0; i < stacks->used; i++) rows[i] = (int32_t)stacks->data[i];
    int32_t *name = owned(w, frames->count, sizeof *name), *filename = owned(w, frames->count, sizeof *filename);
    int64_t *line = owned(w, frames->count, sizeof *line);
    uint8_t *valid = no_bits(w, frames->count);
    int64_t nulls = 0;
    for (size_t i = 0; i < frames->count; i++) {
        const uint64_t *words = frames->data + 4 * i;
        name[i] = (int32_t)words[0] - 1;
        filename[i] = (int32_t)words[1] - 1;
        line[i] = (int64_t)words[2];
        valid[i / 8] |= (uint8_t)(!words[3] << (i % 8));
        nulls += (int64_t)words[3];
    }
    result *r = &w->r;
    r->stack_count = (int64_t)stacks->count, r->stacked_frames = (int64_t)stacks->used, r->frame_count = (int64_t)frames->count;
    r->stack_offsets = offsets, r->stack_frames = rows;
    r->frames[0] = nullable32(w, name, frames->count);
    r->frames[1] = nullable32(w, filename, frames->count);
    r->frames[2] = (column){line, nulls ? valid : NULL, nulls};
}

static void export_texts(whole_scan *w) {
    scan *s = &w->s;
    uint64_t total = 0;
    for (size_t i = 0; i < s->column_texts_count; i++) total += s->texts[s->column_texts[i]].length;
    if (total > MOST) fail(s, FAILED_SIZE, "holds more than 2 GiB of texts");
    int32_t *offsets = owned(w, s->column_texts_count + 1, sizeof *offsets);
    char *letters = owned(w, total, 1);
    offsets[0] = 0;
    for (size_t i = 0; i < s->column_texts_count; i++) {
        const known_text *t = &s->texts[s->column_texts[i]];
        if (t->length) memcpy(letters + offsets[i], s->letters + t->start, t->length);
        offsets[i + 1] = offsets[i] + (int32_t)t->length;
    }
    w->r.text_offsets = offsets, w->r.text_letters = letters;
    w->r.text_count = (int64_t)s->column_texts_count, w->r.letters = (int64_t)total;
}

static void export_all(whole_scan *w) {
    scan *s = &w->s;
    result *r = &w->r;
    event_rows *e = &s->events;
    segment_rows *g = &s->segments;
    block_rows *b = &s->blocks;
    annotation_rows *a = &s->annotations;
    column events[] = {{e->device, NULL, 0}, {e->action, NULL, 0}, {e->address, NULL, 0}, {e->size, NULL, 0}, {e->stream, NULL, 0},
                       nullable64(w, e->time_us, e->count), nullable32(w, e->stack, e->count), nullable32(w, e->pool, e->count),
                       nullable32(w, e->metadata, e->count), nullable32(w, e->context, e->count)};
    column segments[] = {{g->device, NULL, 0}, {g->address, NULL, 0}, {g->size, NULL, 0}, {g->allocated, NULL, 0}, {g->active, NULL, 0},
                         {g->requested, NULL, 0}, {g->stream, NULL, 0}, nullable32(w, g->kind, g->count), nullable32(w, g->pool, g->count),
                         flags(w, g->expandable, g->count), nullable32(w, g->stack, g->count)};
    column blocks[] = {{b->segment, NULL, 0}, {b->address, NULL, 0}, {b->size, NULL, 0}, {b->requested, NULL, 0}, {b->state, NULL, 0},
                       nullable32(w, b->stack, b->count)};
    column annotations[] = {{a->device, NULL, 0}, nullable32(w, a->stage, a->count), nullable32(w, a->name, a->count),
                            nullable64(w, a->time_us, a->count)};
    memcpy(r->events, events, sizeof events);
    memcpy(r->segments, segments, sizeof segments);
    memcpy(r->blocks, blocks, sizeof blocks);
    memcpy(r->annotations, annotations, sizeof annotations);
    r->event_count = (int64_t)e->count, r->segment_count = (int64_t)g->count, r->block_count = (int64_t)b->count;
    r->annotation_count = (int64_t)a->count, r->devices = s->devices, r->settings = s->settings;
    export_stacks(w);
    export_texts(w);
    r->unknowns = s->unknowns, r->unknown_count = (int64_t)s->unknowns_count;
    r->actions = s->actions, r->action_count = (int64_t)s->actions_count;
    r->states = s->states, r->state_count = (int64_t)s->states_count;
}

#endif
