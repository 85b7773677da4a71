/* What a CPU computes of a round's updates: compiled at first use by c_kernel.py. Rows of numbers are read where they lie.

   - upper_products: inner products of all pairs of rows. A general library lays rows out anew before it multiplies
     them, computes both halves of what is symmetric, and is made for far larger results. Here HIGH × WIDE products
     grow in registers, one vector of each row at a time, and their lanes are added up once a block of columns is done.
     Only tiles that reach above the diagonal are computed.
   - remember: how far rows are from what was remembered of them, and the rows remembered instead.
   - weighted_sum: a sum of rows.
   - sketch: rows folded into fewer numbers, which keep their inner products but for chance.

   T is the type of the numbers, float unless the compiler is told otherwise. Sums over long rows are taken in double
   precision, block by block. Work is divided into parts, mostly of columns, which threads take; how many parts there
   are does not depend on the number of threads, so that results do not either. */

#ifndef _OPENMP
#include <pthread.h>
#endif
#include <stdlib.h>

#include "vectors.h"

/* A tile takes HIGH × WIDE + WIDE + 1 of the processor's registers. */
#if REGISTERS > 16
#define HIGH 5
#define WIDE 5
#else
#define HIGH 3
#define WIDE 3
#endif
/* Columns that are multiplied at a time: those of all rows stay in the second-level cache. */
#define BLOCK 2048
/* Columns that are read at a time where each row is read once: long runs are what memory is good at. */
#define RUN 8192
/* Columns of a part, at the least. */
#define PART BLOCK
#define MOST_PARTS 8
#define MOST_THREADS 256
/* Numbers that the sums of all parts may take together. */
#define MOST_SUMS ((int64_t)1 << 23)

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

INLINE T total(vec a) {
    T part[LANES];
    *(vec *)part = a;
    UNROLL for (int half = LANES / 2; half > 0; half /= 2)
        UNROLL for (int l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
}

/* The products of HIGH rows with WIDE others, over the columns from..to. */
INLINE void multiply_tile(const T *const *a, const T *const *b, int64_t from, int64_t to, T found[HIGH][WIDE]) {
    vec sum[HIGH][WIDE];
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] = (vec){0};
    int64_t k = from;
    for (; k + LANES <= to; k += LANES) {
        vec right[WIDE];
        UNROLL for (int j = 0; j < WIDE; j++) {
            right[j] = LOAD(b[j] + k);
            HOLD(right[j]);
        }
        UNROLL for (int i = 0; i < HIGH; i++) {
            vec left = LOAD(a[i] + k);
            HOLD(left);
            UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] += left * right[j];
        }
    }
    UNROLL for (int i = 0; i < HIGH; i++)
        UNROLL for (int j = 0; j < WIDE; j++) {
            T product = total(sum[i][j]);
            for (int64_t l = k; l < to; l++) product += a[i][l] * b[j][l];
            found[i][j] = product;
        }
}

/* Row `start` and those after it; the last row again where there are no more. */
INLINE void take(const T **taken, int size, const T *const *rows, int64_t count, int64_t start) {
    for (int i = 0; i < size; i++) taken[i] = rows[least(start + i, count - 1)];
}

/* What the threads share: parts, and what is done with each. */
typedef struct Work {
    void (*task)(const struct Work *work, int64_t part);
    const T *const *rows;
    int64_t count, width, parts, next;
    double *sums;
    T *const *kept;
    const uint8_t *counts;
    const T *factors;
    T *total;
    const int64_t *shifts;
    int64_t folded;
} Work;

/* Parts of columns begin where blocks do. */
static int64_t column(const Work *work, int64_t part) {
    int64_t blocks = (work->width + BLOCK - 1) / BLOCK;
    return least(part * blocks / work->parts * BLOCK, work->width);
}

static int64_t parts_of_columns(int64_t width) { return most(1, least(MOST_PARTS, width / PART)); }

static void *take_parts(void *shared) {
    Work *work = shared;
    int64_t part;
    while ((part = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->parts) work->task(work, part);
    return NULL;
}

static void do_parts(Work *work, int64_t threads) {
    threads = most(1, least(least(threads, MOST_THREADS), work->parts));
    work->next = 0;
#ifdef _OPENMP
    /* Torch's own threads, where it uses this library too: they wait for work without sleeping, and threads beside them
       would have to share their cores. */
#pragma omp parallel num_threads((int)threads)
    take_parts(work);
#else
    pthread_t others[MOST_THREADS];
    int64_t started = 0;
    while (started + 1 < threads && !pthread_create(&others[started], NULL, take_parts, work)) started++;
    take_parts(work);
    for (int64_t n = 0; n < started; n++) pthread_join(others[n], NULL);
#endif
}

/* Adds up sums of all parts, `each` numbers a part, in found [each]. Returns 0, or 1 where there is no memory. */
static int sum_parts(Work *work, int64_t threads, int64_t each, double *found) {
    work->parts = least(work->parts, most(1, MOST_SUMS / each));
    work->sums = calloc((size_t)(work->parts * each), sizeof(double));
    if (!work->sums) return 1;
    do_parts(work, threads);
    for (int64_t n = 0; n < each; n++) {
        found[n] = work->sums[n];
        for (int64_t part = 1; part < work->parts; part++) found[n] += work->sums[part * each + n];
    }
    free(work->sums);
    return 0;
}

static void multiply(const Work *work, int64_t part) {
    int64_t count = work->count, from = column(work, part), to = column(work, part + 1);
    double *sums = work->sums + part * count * count;
    for (int64_t k = from; k < to; k += BLOCK)
        for (int64_t i = 0; i < count; i += HIGH) {
            const T *a[HIGH];
            take(a, HIGH, work->rows, count, i);
            for (int64_t j = i; j < count; j += WIDE) {
                const T *b[WIDE];
                T found[HIGH][WIDE];
                take(b, WIDE, work->rows, count, j);
                multiply_tile(a, b, k, least(k + BLOCK, to), found);
                for (int64_t h = i; h < least(i + HIGH, count); h++)
                    for (int64_t w = j; w < least(j + WIDE, count); w++) sums[h * count + w] += found[h - i][w - j];
            }
        }
}

/* Puts the products of `count` rows of `width` numbers into found [count][count], on and above the diagonal; below it
   there may be anything. Returns 0, or 1 where there is no memory. */
int upper_products(const T *const *rows, int64_t count, int64_t width, int64_t threads, double *found) {
    Work work = {.task = multiply, .rows = rows, .count = count, .width = width, .parts = parts_of_columns(width)};
    return count ? sum_parts(&work, threads, count * count, found) : 0;
}

/* Takes the difference to what is kept of a row, over columns from..to; returns its square. */
INLINE T move_on(const T *row, T *kept, T *moved, int counts, int64_t from, int64_t to) {
    vec square[4] = {{0}, {0}, {0}, {0}};
    int64_t k = from;
    for (; k + 4 * LANES <= to; k += 4 * LANES)
        UNROLL for (int n = 0; n < 4; n++) {
            vec fresh = LOAD(row + k + n * LANES), move = fresh - LOAD(kept + k + n * LANES);
            square[n] += move * move;
            if (counts) STORE(moved + k + n * LANES, LOAD(moved + k + n * LANES) + move);
            STORE(kept + k + n * LANES, fresh);
        }
    T rest = total((square[0] + square[1]) + (square[2] + square[3]));
    for (; k < to; k++) {
        T move = row[k] - kept[k];
        rest += move * move;
        if (counts) moved[k] += move;
        kept[k] = row[k];
    }
    return rest;
}

static double square_of(const T *numbers, int64_t from, int64_t to) {
    T sum[16] = {0};
    double rest = 0;
    int64_t k = from;
    for (; k + 16 <= to; k += 16)
        for (int n = 0; n < 16; n++) sum[n] += numbers[k + n] * numbers[k + n];
    for (; k < to; k++) rest += (double)numbers[k] * numbers[k];
    for (int n = 0; n < 16; n++) rest += sum[n];
    return rest;
}

static void remember_part(const Work *work, int64_t part) {
    double *sums = work->sums + part * (work->count + 1);
    int64_t to = column(work, part + 1);
    for (int64_t k = column(work, part); k < to; k += RUN) {
        int64_t end = least(k + RUN, to);
        sums[work->count] -= square_of(work->total, k, end);
        for (int64_t i = 0; i < work->count; i++)
            sums[i] += work->counts[i] ? move_on(work->rows[i], work->kept[i], work->total, 1, k, end)
                                       : move_on(work->rows[i], work->kept[i], work->total, 0, k, end);
        sums[work->count] += square_of(work->total, k, end);
    }
}

/* Puts ‖row − kept‖² of `count` rows into found [count + 1], and last by how much ‖moved‖² grows; adds row − kept to
   moved [width] where a row counts, and keeps the rows. Returns 0, or 1 where there is no memory. */
int remember(const T *const *rows, T *const *kept, const uint8_t *counts, int64_t count, int64_t width,
             int64_t threads, T *moved, double *found) {
    Work work = {.task = remember_part, .rows = rows, .count = count, .width = width, .parts = parts_of_columns(width)};
    work.kept = kept, work.counts = counts, work.total = moved;
    return sum_parts(&work, threads, count + 1, found);
}

static void add_part(const Work *work, int64_t part) {
    T *restrict sum = work->total;
    int64_t to = column(work, part + 1);
    for (int64_t k = column(work, part); k < to; k += RUN) {
        int64_t end = least(k + RUN, to), i = 0;
        for (; i + 4 <= work->count; i += 4) {
            const T *a = work->rows[i], *b = work->rows[i + 1], *c = work->rows[i + 2], *d = work->rows[i + 3];
            const T *f = work->factors + i;
            for (int64_t l = k; l < end; l++) sum[l] += (f[0] * a[l] + f[1] * b[l]) + (f[2] * c[l] + f[3] * d[l]);
        }
        for (; i < work->count; i++) {
            const T *a = work->rows[i];
            for (int64_t l = k; l < end; l++) sum[l] += work->factors[i] * a[l];
        }
    }
}

/* Adds Σ factor·row over `count` rows to total [width]. */
void weighted_sum(const T *const *rows, const T *factors, int64_t count, int64_t width, int64_t threads, T *total) {
    Work work = {.task = add_part, .rows = rows, .count = count, .width = width, .parts = parts_of_columns(width)};
    work.factors = factors, work.total = total;
    do_parts(&work, threads);
}

static void fold(const T *restrict row, const T *restrict signs, T *restrict sums, int64_t count) {
    for (int64_t n = 0; n < count; n++) sums[n] += signs[n] * row[n];
}

static void sketch_row(const Work *work, int64_t part) {
    int64_t folded = work->folded;
    const T *row = work->rows[part];
    T *sums = work->total + part * folded;
    for (int64_t n = 0; n < folded; n++) sums[n] = 0;
    for (int64_t start = 0, group = 0; start < work->width; start += folded, group++) {
        /* Number n of the group goes to place (n + shift) mod folded. */
        int64_t size = least(folded, work->width - start), shift = work->shifts[group];
        int64_t before = least(size, folded - shift);
        fold(row + start, work->factors + start, sums + shift, before);
        fold(row + start + before, work->factors + start + before, sums, size - before);
    }
}

/* Folds `count` rows of `width` numbers into found [count][folded]: signs are flipped (signs [width]), then groups of
   `folded` numbers added up, each turned by a shift of its own. */
void sketch(const T *const *rows, int64_t count, int64_t width, int64_t threads, const T *signs, const int64_t *shifts,
            int64_t folded, T *found) {
    Work work = {.task = sketch_row, .rows = rows, .count = count, .width = width, .parts = count};
    work.factors = signs, work.shifts = shifts, work.folded = folded, work.total = found;
    do_parts(&work, threads);
}
