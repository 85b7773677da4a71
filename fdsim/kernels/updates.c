/* Inner products of all pairs of some rows on a CPU: compiled at first use by c_kernel.py.

   A general library lays rows out anew before it multiplies them, computes both halves of what is symmetric, and is made
   for far larger results. Here rows are read where they lie, one vector of each at a time: HIGH × WIDE products grow
   in registers, lane by lane, and their lanes are added up once a block of columns is done. Only tiles that reach
   above the diagonal are computed. A block of columns of all rows stays in the second-level cache.

   T is the type of the numbers, float unless the compiler is told otherwise. Blocks are added up in double precision,
   so that long rows lose nothing. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifndef T
#define T float
#endif

/* Vectors as in direct_conv.c; a tile takes HIGH × WIDE + WIDE + 1 of the processor's registers. */
#if defined(__AVX512F__) && !defined(__znver3__) && !defined(__znver4__)
#define BYTES 64
#else
#define BYTES 32
#endif
#if defined(__AVX512VL__)
#define HIGH 5
#define WIDE 5
#else
#define HIGH 3
#define WIDE 3
#endif
#define LANES ((int64_t)(BYTES / sizeof(T)))
/* Columns that are multiplied at a time. */
#define BLOCK 2048
/* Columns are divided into parts of at least so many, for threads to take; how many parts there are does not depend on
   the number of threads, so that results do not either. */
#define PART 4096
#define MOST_PARTS 8
/* Numbers that the sums of all parts may take together. */
#define MOST_SUMS ((int64_t)1 << 23)

typedef T vec __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#define LOAD(p) (*(const vec *)(p))
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
/* Keeps a vector that is used several times in a register; compilers would rather read it again for each product. */
#if defined(__x86_64__)
#define HOLD(a) __asm__("" : "+v"(a))
#else
#define HOLD(a) (void)(a)
#endif

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

/* What the threads share. */
typedef struct {
    const T *const *rows;
    int64_t count, width, parts, next;
    double *sums;
} Work;

/* Adds the products of the columns from..to to sums [count][count], on and above the diagonal. */
static void multiply(const Work *work, int64_t from, int64_t to, double *sums) {
    int64_t count = work->count;
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

static void *take_parts(void *shared) {
    Work *work = shared;
    /* Parts begin where blocks do. */
    int64_t blocks = (work->width + BLOCK - 1) / BLOCK, part;
    while ((part = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->parts)
        multiply(work, part * blocks / work->parts * BLOCK,
                 least((part + 1) * blocks / work->parts * BLOCK, work->width),
                 work->sums + part * work->count * work->count);
    return NULL;
}

/* Puts the products of `count` rows of `width` numbers into found [count][count], on and above the diagonal; below it
   there may be anything. Returns 0, or 1 where there is no memory. */
int upper_products(const T *const *rows, int64_t count, int64_t width, int64_t threads, double *found) {
    int64_t square = count * count;
    int64_t parts = most(1, least(least(MOST_PARTS, width / PART), MOST_SUMS / most(square, 1)));
    Work work = {rows, count, width, parts, 0, calloc((size_t)(parts * square), sizeof(double))};
    pthread_t others[MOST_PARTS];
    int64_t started = 0;
    if (!work.sums) return 1;
    while (started + 1 < least(threads, parts) && !pthread_create(&others[started], NULL, take_parts, &work)) started++;
    take_parts(&work);
    for (int64_t n = 0; n < started; n++) pthread_join(others[n], NULL);
    for (int64_t n = 0; n < square; n++) {
        found[n] = work.sums[n];
        for (int64_t part = 1; part < parts; part++) found[n] += work.sums[part * square + n];
    }
    free(work.sums);
    return 0;
}
