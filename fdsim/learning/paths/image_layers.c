/* Layers of nets with padded convolutions and group norm on a CPU, client by client: compiled at first use by
   image_kernel.py.

   Other layers may stand between, so each layer's passes can be had for themselves, for a stack of clients:
   `conv_forward`, `conv_backward`, `norm_forward`, `norm_backward`. Where a net has none but those that are known here,
   `net_gradients` does a whole step of each client but for moving its parameters: what one client's layers hand on
   stays in the cache, and no layer waits for the interpreter.

   All of them return 0, or 1 where there is no memory for one client's scratch. */

#include "group_norm.h"
#include "square_conv.h"

/* ---- Layers of one client ----------------------------------------------------------------------------------------- */

static void conv_forth(const Shape *s, Store *store, const T *x, const T *w, const T *bias, T *y) {
    (by_squares(s) ? square_forward : padded_forward)(s, store, x, w, bias, y);
}

/* Scratch is used by one gradient after the other. */
static void conv_back(const Shape *s, Store *store, const T *x, const T *w, const T *dy, T *dw, T *db, T *dx) {
    size_t before = store->used, most_used;
    (by_squares(s) ? square_weights_back : padded_weights_back)(s, store, x, dy, dw);
    most_used = store->used, store->used = before;
    if (db && store->memory) bias_back(s, dy, db);
    if (dx || !store->memory) (by_squares(s) ? square_inputs_back : padded_inputs_back)(s, store, w, dy, dx);
    if (store->used < most_used) store->used = most_used;
}

/* ---- Layers of a stack -------------------------------------------------------------------------------------------- */

int conv_forward(const Shape *s, const T *x, const T *w, const T *bias, T *y) {
    Store store = {0};
    conv_forth(s, &store, NULL, NULL, NULL, NULL);
    if (furnish(&store)) return 1;
    for (int64_t n = 0; n < s->clients; n++, store.used = 0)
        conv_forth(s, &store, x + n * s->batch * image_of(s), w + n * weights_of(s), bias ? bias + n * s->outputs : NULL,
                   y + n * s->batch * made_of(s));
    free(store.memory);
    return 0;
}

/* From dy, of the same shape as y and with room for a vector behind it, dw and, unless they are NULL, db and dx. */
int conv_backward(const Shape *s, const T *x, const T *w, const T *dy, T *dw, T *db, T *dx) {
    Store store = {0};
    conv_back(s, &store, NULL, NULL, NULL, NULL, NULL, NULL);
    if (furnish(&store)) return 1;
    for (int64_t n = 0; n < s->clients; n++, store.used = 0)
        conv_back(s, &store, x + n * s->batch * image_of(s), w + n * weights_of(s), dy + n * s->batch * made_of(s),
                  dw + n * weights_of(s), db ? db + n * s->outputs : NULL, dx ? dx + n * s->batch * image_of(s) : NULL);
    free(store.memory);
    return 0;
}

/* The n-th client's part of what may be NULL. */
#define PART(a, n, size) ((a) ? (a) + (n) * (size) : NULL)

int norm_forward(const Norm *s, const T *x, const T *scale, const T *shift, const T *added, T *y, T *moments) {
    int64_t size = s->channels * s->pixels * s->batch;
    Store store = {0};
    norm_forth(s, &store, NULL, NULL, NULL, NULL, NULL, NULL);
    if (furnish(&store)) return 1;
    for (int64_t n = 0; n < s->clients; n++, store.used = 0)
        norm_forth(s, &store, x + n * size, PART(scale, n, s->channels), PART(shift, n, s->channels),
                   PART(added, n, size), y + n * size, moments + n * moments_of(s));
    free(store.memory);
    return 0;
}

int norm_backward(const Norm *s, const T *x, const T *scale, const T *moments, const T *y, const T *dy, T *dx,
                  T *d_scale, T *d_shift, T *d_added) {
    int64_t size = s->channels * s->pixels * s->batch;
    Store store = {0};
    norm_back(s, &store, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    if (furnish(&store)) return 1;
    for (int64_t n = 0; n < s->clients; n++, store.used = 0)
        norm_back(s, &store, x + n * size, PART(scale, n, s->channels), moments + n * moments_of(s), PART(y, n, size),
                  dy + n * size, dx + n * size, PART(d_scale, n, s->channels), PART(d_shift, n, s->channels),
                  PART(d_added, n, size));
    free(store.memory);
    return 0;
}

/* ---- Whole nets --------------------------------------------------------------------------------------------------- */

typedef enum { CONV, NORM, RELU, MEAN, LINEAR } Kind;

/* A layer as it is told; each takes what the one before it makes. */
typedef struct {
    int64_t kind;
    int64_t added;        /* Norm: what the layer of this number takes is added; −1 for nothing. */
    int64_t leaf, leaves; /* Its first tensor of parameters, and how many there are. */
    Shape conv;           /* Of all others only inputs, height, width and outputs count. */
    Norm norm;
} Layer;

static int64_t taken_by(const Layer *l) { return l->conv.batch * image_of(&l->conv); }
static int64_t made_by(const Layer *l) {
    switch (l->kind) {
        case CONV: return l->conv.batch * made_of(&l->conv);
        case MEAN: return l->conv.batch * l->conv.inputs;
        case LINEAR: return l->conv.batch * l->conv.outputs;
    }
    return taken_by(l);
}

/* Numbers of each tensor of parameters. */
static int64_t leaf_size(const Layer *l, int64_t which) {
    switch (l->kind) {
        case CONV: return which ? l->conv.outputs : weights_of(&l->conv);
        case LINEAR: return which ? l->conv.outputs : image_of(&l->conv) * l->conv.outputs;
    }
    return l->conv.inputs;
}

static void relu_forth(int64_t count, const T *x, T *y) {
    for (int64_t n = 0; n < count; n++) y[n] = x[n] <= 0 ? 0 : x[n];
}
static void relu_back(int64_t count, const T *y, const T *dy, T *dx) {
    for (int64_t n = 0; n < count; n++) dx[n] = y[n] <= 0 ? 0 : dy[n];
}

/* The mean of each image's channel: x [channels][pixels][batch] gives y [channels][batch]. */
static void mean_forth(const Shape *s, const T *x, T *y) {
    int64_t pixels = s->height * s->width;
    memset(y, 0, (size_t)(s->inputs * s->batch) * sizeof(T));
    for (int64_t c = 0; c < s->inputs; c++, y += s->batch) {
        for (int64_t k = 0; k < pixels; k++, x += s->batch)
            for (int64_t b = 0; b < s->batch; b++) y[b] += x[b];
        for (int64_t b = 0; b < s->batch; b++) y[b] /= (T)pixels;
    }
}
static void mean_back(const Shape *s, const T *dy, T *dx) {
    int64_t pixels = s->height * s->width;
    for (int64_t c = 0; c < s->inputs; c++, dy += s->batch)
        for (int64_t k = 0; k < pixels; k++, dx += s->batch)
            for (int64_t b = 0; b < s->batch; b++) dx[b] = dy[b] / (T)pixels;
}

/* x [features][batch], w [features][outputs] and bias [outputs] or NULL give y [outputs][batch]. */
static void linear_forth(const Shape *s, const T *x, const T *w, const T *bias, T *y) {
    for (int64_t o = 0; o < s->outputs; o++)
        for (int64_t b = 0; b < s->batch; b++) y[o * s->batch + b] = bias ? bias[o] : 0;
    for (int64_t f = 0; f < image_of(s); f++, x += s->batch)
        for (int64_t o = 0; o < s->outputs; o++, w++)
            for (int64_t b = 0; b < s->batch; b++) y[o * s->batch + b] += *w * x[b];
}
static void linear_back(const Shape *s, const T *x, const T *w, const T *dy, T *dw, T *db, T *dx) {
    for (int64_t o = 0; o < s->outputs && db; o++) {
        db[o] = 0;
        for (int64_t b = 0; b < s->batch; b++) db[o] += dy[o * s->batch + b];
    }
    for (int64_t f = 0; f < image_of(s); f++, x += s->batch, dx += s->batch) {
        memset(dx, 0, (size_t)s->batch * sizeof(T));
        for (int64_t o = 0; o < s->outputs; o++, w++, dw++) {
            const T *g = dy + o * s->batch;
            *dw = 0;
            for (int64_t b = 0; b < s->batch; b++) *dw += g[b] * x[b], dx[b] += *w * g[b];
        }
    }
}

/* The weighted sum of cross-entropies of logits [classes][batch], and its gradient. */
static T cross_entropy(const T *logits, const int64_t *labels, const T *weights, int64_t batch, int64_t classes, T *d) {
    T sum = 0;
    for (int64_t b = 0; b < batch; b++) {
        T largest = logits[b], all = 0;
        for (int64_t c = 1; c < classes; c++) largest = logits[c * batch + b] > largest ? logits[c * batch + b] : largest;
        for (int64_t c = 0; c < classes; c++)
            all += d[c * batch + b] = (T)exp((double)(logits[c * batch + b] - largest));
        for (int64_t c = 0; c < classes; c++)
            d[c * batch + b] = (d[c * batch + b] / all - (c == labels[b])) * weights[b];
        sum += weights[b] * ((T)log((double)all) - (logits[labels[b] * batch + b] - largest));
    }
    return sum;
}

/* One client's step at work: what each layer takes and, at the end, the logits; each norm's moments. */
typedef struct {
    const Layer *layers;
    int64_t count;
    const T **taken;
    T **made, **moments;
    const T **w; /* Parameters of this client, and their gradients. */
    T **dw;
} Step;

static const T *second(const Layer *l, const T **w) { return l->leaves > 1 ? w[l->leaf + 1] : NULL; }

static void layer_forth(const Step *p, int64_t n, Store *scratch) {
    const Layer *l = p->layers + n;
    const T *x = p->taken[n], *w = l->leaves ? p->w[l->leaf] : NULL;
    switch (l->kind) {
        case CONV: conv_forth(&l->conv, scratch, x, w, second(l, p->w), p->made[n]); return;
        case NORM:
            norm_forth(&l->norm, scratch, x, w, second(l, p->w), l->added < 0 ? NULL : p->taken[l->added], p->made[n],
                       p->moments[n]);
            return;
    }
    if (!scratch->memory) return;
    switch (l->kind) {
        case RELU: relu_forth(taken_by(l), x, p->made[n]); return;
        case MEAN: mean_forth(&l->conv, x, p->made[n]); return;
        case LINEAR: linear_forth(&l->conv, x, w, second(l, p->w), p->made[n]); return;
    }
}

/* From dy, dx (of a first convolution it is NULL), the gradients of parameters and, of a norm, of what was added. */
static void layer_back(const Step *p, int64_t n, Store *scratch, const T *dy, T *dx, T *d_added) {
    const Layer *l = p->layers + n;
    const T *x = p->taken[n], *w = l->leaves ? p->w[l->leaf] : NULL;
    T *dw = l->leaves ? p->dw[l->leaf] : NULL, *db = l->leaves > 1 ? p->dw[l->leaf + 1] : NULL;
    switch (l->kind) {
        case CONV: conv_back(&l->conv, scratch, x, w, dy, dw, db, dx); return;
        case NORM:
            norm_back(&l->norm, scratch, x, w, p->moments[n], l->norm.relu ? p->made[n] : NULL, dy, dx, dw, db,
                      l->added < 0 ? NULL : d_added);
            return;
    }
    if (!scratch->memory) return;
    switch (l->kind) {
        case RELU: relu_back(taken_by(l), p->made[n], dy, dx); return;
        case MEAN: mean_back(&l->conv, dy, dx); return;
        case LINEAR: linear_back(&l->conv, x, w, dy, dw, db, dx); return;
    }
}

/* Forward and back; returns the loss. `d` are three buffers of gradients: two that layers hand on, and one for what was
   added and waits for the layer that took it. */
static T step(const Step *p, Store *scratch, const int64_t *labels, const T *weights, T *d[3]) {
    const Layer *last = p->layers + p->count - 1;
    int64_t waits = -1;
    for (int64_t n = 0; n < p->count; n++, scratch->used = 0) layer_forth(p, n, scratch);
    T loss = cross_entropy(p->made[p->count - 1], labels, weights, last->conv.batch, made_by(last) / last->conv.batch, d[0]);
    for (int64_t n = p->count - 1; n >= 0; n--, scratch->used = 0) {
        int64_t now = (p->count - 1 - n) % 2;
        /* The first layer's inputs are data. */
        T *dx = n || p->layers[n].kind != CONV ? d[1 - now] : NULL;
        layer_back(p, n, scratch, d[now], dx, d[2]);
        if (p->layers[n].kind == NORM && p->layers[n].added >= 0) waits = p->layers[n].added;
        if (waits != n) continue;
        for (int64_t k = 0; k < taken_by(p->layers + n) && dx; k++) dx[k] += d[2][k];
        waits = -1;
    }
    return loss;
}

/* Places for one client's step: all that layers make, and three gradients as large as the largest. */
static void share(const Step *p, Store *store, T *d[3]) {
    int64_t largest = 0;
    for (int64_t n = 0; n < p->count; n++) {
        const Layer *l = p->layers + n;
        p->made[n] = NUMBERS(store, made_by(l));
        p->moments[n] = NUMBERS(store, l->kind == NORM ? moments_of(&l->norm) : 0);
        if (n + 1 < p->count) p->taken[n + 1] = p->made[n];
        largest = most(largest, most(taken_by(l), made_by(l)));
    }
    for (int k = 0; k < 3; k++) d[k] = NUMBERS(store, largest);
}

/* As much scratch as the layer that needs most. */
static int furnish_scratch(const Step *p, Store *scratch) {
    size_t largest = 0;
    for (int64_t n = 0; n < p->count; n++) {
        scratch->used = 0, layer_forth(p, n, scratch);
        if (scratch->used > largest) largest = scratch->used;
        scratch->used = 0, layer_back(p, n, scratch, NULL, NULL, NULL);
        if (scratch->used > largest) largest = scratch->used;
    }
    scratch->used = largest;
    return furnish(scratch);
}

/* Gradients of `clients` nets: images [clients][channels][height][width][batch], labels and the weights of samples
   [clients][batch]; parameters and their gradients are tensors [clients][…], each client's in torch's order but for
   those of linear layers, [features][outputs]. Gives each client's loss, too. */
int net_gradients(const Layer *layers, int64_t count, int64_t clients, const T *images, const int64_t *labels,
                  const T *weights, const T *const *leaves, T *const *gradients, T *losses) {
    int64_t tensors = layers[count - 1].leaf + layers[count - 1].leaves, batch = layers[0].conv.batch;
    void **table = calloc((size_t)(3 * count + 2 * tensors), sizeof(void *));
    Store store = {0}, scratch = {0};
    T *d[3];
    if (!table) return 1;
    Step p = {layers, count, (const T **)table, (T **)table + count, (T **)table + 2 * count,
              (const T **)table + 3 * count, (T **)table + 3 * count + tensors};
    share(&p, &store, d);
    int failed = furnish(&store);
    if (!failed) share(&p, &store, d), failed = furnish_scratch(&p, &scratch);
    for (int64_t n = 0; n < clients && !failed; n++) {
        for (const Layer *l = layers; l < layers + count; l++)
            for (int64_t k = 0; k < l->leaves; k++) {
                p.w[l->leaf + k] = leaves[l->leaf + k] + n * leaf_size(l, k);
                p.dw[l->leaf + k] = gradients[l->leaf + k] + n * leaf_size(l, k);
            }
        p.taken[0] = images + n * taken_by(layers);
        losses[n] = step(&p, &scratch, labels + n * batch, weights + n * batch, d);
    }
    free(table), free(store.memory), free(scratch.memory);
    return failed;
}
