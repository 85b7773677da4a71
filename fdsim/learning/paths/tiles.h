/* Tiles of sums that stay in registers, and scratch memory: what the kernels of convolutions have in common. */

#ifndef FDSIM_TILES_H
#define FDSIM_TILES_H

#include <stdlib.h>
#include <string.h>

#include "vectors.h"

/* Numbers in a line of the cache, and in as much of the first-level cache as may be counted on. */
#define CACHE_LINE ((int64_t)(64 / sizeof(T)))
#define CACHED ((int64_t)(24576 / sizeof(T)))

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* A quotient rounded up: also the size of the next of so many blocks that divide what is left evenly. */
static int64_t up(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

/* All ones in the first lanes, zeros in the others. */
INLINE mask first_lanes(int64_t count) {
    mask kept;
    for (int l = 0; l < LANES; l++) kept[l] = l < count ? -1 : 0;
    return kept;
}

INLINE T total(vec a) {
    T part[LANES];
    STORE(part, a);
    UNROLL for (int half = LANES / 2; half > 0; half /= 2)
        UNROLL for (int l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
}

/* Sums that are kept in registers together, high × wide of them, with the `wide` vectors that `high` others are
   multiplied with in turn. */
typedef struct {
    int64_t high, wide;
} Tile;
#define FITS(high, wide) ((high) * (wide) + (wide) + 1 <= REGISTERS)

/* Half cycles of one step of a tile: its products, its loads (half of them cross a cache line), and what independent
   sums are needed for while others are in flight. */
static int64_t step_cost(int64_t high, int64_t wide) {
    return most(most(high * wide, high + wide + wide / 2), 8);
}

/* Chooses the tile that covers `rows` × `columns` in the least time. */
static Tile best_tile(int64_t rows, int64_t columns, int64_t most_high, int64_t most_wide) {
    Tile best = {1, 1};
    int64_t least_cost = INT64_MAX;
    for (int64_t high = 1; high <= most_high; high++)
        for (int64_t wide = 1; wide <= most_wide && FITS(high, wide); wide++) {
            int64_t down = up(rows, high), across = up(columns, wide), cost = 0;
            /* Blocks come in two sizes, `size` and one less. */
            int64_t h = up(rows, down), w = up(columns, across);
            int64_t short_h = h * down - rows, short_w = w * across - columns;
            cost += (down - short_h) * (across - short_w) * step_cost(h, w);
            cost += short_h * (across - short_w) * step_cost(h - 1, w);
            cost += (down - short_h) * short_w * step_cost(h, w - 1);
            cost += short_h * short_w * step_cost(h - 1, w - 1);
            if (cost <= least_cost) least_cost = cost, best = (Tile){high, wide};
        }
    return best;
}

/* Turns eight vectors of eight numbers into eight that hold one number of each, where the compiler can be told how. */
#if defined(SINGLE) && defined(__AVX__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TURNS
typedef T eight __attribute__((vector_size(32), aligned(4), may_alias));
#define PAIR(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
INLINE void turn(eight a[8]) {
    UNROLL for (int i = 0; i < 4; i++) {
        eight b = a[i], c = a[i + 4];
        a[i] = PAIR(b, c, 0, 1, 2, 3, 8, 9, 10, 11), a[i + 4] = PAIR(b, c, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    UNROLL for (int i = 0; i < 6; i += i == 1 ? 3 : 1) {
        eight b = a[i], c = a[i + 2];
        a[i] = PAIR(b, c, 0, 8, 1, 9, 4, 12, 5, 13), a[i + 2] = PAIR(b, c, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL for (int i = 0; i < 8; i += 2) {
        eight b = a[i], c = a[i + 1];
        a[i] = PAIR(b, c, 0, 8, 1, 9, 4, 12, 5, 13), a[i + 1] = PAIR(b, c, 2, 10, 3, 11, 6, 14, 7, 15);
    }
}
#endif
#endif

/* Turns [rows][columns] into [columns][rows], where rows are so far apart before and after. */
static void turn_over(const T *from, int64_t from_row, T *to, int64_t to_row, int64_t rows, int64_t columns) {
#ifdef TURNS
    if (rows >= 8 && columns >= 8) {
        for (int64_t k = 0; k < columns; k += 8)
            for (int64_t n = 0; n < rows; n += 8) {
                /* The last blocks begin where they still fit, and write some numbers again. */
                int64_t column = least(k, columns - 8), row = least(n, rows - 8);
                eight a[8];
                UNROLL for (int i = 0; i < 8; i++) a[i] = *(const eight *)(from + (row + i) * from_row + column);
                turn(a);
                UNROLL for (int i = 0; i < 8; i++) *(eight *)(to + (column + i) * to_row + row) = a[i];
            }
        return;
    }
#endif
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < columns; k++) to[k * to_row + n] = from[n * from_row + k];
}

/* Memory that is handed out piece by piece, each with room for a vector behind it. Without any it counts. */
typedef struct {
    char *memory;
    size_t used;
} Store;

static void *piece(Store *store, int64_t count, size_t size) {
    void *found = store->memory ? store->memory + store->used : NULL;
    store->used += ((size_t)count * size + 2 * 64 - 1) / 64 * 64;
    return found;
}
#define NUMBERS(store, count) ((T *)piece(store, count, sizeof(T)))

/* Makes memory for as much as has been counted; 1 where there is none. */
static int furnish(Store *store) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, store->used)) return 1;
    store->memory = memory;
    store->used = 0;
    return 0;
}
static int furnish_zeros(Store *store) {
    size_t size = store->used;
    if (furnish(store)) return 1;
    memset(store->memory, 0, size);
    return 0;
}

#endif
