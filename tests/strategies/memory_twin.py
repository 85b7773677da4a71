"""Friends with memory once more, one client at a time with loops and dictionaries: slow, plain, independent."""

from __future__ import annotations

import math

import numpy as np

FRIENDS, SHRINKAGE, MIXED_UP_TO, TRUST_AFTER = 8, 0.1, 2.0, 5.0


def best_parts(covariance: list[list[float]]) -> list[float]:
    """Least cᵀCc with Σc = 1 over the sources that would not get a negative part."""
    names = list(range(len(covariance)))
    trace = 1e-9 * max(covariance[i][i] for i in names)
    while True:
        system = np.array(
            [[covariance[i][j] + (trace if i == j else 0.0) for j in names] for i in names], dtype=float
        )
        solution = np.linalg.inv(system) @ np.ones(len(names))
        solution = solution / solution.sum()
        if (solution >= 0).all():
            parts = [0.0] * len(covariance)
            for i, part in zip(names, solution, strict=True):
                parts[i] = float(part)
            return parts
        names = [i for i, part in zip(names, solution, strict=True) if part >= 0]


class MemoryTwin:
    """K clients of equal weight; `updates` are Δ = (w_k − w_t)/η_L."""

    def __init__(self, clients: int, *, rule: str, window: int, fading: float, evenness: float) -> None:
        self.K, self.rule, self.window, self.fading, self.evenness = clients, rule, window, fading, evenness
        self.D: dict[frozenset[int], float] = {}
        self.N: dict[frozenset[int], int] = {}
        self.last: dict[int, np.ndarray] = {}
        self.when: dict[int, int] = {}
        self.pool: dict[int, list[float]] = {}
        self.own = {k: [0.0, 0.0] for k in range(clients)}
        self.moves = [0.0, 0.0, 0.0]
        self.came_true = [0.0, 0.0]
        self.places: list[np.ndarray] = []
        self.turns = [0.0, 0.0]

    def d(self, i: int, j: int) -> float | None:
        return 0.0 if i == j else self.D.get(frozenset((i, j)))

    @staticmethod
    def age_class(age: int) -> int:
        return math.ceil(math.log2(age))

    def pooled(self, age: int) -> float | None:
        if not self.pool:
            return None
        nearest = min(sorted(self.pool), key=lambda c: abs(c - self.age_class(age)))
        return self.pool[nearest][0] / self.pool[nearest][1]

    def memory_error(self, k: int, t: int) -> float | None:
        pooled = self.pooled(t - self.when[k])
        if pooled is None:
            return None
        return pooled * (self.own[k][0] + TRUST_AFTER) / (self.own[k][1] + TRUST_AFTER)

    def drift(self, k: int, t: int, active: list[int]) -> tuple[float, float]:
        """Return how much of the mean move of those who are back to add to the memory of k, and the error's rest."""
        back = len([i for i in active if i in self.last])
        together, alone, count = self.moves
        recent = self.pool.get(self.age_class(t - self.when[k]), [0.0, 0.0])[1]
        if back == 0 or count == 0.0 or together <= 0.0 or recent <= 0.5:
            return 0.0, 1.0
        v, gamma = alone / count, together / count
        c = back * gamma / (v + (back - 1) * gamma)
        return c, 1.0 - c * gamma / v

    def lasting(self) -> float:
        return self.turns[0] / self.turns[1] if self.turns[1] > 0 else 1.0

    def substitute(
        self, k: int, t: int, active: list[int], usual: float | None
    ) -> tuple[dict[int, float], float, object, float]:
        """Return the parts of active clients, the part of memory, the name of the largest and the error."""
        even = {i: 1.0 / len(active) for i in active}

        def to(i: int, j: int) -> float:
            known = self.d(i, j)
            return usual if known is None else known

        met = sorted((self.d(k, i), i) for i in active if self.d(k, i) is not None)[:FRIENDS]
        memory = self.memory_error(k, t)
        if memory is not None:
            memory *= self.drift(k, t, active)[1]
        if usual is None and memory is None:
            return even, 0.0, "mean", math.nan
        sources: list[tuple[object, float]] = [(i, distance) for distance, i in met]
        inner = 0.0
        if usual is not None:
            inner = 0.5 * sum(to(i, j) for i in active for j in active) / len(active) ** 2
            error = sum(to(k, i) for i in active) / len(active) - inner
            sources.append(("mean", max(error, 0.5 * min(to(k, i) for i in active))))
        if memory is not None:
            sources.append(("memory", memory))

        def between(a: object, b: object) -> float:
            if a == "mean" or b == "mean":
                i = b if a == "mean" else a
                return 0.0 if a == b else sum(to(i, j) for j in active) / len(active) - inner
            return to(a, b)

        errors = [error for _, error in sources]
        covariance = [[0.0] * len(sources) for _ in sources]
        for x, (a, error_a) in enumerate(sources):
            for y, (b, error_b) in enumerate(sources):
                if x == y:
                    covariance[x][y] = error_a
                elif "memory" in (a, b):
                    covariance[x][y] = 0.5 * min(errors)
                else:
                    covariance[x][y] = 0.5 * (error_a + error_b - between(a, b))
        if self.rule == "least":
            parts = [0.0] * len(sources)
            parts[errors.index(min(errors))] = 1.0
        else:
            kept = 1.0 - SHRINKAGE if self.rule == "best" else 0.0
            good = [x for x, error in enumerate(errors) if error <= MIXED_UP_TO * min(errors)]
            chosen = best_parts([[covariance[x][y] * (1.0 if x == y else kept) for y in good] for x in good])
            parts = [0.0] * len(sources)
            for x, part in zip(good, chosen, strict=True):
                parts[x] = part
        expected = sum(p * q * covariance[x][y] for x, p in enumerate(parts) for y, q in enumerate(parts))
        of_active, of_memory = dict.fromkeys(active, 0.0), 0.0
        for (name, _), part in zip(sources, parts, strict=True):
            if name == "mean":
                for i in active:
                    of_active[i] += part / len(active)
            elif name == "memory":
                of_memory = part
            else:
                of_active[name] += part
        return of_active, of_memory, sources[parts.index(max(parts))][0], expected

    def spread(self, known: list[int]) -> dict[int, float]:
        pairs = [self.d(i, j) for i in known for j in known if i != j]
        pairs = [distance for distance in pairs if distance is not None]
        plain = {i: 1.0 / len(known) for i in known}
        if not pairs:
            return plain
        usual = sum(pairs) / len(pairs)
        D = [[usual if self.d(i, j) is None else self.d(i, j) for j in known] for i in known]
        far = max(max(row) for row in D)
        even = best_parts(
            [
                [far if x == y else (1 - SHRINKAGE) * (far - 0.5 * D[x][y]) for y in range(len(known))]
                for x in range(len(known))
            ]
        )
        alike = sum(p * q * (1 - D[x][y] / far) for x, p in enumerate(even) for y, q in enumerate(even))
        share = self.evenness / alike / (len(known) + self.evenness / alike)
        return {i: share * p + (1 - share) / len(known) for i, p in zip(known, even, strict=True)}

    def play(
        self, t: int, active: list[int], updates: dict[int, np.ndarray], params: np.ndarray
    ) -> tuple[np.ndarray, dict[int, object], dict[int, float], dict[int, np.ndarray]]:
        """Return the global update, and each missing client's main stand-in, predicted error and substitute.

        `params` are the global ones that the updates start from.
        """
        missing = [k for k in range(self.K) if k not in active]
        known = [k for k in missing if k in self.last]
        distances = [self.d(k, i) for k in missing for i in active]
        distances += [self.d(i, j) for i in active for j in active if i != j]
        distances = [distance for distance in distances if distance is not None]
        usual = sum(distances) / len(distances) if distances else None
        speaks = active + known
        weight = dict.fromkeys(speaks, 1.0 / self.K)
        if len(speaks) < self.K:
            for i, part in self.spread(speaks).items():
                weight[i] += (1.0 - len(speaks) / self.K) * part
        total = sum(weight[i] * updates[i] for i in active)
        main: dict[int, object] = {}
        expected: dict[int, float] = {}
        substitutes: dict[int, np.ndarray] = {}
        for k in known:
            of_active, of_memory, main[k], expected[k] = self.substitute(k, t, active, usual)
            measured, foreseen = self.came_true
            expected[k] *= measured / foreseen if foreseen > 0 else 1.0
            moves = [updates[i] - self.last[i] for i in active if i in self.last]
            fresh = sum(part * updates[i] for i, part in of_active.items())
            memory = of_memory * self.last[k]
            if moves:
                c, q = self.drift(k, t, active)[0], self.lasting()
                common = c * sum(moves) / len(moves)
                # The fresh have the whole move and are left with q of it, the memory has none and is given q of it.
                fresh = fresh - (1 - q) * (1 - of_memory) * common
                memory = memory + q * of_memory * common
                if self.moves[2] > 0:
                    lag = (1 - q) ** 2 * c * self.moves[0] / self.moves[2]
                    expected[k] += lag * (measured / foreseen if foreseen > 0 else 1.0)
            substitutes[k] = fresh + memory
            total = total + weight[k] * substitutes[k]
        self.learn(t, active, updates)
        self.places.append(params)
        if len(self.places) > 2:
            late, before = self.places[-1] - self.places[-2], self.places[-2] - self.places[-3]
            news = [float(late @ before), float(np.linalg.norm(late) * np.linalg.norm(before))]
            self.turns = [(1 - self.fading) * old + new for old, new in zip(self.turns, news, strict=True)]
        return total, main, expected, substitutes

    def learn(self, t: int, active: list[int], updates: dict[int, np.ndarray]) -> None:
        back = [k for k in active if k in self.last]
        errors = {k: float(((updates[k] - self.last[k]) ** 2).sum()) for k in back}
        expected = {k: self.pooled(t - self.when[k]) for k in back}
        if back and self.pool:
            foreseen = sum(self.memory_error(k, t) for k in back)
            news = [sum(errors.values()), foreseen]
            self.came_true = [
                (1 - self.fading) * old + new for old, new in zip(self.came_true, news, strict=True)
            ]
        for k in back:
            if expected[k] is not None:
                ratio, returns = self.own[k]
                self.own[k] = [
                    (1 - self.fading) * ratio + errors[k] / expected[k],
                    (1 - self.fading) * returns + 1.0,
                ]
        if back:
            for sums in self.pool.values():
                sums[0] *= 1 - self.fading
                sums[1] *= 1 - self.fading
        for k in back:
            sums = self.pool.setdefault(self.age_class(t - self.when[k]), [0.0, 0.0])
            sums[0] += errors[k]
            sums[1] += 1.0
        if len(back) > 1:
            moves = {k: updates[k] - self.last[k] for k in back}
            pairs = [float(moves[i] @ moves[j]) for i in back for j in back if i != j]
            news = [sum(pairs) / (len(back) - 1), sum(errors.values()), float(len(back))]
            self.moves = [(1 - self.fading) * old + new for old, new in zip(self.moves, news, strict=True)]
        for i in active:
            for j in active:
                if i < j:
                    pair = frozenset((i, j))
                    self.N[pair] = self.N.get(pair, 0) + 1
                    old = self.D.get(pair, 0.0)
                    new = float(((updates[i] - updates[j]) ** 2).sum())
                    self.D[pair] = old + (new - old) / min(self.N[pair], self.window)
        for k in active:
            self.last[k], self.when[k] = updates[k], t
