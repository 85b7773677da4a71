/* Mixtures of stand-ins, as fdsim/strategies/mixtures.py defines them: compiled at first use by c_kernel.py. For a few
   missing clients arrays of arrays cost a hundred calls; here each client is worked out on its own. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* The nearest friends that may have a part, the mean and memory. */
#define MOST_FRIENDS 16
#define MOST (MOST_FRIENDS + 2)

typedef struct {
    int64_t missing, active, friends;
    /* Whether one stand-in is taken, not a mixture. */
    int64_t single;
    /* What errors have in common counts by this factor; sources with more than so many times the least error do not. */
    double common, mixed_up_to;
} Task;

/* [M][S] and [S][S] squared distances, [M] errors of memory, [S] weights of the mean; NaN where nothing is known. */
typedef struct {
    const double *apart, *among, *remembered, *mean;
} Sources;

/* The sources of one missing client: errors, and what they have in common. */
typedef struct {
    int count;
    double error[MOST], covariance[MOST][MOST];
} Candidates;

static double known_mean(const Task *task, const Sources *sources) {
    double sum = 0;
    int64_t count = 0, active = task->active;
    for (int64_t n = 0; n < task->missing * active; n++)
        if (isfinite(sources->apart[n])) sum += sources->apart[n], count++;
    for (int64_t i = 0; i < active; i++)
        for (int64_t j = 0; j < active; j++)
            if (i != j && isfinite(sources->among[i * active + j])) sum += sources->among[i * active + j], count++;
    return count ? sum / (double)count : NAN;
}

static double or_usual(double distance, double usual) { return isnan(distance) ? usual : distance; }

/* The nearest active clients, the nearest first and of equals the first; strangers come last. */
static void find_nearest(const double *apart, int64_t active, int count, int64_t *near) {
    double found[MOST_FRIENDS];
    int filled = 0;
    for (int64_t i = 0; i < active; i++) {
        double distance = isnan(apart[i]) ? DBL_MAX : apart[i];
        if (filled == count && distance >= found[count - 1]) continue;
        int place = filled < count ? filled++ : count - 1;
        for (; place > 0 && found[place - 1] > distance; place--)
            found[place] = found[place - 1], near[place] = near[place - 1];
        found[place] = distance, near[place] = i;
    }
}

/* Solves rows [size][size + 1], the right side last, in place. Returns 1 where there is no solution. */
static int solve(double **row, int size) {
    for (int step = 0; step < size; step++) {
        int pivot = step;
        for (int i = step + 1; i < size; i++)
            if (fabs(row[i][step]) > fabs(row[pivot][step])) pivot = i;
        if (row[pivot][step] == 0) return 1;
        double *swapped = row[step];
        row[step] = row[pivot], row[pivot] = swapped;
        for (int i = step + 1; i < size; i++) {
            double factor = row[i][step] / row[step][step];
            for (int j = step; j <= size; j++) row[i][j] -= factor * row[step][j];
        }
    }
    for (int i = size - 1; i >= 0; i--) {
        for (int j = i + 1; j < size; j++) row[i][size] -= row[i][j] * row[j][size];
        row[i][size] /= row[i][i];
    }
    return 0;
}

/* Solves for the parts of least error without those that would be negative, until there are none; where none is left,
   the source of least error has all. Returns 1 where the system cannot be solved. */
static int least_error_parts(const Candidates *from, double common, double *parts) {
    int count = from->count, usable[MOST], left = 0, best = -1;
    double trace = 0;
    for (int i = 0; i < count; i++) {
        parts[i] = 0;
        usable[i] = isfinite(from->covariance[i][i]);
        left += usable[i];
        if (!usable[i]) continue;
        trace = fmax(trace, from->covariance[i][i]);
        if (best < 0 || from->covariance[i][i] < from->covariance[best][best]) best = i;
    }
    /* A trace of error of their own makes identical sources share. */
    trace = 1e-9 * trace + 1e-300;
    while (left) {
        int place[MOST], size = 0, negative = 0;
        double system[MOST][MOST + 1], *row[MOST], total = 0;
        for (int i = 0; i < count; i++)
            if (usable[i]) place[size++] = i;
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < size; j++) {
                double shared = from->covariance[place[i]][place[j]];
                system[i][j] = i == j ? shared + trace : isfinite(shared) ? common * shared : 0;
            }
            system[i][size] = 1;
            row[i] = system[i];
        }
        if (solve(row, size)) return 1;
        for (int i = 0; i < size; i++) total += row[i][size];
        for (int i = 0; i < count; i++) parts[i] = 0;
        for (int i = 0; i < size; i++) {
            double part = row[i][size] / (total > 0 ? total : 1);
            parts[place[i]] = part;
            if (part < 0) usable[place[i]] = 0, negative++;
        }
        if (!negative) return 0;
        left -= negative;
    }
    for (int i = 0; i < count; i++) parts[i] = i == best;
    return 0;
}

/* Puts the sources of a missing client together. */
static void gather(const Task *task, const Sources *sources, int64_t m, double usual, const double *to_mean, double inner,
                   const int64_t *near, Candidates *found) {
    int64_t active = task->active;
    const double *apart = sources->apart + m * active;
    int friends = found->count - 2, mean = friends, memory = friends + 1;
    double filled_sum = 0, filled_least = INFINITY, least = INFINITY;
    for (int64_t i = 0; i < active; i++) {
        /* A stranger stands in only as one of all, and is then taken to be as far away as clients usually are. */
        double filled = or_usual(apart[i], usual);
        filled_sum += filled * sources->mean[i];
        if (filled < filled_least) filled_least = filled;
    }
    for (int i = 0; i < friends; i++) found->error[i] = apart[near[i]];
    found->error[mean] = isnan(filled_sum) ? NAN : fmax(filled_sum - inner, 0.5 * filled_least);
    found->error[memory] = sources->remembered[m];
    for (int i = 0; i < found->count; i++)
        if (found->error[i] < least) least = found->error[i];
    for (int i = 0; i <= mean; i++)
        for (int j = 0; j <= mean; j++) {
            double fresh = i == mean && j == mean ? 0
                           : i == mean            ? to_mean[near[j]] - inner
                           : j == mean            ? to_mean[near[i]] - inner
                                                  : or_usual(sources->among[near[i] * active + near[j]], usual);
            found->covariance[i][j] = 0.5 * (found->error[i] + found->error[j] - fresh);
        }
    for (int i = 0; i < memory; i++)
        found->covariance[memory][i] = found->covariance[i][memory] = isinf(least) ? NAN : 0.5 * least;
    found->covariance[memory][memory] = sources->remembered[m];
}

/* Puts mixtures into parts [M][S + 1], the place of the largest part into largest [M] (S for the mean, S + 1 for memory),
   and the errors to expect of the mixture and of its largest part into error and largest_error [M]. Returns 0, or 1 where
   it cannot be done. */
int substitute(const Task *task, const Sources *sources, double *parts, int64_t *largest, double *error,
               double *largest_error) {
    int64_t active = task->active;
    int friends = (int)(task->friends < active ? task->friends : active);
    if (friends > MOST_FRIENDS || active < 1) return 1;
    double *to_mean = malloc((size_t)active * sizeof(double)), inner = 0, usual = known_mean(task, sources);
    if (!to_mean) return 1;
    for (int64_t i = 0; i < active; i++) {
        to_mean[i] = 0;
        for (int64_t j = 0; j < active; j++)
            to_mean[i] += or_usual(sources->among[i * active + j], usual) * sources->mean[j];
        inner += 0.5 * sources->mean[i] * to_mean[i];
    }
    int failed = 0;
    for (int64_t m = 0; m < task->missing && !failed; m++) {
        int64_t near[MOST_FRIENDS];
        Candidates from = {.count = friends + 2};
        double chosen[MOST] = {0}, least = INFINITY, sum = 0, *row = parts + m * (active + 1);
        int best = 0, mean = friends, memory = friends + 1;
        find_nearest(sources->apart + m * active, active, friends, near);
        gather(task, sources, m, usual, to_mean, inner, near, &from);
        for (int i = 0; i < from.count; i++)
            if (isfinite(from.error[i]) && from.error[i] < least) least = from.error[i], best = i;
        int blank = isinf(least);
        if (blank) {
            chosen[mean] = 1;
        } else if (task->single) {
            chosen[best] = 1;
        } else {
            for (int i = 0; i < from.count; i++)
                if (!(from.error[i] <= task->mixed_up_to * least)) from.covariance[i][i] = NAN;
            failed = least_error_parts(&from, task->common, chosen);
        }
        int main = 0;
        for (int i = 1; i < from.count; i++)
            if (chosen[i] > chosen[main]) main = i;
        for (int64_t i = 0; i < active; i++) row[i] = chosen[mean] * sources->mean[i];
        for (int i = 0; i < friends; i++) row[near[i]] += chosen[i];
        row[active] = chosen[memory];
        for (int i = 0; i < from.count; i++)
            for (int j = 0; j < from.count; j++)
                if (isfinite(from.covariance[i][j])) sum += chosen[i] * from.covariance[i][j] * chosen[j];
        error[m] = blank ? NAN : sum;
        largest[m] = main < friends ? near[main] : active + (main == memory);
        largest_error[m] = from.error[main];
    }
    free(to_mean);
    return failed;
}
