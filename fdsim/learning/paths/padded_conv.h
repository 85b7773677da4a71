/* Convolutions with padding and strides of one client's images.

   As in direct_conv.c the images of a batch lie innermost, [channels][height][width][batch], so that vectors are full
   whatever the number of channels. Some rows at a time are copied into a strip, with zeros around them and, where
   columns are skipped, those that belong together side by side: so every weight meets one run of numbers for a whole
   row of results, at a place that a list of taps holds.

   Scratch is handed out by a Store: a pass that finds it without memory only counts what it would need. */

#ifndef FDSIM_PADDED_CONV_H
#define FDSIM_PADDED_CONV_H

#include "tiles.h"

typedef struct {
    int64_t clients, batch, height, width, inputs, rows, columns, outputs;
    int64_t padding_down, padding_across, stride_down, stride_across;
} Shape;

static int64_t high_of(const Shape *s) { return (s->height + 2 * s->padding_down - s->rows) / s->stride_down + 1; }
static int64_t wide_of(const Shape *s) { return (s->width + 2 * s->padding_across - s->columns) / s->stride_across + 1; }
static int64_t image_of(const Shape *s) { return s->height * s->width * s->inputs; }
static int64_t made_of(const Shape *s) { return high_of(s) * wide_of(s) * s->outputs; }
static int64_t weights_of(const Shape *s) { return s->outputs * s->inputs * s->rows * s->columns; }

/* ---- Strips of rows ----------------------------------------------------------------------------------------------- */

/* As much of the second-level cache as a strip may take. */
#define STRIP ((int64_t)(262144 / sizeof(T)))

/* Some rows of all planes, [planes][rows][phases][columns][batch]: of every `phases` columns each has a run of its own.
   The first `lead` columns, counted before they are divided, and those behind the image are zeros. */
typedef struct {
    T *numbers;
    int64_t planes, rows, phases, columns, lead;
    int64_t batch, phase, row, plane; /* Steps in memory. */
} Strip;

/* What is an odd number of cache lines apart shares no more of the cache's sets than it must. */
static int64_t apart(int64_t count) { return (up(count, CACHE_LINE) | 1) * CACHE_LINE; }

static Strip strip_of(int64_t planes, int64_t rows, int64_t phases, int64_t columns, int64_t lead, int64_t batch,
                      Store *store) {
    int64_t phase = columns * batch, row = phases * phase;
    int64_t plane = apart(rows * row);
    return (Strip){NUMBERS(store, planes * plane), planes, rows, phases, columns, lead, batch, phase, row, plane};
}

/* How many rows of results a strip should serve, each of which takes `step` of its rows, and all together `more`. */
static int64_t rows_at_once(int64_t row, int64_t step, int64_t more, int64_t rows) {
    return most(1, least(rows, (STRIP / row - more) / step));
}

/* `count` runs of `run` numbers, so far apart before and after; in vectors, of which the last overlaps the one before. */
INLINE void copy_vectors(const int VECTORS, const T *from, int64_t from_step, T *to, int64_t to_step, int64_t run,
                         int64_t count) {
    for (int64_t n = 0; n < count; n++, from += from_step, to += to_step) {
        UNROLL for (int v = 0; v < VECTORS - 1; v++) STORE(to + v * LANES, LOAD(from + v * LANES));
        STORE(to + run - LANES, LOAD(from + run - LANES));
    }
}
static void copy_runs(const T *from, int64_t from_step, T *to, int64_t to_step, int64_t run, int64_t count) {
    switch (run < LANES ? 0 : up(run, LANES)) {
        case 1: copy_vectors(1, from, from_step, to, to_step, run, count); return;
        case 2: copy_vectors(2, from, from_step, to, to_step, run, count); return;
        case 3: copy_vectors(3, from, from_step, to, to_step, run, count); return;
        case 4: copy_vectors(4, from, from_step, to, to_step, run, count); return;
    }
    for (int64_t k = 0; k < count; k++)
        for (int64_t n = 0; n < run; n++) to[k * to_step + n] = from[k * from_step + n];
}

/* Copies rows `first` and on of an image of `height` × `width`; those outside of it are zeros. */
static void fill(const Strip *s, const T *image, int64_t height, int64_t width, int64_t first, int64_t rows) {
    int64_t b = s->batch, row = width * b;
    for (int64_t plane = 0; plane < s->planes; plane++)
        for (int64_t r = 0; r < rows; r++) {
            T *to = s->numbers + plane * s->plane + r * s->row;
            if (first + r < 0 || first + r >= height) {
                memset(to, 0, (size_t)s->row * sizeof(T));
                continue;
            }
            const T *from = image + (plane * height + first + r) * row;
            for (int64_t phase = 0; phase < s->phases; phase++, to += s->phase) {
                /* Columns of the image that this phase has, and how many zeros there are before them. */
                int64_t skipped = up(most(0, s->lead - phase), s->phases), x = skipped * s->phases + phase - s->lead;
                int64_t count = x < width ? up(width - x, s->phases) : 0, end = skipped + count;
                memset(to, 0, (size_t)(skipped * b) * sizeof(T));
                if (s->phases == 1)
                    memcpy(to + skipped * b, from, (size_t)row * sizeof(T));
                else
                    copy_runs(from + x * b, s->phases * b, to + skipped * b, b, b, count);
                memset(to + end * b, 0, (size_t)((s->columns - end) * b) * sizeof(T));
            }
        }
}

/* ---- Sums: the forward pass, and the gradient of inputs ----------------------------------------------------------- */

/* Where a weight and the numbers it is multiplied with are. */
typedef struct {
    int64_t x, w;
} Tap;

/* What is summed over for one row of results. */
typedef struct {
    int64_t planes, taps;
    const Tap *tap;
    int64_t x_plane, w_channel, w_plane;
} Walk;

/* HIGH channels × WIDE vectors of one row of results; `more` adds to what is there instead of the bias. */
INLINE void sum_tile(const int HIGH, const int WIDE, const Walk *k, const T *x, const T *w, const T *bias, T *y,
                     int64_t pitch, int more) {
    vec a[6][5];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int v = 0; v < WIDE; v++)
            a[i][v] = more ? LOAD(y + i * pitch + v * LANES) : (vec)((bias ? bias[i] : 0) - (vec){0});
    for (int64_t plane = 0; plane < k->planes; plane++, x += k->x_plane, w += k->w_plane)
        for (int64_t n = 0; n < k->taps; n++) {
            const T *xs = x + k->tap[n].x, *ws = w + k->tap[n].w;
            vec b[5];
            UNROLL for (int v = 0; v < WIDE; v++) {
                b[v] = LOAD(xs + v * LANES);
                HOLD(b[v]);
            }
            UNROLL for (int i = 0; i < HIGH; i++) {
                vec s = ws[i * k->w_channel] - (vec){0};
                HOLD(s);
                UNROLL for (int v = 0; v < WIDE; v++) a[i][v] += s * b[v];
            }
        }
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int v = 0; v < WIDE; v++) STORE(y + i * pitch + v * LANES, a[i][v]);
}

#define SUM(high, wide) \
    case high * 8 + wide: sum_tile(high, wide, k, x, w, bias, y, pitch, more); break;
static void sum(int64_t high, int64_t wide, const Walk *k, const T *x, const T *w, const T *bias, T *y,
                int64_t pitch, int more) {
    switch (high * 8 + wide) {
        SUM(1, 1) SUM(2, 1) SUM(3, 1) SUM(4, 1) SUM(5, 1) SUM(6, 1)
        SUM(1, 2) SUM(2, 2) SUM(3, 2) SUM(4, 2) SUM(5, 2) SUM(6, 2)
        SUM(1, 3) SUM(2, 3) SUM(3, 3) SUM(4, 3)
        SUM(1, 4) SUM(2, 4)
        SUM(1, 5) SUM(2, 5)
#if REGISTERS > 16
        SUM(5, 3) SUM(6, 3) SUM(3, 4) SUM(4, 4) SUM(5, 4) SUM(6, 4) SUM(3, 5) SUM(4, 5) SUM(5, 5)
#endif
    }
}

/* One row of results for all channels, y [channels][pitch]; `more` adds to what is there. */
static void sum_row(Tile tile, const Walk *all, int64_t channels, int64_t vectors, const T *x, const T *w,
                    const T *bias, T *y, int64_t pitch, int more) {
    int64_t across = up(vectors, tile.wide), down = up(channels, tile.high);
    for (int64_t j = 0, v = 0, wide; j < across; j++, v += wide) {
        wide = up(vectors - v, across - j);
        Walk k = *all;
        /* Planes in groups that stay in the first-level cache while all channels use them. */
        int64_t groups = up(all->planes * all->taps * (wide * LANES + CACHE_LINE), CACHED);
        for (int64_t n = 0, plane = 0; n < most(1, groups); n++, plane += k.planes) {
            k.planes = up(all->planes - plane, most(1, groups) - n);
            for (int64_t i = 0, c = 0, high; i < down; i++, c += high) {
                high = up(channels - c, down - i);
                sum(high, wide, &k, x + v * LANES + plane * k.x_plane, w + c * k.w_channel + plane * k.w_plane,
                    bias ? bias + c : NULL, y + c * pitch + v * LANES, pitch, more || n > 0);
            }
        }
    }
}

/* ---- Products: the gradient of weights ---------------------------------------------------------------------------- */

/* One vector of positions, of which only those in `kept` count (all if NULL). */
INLINE void multiply_step(const int HIGH, const int WIDE, vec a[4][5], const T *g, const T *x, int64_t g_plane,
                          const Tap *tap, const mask *kept) {
    vec b[5];
    UNROLL for (int j = 0; j < WIDE; j++) {
        b[j] = LOAD(x + tap[j].x);
        if (kept) b[j] = (vec)((mask)b[j] & *kept);
        HOLD(b[j]);
    }
    UNROLL for (int i = 0; i < HIGH; i++) {
        vec s = LOAD(g + i * g_plane);
        if (kept) s = (vec)((mask)s & *kept);
        HOLD(s);
        UNROLL for (int j = 0; j < WIDE; j++) a[i][j] += s * b[j];
    }
}

/* HIGH outputs × WIDE taps: gradient × input, added up over `rows` rows of `length`. */
INLINE void multiply_tile(const int HIGH, const int WIDE, const T *g, const T *x, T *dw, int64_t rows, int64_t length,
                          int64_t g_plane, int64_t g_row, int64_t x_row, const Tap *tap, int64_t w_channel) {
    vec a[4][5];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int j = 0; j < WIDE; j++) a[i][j] = (vec){0};
    const mask kept = first_lanes(length % LANES);
    for (int64_t row = 0; row < rows; row++) {
        const T *gs = g + row * g_row, *xs = x + row * x_row;
        for (int64_t left = length; left >= LANES; left -= LANES, gs += LANES, xs += LANES)
            multiply_step(HIGH, WIDE, a, gs, xs, g_plane, tap, NULL);
        if (length % LANES) multiply_step(HIGH, WIDE, a, gs, xs, g_plane, tap, &kept);
    }
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int j = 0; j < WIDE; j++) dw[i * w_channel + tap[j].w] += total(a[i][j]);
}

#define MULTIPLY(high, wide) \
    case high * 8 + wide: \
        multiply_tile(high, wide, g, x, dw, rows, length, g_plane, g_row, x_row, tap, w_channel); \
        break;
static void multiply(int64_t high, int64_t wide, const T *g, const T *x, T *dw, int64_t rows, int64_t length,
                     int64_t g_plane, int64_t g_row, int64_t x_row, const Tap *tap, int64_t w_channel) {
    switch (high * 8 + wide) {
        MULTIPLY(1, 1) MULTIPLY(1, 2) MULTIPLY(1, 3) MULTIPLY(1, 4) MULTIPLY(1, 5)
        MULTIPLY(2, 1) MULTIPLY(2, 2) MULTIPLY(2, 3) MULTIPLY(2, 4) MULTIPLY(2, 5)
        MULTIPLY(3, 1) MULTIPLY(3, 2) MULTIPLY(3, 3)
        MULTIPLY(4, 1) MULTIPLY(4, 2) MULTIPLY(4, 3)
#if REGISTERS > 16
        MULTIPLY(3, 4) MULTIPLY(3, 5) MULTIPLY(4, 4) MULTIPLY(4, 5)
#endif
    }
}

/* ---- A convolution of one client ---------------------------------------------------------------------------------- */

/* What the passes need besides their arguments. */
typedef struct {
    Strip x, g;
    Tap *taps;
    T *sums; /* A row of results, where rows are no whole vectors. */
    int64_t band;
    Tile tile;
} Work;

static Strip input_strip(const Shape *s, int64_t *band, Store *store) {
    int64_t wide = wide_of(s), phases = s->stride_across;
    int64_t columns = most(up(s->width + s->padding_across, phases), wide + (s->columns - 1) / phases);
    *band = rows_at_once(s->inputs * phases * columns * s->batch, s->stride_down, s->rows - s->stride_down, high_of(s));
    return strip_of(s->inputs, (*band - 1) * s->stride_down + s->rows, phases, columns, s->padding_across, s->batch,
                    store);
}

static Work forward_work(const Shape *s, Store *store) {
    int64_t vectors = up(wide_of(s) * s->batch, LANES);
    Work work = {.tile = best_tile(s->outputs, vectors, 6, 5)};
    work.x = input_strip(s, &work.band, store);
    work.taps = piece(store, s->rows * s->columns, sizeof(Tap));
    work.sums = NUMBERS(store, s->outputs * vectors * LANES);
    return work;
}

/* The taps that meet rows of the image, for results of row i; their places count from its first row in the strip. */
static int64_t forward_taps(const Shape *s, const Strip *x, int64_t i, Tap *taps) {
    int64_t count = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t row = i * s->stride_down + r - s->padding_down;
        if (row < 0 || row >= s->height) continue;
        for (int64_t c = 0; c < s->columns; c++)
            taps[count++] = (Tap){r * x->row + c % x->phases * x->phase + c / x->phases * s->batch, r * s->columns + c};
    }
    return count;
}

/* x [inputs][height][width][batch], w [outputs][inputs][rows][columns], bias [outputs] or NULL give
   y [outputs][high][wide][batch]. */
static void convolve(const Shape *s, const Work *work, const T *x, const T *w, const T *bias, T *y) {
    int64_t high = high_of(s), length = wide_of(s) * s->batch, vectors = up(length, LANES);
    int64_t window = s->rows * s->columns;
    int whole = length % LANES == 0;
    for (int64_t from = 0; from < high; from += work->band) {
        int64_t band = least(work->band, high - from);
        fill(&work->x, x, s->height, s->width, from * s->stride_down - s->padding_down,
             (band - 1) * s->stride_down + s->rows);
        for (int64_t i = from; i < from + band; i++) {
            Walk k = {s->inputs, forward_taps(s, &work->x, i, work->taps), work->taps, work->x.plane,
                      s->inputs * window, window};
            T *to = whole ? y + i * length : work->sums;
            int64_t pitch = whole ? high * length : vectors * LANES;
            sum_row(work->tile, &k, s->outputs, vectors, work->x.numbers + (i - from) * s->stride_down * work->x.row,
                    w, bias, to, pitch, 0);
            for (int64_t o = 0; o < s->outputs && !whole; o++)
                memcpy(y + (o * high + i) * length, to + o * pitch, (size_t)length * sizeof(T));
        }
    }
}

static Work weights_work(const Shape *s, Store *store) {
    Work work = {.tile = best_tile(s->outputs, s->rows * s->columns, 4, 5)};
    work.x = input_strip(s, &work.band, store);
    work.taps = piece(store, s->rows * s->columns, sizeof(Tap));
    return work;
}

/* The gradient of weights, from dy of the same shape as y. Behind dy there must be room for a vector. */
static void weights_back(const Shape *s, const Work *work, const T *x, const T *dy, T *dw) {
    int64_t high = high_of(s), length = wide_of(s) * s->batch, window = s->rows * s->columns;
    int64_t g_plane = high * length, x_row = s->stride_down * work->x.row;
    int64_t down = up(s->outputs, work->tile.high), across = up(window, work->tile.wide);
    /* As many rows at once as the first-level cache holds. */
    int64_t fit = most(1, CACHED / ((work->tile.high + 1) * length));
    for (int64_t r = 0, n = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->columns; c++)
            work->taps[n++] = (Tap){r * work->x.row + c % work->x.phases * work->x.phase +
                                    c / work->x.phases * s->batch, r * s->columns + c};
    memset(dw, 0, (size_t)weights_of(s) * sizeof(T));
    for (int64_t from = 0; from < high; from += work->band) {
        int64_t band = least(work->band, high - from), chunks = up(band, fit);
        fill(&work->x, x, s->height, s->width, from * s->stride_down - s->padding_down,
             (band - 1) * s->stride_down + s->rows);
        for (int64_t i = 0, o = 0, outputs; i < down; i++, o += outputs) {
            outputs = up(s->outputs - o, down - i);
            for (int64_t n = 0, row = 0, rows; n < chunks; n++, row += rows) {
                rows = up(band - row, chunks - n);
                for (int64_t plane = 0; plane < s->inputs; plane++)
                    for (int64_t j = 0, t = 0, taps; j < across; j++, t += taps) {
                        taps = up(window - t, across - j);
                        multiply(outputs, taps, dy + o * g_plane + (from + row) * length,
                                 work->x.numbers + plane * work->x.plane + row * x_row,
                                 dw + (o * s->inputs + plane) * window, rows, length, g_plane, length, x_row,
                                 work->taps + t, s->inputs * window);
                    }
            }
        }
    }
}

/* Columns of the gradients' strip before the first, and behind those that inputs may ask for. */
static int64_t lead_of(const Shape *s) { return (s->columns - 1) / s->stride_across; }

static Work inputs_work(const Shape *s, Store *store) {
    int64_t lead = lead_of(s), last = (s->width - 1 + s->padding_across) / s->stride_across;
    int64_t columns = lead + most(wide_of(s), last + 1), vectors = up(up(s->width, s->stride_across) * s->batch, LANES);
    Work work = {.tile = best_tile(s->inputs, vectors, 6, 5)};
    /* A band of so many rows of inputs meets at most one row of gradients more than this for each stride. */
    int64_t more = (s->rows - 1) / s->stride_down + 1;
    work.band = s->stride_down * rows_at_once(s->outputs * columns * s->batch, 1, more, up(s->height, s->stride_down));
    work.g = strip_of(s->outputs, work.band / s->stride_down + more, 1, columns, lead, s->batch, store);
    work.taps = piece(store, s->rows * s->columns, sizeof(Tap));
    work.sums = NUMBERS(store, s->inputs * vectors * LANES);
    return work;
}

/* The taps that lead from gradients, of which the strip holds row `first` and on, to inputs of row i and of every column
   of a phase. */
static int64_t backward_taps(const Shape *s, const Strip *g, int64_t first, int64_t i, int64_t phase, Tap *taps) {
    int64_t count = 0, high = high_of(s), row = i + s->padding_down;
    for (int64_t r = row % s->stride_down; r < s->rows; r += s->stride_down) {
        int64_t from = (row - r) / s->stride_down;
        if (r > row || from >= high) continue;
        for (int64_t c = phase; c < s->columns; c += s->stride_across)
            taps[count++] = (Tap){(from - first) * g->row - c / s->stride_across * s->batch, r * s->columns + c};
    }
    return count;
}

/* The gradient of inputs. */
static void inputs_back(const Shape *s, const Work *work, const T *w, const T *dy, T *dx) {
    int64_t b = s->batch, window = s->rows * s->columns, stride = s->stride_across, row = s->width * b;
    for (int64_t from = 0; from < s->height; from += work->band) {
        int64_t band = least(work->band, s->height - from);
        int64_t first = most(0, up(most(0, from + s->padding_down - s->rows + 1), s->stride_down));
        int64_t last = least(high_of(s) - 1, (from + band - 1 + s->padding_down) / s->stride_down);
        fill(&work->g, dy, high_of(s), wide_of(s), first, last - first + 1);
        for (int64_t i = from; i < from + band; i++)
            for (int64_t phase = 0; phase < stride; phase++) {
                /* Inputs x of this phase are those with x + padding = m × stride + phase. */
                int64_t m = up(most(0, s->padding_across - phase), stride), x = m * stride + phase - s->padding_across;
                int64_t count = x < s->width ? up(s->width - x, stride) : 0, vectors = up(count * b, LANES);
                Walk k = {s->outputs, backward_taps(s, &work->g, first, i, phase, work->taps), work->taps,
                          work->g.plane, window, s->inputs * window};
                int whole = stride == 1 && row % LANES == 0;
                T *to = whole ? dx + i * row : work->sums;
                int64_t pitch = whole ? s->height * row : vectors * LANES;
                sum_row(work->tile, &k, s->inputs, vectors, work->g.numbers + (lead_of(s) + m) * b, w, NULL, to, pitch, 0);
                for (int64_t c = 0; c < s->inputs && !whole; c++) {
                    T *place = dx + (c * s->height + i) * row + x * b;
                    copy_runs(to + c * pitch, b, place, stride * b, b, count);
                }
            }
    }
}

static void bias_back(const Shape *s, const T *dy, T *db) {
    int64_t plane = high_of(s) * wide_of(s) * s->batch;
    for (int64_t o = 0; o < s->outputs; o++, dy += plane) {
        vec sum = (vec){0};
        int64_t n = 0;
        for (; n + LANES <= plane; n += LANES) sum += LOAD(dy + n);
        db[o] = total(sum);
        for (; n < plane; n++) db[o] += dy[n];
    }
}

/* The passes with their scratch. */
static void padded_forward(const Shape *s, Store *store, const T *x, const T *w, const T *bias, T *y) {
    Work work = forward_work(s, store);
    if (store->memory) convolve(s, &work, x, w, bias, y);
}

static void padded_weights_back(const Shape *s, Store *store, const T *x, const T *dy, T *dw) {
    Work work = weights_work(s, store);
    if (store->memory) weights_back(s, &work, x, dy, dw);
}

static void padded_inputs_back(const Shape *s, Store *store, const T *w, const T *dy, T *dx) {
    Work work = inputs_work(s, store);
    if (store->memory) inputs_back(s, &work, w, dy, dx);
}

#endif
