/* Convolutions of 3×3 without strides, with fewer products.

   Four results, two by two, come from 4×4 inputs by 16 products in place of 36, after Winograd: with U = G w Gᵀ and
   V = Bᵀ x B, and M the sum over planes of the two multiplied number by number, they are Aᵀ M A. For each of the 16
   places, M is a matrix product, of all channels and planes and of a row of such squares. The gradient of weights goes
   the same way back: from A dy Aᵀ and V to that of U, then to that of w. */

#ifndef FDSIM_SQUARE_CONV_H
#define FDSIM_SQUARE_CONV_H

#include "padded_conv.h"

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

/* Four results of a vector of squares. */
INLINE void collect(const T *m, int64_t place, vec y[2][2]) {
    vec t[2][4];
    UNROLL for (int c = 0; c < 4; c++) {
        vec m4[4], y2[2];
        UNROLL for (int r = 0; r < 4; r++) m4[r] = LOAD(m + (4 * r + c) * place);
        apply_a(m4, y2);
        t[0][c] = y2[0], t[1][c] = y2[1];
    }
    apply_a(t[0], y[0]), apply_a(t[1], y[1]);
}

/* The gradients of M of a vector of squares. */
INLINE void spread_back(const vec dy[2][2], T *to, int64_t place) {
    vec t[4][2];
    UNROLL for (int c = 0; c < 2; c++) {
        vec y2[2] = {dy[0][c], dy[1][c]}, m[4];
        back_a(y2, m);
        UNROLL for (int r = 0; r < 4; r++) t[r][c] = m[r];
    }
    UNROLL for (int r = 0; r < 4; r++) {
        vec m[4];
        back_a(t[r], m);
        UNROLL for (int c = 0; c < 4; c++) STORE(to + (4 * r + c) * place, m[c]);
    }
}

/* Where the vectors of a run of `batch` numbers begin: the last overlaps the one before. One that is longer than the run
   reaches beyond it, into what is written later. */
#define EACH_AT(at, batch) \
    for (int64_t n = 0, at; n < (batch) && (at = (batch) < LANES ? 0 : least(n, (batch)-LANES), 1); n += LANES)

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
    T *v, *m;
    int64_t pitch, v_place, m_place; /* Of a row of squares in whole vectors, and of all channels' rows. */
    int64_t band;                    /* Rows of results from one strip. */
    Tile tile;
} SquareWork;

static int64_t squares_across(const Squares *q) { return up(q->wide, 2); }

static SquareWork square_work(const Squares *q, Store *store) {
    int64_t across = squares_across(q), vectors = up(across * q->batch, LANES);
    SquareWork work = {.pitch = vectors * LANES, .tile = best_tile(q->channels, vectors, 6, 5)};
    int64_t columns = most(q->width + q->padding_across, 2 * across + 2);
    work.band = 2 * rows_at_once(q->planes * columns * q->batch, 2, 2, up(q->high, 2));
    work.x = strip_of(q->planes, work.band + 2, 1, columns, q->padding_across, q->batch, store);
    work.v_place = apart(q->planes * work.pitch + LANES), work.m_place = apart(q->channels * work.pitch);
    work.v = NUMBERS(store, PLACES * work.v_place), work.m = NUMBERS(store, PLACES * work.m_place);
    return work;
}

/* Two rows of results of one channel, of which the second and the last column may not be there. */
static void collect_rows(const Squares *q, const SquareWork *work, const T *m, T bias, T *y, int two) {
    const int64_t b = q->batch, wide = q->wide, place = work->m_place;
    for (int64_t x = 0; x < wide; x += 2, m += b)
        EACH_AT(at, b) {
            vec made[2][2];
            collect(m + at, place, made);
            UNROLL for (int r = 0; r < 2; r++)
                UNROLL for (int c = 0; c < 2; c++) {
                    T *to = y + (r * wide + x + c) * b + at;
                    vec a = made[r][c] + bias;
                    if ((r && !two) || x + c >= wide) continue;
                    if (b >= LANES || (wide - x - c) * b >= LANES)
                        STORE(to, a);
                    else
                        for (int64_t l = 0; l < b; l++) to[l] = a[l];
                }
        }
}

/* y [channels][high][wide][batch] from x [planes][height][width][batch], where U of a channel and a plane are so far
   apart; `turned` by half a circle are the weights of the way back. */
static void sum_squares(const Squares *q, const SquareWork *work, const T *x, const T *u, int64_t u_channel,
                        int64_t u_plane, int turned, const T *bias, T *y) {
    static const int same[4] = {0, 1, 2, 3}, other[4] = {3, 1, 2, 0};
    const int *side = turned ? other : same;
    const int64_t b = q->batch, across = squares_across(q), pitch = work->pitch, v_place = work->v_place;
    const Strip *strip = &work->x;
    const int64_t column[4] = {0, b, 2 * b, 3 * b};
    const Tap none = {0, 0};
    Walk k = {q->planes, 1, &none, pitch, u_channel, u_plane};
    for (int64_t i = 0; i < q->high; i += 2) {
        if (i % work->band == 0)
            fill(strip, x, q->height, q->width, i - q->padding_down, least(work->band, 2 * up(q->high - i, 2)) + 2);
        for (int64_t plane = 0; plane < q->planes; plane++) {
            const T *from = strip->numbers + plane * strip->plane + i % work->band * strip->row;
            for (int64_t j = 0; j < across; j++)
                EACH_AT(at, b)
                    spread(from + 2 * j * b + at, strip->row, column, work->v + plane * pitch + j * b + at, v_place);
        }
        for (int place = 0; place < PLACES; place++)
            sum_row(work->tile, &k, q->channels, pitch / LANES, work->v + place * v_place,
                    u + (4 * side[place / 4] + side[place % 4]) * q->planes * q->channels, NULL,
                    work->m + place * work->m_place, pitch, 0);
        for (int64_t c = 0; c < q->channels; c++)
            collect_rows(q, work, work->m + c * pitch, bias ? bias[c] : 0, y + (c * q->high + i) * q->wide * b,
                         i + 1 < q->high);
    }
}

/* What the gradient of weights needs: rows of inputs with the channels last, [rows][columns][batch][whole vectors]. */
typedef struct {
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

/* One row of inputs, with zeros at both ends, or all zeros where there is none. */
static void turn_row(const Squares *q, const ProductWork *work, const T *x, int64_t i, T *to) {
    int64_t pitch = up(q->planes, LANES) * LANES, pixel = q->batch * pitch, row = q->width * q->batch;
    int64_t before = q->padding_across, behind = work->columns - before - q->width;
    if (i < 0 || i >= q->height) {
        memset(to, 0, (size_t)(work->columns * pixel) * sizeof(T));
        return;
    }
    memset(to, 0, (size_t)(before * pixel) * sizeof(T));
    turn_over(x + i * row, q->height * row, to + before * pixel, pitch, q->planes, row);
    memset(to + (before + q->width) * pixel, 0, (size_t)(behind * pixel) * sizeof(T));
}

/* The gradients of M of a row of squares of one channel, from two rows of which the second may not be there. */
static void spread_rows_back(const Squares *q, const T *dy, int two, T *m, int64_t place) {
    int64_t b = q->batch;
    for (int64_t x = 0; x < q->wide; x += 2, m += b)
        EACH_AT(at, b) {
            vec came[2][2];
            UNROLL for (int r = 0; r < 2; r++)
                UNROLL for (int c = 0; c < 2; c++)
                    came[r][c] = (r && !two) || x + c >= q->wide ? (vec){0} : LOAD(dy + (r * q->wide + x + c) * b + at);
            spread_back(came, m + at, place);
        }
}

/* The gradient of weights [channels][planes][3][3], from x and the gradients dy of its results, behind which there must
   be room for a vector. */
static void multiply_squares(const Squares *q, const ProductWork *work, const T *x, const T *dy, T *dw) {
    int64_t b = q->batch, run = squares_across(q) * b, pitch = up(q->planes, LANES) * LANES;
    int64_t x_row = work->columns * b * pitch;
    const int64_t column[4] = {0, b * pitch, 2 * b * pitch, 3 * b * pitch};
    const Tap none = {0, 0};
    for (int64_t i = 0; i < q->high; i += 2 * work->squares) {
        int64_t squares = least(work->squares, up(q->high - i, 2));
        Walk k = {squares * run, 1, &none, pitch, work->m_row, 1};
        for (int64_t r = 0; r < 2 * squares + 2; r++)
            turn_row(q, work, x, i + r - q->padding_down, work->x + r * x_row);
        for (int64_t t = 0; t < squares; t++)
            for (int64_t n = 0; n < run; n++)
                for (int64_t c = 0; c < pitch; c += LANES)
                    spread(work->x + 2 * t * x_row + (n / b * b + n) * pitch + c, x_row, column,
                           work->v + (t * run + n) * pitch + c, work->v_place);
        for (int64_t c = 0; c < q->channels; c++)
            for (int64_t t = 0; t < squares; t++)
                spread_rows_back(q, dy + (c * q->high + i + 2 * t) * q->wide * b, i + 2 * t + 1 < q->high,
                                 work->m + c * work->m_row + t * run, work->m_place);
        for (int place = 0; place < PLACES; place++)
            sum_row(work->tile, &k, q->channels, pitch / LANES, work->v + place * work->v_place,
                    work->m + place * work->m_place, NULL, work->du + place * q->channels * pitch, pitch, i > 0);
    }
    collect_weights(work->du, q->channels, q->planes, work->line, dw);
}

/* Whether a convolution is done by squares: it must be one of 3×3, and fill vectors with the images of a batch and, on
   the way back, with channels. */
static int by_squares(const Shape *s) {
    return s->rows == 3 && s->columns == 3 && s->stride_down == 1 && s->stride_across == 1 && s->padding_down <= 2 &&
           s->padding_across <= 2 && s->inputs >= 8 && s->outputs >= 8 && 2 * s->batch >= LANES;
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
static T *square_weights(const Shape *s, Store *store) { return NUMBERS(store, PLACES * s->outputs * s->inputs); }
static T *weights_line(const Shape *s, Store *store) { return NUMBERS(store, 9 * up(s->inputs, LANES) * LANES); }

static void square_forward(const Shape *s, Store *store, const T *x, const T *w, const T *bias, T *y) {
    Squares q = forth(s);
    SquareWork work = square_work(&q, store);
    T *u = square_weights(s, store), *line = weights_line(s, store);
    if (!store->memory) return;
    spread_weights(w, s->outputs, s->inputs, line, u);
    sum_squares(&q, &work, x, u, s->inputs, 1, 0, bias, y);
}

static void square_weights_back(const Shape *s, Store *store, const T *x, const T *dy, T *dw) {
    Squares q = forth(s);
    ProductWork work = product_work(&q, store);
    if (store->memory) multiply_squares(&q, &work, x, dy, dw);
}

static void square_inputs_back(const Shape *s, Store *store, const T *w, const T *dy, T *dx) {
    Squares q = back(s);
    SquareWork work = square_work(&q, store);
    T *u = square_weights(s, store), *line = weights_line(s, store);
    if (!store->memory) return;
    spread_weights(w, s->outputs, s->inputs, line, u);
    sum_squares(&q, &work, dy, u, 1, s->inputs, 1, NULL, dx);
}

#endif
