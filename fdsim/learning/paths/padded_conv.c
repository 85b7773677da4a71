/* Convolutions with padding and strides of a stack of small nets on a CPU, client by client: compiled at first use by
   padded_conv.py.

   As in direct_conv.c the images of a batch lie innermost, [channels][height][width][batch], so that vectors are full
   whatever the number of channels. Some rows at a time are copied into a strip, with zeros around them and, where
   columns are skipped, those that belong together side by side: so every weight meets one run of numbers for a whole
   row of results, at a place that a list of taps holds.

   All passes return 0, or 1 where there is no memory for one client's scratch. */

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
   The first `lead` columns, and those behind the image, are zeros. */
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

/* How many rows a strip should have that each `unit` rows of results take `step` of, and `more` beyond. */
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
            if (s->phases == 1) {
                memcpy(to + s->lead * b, from, (size_t)row * sizeof(T));
                continue;
            }
            for (int64_t x = 0; x < least(width, s->phases); x++) {
                int64_t at = x + s->lead;
                copy_runs(from + x * b, s->phases * b, to + at % s->phases * s->phase + at / s->phases * b, b, b,
                          up(width - x, s->phases));
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

/* ---- Convolutions of 3×3 with fewer products ---------------------------------------------------------------------- */

/* Four results of a 3×3 convolution, two by two, come from 4×4 inputs by 16 products in place of 36, after Winograd: with
   U = G w Gᵀ, V = Bᵀ x B, M the products of the two number by number, summed over planes, they are Aᵀ M A. What each
   of the 16 places has for all planes and a row of such squares is a matrix product. The gradient of weights goes the
   same way back: from A dy Aᵀ and V to U's, then to w's by G. */
#define PLACES 16

/* Along one side: Bᵀ, Gᵀ and so on, each of a vector. */
INLINE void apply_b(const vec x[4], vec v[4]) {
    v[0] = x[0] - x[2], v[1] = x[1] + x[2], v[2] = x[2] - x[1], v[3] = x[1] - x[3];
}
INLINE void apply_g(const vec w[3], vec u[4]) {
    vec ends = (w[0] + w[2]) * (T)0.5, middle = w[1] * (T)0.5;
    u[0] = w[0], u[1] = ends + middle, u[2] = ends - middle, u[3] = w[2];
}
INLINE void apply_a(const vec m[4], vec y[2]) { y[0] = m[0] + m[1] + m[2], y[1] = m[1] - m[2] - m[3]; }
INLINE void back_a(const vec y[2], vec m[4]) { m[0] = y[0], m[1] = y[0] + y[1], m[2] = y[0] - y[1], m[3] = -y[1]; }
INLINE void back_g(const vec u[4], vec w[3]) {
    vec ends = (u[1] + u[2]) * (T)0.5;
    w[0] = u[0] + ends, w[1] = (u[1] - u[2]) * (T)0.5, w[2] = ends + u[3];
}

/* V of a vector of squares, whose columns are at `column` in rows `row` apart, to places `place` apart. */
INLINE void spread(const T *x, int64_t row, const int64_t column[4], T *to, int64_t place) {
    vec t[4][4];
    UNROLL for (int c = 0; c < 4; c++) {
        vec x4[4], v[4];
        UNROLL for (int r = 0; r < 4; r++) x4[r] = LOAD(x + r * row + column[c]);
        apply_b(x4, v);
        UNROLL for (int r = 0; r < 4; r++) t[r][c] = v[r];
    }
    UNROLL for (int r = 0; r < 4; r++) {
        vec v[4];
        apply_b(t[r], v);
        UNROLL for (int c = 0; c < 4; c++) STORE(to + (4 * r + c) * place, v[c]);
    }
}

/* Results of a vector of squares, to two rows of two phases. */
INLINE void collect(const T *m, int64_t place, T bias, T *y, int64_t row, int64_t phase) {
    vec t[2][4];
    UNROLL for (int c = 0; c < 4; c++) {
        vec m4[4], y2[2];
        UNROLL for (int r = 0; r < 4; r++) m4[r] = LOAD(m + (4 * r + c) * place);
        apply_a(m4, y2);
        t[0][c] = y2[0], t[1][c] = y2[1];
    }
    UNROLL for (int r = 0; r < 2; r++) {
        vec y2[2];
        apply_a(t[r], y2);
        STORE(y + r * row, y2[0] + bias);
        STORE(y + r * row + phase, y2[1] + bias);
    }
}

/* The gradients of M of a vector of squares, from those of two rows of two phases. */
INLINE void spread_back(const T *dy, int64_t row, int64_t phase, T *to, int64_t place) {
    vec t[4][2];
    UNROLL for (int c = 0; c < 2; c++) {
        vec y2[2] = {LOAD(dy + c * phase), LOAD(dy + row + c * phase)}, m[4];
        back_a(y2, m);
        UNROLL for (int r = 0; r < 4; r++) t[r][c] = m[r];
    }
    UNROLL for (int r = 0; r < 4; r++) {
        vec m[4];
        back_a(t[r], m);
        UNROLL for (int c = 0; c < 4; c++) STORE(to + (4 * r + c) * place, m[c]);
    }
}

/* U [places][outputs][inputs] of weights [outputs][inputs][3][3]; `line` has room for nine rows of whole vectors. */
static void spread_weights(const T *w, int64_t outputs, int64_t inputs, T *line, T *u) {
    int64_t pitch = up(inputs, LANES) * LANES, place = outputs * inputs;
    for (int64_t o = 0; o < outputs; o++, w += 9 * inputs) {
        for (int64_t c = 0; c < inputs; c++)
            for (int64_t k = 0; k < 9; k++) line[k * pitch + c] = w[9 * c + k];
        for (int64_t c = 0; c < inputs; c += LANES) {
            vec t[4][3];
            UNROLL for (int j = 0; j < 3; j++) {
                vec w3[3], v[4];
                UNROLL for (int r = 0; r < 3; r++) w3[r] = LOAD(line + (3 * r + j) * pitch + c);
                apply_g(w3, v);
                UNROLL for (int r = 0; r < 4; r++) t[r][j] = v[r];
            }
            UNROLL for (int r = 0; r < 4; r++) {
                vec v[4];
                apply_g(t[r], v);
                /* What reaches beyond a row the next one overwrites. */
                UNROLL for (int k = 0; k < 4; k++) {
                    T *to = u + (4 * r + k) * place + o * inputs + c;
                    if (o + 1 < outputs || c + LANES <= inputs)
                        STORE(to, v[k]);
                    else
                        memcpy(to, &v[k], (size_t)(inputs - c) * sizeof(T));
                }
            }
        }
    }
}

/* The gradients of weights from those of U [places][outputs][pitch]. */
static void collect_weights(const T *du, int64_t outputs, int64_t inputs, T *line, T *dw) {
    int64_t pitch = up(inputs, LANES) * LANES, place = outputs * pitch;
    for (int64_t o = 0; o < outputs; o++, dw += 9 * inputs) {
        for (int64_t c = 0; c < inputs; c += LANES) {
            vec t[3][4];
            UNROLL for (int j = 0; j < 4; j++) {
                vec u4[4], w3[3];
                UNROLL for (int r = 0; r < 4; r++) u4[r] = LOAD(du + (4 * r + j) * place + o * pitch + c);
                back_g(u4, w3);
                UNROLL for (int r = 0; r < 3; r++) t[r][j] = w3[r];
            }
            UNROLL for (int r = 0; r < 3; r++) {
                vec w3[3];
                back_g(t[r], w3);
                UNROLL for (int k = 0; k < 3; k++) STORE(line + (3 * r + k) * pitch + c, w3[k]);
            }
        }
        for (int64_t c = 0; c < inputs; c++)
            for (int64_t k = 0; k < 9; k++) dw[9 * c + k] = line[k * pitch + c];
    }
}

/* What is summed: planes of one image become channels of another, `high` × `wide`. */
typedef struct {
    int64_t batch, planes, height, width, padding_down, padding_across, channels, high, wide;
} Squares;

typedef struct {
    Strip x;
    T *v, *m, *rows;
    int64_t v_place, m_place;
    int64_t pitch; /* A row of squares, in whole vectors. */
    int64_t band;  /* Rows of results from one strip. */
    Tile tile;
} SquareWork;

static int64_t squares_across(const Squares *q) { return up(q->wide, 2); }


static SquareWork square_work(const Squares *q, Store *store) {
    int64_t vectors = up(squares_across(q) * q->batch, LANES), pitch = vectors * LANES;
    SquareWork work = {.pitch = pitch, .tile = best_tile(q->channels, vectors, 6, 5)};
    int64_t columns = most(up(q->width + q->padding_across, 2), squares_across(q) + 1);
    work.band = 2 * rows_at_once(q->planes * 2 * columns * q->batch, 2, 2, up(q->high, 2));
    work.x = strip_of(q->planes, work.band + 2, 2, columns, q->padding_across, q->batch, store);
    work.v_place = apart(q->planes * pitch), work.m_place = apart(q->channels * pitch);
    work.v = NUMBERS(store, PLACES * work.v_place);
    work.m = NUMBERS(store, PLACES * work.m_place);
    work.rows = NUMBERS(store, 4 * pitch);
    return work;
}

/* y [channels][high][wide][batch] from x [planes][height][width][batch], where U of a channel and a plane are so far
   apart; `turned` by half a circle are the weights of the way back. */
static void sum_squares(const Squares *q, const SquareWork *work, const T *x, const T *u, int64_t u_channel,
                        int64_t u_plane, int turned, const T *bias, T *y) {
    static const int same[4] = {0, 1, 2, 3}, other[4] = {3, 1, 2, 0};
    const int *side = turned ? other : same;
    int64_t b = q->batch, pitch = work->pitch, v_place = work->v_place, m_place = work->m_place;
    const Strip *strip = &work->x;
    const int64_t column[4] = {0, strip->phase, q->batch, strip->phase + q->batch};
    const Tap none = {0, 0};
    Walk k = {q->planes, 1, &none, pitch, u_channel, u_plane};
    for (int64_t i = 0; i < q->high; i += 2) {
        if (i % work->band == 0)
            fill(strip, x, q->height, q->width, i - q->padding_down, least(work->band, q->high + 1 - i) + 2);
        for (int64_t plane = 0; plane < q->planes; plane++)
            for (int64_t n = 0; n < pitch; n += LANES)
                spread(strip->numbers + plane * strip->plane + i % work->band * strip->row + n, strip->row, column,
                       work->v + plane * pitch + n, v_place);
        for (int place = 0; place < PLACES; place++)
            sum_row(work->tile, &k, q->channels, pitch / LANES, work->v + place * v_place,
                    u + (4 * side[place / 4] + side[place % 4]) * q->planes * q->channels, NULL,
                    work->m + place * m_place, pitch, 0);
        for (int64_t c = 0; c < q->channels; c++) {
            for (int64_t n = 0; n < pitch; n += LANES)
                collect(work->m + c * pitch + n, m_place, bias ? bias[c] : 0, work->rows + n, 2 * pitch, pitch);
            for (int64_t r = 0; r < least(2, q->high - i); r++)
                for (int64_t p = 0; p < least(2, q->wide); p++)
                    copy_runs(work->rows + (2 * r + p) * pitch, b, y + ((c * q->high + i + r) * q->wide + p) * b, 2 * b,
                              b, up(q->wide - p, 2));
        }
    }
}

/* What the gradient of weights needs: rows of inputs with the channels last, [rows][columns][batch][whole vectors]. */
typedef struct {
    Strip dy;
    T *x, *v, *m, *du, *line;
    int64_t v_place, m_place, m_row;
    int64_t columns, squares; /* Rows of squares at once. */
    Tile tile;
} ProductWork;

static ProductWork product_work(const Squares *q, Store *store) {
    int64_t across = squares_across(q), run = across * q->batch, pitch = up(q->planes, LANES) * LANES;
    ProductWork work = {.tile = best_tile(q->channels, pitch / LANES, 6, 5)};
    work.columns = most(q->width + q->padding_across, 2 * across + 2);
    work.squares = most(1, least(up(q->high, 2), 2 * STRIP / (PLACES * run * most(pitch, q->channels))));
    work.dy = strip_of(q->channels, 2 * work.squares, 2, across, 0, q->batch, store);
    work.x = NUMBERS(store, (2 * work.squares + 2) * work.columns * q->batch * pitch);
    work.v_place = apart(work.squares * run * pitch);
    work.v = NUMBERS(store, PLACES * work.v_place);
    work.m_row = up(work.squares * run, LANES) * LANES + LANES; /* The last vector reaches beyond. */
    work.m_place = apart(q->channels * work.m_row);
    work.m = NUMBERS(store, PLACES * work.m_place);
    work.du = NUMBERS(store, PLACES * q->channels * pitch);
    work.line = NUMBERS(store, 9 * pitch);
    return work;
}

/* The gradient of weights [channels][planes][3][3], from x and the gradients dy of its results. */
static void multiply_squares(const Squares *q, const ProductWork *work, const T *x, const T *dy, T *dw) {
    int64_t b = q->batch, run = squares_across(q) * b, pitch = up(q->planes, LANES) * LANES, row = q->width * b;
    int64_t x_row = work->columns * b * pitch;
    const int64_t column[4] = {0, b * pitch, 2 * b * pitch, 3 * b * pitch};
    const Tap none = {0, 0};
    for (int64_t i = 0; i < q->high; i += 2 * work->squares) {
        int64_t squares = least(work->squares, up(q->high - i, 2));
        Walk k = {squares * run, 1, &none, pitch, work->m_row, 1};
        for (int64_t r = 0; r < 2 * squares + 2; r++) {
            int64_t from = i + r - q->padding_down;
            if (from < 0 || from >= q->height)
                memset(work->x + r * x_row, 0, (size_t)x_row * sizeof(T));
            else
                turn_over(x + from * row, q->height * row, work->x + r * x_row + q->padding_across * b * pitch, pitch,
                          q->planes, row);
        }
        fill(&work->dy, dy, q->high, q->wide, i, 2 * squares);
        for (int64_t t = 0; t < squares; t++)
            for (int64_t n = 0; n < run; n++)
                for (int64_t c = 0; c < pitch; c += LANES)
                    spread(work->x + 2 * t * x_row + (n / b * b + n) * pitch + c, x_row, column,
                           work->v + (t * run + n) * pitch + c, work->v_place);
        for (int64_t c = 0; c < q->channels; c++)
            for (int64_t t = 0; t < squares; t++)
                for (int64_t n = 0; n < run; n += LANES)
                    spread_back(work->dy.numbers + c * work->dy.plane + 2 * t * work->dy.row + n, work->dy.row,
                                work->dy.phase, work->m + c * work->m_row + t * run + n, work->m_place);
        for (int place = 0; place < PLACES; place++)
            sum_row(work->tile, &k, q->channels, pitch / LANES, work->v + place * work->v_place,
                    work->m + place * work->m_place, NULL, work->du + place * q->channels * pitch, pitch, i > 0);
    }
    collect_weights(work->du, q->channels, q->planes, work->line, dw);
}

/* ---- Convolutions of a stack -------------------------------------------------------------------------------------- */

/* Whether a convolution is done by squares: it must be one of 3×3, and fill vectors with channels on the way back. */
static int square(const Shape *s) {
    return s->rows == 3 && s->columns == 3 && s->stride_down == 1 && s->stride_across == 1 && s->padding_down <= 2 &&
           s->padding_across <= 2 && s->inputs >= 8 && s->outputs >= 8;
}
static Squares forth(const Shape *s) {
    return (Squares){s->batch,          s->inputs,  s->height,  s->width,  s->padding_down,
                     s->padding_across, s->outputs, high_of(s), wide_of(s)};
}
/* From gradients to inputs it is a convolution again. */
static Squares back(const Shape *s) {
    return (Squares){s->batch,  s->outputs, high_of(s), wide_of(s), 2 - s->padding_down, 2 - s->padding_across,
                     s->inputs, s->height,  s->width};
}

static int forward_squares(const Shape *s, const T *x, const T *w, const T *bias, T *y) {
    Store store = {0};
    Squares q = forth(s);
    SquareWork work = {0};
    T *u = NULL, *line = NULL;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && furnish(&store)) return 1;
        work = square_work(&q, &store);
        u = NUMBERS(&store, PLACES * s->outputs * s->inputs), line = NUMBERS(&store, 9 * up(s->inputs, LANES) * LANES);
    }
    for (int64_t n = 0; n < s->clients; n++) {
        spread_weights(w + n * weights_of(s), s->outputs, s->inputs, line, u);
        sum_squares(&q, &work, x + n * s->batch * image_of(s), u, s->inputs, 1, 0, bias ? bias + n * s->outputs : NULL,
                    y + n * s->batch * made_of(s));
    }
    free(store.memory);
    return 0;
}

static int backward_squares(const Shape *s, const T *x, const T *w, const T *dy, T *dw, T *db, T *dx) {
    Store store = {0};
    Squares q = forth(s), r = back(s);
    ProductWork products = {0};
    SquareWork sums = {0};
    T *u = NULL;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && furnish(&store)) return 1;
        products = product_work(&q, &store);
        if (dx) sums = square_work(&r, &store);
        u = NUMBERS(&store, PLACES * s->outputs * s->inputs);
    }
    for (int64_t n = 0; n < s->clients; n++) {
        const T *g = dy + n * s->batch * made_of(s);
        multiply_squares(&q, &products, x + n * s->batch * image_of(s), g, dw + n * weights_of(s));
        if (db) bias_back(s, g, db + n * s->outputs);
        if (!dx) continue;
        spread_weights(w + n * weights_of(s), s->outputs, s->inputs, products.line, u);
        sum_squares(&r, &sums, g, u, 1, s->inputs, 1, NULL, dx + n * s->batch * image_of(s));
    }
    free(store.memory);
    return 0;
}

int forward(const Shape *s, const T *x, const T *w, const T *bias, T *y) {
    if (square(s)) return forward_squares(s, x, w, bias, y);
    Store store = {0};
    Work work = forward_work(s, &store);
    if (furnish(&store)) return 1;
    work = forward_work(s, &store);
    for (int64_t n = 0; n < s->clients; n++)
        convolve(s, &work, x + n * s->batch * image_of(s), w + n * weights_of(s), bias ? bias + n * s->outputs : NULL,
                 y + n * s->batch * made_of(s));
    free(store.memory);
    return 0;
}

/* From dy, of the same shape as y, dw, db and dx, the last two unless they are NULL. */
int backward(const Shape *s, const T *x, const T *w, const T *dy, T *dw, T *db, T *dx) {
    if (square(s)) return backward_squares(s, x, w, dy, dw, db, dx);
    Store store = {0};
    Work weights = {0}, inputs = {0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass && furnish(&store)) return 1;
        weights = weights_work(s, &store);
        if (dx) inputs = inputs_work(s, &store);
    }
    for (int64_t n = 0; n < s->clients; n++) {
        const T *g = dy + n * s->batch * made_of(s);
        weights_back(s, &weights, x + n * s->batch * image_of(s), g, dw + n * weights_of(s));
        if (db) bias_back(s, g, db + n * s->outputs);
        if (dx) inputs_back(s, &inputs, w + n * weights_of(s), g, dx + n * s->batch * image_of(s));
    }
    free(store.memory);
    return 0;
}
