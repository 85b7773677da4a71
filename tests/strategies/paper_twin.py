"""The paper's algorithm once more, written straight from its text with loops and sets: slow, plain, independent."""

from __future__ import annotations

import math

import numpy as np


class PaperTwin:
    """FL-FDMS on K clients; `updates` handed to `play` are Δ = (w_k − w_t)/η_L."""

    def __init__(self, clients: int, rounds: int, *, similarity: str, reduction: dict | None) -> None:
        self.K, self.T, self.similarity, self.reduction = clients, rounds, similarity, reduction
        self.R = [[0.0] * clients for _ in range(clients)]
        self.N = [[0] * clients for _ in range(clients)]
        self.C = [{i for i in range(clients) if i != k} for k in range(clients)]
        self.pairs_computed = 0

    def friends(self, active: list[int]) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for k in range(self.K):
            if k in active:
                continue
            best, friend = -math.inf, None
            for i in sorted(active):
                if self.N[k][i] == 0 or (self.reduction is not None and i not in self.C[k]):
                    continue
                if self.R[k][i] > best:
                    best, friend = self.R[k][i], i
            found[k] = friend
        return found

    def weights(self, active: list[int], friends: dict[int, int | None]) -> dict[int, float]:
        weight = dict.fromkeys(active, 1.0 / self.K)
        for friend in friends.values():
            if friend is not None:
                weight[friend] += 1.0 / self.K
            else:  # Dropout's rule: the mean of the active
                for i in active:
                    weight[i] += 1.0 / self.K / len(active)
        return weight

    def score(self, a: np.ndarray, b: np.ndarray) -> float:
        if self.similarity == "distance":
            return -math.sqrt(float(((a - b) ** 2).sum()))
        cosine = float((a * b).sum()) / math.sqrt(float((a * a).sum())) / math.sqrt(float((b * b).sum()))
        return 0.5 * (cosine + 1.0)

    def play(self, t: int, active: list[int], updates: dict[int, np.ndarray]) -> None:
        self.pairs_computed = 0
        for i in active:
            for j in active:
                if j <= i:
                    continue
                if self.reduction is not None and j not in self.C[i] and i not in self.C[j]:
                    continue
                self.pairs_computed += 1
                r = self.score(updates[i], updates[j])
                n = self.N[i][j]
                self.R[i][j] = self.R[j][i] = (n * self.R[i][j] + r) / (n + 1)
                self.N[i][j] = self.N[j][i] = n + 1
        if self.reduction is not None and active:
            self.eliminate(t + 1)

    def root(self, meetings: float, b_max: int) -> float:
        inner = 2 * math.log(2 * self.K**2 * self.T * b_max) - 2 * math.log(self.reduction["p"])
        return math.sqrt(inner / meetings)

    def friends_by_gap(self, k: int) -> list[float]:
        scores = sorted((self.R[k][i] for i in range(self.K) if self.N[k][i] > 0), reverse=True)
        if len(scores) < 2:
            return []
        gaps = [scores[n] - scores[n + 1] for n in range(len(scores) - 1)]
        return scores[: gaps.index(max(gaps)) + 1]

    def eliminate(self, t: int) -> None:
        wish = self.reduction
        circles = [self.friends_by_gap(k) for k in range(self.K)]
        b_max, delta_f, beta = wish["b_max"], wish["delta_f"], wish["beta"]
        if b_max == "estimate":
            b_max = max([1] + [len(circle) for circle in circles])
        if delta_f == "estimate":
            delta_f = max([0.0] + [circle[0] - circle[-1] for circle in circles if circle])
        for k in range(self.K):
            scored = [i for i in sorted(self.C[k]) if self.N[k][i] > 0]
            if not scored:
                continue
            if beta == "estimate":  # each pair's own meetings: confidence intervals that no longer overlap
                half = {i: wish["scale"] * (self.root(self.N[k][i], b_max) + delta_f) / 2 for i in scored}
                lowest = max(self.R[k][i] - half[i] for i in scored)
                self.C[k] -= {i for i in scored if self.R[k][i] + half[i] <= lowest}
            else:  # the paper's rule
                best = max(self.R[k][i] for i in scored)
                theta = wish["scale"] * (self.root(beta * t, b_max) + delta_f)
                self.C[k] -= {i for i in scored if best - self.R[k][i] >= theta}
