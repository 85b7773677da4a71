/* Convolutions of small nets on a CPU, client by client: compiled at first use by direct_conv.py.

   A net of a few channels leaves most of a general library's machinery idle. Here the vector lanes are the output
   channels, padded to a multiple of eight; the sums of a few neighbouring positions stay in registers; and bias, 2×2
   max-pooling and ReLU are done while an image's sums are still in the cache, so that only the pooled image is ever
   written to memory. Images are [height][width][channels]; a client's weights are [rows][columns × inputs][outputs].

   T is the type of the numbers, float unless the compiler is told otherwise; WHOLE an integer as wide. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t clients, batch, height, width, inputs, rows, columns, outputs;
    int64_t pool; /* 2×2 max-pooling after the sums */
    int64_t relu; /* ReLU after that */
} Shape;

#define LANES 8
typedef uint8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

/* Divides a length into as few blocks as registers allow, all of the same size but for some overlap. */
static inline int64_t even_block(int64_t length, int64_t vecs) {
    static const int64_t most[4] = {14, 6, 4, 3};
    int64_t blocks = (length + most[vecs - 1] - 1) / most[vecs - 1];
    return (length + blocks - 1) / blocks;
}

#ifndef T
#define T float
#define WHOLE int32_t
#endif

typedef T vec __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T)), may_alias));
typedef WHOLE mask __attribute__((vector_size(LANES * sizeof(T)), aligned(sizeof(T))));
#define LOAD(p) (*(const vec *)(p))
#define STORE(p, a) (*(vec *)(p) = (a))

/* BLOCK neighbouring positions of one row of sums, for VECS vectors of output channels. Accumulators, weights and one
   input must fit the 16 vector registers that most processors have; fewer than eight accumulators would wait. */
#define SUMS(VECS, BLOCK) \
    static void sums_##VECS##_##BLOCK(const T *x, const T *w, const T *bias, T *y, int64_t row, int64_t inputs, \
                                      int64_t rows, int64_t run) { \
        vec a[BLOCK][VECS]; \
        for (int i = 0; i < BLOCK; i++) \
            for (int v = 0; v < VECS; v++) a[i][v] = bias ? LOAD(bias + LANES * v) : (vec){0}; \
        for (int64_t r = 0; r < rows; r++, x += row, w += run * VECS * LANES) \
            for (int64_t k = 0; k < run; k++) { \
                vec b[VECS]; \
                for (int v = 0; v < VECS; v++) b[v] = LOAD(w + (k * VECS + v) * LANES); \
                for (int i = 0; i < BLOCK; i++) { \
                    T s = x[i * inputs + k]; \
                    for (int v = 0; v < VECS; v++) a[i][v] += s * b[v]; \
                } \
            } \
        for (int i = 0; i < BLOCK; i++) \
            for (int v = 0; v < VECS; v++) STORE(y + (i * VECS + v) * LANES, a[i][v]); \
    }

/* BLOCK neighbouring weights of one kernel row: the sum over one image's positions of input × gradient, added to dw
   from the weight `skip` on, since blocks may overlap. */
#define GRADIENTS(VECS, BLOCK) \
    static void gradients_##VECS##_##BLOCK(const T *x, const T *g, T *dw, int64_t skip, int64_t row, int64_t g_row, \
                                           int64_t inputs, int64_t high, int64_t wide) { \
        vec a[BLOCK][VECS]; \
        for (int i = 0; i < BLOCK; i++) \
            for (int v = 0; v < VECS; v++) a[i][v] = (vec){0}; \
        for (int64_t p = 0; p < high; p++, x += row, g += g_row) \
            for (int64_t q = 0; q < wide; q++) { \
                vec b[VECS]; \
                for (int v = 0; v < VECS; v++) b[v] = LOAD(g + (q * VECS + v) * LANES); \
                for (int i = 0; i < BLOCK; i++) { \
                    T s = x[q * inputs + i]; \
                    for (int v = 0; v < VECS; v++) a[i][v] += s * b[v]; \
                } \
            } \
        for (int i = skip; i < BLOCK; i++) \
            for (int v = 0; v < VECS; v++) { \
                T *to = dw + (i * VECS + v) * LANES; \
                STORE(to, LOAD(to) + a[i][v]); \
            } \
    }

#define BOTH(VECS, BLOCK) SUMS(VECS, BLOCK) GRADIENTS(VECS, BLOCK)
BOTH(1, 1) BOTH(1, 2) BOTH(1, 3) BOTH(1, 4) BOTH(1, 5) BOTH(1, 6) BOTH(1, 7)
BOTH(1, 8) BOTH(1, 9) BOTH(1, 10) BOTH(1, 11) BOTH(1, 12) BOTH(1, 13) BOTH(1, 14)
BOTH(2, 1) BOTH(2, 2) BOTH(2, 3) BOTH(2, 4) BOTH(2, 5) BOTH(2, 6)
BOTH(3, 1) BOTH(3, 2) BOTH(3, 3) BOTH(3, 4)
BOTH(4, 1) BOTH(4, 2) BOTH(4, 3)

typedef void summer(const T *, const T *, const T *, T *, int64_t, int64_t, int64_t, int64_t);
typedef void grader(const T *, const T *, T *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
#define N(what, vecs, block) what##_##vecs##_##block
#define TABLE(what) \
    {{N(what, 1, 1), N(what, 1, 2), N(what, 1, 3), N(what, 1, 4), N(what, 1, 5), N(what, 1, 6), N(what, 1, 7), \
      N(what, 1, 8), N(what, 1, 9), N(what, 1, 10), N(what, 1, 11), N(what, 1, 12), N(what, 1, 13), N(what, 1, 14)}, \
     {N(what, 2, 1), N(what, 2, 2), N(what, 2, 3), N(what, 2, 4), N(what, 2, 5), N(what, 2, 6)}, \
     {N(what, 3, 1), N(what, 3, 2), N(what, 3, 3), N(what, 3, 4)}, \
     {N(what, 4, 1), N(what, 4, 2), N(what, 4, 3)}}
static summer *const summers[4][14] = TABLE(sums);
static grader *const graders[4][14] = TABLE(gradients);

/* All sums of one image, of which only the rows from `top` to before `bottom` are not zero. */
static void sum_image(int64_t vecs, const T *x, const T *w, const T *bias, T *y, int64_t height, int64_t width,
                      int64_t inputs, int64_t rows, int64_t columns, int64_t top, int64_t bottom) {
    int64_t high = height - rows + 1, wide = width - columns + 1, row = width * inputs, run = columns * inputs;
    int64_t block = even_block(wide, vecs);
    for (int64_t i = 0; i < high; i++) {
        int64_t first = top > i ? top - i : 0, last = bottom - i < rows ? bottom - i : rows;
        for (int64_t j = 0; j < wide; j += block) {
            int64_t at = j + block <= wide ? j : wide - block;
            summers[vecs - 1][block - 1](x + (i + first) * row + at * inputs, w + first * run * vecs * LANES, bias,
                                         y + (i * wide + at) * vecs * LANES, row, inputs, last - first, run);
        }
    }
}

/* The weights' gradients of one image, added to dw. */
static void grade_weights(int64_t vecs, const T *x, const T *g, T *dw, int64_t g_row, int64_t height, int64_t width,
                          int64_t inputs, int64_t rows, int64_t columns) {
    int64_t high = height - rows + 1, wide = width - columns + 1, row = width * inputs, run = columns * inputs;
    int64_t block = even_block(run, vecs);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < run; k += block) {
            int64_t at = k + block <= run ? k : run - block;
            graders[vecs - 1][block - 1](x + r * row + at, g, dw + (r * run + at) * vecs * LANES, k - at, row, g_row,
                                         inputs, high, wide);
        }
}

/* Pooling and ReLU of LANES channels of one position; `right` and `below` lead to its neighbours. */
static inline void settle(const T *from, int64_t right, int64_t below, int64_t pool, int64_t relu, T *y,
                          uint8_t *chosen) {
    vec most = LOAD(from);
    mask which = (mask){0};
    if (pool) {
        const vec other[3] = {LOAD(from + right), LOAD(from + below), LOAD(from + below + right)};
        for (int k = 0; k < 3; k++) {
            /* A NaN wins, as in torch. */
            mask wins = (mask)(other[k] > most) | (mask)(other[k] != other[k]);
            most = (vec)((wins & (mask)other[k]) | (~wins & (mask)most));
            which = (wins & (k + 1)) | (~wins & which);
        }
    }
    if (relu) {
        mask stopped = (mask)(most <= 0);
        most = (vec)(~stopped & (mask)most);
        which = (stopped & 4) | (~stopped & which);
    }
    /* Whole vectors: what is too much is overwritten by the next position, and behind the last there is room. */
    STORE(y, most);
    *(Bytes *)chosen = __builtin_convertvector(which, Bytes);
}

/* y [clients][batch][high][wide][outputs], after pooling if asked for. `chosen`, of the same size, says for the way
   back which of the four pooled positions won, or 4 where ReLU let nothing through. Behind both there must be room for
   another LANES. `sums` holds one image. */
void forward(const Shape *s, const T *x, const T *w, const T *bias, T *y, uint8_t *chosen, T *sums) {
    int64_t vecs = (s->outputs + LANES - 1) / LANES, padded = vecs * LANES;
    int64_t high = s->height - s->rows + 1, wide = s->width - s->columns + 1;
    int64_t down = s->pool ? high / 2 : high, across = s->pool ? wide / 2 : wide;
    int64_t weights = s->rows * s->columns * s->inputs * padded, image = s->height * s->width * s->inputs;
    for (int64_t n = 0; n < s->clients * s->batch; n++) {
        int64_t client = n / s->batch;
        sum_image(vecs, x + n * image, w + client * weights, bias + client * padded, sums, s->height, s->width,
                    s->inputs, s->rows, s->columns, 0, s->height);
        for (int64_t i = 0; i < down; i++)
            for (int64_t j = 0; j < across; j++, y += s->outputs, chosen += s->outputs) {
                const T *from = sums + (s->pool ? 2 * (i * wide + j) : i * wide + j) * padded;
                for (int64_t c = 0; c < s->outputs; c += LANES)
                    settle(from + c, padded, wide * padded, s->pool, s->relu, y + c, chosen + c);
            }
    }
}

/* dw and db must come as zeros. dx may be NULL; `turned` are the weights for it: [rows][columns × padded outputs]
   [padded inputs], both kernel axes reversed. `g` holds one image's gradients with margins of rows − 1 and columns − 1,
   which must come as zeros; `wide_dx` one image of padded inputs. */
void backward(const Shape *s, const T *x, const T *dy, const uint8_t *chosen, const T *turned, T *dw, T *db,
                    T *dx, T *g, T *wide_dx) {
    int64_t vecs = (s->outputs + LANES - 1) / LANES, padded = vecs * LANES;
    int64_t in_vecs = (s->inputs + LANES - 1) / LANES, in_padded = in_vecs * LANES;
    int64_t high = s->height - s->rows + 1, wide = s->width - s->columns + 1;
    int64_t down = s->pool ? high / 2 : high, across = s->pool ? wide / 2 : wide;
    int64_t weights = s->rows * s->columns * s->inputs * padded, image = s->height * s->width * s->inputs;
    int64_t g_row = (wide + 2 * (s->columns - 1)) * padded;
    T *inner = g + (s->rows - 1) * g_row + (s->columns - 1) * padded;
    for (int64_t n = 0; n < s->clients * s->batch; n++) {
        int64_t client = n / s->batch;
        T *bias = db + client * padded;
        for (int64_t i = 0; i < high; i++) memset(inner + i * g_row, 0, wide * padded * sizeof(T));
        for (int64_t i = 0; i < down; i++)
            for (int64_t j = 0; j < across; j++, dy += s->outputs, chosen += s->outputs) {
                T *to = inner + (s->pool ? 2 * i : i) * g_row + (s->pool ? 2 * j : j) * padded;
                for (int64_t c = 0; c < s->outputs; c++) {
                    /* Without a branch, which would be guessed wrong half of the time: 4 puts a zero where one is. */
                    T passed = chosen[c] == 4 ? 0 : dy[c];
                    to[(chosen[c] >> 1 & 1) * g_row + (chosen[c] & 1) * padded + c] = passed;
                    bias[c] += passed;
                }
            }
        grade_weights(vecs, x + n * image, inner, dw + client * weights, g_row, s->height, s->width, s->inputs,
                      s->rows, s->columns);
        if (!dx) continue;
        sum_image(in_vecs, g, turned + client * s->rows * s->columns * padded * in_padded, NULL, wide_dx,
                    high + 2 * (s->rows - 1), wide + 2 * (s->columns - 1), padded, s->rows, s->columns, s->rows - 1,
                    s->rows - 1 + high);
        for (int64_t p = 0; p < s->height * s->width; p++)
            memcpy(dx + n * image + p * s->inputs, wide_dx + p * in_padded, s->inputs * sizeof(T));
    }
}
