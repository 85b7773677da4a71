/* Convolutions of a stack of small nets on a CPU, client by client: compiled at first use by direct_conv.py.

   A general library fills its vectors with channels, of which small nets have too few. Here the images of a batch lie
   innermost, [channels][height][width][batch], so that a row of an image batch is one run of width × batch numbers,
   a step of one column is a step of `batch` numbers, and vectors are full whatever the number of channels. Weights are
   torch's own, [outputs][inputs][rows][columns], read one number at a time, so that both passes use them as they are.
   Sums stay in registers until they are done; bias, 2×2 max-pooling and ReLU are applied to a row while it is in the
   cache. The way back through pooling is different: it walks only those positions that won.

   Other layers may stand between, so each pass can be had for itself, for a stack of clients: `forward`, `backward`,
   `pooled_backward`. Where only linear layers follow, `train` does whole local rounds, client after client.

   All passes return 0, or 1 where there is no memory for one client's scratch. */

#include <math.h>

#include "tiles.h"

typedef uint8_t bytes __attribute__((vector_size(BYTES / sizeof(T)), aligned(1), may_alias));

typedef struct {
    int64_t clients, batch, height, width, inputs, rows, columns, outputs;
    int64_t pool; /* 2×2 max-pooling after the sums */
    int64_t relu; /* ReLU after that */
} Shape;

/* ---- Sums: the forward pass, and the gradient of inputs ----------------------------------------------------------- */

/* What is summed over for one row of results, and how to walk it; steps count numbers and may be negative. */
typedef struct {
    int64_t planes, rows, columns;
    int64_t x_plane, x_row, x_column;
    int64_t w_channel, w_plane, w_row, w_column;
} Walk;

/* HIGH channels × WIDE vectors of one row of results; `more` adds to what is there instead of the bias. */
INLINE void sum_tile(const int HIGH, const int WIDE, const Walk *k, const T *x, const T *w, const T *bias, T *y,
                     int64_t pitch, int more) {
    vec a[6][4];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int v = 0; v < WIDE; v++)
            a[i][v] = more ? LOAD(y + i * pitch + v * LANES) : (vec)((bias ? bias[i] : 0) - (vec){0});
    for (int64_t plane = 0; plane < k->planes; plane++)
        for (int64_t row = 0; row < k->rows; row++) {
            const T *xs = x + plane * k->x_plane + row * k->x_row;
            const T *ws = w + plane * k->w_plane + row * k->w_row;
            for (int64_t column = 0; column < k->columns; column++, xs += k->x_column, ws += k->w_column) {
                vec b[4];
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
#if REGISTERS > 16
        SUM(5, 3) SUM(6, 3) SUM(3, 4) SUM(4, 4) SUM(5, 4) SUM(6, 4)
#endif
    }
}

/* One row of results for all channels, y [channels][pitch], from rows of `length` numbers at x which begin and end
   `reach` numbers before and behind the results: columns that only meet the zeros beyond are left out. */
static void sum_row(Tile tile, const Walk *all, int64_t channels, int64_t vectors, int64_t length, int64_t clipped,
                    const T *x, const T *w, const T *bias, T *y, int64_t pitch) {
    int64_t across = up(vectors, tile.wide), down = up(channels, tile.high);
    for (int64_t j = 0, v = 0, wide; j < across; j++, v += wide) {
        wide = up(vectors - v, across - j);
        Walk k = *all;
        int64_t first = 0, last = k.columns;
        if (clipped) { /* Column c starts at v × LANES + (c − columns + 1) × x_column in a row of `length` numbers. */
            int64_t start = v * LANES - (k.columns - 1) * k.x_column, end = start + wide * LANES;
            first = end > 0 ? 0 : up(1 - end, k.x_column);
            last = least(k.columns, start >= length ? 0 : up(length - start, k.x_column));
        }
        k.columns = last - first;
        /* Planes in groups that stay in the first-level cache while all channels use them. */
        int64_t touched = all->rows * (wide * LANES + (all->columns - 1) * all->x_column + CACHE_LINE);
        int64_t groups = up(all->planes * touched, CACHED / 2);
        for (int64_t n = 0, plane = 0; n < groups; n++, plane += k.planes) {
            k.planes = up(all->planes - plane, groups - n);
            for (int64_t i = 0, c = 0, high; i < down; i++, c += high) {
                high = up(channels - c, down - i);
                sum(high, wide, &k, x + v * LANES + first * k.x_column + plane * k.x_plane,
                    w + c * k.w_channel + first * k.w_column + plane * k.w_plane, bias ? bias + c : NULL,
                    y + c * pitch + v * LANES, pitch, n > 0);
            }
        }
    }
}

/* ---- Products: the gradient of weights ---------------------------------------------------------------------------- */

/* One vector of positions, of which only those in `kept` count (all if NULL): what lies behind the last row may be
   another client's, and not finite. */
INLINE void multiply_step(const int HIGH, const int WIDE, vec a[4][5], const T *g, const T *x, int64_t g_plane,
                          int64_t x_column, const mask *kept) {
    vec b[5];
    UNROLL for (int j = 0; j < WIDE; j++) {
        b[j] = LOAD(x + j * x_column);
        if (kept) b[j] = (vec)((mask)b[j] & *kept);
        HOLD(b[j]);
    }
    UNROLL for (int i = 0; i < HIGH; i++) {
        vec s = LOAD(g + i * g_plane);
        HOLD(s);
        UNROLL for (int j = 0; j < WIDE; j++) a[i][j] += s * b[j];
    }
}

/* HIGH outputs × WIDE neighbouring columns of weights: gradient × input, added up over `rows` rows of `length`. */
INLINE void multiply_tile(const int HIGH, const int WIDE, const T *g, const T *x, T *dw, int64_t rows, int64_t length,
                          int64_t g_plane, int64_t g_row, int64_t x_row, int64_t x_column, int64_t w_channel) {
    vec a[4][5];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int j = 0; j < WIDE; j++) a[i][j] = (vec){0};
    const mask kept = first_lanes(length % LANES);
    for (int64_t row = 0; row < rows; row++) {
        const T *gs = g + row * g_row, *xs = x + row * x_row;
        for (int64_t left = length; left >= LANES; left -= LANES, gs += LANES, xs += LANES)
            multiply_step(HIGH, WIDE, a, gs, xs, g_plane, x_column, NULL);
        if (length % LANES) multiply_step(HIGH, WIDE, a, gs, xs, g_plane, x_column, &kept);
    }
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int j = 0; j < WIDE; j++) dw[i * w_channel + j] += total(a[i][j]);
}

#define MULTIPLY(high, wide) \
    case high * 8 + wide: \
        multiply_tile(high, wide, g, x, dw, rows, length, g_plane, g_row, x_row, x_column, w_channel); \
        break;
static void multiply(int64_t high, int64_t wide, const T *g, const T *x, T *dw, int64_t rows, int64_t length,
                     int64_t g_plane, int64_t g_row, int64_t x_row, int64_t x_column, int64_t w_channel) {
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

/* All weights of one client, added to dw. */
static void multiply_all(const Shape *s, Tile tile, const T *x, const T *g, T *dw, int64_t g_plane, int64_t g_row) {
    int64_t high = s->height - s->rows + 1, wide = s->width - s->columns + 1;
    int64_t vectors = up(wide * s->batch, LANES), x_row = s->width * s->batch, x_plane = s->height * x_row;
    int64_t window = s->rows * s->columns, w_channel = s->inputs * window;
    int64_t down = up(s->outputs, tile.high), across = up(s->columns, tile.wide);
    /* As many rows at once as the first-level cache holds. */
    int64_t fit = most(1, CACHED / (tile.high * vectors * LANES + x_row));
    int64_t chunks = up(high, fit);
    for (int64_t i = 0, o = 0, outputs; i < down; i++, o += outputs) {
        outputs = up(s->outputs - o, down - i);
        for (int64_t n = 0, from = 0, rows; n < chunks; n++, from += rows) {
            rows = up(high - from, chunks - n);
            const T *gs = g + o * g_plane + from * g_row;
            for (int64_t plane = 0; plane < s->inputs; plane++)
                for (int64_t r = 0; r < s->rows; r++)
                    for (int64_t j = 0, c = 0, columns; j < across; j++, c += columns) {
                        columns = up(s->columns - c, across - j);
                        multiply(outputs, columns, gs, x + plane * x_plane + (from + r) * x_row + c * s->batch,
                                 dw + o * w_channel + plane * window + r * s->columns + c, rows, wide * s->batch,
                                 g_plane, g_row, x_row, s->batch, w_channel);
                    }
        }
    }
}

/* ---- Gathering: gradients through pooling ------------------------------------------------------------------------- */

/* Of four pooled positions one passes a gradient on, and none where ReLU let nothing through. So the way back walks the
   few that do, each a number and where it meets the other factor. Images lie [height][width][inputs] for this, weights
   [rows][columns][inputs]: what meets a row of the kernel is one run of columns × inputs numbers. */
typedef struct {
    T *value;
    int64_t *place;
} Came;

/* Adds to HIGH rows of WIDE vectors: each value that came × those at its place. */
INLINE void gather_tile(const int HIGH, const int WIDE, Came came, int64_t count, const T *from, int64_t from_row, T *to,
                        int64_t to_row) {
    vec a[6][6];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int v = 0; v < WIDE; v++) a[i][v] = (vec){0};
    for (int64_t n = 0; n < count; n++) {
        const T *run = from + came.place[n];
        vec s = came.value[n] - (vec){0};
        HOLD(s);
        UNROLL for (int i = 0; i < HIGH; i++)
            UNROLL for (int v = 0; v < WIDE; v++) a[i][v] += s * LOAD(run + i * from_row + v * LANES);
    }
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int v = 0; v < WIDE; v++) {
            T *at = to + i * to_row + v * LANES;
            STORE(at, LOAD(at) + a[i][v]);
        }
}

#define GATHER(high, wide) \
    case high * 8 + wide: gather_tile(high, wide, came, count, from, from_row, to, to_row); break;
static void gather_block(int64_t high, int64_t wide, Came came, int64_t count, const T *from, int64_t from_row, T *to,
                         int64_t to_row) {
    switch (high * 8 + wide) {
        GATHER(1, 1) GATHER(1, 2) GATHER(1, 3) GATHER(1, 4) GATHER(1, 5) GATHER(1, 6)
        GATHER(2, 1) GATHER(2, 2) GATHER(2, 3) GATHER(2, 4) GATHER(2, 5) GATHER(2, 6)
        GATHER(3, 1) GATHER(3, 2) GATHER(3, 3) GATHER(3, 4)
        GATHER(4, 1) GATHER(4, 2) GATHER(4, 3)
        GATHER(5, 1) GATHER(5, 2)
        GATHER(6, 1) GATHER(6, 2)
#if REGISTERS > 16
        GATHER(3, 5) GATHER(3, 6) GATHER(4, 4) GATHER(4, 5) GATHER(4, 6)
        GATHER(5, 3) GATHER(5, 4) GATHER(5, 5) GATHER(5, 6) GATHER(6, 3) GATHER(6, 4) GATHER(6, 5)
#endif
    }
}

/* The same for any number of rows and vectors. */
static void gather(int64_t rows, int64_t vectors, Came came, int64_t count, const T *from, int64_t from_row, T *to,
                   int64_t to_row) {
    if (rows <= 6 && vectors <= 6 && rows * vectors <= REGISTERS - 2) { /* Dividing would take longer than a short list. */
        gather_block(rows, vectors, came, count, from, from_row, to, to_row);
        return;
    }
    int64_t down = up(rows, 6), across = up(vectors, least(6, (REGISTERS - 2) / up(rows, down)));
    for (int64_t i = 0, r = 0, high; i < down; i++, r += high) {
        high = up(rows - r, down - i);
        for (int64_t j = 0, v = 0, wide; j < across; j++, v += wide) {
            wide = up(vectors - v, across - j);
            gather_block(high, wide, came, count, from + r * from_row + v * LANES, from_row,
                         to + r * to_row + v * LANES, to_row);
        }
    }
}

/* ---- Pooling and ReLU --------------------------------------------------------------------------------------------- */

/* `count` runs of `run` numbers, each the largest of itself and its neighbours `right` and `below` if these are not 0.
   Vectors may reach beyond a run, since the next overwrites that, but not beyond the last. */
static void settle(const T *from, int64_t right, int64_t below, int64_t relu, T *y, uint8_t *chosen, int64_t count,
                   int64_t run) {
    for (int64_t j = 0; j < count; j++, from += run + right, y += run, chosen += run)
        for (int64_t b = 0; b < run; b += LANES) {
            vec best = LOAD(from + b);
            mask which = (mask){0};
            if (below) {
                const vec other[3] = {LOAD(from + b + right), LOAD(from + b + below), LOAD(from + b + below + right)};
                UNROLL for (int k = 0; k < 3; k++) {
                    /* A NaN wins, as in torch. */
                    mask wins = (mask)(other[k] > best) | (mask)(other[k] != other[k]);
                    best = (vec)((wins & (mask)other[k]) | (~wins & (mask)best));
                    which = (wins & (k + 1)) | (~wins & which);
                }
            }
            if (relu) {
                mask stopped = (mask)(best <= 0);
                best = (vec)(~stopped & (mask)best);
                which = (stopped & 4) | (~stopped & which);
            }
            bytes place = __builtin_convertvector(which, bytes);
            int64_t left = (count - j) * run - b;
            if (left >= LANES) {
                STORE(y + b, best);
                *(bytes *)(chosen + b) = place;
            } else {
                memcpy(y + b, &best, (size_t)left * sizeof(T));
                memcpy(chosen + b, &place, (size_t)left);
            }
        }
}

/* The way back through ReLU alone: zeros where it let nothing through. */
static void unsettle(const T *dy, const uint8_t *chosen, T *to, int64_t count) {
    for (int64_t b = 0; b < count; b += LANES) {
        mask which = __builtin_convertvector(*(const bytes *)(chosen + b), mask);
        STORE(to + b, (vec)((mask)LOAD(dy + b) & (mask)(which == 0)));
    }
}

/* ---- Laying images out ------------------------------------------------------------------------------------------- */

/* One client's images, [batch] × [pixels][channels] or, with `planes`, [channels][pixels], `from_image` apart, to
   [channels][pixels][batch], pixels `to_pixel` apart. */
static void lay_out(const T *from, int64_t from_image, T *to, int64_t to_pixel, int64_t batch, int64_t channels,
                    int64_t pixels, int64_t planes) {
#ifdef TURNS
    int64_t image = channels * pixels;
    if (batch >= 8 && image >= 8) {
        int64_t inner = planes ? pixels : channels, outer_step = planes ? pixels : 1, inner_step = planes ? 1 : pixels;
        for (int64_t k = 0; k < image; k += 8) {
            /* The last block begins where it still fits, and writes some numbers again. */
            int64_t first = least(k, image - 8), outer = first / inner, at = first % inner;
            T *rows[8];
            for (int i = 0; i < 8; i++, at++) {
                if (at == inner) at = 0, outer++;
                rows[i] = to + (outer * outer_step + at * inner_step) * to_pixel;
            }
            for (int64_t n = 0; n < batch; n += 8) {
                int64_t b = least(n, batch - 8);
                eight a[8];
                UNROLL for (int i = 0; i < 8; i++) a[i] = *(const eight *)(from + (b + i) * from_image + first);
                turn(a);
                UNROLL for (int i = 0; i < 8; i++) *(eight *)(rows[i] + b) = a[i];
            }
        }
        return;
    }
#endif
    int64_t channel_step = planes ? pixels : 1, pixel_step = planes ? 1 : channels;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t k = 0, block; k < pixels; k += block, to += block * to_pixel) {
            block = least(16, pixels - k);
            for (int64_t b = 0; b < batch; b++) {
                const T *pixel = from + b * from_image + c * channel_step + k * pixel_step;
                for (int64_t i = 0; i < block; i++) to[i * to_pixel + b] = pixel[i * pixel_step];
            }
        }
}

/* One client's images, [channels][pixels][batch], to [batch][pixels][channels]. Behind both there must be room for a
   vector. */
static void lay_back(const T *from, T *to, int64_t batch, int64_t channels, int64_t pixels) {
    int64_t first = 0;
#ifdef TURNS
    /* Fewer than eight channels reach into the next pixels, which are written later; so the last are left. */
    int64_t left = channels < 8 ? up(8 - channels, channels) : 0;
    for (; first < pixels - left; first++)
        for (int64_t n = 0; n < batch; n += 8) {
            int64_t b = most(0, least(n, batch - 8)), count = least(8, batch);
            for (int64_t k = 0; k < channels; k += 8) {
                int64_t c = most(0, least(k, channels - 8));
                eight a[8];
                UNROLL for (int i = 0; i < 8; i++)
                    a[i] = *(const eight *)(from + (least(c + i, channels - 1) * pixels + first) * batch + b);
                turn(a);
                T *pixel = to + (b * pixels + first) * channels + c;
                if (count == 8) {
                    UNROLL for (int i = 0; i < 8; i++) *(eight *)(pixel + i * pixels * channels) = a[i];
                } else
                    for (int i = 0; i < count; i++) *(eight *)(pixel + i * pixels * channels) = a[i];
            }
        }
#endif
    for (int64_t b = 0; b < batch; b++)
        for (int64_t k = first; k < pixels; k++)
            for (int64_t c = 0; c < channels; c++)
                to[(b * pixels + k) * channels + c] = from[(c * pixels + k) * batch + b];
}

/* Grey levels 0…255 become [−1, 1], to the bit as in samples.py: HOLD keeps the product from being rounded later. */
static void unpack(const uint8_t *levels, T *to, int64_t count) {
    const T unit = (T)(1.0 / 127.5);
    int64_t n = 0;
    for (; n + LANES <= count; n += LANES) {
        mask whole = __builtin_convertvector(*(const bytes *)(levels + n), mask);
        vec a = __builtin_convertvector(whole, vec) * unit;
        HOLD(a);
        STORE(to + n, a - 1);
    }
    for (; n < count; n++) {
        T a = levels[n] * unit;
        HOLD(a);
        to[n] = a - 1;
    }
}

/* ---- A convolution of one client ---------------------------------------------------------------------------------- */

/* What a convolution's passes need besides their arguments. */
typedef struct {
    Tile forward, weights, inputs;
    T *sums;
    /* Without pooling: gradients of the sums, rows apart by as many zeros as a tile is wide, and a row of dx. */
    T *g, *wide_dx;
    int64_t g_row, g_plane;
    /* With pooling: weights, or gradients of them, a row of the kernel in a run; and a list. */
    T *runs;
    int64_t w_row, band;
    Came came;
} Work;

/* How far apart the numbers of a client's images are in memory. */
typedef struct {
    int64_t image, channel, pixel;
} Steps;

static int64_t high_of(const Shape *s) { return s->height - s->rows + 1; }
static int64_t wide_of(const Shape *s) { return s->width - s->columns + 1; }
/* Numbers that come out for one sample. */
static int64_t made_of(const Shape *s) {
    int64_t band = s->pool ? 2 : 1;
    return s->outputs * (high_of(s) / band) * (wide_of(s) / band);
}
static int64_t image_of(const Shape *s) { return s->height * s->width * s->inputs; }
static int64_t weights_of(const Shape *s) { return s->outputs * s->inputs * s->rows * s->columns; }
static const int64_t MARGIN = 4 * LANES;

static Work forward_work(const Shape *s, Store *store) {
    int64_t vectors = up(wide_of(s) * s->batch, LANES);
    Work work = {.forward = best_tile(s->outputs, vectors, 6, 4)};
    work.sums = NUMBERS(store, (s->pool ? 2 : 1) * s->outputs * vectors * LANES);
    return work;
}

static void backward_work(const Shape *s, Store *store, Work *work) {
    if (s->pool) {
        int64_t down = high_of(s) / 2, across = wide_of(s) / 2, x_row = s->width * s->inputs;
        work->w_row = up(s->columns * s->inputs, LANES) * LANES;
        /* As many rows of positions at once as the first-level cache holds the inputs of. */
        work->band = least(down, most(1, (CACHED / x_row - s->rows + 1) / 2));
        int64_t longest = most(work->band * across, 5 * s->outputs) + LANES;
        work->runs = NUMBERS(store, s->outputs * s->rows * work->w_row);
        work->came = (Came){NUMBERS(store, longest), piece(store, longest, sizeof(int64_t))};
    } else {
        int64_t vectors = up(wide_of(s) * s->batch, LANES), in_vectors = up(s->width * s->batch, LANES);
        work->weights = best_tile(s->outputs, s->columns, 4, 5);
        work->inputs = best_tile(s->inputs, in_vectors, 6, 4);
        work->g_row = vectors * LANES + MARGIN;
        /* Planes an odd number of cache lines apart share no more of the cache's sets than they must. */
        work->g_plane = (up(high_of(s) * work->g_row, CACHE_LINE) | 1) * CACHE_LINE;
        T *g = NUMBERS(store, MARGIN + s->outputs * work->g_plane);
        work->g = g ? g + MARGIN : NULL;
        work->wide_dx = NUMBERS(store, s->inputs * in_vectors * LANES);
    }
}

/* x [inputs][height][width][batch], w [outputs][inputs][rows][columns], bias [outputs] or NULL give
   y [outputs][high][wide][batch], after pooling if asked for. `chosen`, of the same size, says for the way back which of
   the four pooled positions won, or 4 where ReLU let nothing through. Behind x there must be room for a vector. */
static void convolve(const Shape *s, const Work *work, const T *x, const T *w, const T *bias, T *y, uint8_t *chosen) {
    int64_t wide = wide_of(s), band = s->pool ? 2 : 1, down = high_of(s) / band, across = wide / band;
    int64_t vectors = up(wide * s->batch, LANES), pitch = vectors * LANES, below = s->outputs * pitch;
    int64_t row = s->width * s->batch, window = s->rows * s->columns;
    Walk k = {s->inputs, s->rows, s->columns, s->height * row, row, s->batch, s->inputs * window, window, s->columns, 1};
    for (int64_t i = 0; i < down; i++) {
        for (int64_t r = 0; r < band; r++)
            sum_row(work->forward, &k, s->outputs, vectors, 0, 0, x + (band * i + r) * row, w, bias,
                    work->sums + r * below, pitch);
        for (int64_t o = 0; o < s->outputs; o++) {
            int64_t at = (o * down + i) * across * s->batch;
            if (s->pool)
                settle(work->sums + o * pitch, s->batch, below, s->relu, y + at, chosen + at, across, s->batch);
            else
                settle(work->sums + o * pitch, 0, 0, s->relu, y + at, chosen + at, 1, across * s->batch);
        }
    }
}

/* The way back without pooling: from dy, of the same shape as y, dw and db (or NULL) and, unless it is NULL, dx. Behind
   x, dy and chosen there must be room for a vector. */
static void convolve_back(const Shape *s, const Work *work, const T *x, const T *w, const T *dy, const uint8_t *chosen,
                          T *dw, T *db, T *dx) {
    int64_t high = high_of(s), wide = wide_of(s), vectors = up(wide * s->batch, LANES), g_row = work->g_row;
    int64_t row = s->width * s->batch, window = s->rows * s->columns;
    /* Back from outputs to inputs, the kernel is walked from its last weight to its first. */
    int64_t in_vectors = up(row, LANES), pitch = in_vectors * LANES;
    for (int64_t o = 0; o < s->outputs; o++) {
        vec sum = (vec){0};
        for (int64_t i = 0; i < high; i++, dy += wide * s->batch, chosen += wide * s->batch) {
            T *to = work->g + o * work->g_plane + i * g_row;
            unsettle(dy, chosen, to, wide * s->batch);
            memset(to + wide * s->batch, 0, (size_t)(vectors * LANES + LANES - wide * s->batch) * sizeof(T));
            for (int64_t v = 0; v < vectors; v++) sum += LOAD(to + v * LANES);
        }
        if (db) db[o] = total(sum);
    }
    memset(dw, 0, (size_t)weights_of(s) * sizeof(T));
    multiply_all(s, work->weights, x, work->g, dw, work->g_plane, g_row);
    if (dx)
        for (int64_t i = 0; i < s->height; i++) {
            /* Kernel row r meets row i − r of the gradients, as far as there is one; walked from the last r on. */
            int64_t last = least(i, s->rows - 1), first = most(0, i - high + 1);
            Walk k = {s->outputs, last - first + 1, s->columns, work->g_plane, g_row, s->batch,
                      window, s->inputs * window, -s->columns, -1};
            sum_row(work->inputs, &k, s->inputs, in_vectors, wide * s->batch, 1,
                    work->g + (i - last) * g_row - (s->columns - 1) * s->batch,
                    w + last * s->columns + s->columns - 1, NULL, work->wide_dx, pitch);
            for (int64_t c = 0; c < s->inputs; c++)
                memcpy(dx + (c * s->height + i) * row, work->wide_dx + c * pitch, (size_t)row * sizeof(T));
        }
}

/* The gradient of weights through pooling, [outputs][rows][w_row] with each row a run, added up in `runs`; and db, or
   NULL. */
static void gather_weights(const Shape *s, const Work *work, const T *x, const T *dy, const Steps *step,
                           const uint8_t *chosen, T *db) {
    int64_t down = high_of(s) / 2, across = wide_of(s) / 2, x_row = s->width * s->inputs, w_row = work->w_row;
    const int64_t place[5] = {0, s->inputs, x_row, x_row + s->inputs, 0};
    Came came = work->came;
    memset(work->runs, 0, (size_t)(s->outputs * s->rows * w_row) * sizeof(T));
    if (db) memset(db, 0, (size_t)s->outputs * sizeof(T));
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < down; i += work->band)
            for (int64_t o = 0; o < s->outputs; o++) {
                const T *g = dy + b * step->image + o * step->channel + i * across * step->pixel;
                const uint8_t *which = chosen + (o * down + i) * across * s->batch + b;
                int64_t count = 0;
                for (int64_t r = 0; r < least(work->band, down - i); r++)
                    for (int64_t j = 0; j < across; j++, g += step->pixel, which += s->batch) {
                        came.value[count] = *g;
                        came.place[count] = 2 * (r * x_row + j * s->inputs) + place[*which];
                        count += *which < 4;
                    }
                if (db) {
                    vec sum = (vec){0};
                    STORE(came.value + count, sum);
                    for (int64_t n = 0; n < count; n += LANES) sum += LOAD(came.value + n);
                    db[o] += total(sum);
                }
                gather(s->rows, w_row / LANES, came, count, x + (b * s->height + 2 * i) * x_row, x_row,
                       work->runs + o * s->rows * w_row, w_row);
            }
}

/* The gradient of inputs through pooling, dx [batch][height][width][inputs], from weights in `runs` with zeros between
   them: each of four pooled positions has a list of the outputs for which it won. */
static void gather_inputs(const Shape *s, const Work *work, const T *dy, const Steps *step, const uint8_t *chosen,
                          T *dx) {
    int64_t down = high_of(s) / 2, across = wide_of(s) / 2, x_row = s->width * s->inputs;
    const int64_t place[4] = {0, s->inputs, x_row, x_row + s->inputs};
    Came came = work->came;
    memset(dx, 0, (size_t)(s->batch * s->height * x_row) * sizeof(T));
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < down; i++)
            for (int64_t j = 0; j < across; j++) {
                const T *g = dy + b * step->image + (i * across + j) * step->pixel;
                const uint8_t *which = chosen + (i * across + j) * s->batch + b;
                int64_t counts[5] = {0};
                for (int64_t o = 0; o < s->outputs; o++, g += step->channel, which += down * across * s->batch) {
                    int64_t n = *which * s->outputs + counts[*which]++;
                    came.value[n] = *g;
                    came.place[n] = o * s->rows * work->w_row;
                }
                for (int64_t k = 0; k < 4; k++)
                    gather(s->rows, work->w_row / LANES,
                           (Came){came.value + k * s->outputs, came.place + k * s->outputs}, counts[k], work->runs,
                           work->w_row, dx + (b * s->height + 2 * i) * x_row + 2 * j * s->inputs + place[k], x_row);
            }
}

/* The way back with pooling, and perhaps ReLU: from dy, of the same shape as y but in any order, dw and db (or NULL)
   and, unless it is NULL, dx [batch][height][width][inputs]. The images lie so too; behind them and dx there must be
   room for a vector. */
static void pooled_back(const Shape *s, const Work *work, const T *images, const T *w, const T *dy,
                        const Steps *dy_step, const uint8_t *chosen, T *dw, T *db, T *dx) {
    gather_weights(s, work, images, dy, dy_step, chosen, db);
    /* Torch's order of weights, and of the gradients that are theirs. */
    for (int64_t o = 0; o < s->outputs; o++)
        for (int64_t c = 0; c < s->inputs; c++)
            for (int64_t r = 0; r < s->rows; r++) {
                T *at = work->runs + (o * s->rows + r) * work->w_row + c;
                for (int64_t k = 0; k < s->columns; k++, at += s->inputs) *dw++ = *at, *at = *w++;
            }
    if (!dx) return;
    for (int64_t r = 0; r < s->outputs * s->rows; r++)
        for (int64_t k = s->columns * s->inputs; k < work->w_row; k++) work->runs[r * work->w_row + k] = 0;
    gather_inputs(s, work, dy, dy_step, chosen, dx);
}

/* ---- Convolutions of a stack, pass by pass ------------------------------------------------------------------------ */

/* How images lie: [clients][inputs][height][width][batch], or [clients][batch][height][width][inputs] as numbers or as
   grey levels. */
typedef enum { BATCH_LAST, CHANNELS_LAST, LEVELS } Layout;

/* For each client what `convolve` says. Behind x there must be room for a vector, unless its channels are last. */
int forward(const Shape *s, const void *x, int64_t layout, const T *w, const T *bias, T *y, uint8_t *chosen) {
    int64_t pixels = s->height * s->width, image = image_of(s), count = s->batch * image, made = s->batch * made_of(s);
    Store store = {0};
    T *laid = NULL, *unpacked = NULL;
    Work work;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && furnish_zeros(&store)) return 1;
        work = forward_work(s, &store);
        laid = NUMBERS(&store, layout == BATCH_LAST ? 0 : count);
        unpacked = NUMBERS(&store, layout == LEVELS ? count : 0);
    }
    for (int64_t n = 0; n < s->clients; n++) {
        /* One client's images stay in the cache between this and the sums. */
        if (layout == LEVELS) unpack((const uint8_t *)x + n * count, unpacked, count);
        const T *given = layout == LEVELS ? unpacked : (const T *)x + n * count;
        if (layout != BATCH_LAST) lay_out(given, image, laid, s->batch, s->batch, s->inputs, pixels, 0);
        convolve(s, &work, layout == BATCH_LAST ? given : laid, w + n * weights_of(s),
                 bias ? bias + n * s->outputs : NULL, y + n * made, chosen + n * made);
    }
    free(store.memory);
    return 0;
}

/* For each client what `convolve_back` says. */
int backward(const Shape *s, const T *x, const T *w, const T *dy, const uint8_t *chosen, T *dw, T *db, T *dx) {
    int64_t count = s->batch * image_of(s), made = s->batch * made_of(s), weights = weights_of(s);
    Store store = {0};
    Work work = {0};
    backward_work(s, &store, &work);
    if (furnish_zeros(&store)) return 1;
    backward_work(s, &store, &work);
    for (int64_t n = 0; n < s->clients; n++)
        convolve_back(s, &work, x + n * count, w + n * weights, dy + n * made, chosen + n * made, dw + n * weights,
                      db ? db + n * s->outputs : NULL, dx ? dx + n * count : NULL);
    free(store.memory);
    return 0;
}

/* For each client what `pooled_back` says; x is as it was for `forward`. */
int pooled_backward(const Shape *s, const void *x, int64_t layout, const T *w, const T *dy, const Steps *dy_step,
                    const uint8_t *chosen, T *dw, T *db, T *dx) {
    int64_t count = s->batch * image_of(s), made = s->batch * made_of(s), weights = weights_of(s);
    Store store = {0};
    T *images = NULL;
    Work work = {0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass && furnish_zeros(&store)) return 1;
        backward_work(s, &store, &work);
        images = NUMBERS(&store, count);
    }
    for (int64_t n = 0; n < s->clients; n++) {
        const T *given = (const T *)x + n * count;
        if (layout == LEVELS)
            unpack((const uint8_t *)x + n * count, images, count);
        else if (layout == CHANNELS_LAST)
            memcpy(images, given, (size_t)count * sizeof(T));
        else
            lay_back(given, images, s->batch, s->inputs, s->height * s->width);
        pooled_back(s, &work, images, w + n * weights, dy + n * made, dy_step, chosen + n * made, dw + n * weights,
                    db ? db + n * s->outputs : NULL, dx ? dx + n * count : NULL);
    }
    free(store.memory);
    return 0;
}

/* Lays the images of `clients` out as the kernel wants them. */
void batch_last(const T *from, T *to, int64_t clients, int64_t batch, int64_t channels, int64_t pixels,
                int64_t planes) {
    int64_t image = channels * pixels, count = batch * image;
    for (int64_t n = 0; n < clients; n++)
        lay_out(from + n * count, image, to + n * count, batch, batch, channels, pixels, planes);
}

int64_t vector_bits(void) { return 8 * BYTES; }

/* ---- Linear layers of one client ---------------------------------------------------------------------------------- */

/* Rows of samples, of weights and of gradients are all whole vectors, with zeros at their ends. */
static int64_t whole(int64_t count) { return up(count, LANES) * LANES; }

/* Columns of weights at once, so that those of all outputs stay in the second-level cache between two uses. */
static int64_t columns_at_once(const Shape *s) {
    int64_t block = 4 * LANES;
    return most(1, 4 * CACHED / s->outputs / block) * block;
}

/* x [batch][inputs], w [outputs][inputs] and bias [outputs] or NULL give y [batch][outputs]. */
static void multiply_rows(const Shape *s, const T *x, const T *w, const T *bias, T *y) {
    int64_t x_row = whole(s->inputs), y_row = whole(s->outputs), step = 4 * columns_at_once(s);
    Tile tile = best_tile(s->batch, s->outputs, 4, 5);
    int64_t down = up(s->batch, tile.high), across = up(s->outputs, tile.wide);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t o = 0; o < s->outputs; o++) y[b * y_row + o] = bias ? bias[o] : 0;
    for (int64_t from = 0; from < x_row; from += step)
        for (int64_t j = 0, o = 0, wide; j < across; j++, o += wide) {
            wide = up(s->outputs - o, across - j);
            for (int64_t i = 0, b = 0, high; i < down; i++, b += high) {
                high = up(s->batch - b, down - i);
                multiply(high, wide, x + b * x_row + from, w + o * x_row + from, y + b * y_row + o, 1,
                         least(step, x_row - from), x_row, 0, 0, x_row, y_row);
            }
        }
    if (s->relu)
        for (int64_t n = 0; n < s->batch * y_row; n++) y[n] = y[n] <= 0 ? 0 : y[n];
}

/* Sums over `columns` as `sum_row` does, for rows of whole vectors: y [rows][vectors] (+)= w × x. */
static void sum_rows(Tile tile, const Walk *k, int64_t rows, int64_t vectors, const T *x, const T *w, T *y,
                     int64_t y_row, int more) {
    int64_t across = up(vectors, tile.wide), down = up(rows, tile.high);
    for (int64_t j = 0, v = 0, wide; j < across; j++, v += wide) {
        wide = up(vectors - v, across - j);
        for (int64_t i = 0, r = 0, high; i < down; i++, r += high) {
            high = up(rows - r, down - i);
            sum(high, wide, k, x + v * LANES, w + r * k->w_channel, NULL, y + r * y_row + v * LANES, y_row, more);
        }
    }
}

/* The way back: from dy [batch][outputs], which is used up, dx [batch][inputs] unless it is NULL, and the weights and
   the bias move. */
static void multiply_back(const Shape *s, T rate, const T *x, T *w, T *bias, const T *y, T *dy, T *dx) {
    int64_t x_row = whole(s->inputs), y_row = whole(s->outputs), step = columns_at_once(s);
    T *moves = dy + s->batch * y_row;
    for (int64_t n = 0; n < s->batch * y_row; n++) {
        if (s->relu && y[n] <= 0) dy[n] = 0;
        moves[n] = -rate * dy[n];
    }
    if (bias)
        for (int64_t b = 0; b < s->batch; b++)
            for (int64_t o = 0; o < s->outputs; o++) bias[o] += moves[b * y_row + o];
    Walk back = {1, 1, s->outputs, 0, 0, x_row, y_row, 0, 0, 1}, move = {1, 1, s->batch, 0, 0, x_row, 1, 0, 0, y_row};
    for (int64_t from = 0; from < x_row; from += step) {
        int64_t vectors = least(step, x_row - from) / LANES;
        if (dx)
            sum_rows(best_tile(s->batch, vectors, 6, 4), &back, s->batch, vectors, w + from, dy, dx + from, x_row, 0);
        sum_rows(best_tile(s->outputs, vectors, 6, 4), &move, s->outputs, vectors, x + from, moves, w + from, x_row, 1);
    }
}

/* ---- Local rounds: all steps of one client after another ---------------------------------------------------------- */

/* A layer as it is told: of a linear one only inputs, outputs and ReLU of the shape count. */
typedef struct {
    int64_t linear, biased;
    Shape s;
} Layer;

/* Local rounds of some clients, each of at most `steps` batches of at most `batch` samples. */
typedef struct {
    int64_t clients, steps, batch, layers;
    int64_t levels; /* Samples are grey levels. */
    double rate;    /* Of learning. */
} Task;

/* A layer of the client that is trained, with what it needs for batches of one size. */
typedef struct {
    Layer layer;
    T *w, *bias, *dw, *db;
    Work work;
    T *x;      /* What comes in: images as for `convolve`, or rows as for `multiply_rows`. */
    T *images; /* The same as `pooled_back` wants them. */
    T *y;
    uint8_t *chosen;
    T *laid_dy; /* For the way back without pooling. */
    T *dx;      /* Behind rows there is room for as many. */
    Steps dx_step;
} Stage;

static void share_parameters(const Layer *layers, int64_t count, Store *store, Stage *stages) {
    for (int64_t n = 0; n < count; n++) {
        const Shape *s = &layers[n].s;
        stages[n].w = NUMBERS(store, layers[n].linear ? s->outputs * whole(s->inputs) : whole(weights_of(s)));
        stages[n].bias = layers[n].biased ? NUMBERS(store, s->outputs) : NULL;
    }
}

static void share_rows(Stage *t, const Stage *before, Store *store) {
    const Shape *s = &t->layer.s;
    int64_t x_row = whole(s->inputs), pixels = s->inputs / before->layer.s.outputs;
    t->x = before->layer.linear ? before->y : NUMBERS(store, s->batch * x_row);
    t->y = NUMBERS(store, s->batch * whole(s->outputs));
    t->dx = NUMBERS(store, 2 * s->batch * x_row);
    t->dx_step = (Steps){x_row, pixels, 1};
}

static void share_images(Stage *t, const Stage *before, Store *store) {
    const Shape *s = &t->layer.s;
    int64_t count = s->batch * image_of(s), made = s->batch * made_of(s);
    t->dw = NUMBERS(store, weights_of(s)), t->db = t->layer.biased ? NUMBERS(store, s->outputs) : NULL;
    t->work = forward_work(s, store);
    backward_work(s, store, &t->work);
    t->x = before ? before->y : NUMBERS(store, count);
    t->images = s->pool || !before ? NUMBERS(store, count) : NULL;
    t->y = NUMBERS(store, made), t->chosen = piece(store, made, 1);
    t->laid_dy = s->pool ? NULL : NUMBERS(store, made);
    t->dx = before ? NUMBERS(store, count) : NULL;
    t->dx_step = s->pool ? (Steps){image_of(s), 1, s->inputs} : (Steps){1, s->height * s->width * s->batch, s->batch};
}

/* Makes room for batches of another size in place of what was there; 1 where there is no memory. */
static int set_stages(const Layer *layers, int64_t count, int64_t batch, Store *store, Stage *stages, T **dy) {
    free(store->memory);
    *store = (Store){0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass && furnish_zeros(store)) return 1;
        for (int64_t n = 0; n < count; n++) {
            stages[n].layer = layers[n];
            stages[n].layer.s.clients = 1, stages[n].layer.s.batch = batch;
            (layers[n].linear ? share_rows : share_images)(stages + n, n ? stages + n - 1 : NULL, store);
        }
        *dy = NUMBERS(store, 2 * batch * whole(layers[count - 1].s.outputs));
    }
    return 0;
}

/* A layer's parameters in torch's order are `rows_of` rows of weights, and the bias. */
static int64_t rows_of(const Stage *t) { return t->layer.linear ? t->layer.s.outputs : 1; }
static int64_t row_of(const Stage *t) { return t->layer.linear ? t->layer.s.inputs : weights_of(&t->layer.s); }

/* Copies parameters in torch's order into the stages. */
static void load(const Stage *stages, int64_t count, const T *from) {
    for (const Stage *t = stages; t < stages + count; t++) {
        int64_t row = row_of(t), outputs = t->layer.s.outputs;
        for (int64_t r = 0; r < rows_of(t); r++, from += row) {
            memcpy(t->w + r * whole(row), from, (size_t)row * sizeof(T));
            /* A client whose training diverged leaves NaNs at the ends of rows. */
            memset(t->w + r * whole(row) + row, 0, (size_t)(whole(row) - row) * sizeof(T));
        }
        if (!t->bias) continue;
        memcpy(t->bias, from, (size_t)outputs * sizeof(T));
        from += outputs;
    }
}

/* What the stages hold, less where they started. */
static void unload(const Stage *stages, int64_t count, const T *start, T *update) {
    for (const Stage *t = stages; t < stages + count; t++) {
        int64_t row = row_of(t);
        for (int64_t r = 0; r < rows_of(t); r++, start += row, update += row)
            for (int64_t k = 0; k < row; k++) update[k] = t->w[r * whole(row) + k] - start[k];
        if (!t->bias) continue;
        for (int64_t o = 0; o < t->layer.s.outputs; o++) *update++ = t->bias[o] - *start++;
    }
}

static void step_forward(const Stage *t, const Stage *before) {
    const Shape *s = &t->layer.s;
    if (!t->layer.linear) {
        convolve(s, &t->work, t->x, t->w, t->bias, t->y, t->chosen);
        return;
    }
    if (!before->layer.linear) /* Features of images, as torch orders them, in a row for each. */
        lay_out(before->y, s->batch, t->x, whole(s->inputs), s->inputs, 1, s->batch, 1);
    multiply_rows(s, t->x, t->w, t->bias, t->y);
}

/* From dy and how it lies dx, and the parameters move. */
static void step_back(const Stage *t, T *dy, Steps dy_step, T rate) {
    const Shape *s = &t->layer.s;
    if (t->layer.linear) {
        multiply_back(s, rate, t->x, t->w, t->bias, t->y, dy, t->dx);
        return;
    }
    if (s->pool) {
        if (t->dx) lay_back(t->x, t->images, s->batch, s->inputs, s->height * s->width);
        pooled_back(s, &t->work, t->images, t->w, dy, &dy_step, t->chosen, t->dw, t->db, t->dx);
    } else {
        if (dy_step.image != 1) {
            lay_out(dy, dy_step.image, t->laid_dy, s->batch, s->batch, s->outputs, made_of(s) / s->outputs,
                    dy_step.pixel == 1);
            dy = t->laid_dy;
        }
        convolve_back(s, &t->work, t->x, t->w, dy, t->chosen, t->dw, t->db, t->dx);
    }
    for (int64_t k = 0; k < weights_of(s); k++) t->w[k] -= rate * t->dw[k];
    if (t->bias)
        for (int64_t o = 0; o < s->outputs; o++) t->bias[o] -= rate * t->db[o];
}

/* Returns the mean cross-entropy of rows of logits, and its gradient. */
static T cross_entropy(const T *logits, const int64_t *labels, const int64_t *rows, int64_t batch, int64_t classes,
                       T *d) {
    T sum = 0;
    for (int64_t b = 0; b < batch; b++, logits += whole(classes), d += whole(classes)) {
        T largest = logits[0], all = 0;
        int64_t label = labels[rows[b]];
        for (int64_t c = 1; c < classes; c++) largest = logits[c] > largest ? logits[c] : largest;
        for (int64_t c = 0; c < classes; c++) all += d[c] = (T)exp((double)(logits[c] - largest));
        for (int64_t c = 0; c < classes; c++) d[c] = (d[c] / all - (c == label)) / (T)batch;
        sum += (T)log((double)all) - (logits[label] - largest);
    }
    return sum / (T)batch;
}

/* One step of a client on the samples in `rows`; returns the loss before it. */
static T step(const Stage *stages, const Task *task, const void *inputs, const int64_t *labels, const int64_t *rows,
              T *dy) {
    const Stage *first = stages, *last = stages + task->layers - 1;
    int64_t image = image_of(&first->layer.s), batch = first->layer.s.batch, classes = last->layer.s.outputs;
    for (int64_t b = 0; b < batch; b++)
        if (task->levels)
            unpack((const uint8_t *)inputs + rows[b] * image, first->images + b * image, image);
        else
            memcpy(first->images + b * image, (const T *)inputs + rows[b] * image, (size_t)image * sizeof(T));
    lay_out(first->images, image, first->x, batch, batch, first->layer.s.inputs, image / first->layer.s.inputs, 0);
    for (const Stage *t = first; t <= last; t++) step_forward(t, t > first ? t - 1 : NULL);
    T loss = cross_entropy(last->y, labels, rows, batch, classes, dy);
    Steps dy_step = {whole(classes), 1, 1};
    for (const Stage *t = last; t >= first; t--) {
        step_back(t, dy, dy_step, (T)task->rate);
        dy = t->dx, dy_step = t->dx_step;
    }
    return loss;
}

/* Trains clients from the parameters `start`, one after another: each client's parameters stay in the cache. Samples
   [N][height][width][channels] and their labels [N] are those in rows [steps][clients][batch], of which sizes
   [steps][clients] count, none where a client is done. Gives updates [clients][parameters] and the mean loss of each
   client's batches. The first layer is a convolution, the last is linear. */
int train(const Task *task, const Layer *layers, const void *inputs, const int64_t *labels, const int64_t *rows,
          const int64_t *sizes, const T *start, int64_t parameters, T *updates, T *losses) {
    Stage *stages = calloc((size_t)task->layers, sizeof(Stage));
    Store own = {0}, room = {0};
    T *dy = NULL;
    int64_t batch = task->batch;
    int failed = !stages || set_stages(layers, task->layers, batch, &room, stages, &dy);
    if (!failed) {
        share_parameters(layers, task->layers, &own, stages);
        failed = furnish_zeros(&own);
        if (!failed) share_parameters(layers, task->layers, &own, stages);
    }
    for (int64_t n = 0; n < task->clients && !failed; n++) {
        int64_t taken = 0;
        T total_loss = 0;
        load(stages, task->layers, start);
        for (int64_t k = 0; k < task->steps && !failed; k++) {
            int64_t at = k * task->clients + n;
            if (!sizes[at]) continue;
            if (sizes[at] != batch) failed = set_stages(layers, task->layers, batch = sizes[at], &room, stages, &dy);
            if (!failed) total_loss += step(stages, task, inputs, labels, rows + at * task->batch, dy), taken++;
        }
        unload(stages, task->layers, start, updates + n * parameters);
        losses[n] = total_loss / (T)most(taken, 1);
    }
    free(stages), free(own.memory), free(room.memory);
    return failed;
}
