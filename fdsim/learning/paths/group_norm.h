/* Group norm of one client's images, with what follows it: a residual block's input added, ReLU.

   The images of a batch lie innermost, [channels][pixels][batch], so that what belongs to one image comes again every
   `batch` numbers. Numbers are therefore taken in runs of whole vectors and of whole pixels: the same lane of the same
   vector of a run is always of the same image, and its mean, its scale and its sums are kept in runs too. */

#ifndef FDSIM_GROUP_NORM_H
#define FDSIM_GROUP_NORM_H

#include <math.h>

#include "tiles.h"

typedef struct {
    int64_t clients, batch, channels, pixels, groups, relu;
    double eps;
} Norm;

static int64_t moments_of(const Norm *s) { return s->groups * 2 * s->batch; }

/* A run of at least so many vectors: sums have time to come back from memory before they are added to again. */
#define LONG_RUN (16 * LANES)

static int64_t run_of(int64_t batch) {
    int64_t pixels = 1;
    while (pixels * batch % LANES) pixels *= 2;
    return up(LONG_RUN, pixels * batch) * pixels * batch;
}

/* `each` [batch] for every pixel of a run. */
static void repeat(const T *each, int64_t batch, T *run, int64_t length) {
    for (int64_t n = 0; n < length; n += batch) memcpy(run + n, each, (size_t)batch * sizeof(T));
}

/* The sums of a run for each image. */
static void fold(const T *run, int64_t length, int64_t batch, T *each) {
    memset(each, 0, (size_t)batch * sizeof(T));
    for (int64_t n = 0; n < length; n += batch)
        for (int64_t b = 0; b < batch; b++) each[b] += run[n + b];
}

/* One vector at x, of which only the first `left` numbers are there. */
INLINE vec part(const T *x, int64_t left) {
    vec a = (vec){0};
    memcpy(&a, x, (size_t)left * sizeof(T));
    return a;
}

/* Does `BODY` for every vector of `count` numbers: n is where it is, k where in its run, left how much of it there is.
   Only the last may be less than whole. */
#define EACH_VECTOR(count, length, BODY)                                        \
    for (int64_t start = 0; start < (count); start += (length)) {               \
        int64_t end = least((length), (count) - start), k = 0;                  \
        for (; k + LANES <= end; k += LANES) {                                  \
            const int64_t n = start + k, left = LANES;                          \
            BODY                                                                \
        }                                                                       \
        if (k < end) {                                                          \
            const int64_t n = start + k, left = end - k;                        \
            BODY                                                                \
        }                                                                       \
    }
#define READ(x) (left == LANES ? LOAD(x) : part(x, left))
#define WRITE(x, a)                                     \
    do {                                                \
        vec made = (a);                                 \
        if (left == LANES)                              \
            STORE(x, made);                             \
        else                                            \
            memcpy(x, &made, (size_t)left * sizeof(T)); \
    } while (0)

/* Runs of one client at work, and what they hold for each image. */
typedef struct {
    int64_t length;
    T *mean, *scale, *shift, *first, *second;
    T *each_mean, *each_root, *each_first, *each_second, *sum_first, *sum_second, *each;
} Runs;

static Runs runs_of(const Norm *s, Store *store) {
    Runs r = {.length = run_of(s->batch)};
    r.mean = NUMBERS(store, r.length), r.scale = NUMBERS(store, r.length), r.shift = NUMBERS(store, r.length);
    r.first = NUMBERS(store, r.length), r.second = NUMBERS(store, r.length);
    r.each_mean = NUMBERS(store, s->batch), r.each_root = NUMBERS(store, s->batch);
    r.each_first = NUMBERS(store, s->batch), r.each_second = NUMBERS(store, s->batch);
    r.sum_first = NUMBERS(store, s->batch), r.sum_second = NUMBERS(store, s->batch);
    r.each = NUMBERS(store, s->batch);
    return r;
}

/* The mean of each image's numbers in a group, and one over the root of their variance. */
static void measure(const Norm *s, const Runs *r, const T *x, T *mean, T *root) {
    int64_t b = s->batch, members = s->channels / s->groups * s->pixels, count = members * b, length = r->length;
    memset(r->first, 0, (size_t)length * sizeof(T));
    EACH_VECTOR(count, length, STORE(r->first + k, LOAD(r->first + k) + READ(x + n));)
    fold(r->first, length, b, mean);
    for (int64_t i = 0; i < b; i++) mean[i] /= (T)members;
    repeat(mean, b, r->mean, length);
    memset(r->first, 0, (size_t)length * sizeof(T));
    /* From the mean, not from zero: where it is large there is no difference of two large sums. */
    EACH_VECTOR(count, length, {
        vec d = READ(x + n) - (left == LANES ? LOAD(r->mean + k) : part(r->mean + k, left));
        STORE(r->first + k, LOAD(r->first + k) + d * d);
    })
    fold(r->first, length, b, root);
    for (int64_t i = 0; i < b; i++) root[i] = (T)(1.0 / sqrt((double)root[i] / (double)members + s->eps));
}

/* One channel: y = x × scale + shift, both by image, and what follows. */
static void apply(const Runs *r, int64_t count, int relu, const T *x, const T *added, T *y) {
    EACH_VECTOR(count, r->length, {
        vec a = READ(x + n) * LOAD(r->scale + k) + LOAD(r->shift + k);
        if (added) a += READ(added + n);
        if (relu) a = (vec)((mask)a & ~(mask)(a <= 0)); /* A NaN passes, as in torch. */
        WRITE(y + n, a);
    })
}

/* x [channels][pixels][batch], scale and shift [channels] or both NULL, and `added` like x or NULL give y; and for the
   way back moments [groups][2][batch]. */
static void norm_forth(const Norm *s, Store *store, const T *x, const T *scale, const T *shift, const T *added, T *y,
                       T *moments) {
    Runs r = runs_of(s, store);
    if (!store->memory) return;
    int64_t b = s->batch, plane = s->pixels * b, members = s->channels / s->groups;
    for (int64_t n = 0; n < s->groups; n++, moments += 2 * b) {
        T *mean = moments, *root = moments + b;
        measure(s, &r, x, mean, root);
        for (int64_t c = n * members; c < (n + 1) * members; c++, x += plane, y += plane) {
            for (int64_t i = 0; i < b; i++) {
                r.each_first[i] = scale ? scale[c] * root[i] : root[i];
                r.each_second[i] = (shift ? shift[c] : 0) - mean[i] * r.each_first[i];
            }
            repeat(r.each_first, b, r.scale, r.length), repeat(r.each_second, b, r.shift, r.length);
            apply(&r, plane, (int)s->relu, x, added, y);
            if (added) added += plane;
        }
    }
}

/* The gradient as it comes, or nothing where ReLU let nothing through. */
#define CAME(n) (y ? (vec)((mask)READ(dy + n) & ~(mask)(READ(y + n) <= 0)) : READ(dy + n))

/* Sums over one channel: of gradients, and of gradients × distance from the mean; where it is wanted, the gradient of
   what was added. */
static void sum_back(const Runs *r, int64_t count, const T *x, const T *y, const T *dy, T *d_added) {
    memset(r->first, 0, (size_t)r->length * sizeof(T)), memset(r->second, 0, (size_t)r->length * sizeof(T));
    EACH_VECTOR(count, r->length, {
        vec g = CAME(n);
        STORE(r->first + k, LOAD(r->first + k) + g);
        STORE(r->second + k, LOAD(r->second + k) + g * (READ(x + n) - LOAD(r->mean + k)));
        if (d_added) WRITE(d_added + n, g);
    })
}

/* dx = gradient × scale + distance from the mean × second + first, all by image. */
static void apply_back(const Runs *r, int64_t count, const T *x, const T *y, const T *dy, T *dx) {
    EACH_VECTOR(count, r->length, {
        vec d = READ(x + n) - LOAD(r->mean + k);
        WRITE(dx + n, CAME(n) * LOAD(r->scale + k) + d * LOAD(r->second + k) + LOAD(r->first + k));
    })
}

/* From dy of the same shape as y, which is NULL where there was no ReLU: dx, d_scale and d_shift unless they are NULL,
   and the gradient of what was added unless it is NULL. */
static void norm_back(const Norm *s, Store *store, const T *x, const T *scale, const T *moments, const T *y,
                      const T *dy, T *dx, T *d_scale, T *d_shift, T *d_added) {
    Runs r = runs_of(s, store);
    if (!store->memory) return;
    int64_t b = s->batch, plane = s->pixels * b, members = s->channels / s->groups;
    for (int64_t n = 0; n < s->groups; n++, moments += 2 * b) {
        const T *mean = moments, *root = moments + b;
        repeat(mean, b, r.mean, r.length);
        memset(r.sum_first, 0, (size_t)b * sizeof(T)), memset(r.sum_second, 0, (size_t)b * sizeof(T));
        for (int64_t c = n * members; c < (n + 1) * members; c++) {
            int64_t from = c * plane;
            T factor = scale ? scale[c] : 1, of_scale = 0, of_shift = 0;
            sum_back(&r, plane, x + from, y ? y + from : NULL, dy + from, d_added ? d_added + from : NULL);
            fold(r.first, r.length, b, r.each_first), fold(r.second, r.length, b, r.each_second);
            for (int64_t i = 0; i < b; i++) {
                of_shift += r.each_first[i], of_scale += r.each_second[i] * root[i];
                r.sum_first[i] += factor * r.each_first[i], r.sum_second[i] += factor * r.each_second[i];
            }
            if (d_scale) d_scale[c] = of_scale;
            if (d_shift) d_shift[c] = of_shift;
        }
        for (int64_t i = 0; i < b; i++) {
            T share = root[i] / (T)(members * s->pixels);
            r.each_first[i] = -share * r.sum_first[i], r.each_second[i] = -share * root[i] * root[i] * r.sum_second[i];
        }
        repeat(r.each_first, b, r.first, r.length), repeat(r.each_second, b, r.second, r.length);
        for (int64_t c = n * members; c < (n + 1) * members; c++) {
            int64_t from = c * plane;
            for (int64_t i = 0; i < b; i++) r.each[i] = (scale ? scale[c] : 1) * root[i];
            repeat(r.each, b, r.scale, r.length);
            apply_back(&r, plane, x + from, y ? y + from : NULL, dy + from, dx + from);
        }
    }
}

#endif
