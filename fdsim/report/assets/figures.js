// Builders: each turns a figure's payload and the reader's choice into traces, layout and the table for CSV.
"use strict";
window.fdsimBuilders = (() => {
  const KINDS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };
  const unpacked = new WeakMap();
  // Packed numbers are base64 of little-endian bytes; a figure unpacks them once.
  function unpack(pack) {
    if (!unpacked.has(pack)) {
      const text = atob(pack.bytes);
      const bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
      unpacked.set(pack, new KINDS[pack.kind](bytes.buffer));
    }
    return unpacked.get(pack);
  }
  // plotly reads tags in texts; names from a scenario are texts and nothing else.
  const esc = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const columnRows = (columns) => function* rows() {
    const length = Math.max(0, ...columns.map((column) => column.length));
    for (let i = 0; i < length; i += 1) yield columns.map((column) => column[i]);
  };

  function plain(payload, choice) {
    const view = payload.views ? payload.views[choice.view] : payload;
    return {
      traces: view.traces, layout: view.layout, legend: view.legend || payload.legend, height: view.height,
      table: { columns: view.table.columns, rows: columnRows(view.table.values) },
    };
  }

  // ---- curves with bands, named at their right end
  function curves(payload, choice, { narrow, hidden }) {
    const xKey = choice.x, yKey = choice.y;
    const shown = payload.series.filter((s) => s.y[yKey] && (!choice.case || s.case === choice.case));
    const lastRound = Math.max(0, ...shown.map((s) => s.x.round[s.x.round.length - 1]));
    const traces = [], ends = [];
    let low = Infinity, high = -Infinity, last = -Infinity, first = Infinity;
    const keys = [];
    for (const whole of shown) {
      const s = choice.zoom === "late" ? lateRounds(whole, (2 / 3) * lastRound) : whole;
      const axis = payload.y[yKey], x = s.x[xKey], { hi } = s.y[yKey];
      // A logarithmic axis has no place for zero.
      const mid = axis.log ? s.y[yKey].mid.map((v) => (v > 0 ? v : null)) : s.y[yKey].mid;
      if (mid.every((v) => v === null)) continue;
      const lo = axis.log && s.y[yKey].lo ? s.y[yKey].lo.map((v, i) => (v > 0 ? v : mid[i] && mid[i] / 10)) : s.y[yKey].lo;
      keys.push({ text: s.name, colour: s.colour, dash: s.dash });
      if (hidden.has(s.name)) continue;
      const name = esc(s.name);
      if (lo) {
        const whole = x.map((_, i) => i).filter((i) => lo[i] !== null && hi[i] !== null);
        const back = [...whole].reverse();
        traces.push({ x: [...whole, ...back].map((i) => x[i]), y: [...whole.map((i) => hi[i]), ...back.map((i) => lo[i])], fill: "toself", fillcolor: s.colour + "/0.16", line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: name, type: "scatter" });
      }
      traces.push({
        x, y: mid, name, type: "scatter", mode: "lines", legendgroup: name, connectgaps: true, line: { color: s.colour, dash: s.dash, width: 2.2 },
        customdata: lo ? mid.map((_, i) => [lo[i], hi[i]]) : undefined, showlegend: false,
        hovertemplate: "<b>" + name + "</b>  %{y:" + payload.y[yKey].format + "}" + (lo ? "  (%{customdata[0]:" + payload.y[yKey].format + "} to %{customdata[1]:" + payload.y[yKey].format + "})" : "") + "<extra></extra>",
      });
      for (const v of [...mid, ...(axis.log ? [] : lo || []), ...(hi || [])]) if (v !== null) { low = Math.min(low, v); high = Math.max(high, v); }
      let end = mid.length - 1;
      while (end >= 0 && mid[end] === null) end -= 1;
      if (end >= 0) { ends.push({ name, colour: s.colour, y: mid[end], label: s.name + " " + axis.say(mid[end]), value: mid[end] }); last = Math.max(last, x[end]); }
      if (x.length) first = Math.min(first, x[0]);
    }
    if (!ends.length) { low = 0; high = 1; first = 0; last = 1; }
    const axis = payload.y[yKey];
    const scale = axis.log ? Math.log10 : (v) => v;
    if (axis.log) low = Math.max(low, high * 1e-6);
    if (axis.whole && choice.zoom !== "late") { low = axis.floor; high = axis.ceiling; }
    const pad = (scale(high) - scale(low) || 1) * 0.06;
    const range = [axis.floor === undefined ? scale(low) - pad : Math.max(axis.floor, low - pad), axis.ceiling === undefined ? scale(high) + pad : Math.min(axis.ceiling, high + pad)];
    for (const end of ends) end.y = scale(end.y);
    const annotations = narrow ? [] : endLabels(ends, range, last, axis);
    return {
      traces,
      legend: keys,
      layout: {
        hovermode: "x unified", showlegend: false, margin: { l: 8, r: narrow ? 12 : endRoom(ends), t: 14, b: 8 }, annotations,
        xaxis: { title: payload.x[xKey].title, showgrid: false, range: [first, last], hoverformat: payload.x[xKey].format, unifiedhovertitle: { text: payload.x[xKey].hover } },
        yaxis: { title: axis.title, range, tickformat: axis.ticks, type: axis.log ? "log" : "linear", ...(axis.log ? { dtick: 1 } : {}) },
        shapes: payload.target && yKey === "accuracy" && payload.target > range[0] && payload.target < range[1]
          ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: payload.target, y1: payload.target, line: { color: "@axis", width: 1, dash: "dot" } }] : [],
      },
      table: {
        columns: ["strategy", ...(payload.cases ? ["case"] : []), "round", "simulated_hours", "energy_kj", yKey, ...(payload.banded ? [yKey + "_low", yKey + "_high"] : [])],
        rows: function* rows() {
          for (const s of shown) {
            const y = s.y[yKey];
            for (let i = 0; i < y.mid.length; i += 1) {
              yield [s.name, ...(payload.cases ? [s.case] : []), s.x.round[i], s.x.hours[i], s.x.energy ? s.x.energy[i] : null, y.mid[i], ...(payload.banded ? [y.lo ? y.lo[i] : null, y.hi ? y.hi[i] : null] : [])];
            }
          }
        },
      },
    };
  }
  // Where curves overlap at the end, the axes fit the last rounds alone.
  function lateRounds(s, from) {
    const keep = s.x.round.map((r, i) => i).filter((i) => s.x.round[i] > from);
    const pick = (values) => values && keep.map((i) => values[i]);
    const all = (record) => Object.fromEntries(Object.entries(record).map(([key, values]) => [key, pick(values)]));
    return { ...s, x: all(s.x), y: Object.fromEntries(Object.entries(s.y).map(([key, y]) => [key, all(y)])) };
  }
  const endRoom = (ends) => 28 + Math.max(0, ...ends.map((end) => 7.6 * (end.label || end.name).length));
  // Labels keep the order of the curves' ends and at least one line's height between them.
  function endLabels(ends, range, x, axis) {
    const sorted = [...ends].sort((a, b) => a.y - b.y);
    const gap = ((range[1] - range[0]) * 19) / 330;
    for (let i = 1; i < sorted.length; i += 1) sorted[i].y = Math.max(sorted[i].y, sorted[i - 1].y + gap);
    const over = sorted.length ? sorted[sorted.length - 1].y - (range[1] - gap / 2) : 0;
    if (over > 0) {
      sorted[sorted.length - 1].y -= over;
      for (let i = sorted.length - 2; i >= 0; i -= 1) sorted[i].y = Math.min(sorted[i].y, sorted[i + 1].y - gap);
    }
    return sorted.map((end) => ({
      x, y: end.y, xref: "x", yref: "y", xanchor: "left", yanchor: "middle", showarrow: false, xshift: 8, align: "left",
      text: "<b>" + end.name + "</b> " + axis.say(end.value), font: { color: end.colour, size: 13 },
    }));
  }
  const SAY = {
    percent: (v) => (100 * v).toFixed(1) + "%",
    number: (v) => Number(v.toPrecision(3)).toString(),
  };
  const curvesWithWords = (payload, choice, page) => {
    for (const axis of Object.values(payload.y)) axis.say = SAY[axis.words];
    return curves(payload, choice, page);
  };

  // ---- a matrix over clients, cut into blocks, perhaps one of several frames
  function matrix(payload, choice, { narrow, width }) {
    const set = payload.sets.find((s) => s.name === choice.set) || payload.sets[0];
    const at = Math.min(choice.frame ?? set.frames.length - 1, set.frames.length - 1);
    const frame = set.frames[at];
    const n = payload.labels.length, words = payload.words;
    const codes = unpack(frame.values), second = frame.second ? unpack(frame.second) : null;
    const value = (i) => (codes[i] === 65535 ? null : set.low + codes[i] * set.step);
    const z = [], extra = [];
    for (let r = 0; r < n; r += 1) {
      const row = new Array(n);
      for (let c = 0; c < n; c += 1) row[c] = value(r * n + c);
      z.push(row);
      if (second) extra.push(Array.from(second.subarray(r * n, (r + 1) * n)));
    }
    const places = Array.from({ length: n }, (_, i) => i);
    const step = Math.ceil(n / (narrow ? 10 : 25));
    const ticks = places.filter((i) => i % step === 0);
    const names = payload.labels.map(esc);
    const hover = payload.labels.map((a) => payload.labels.map((b) => esc(words.row + " " + a) + "<br>" + esc(words.column + " " + b)));
    const shapes = payload.blocks.map((b) => ({ type: "rect", x0: b.from - 0.5, x1: b.to + 0.5, y0: b.from - 0.5, y1: b.to + 0.5, line: { color: "@ink", width: 1.6 } }));
    const annotations = narrow ? [] : payload.blocks.map((b) => ({ x: n - 0.5, xref: "x", xshift: 8, y: (b.from + b.to) / 2, yref: "y", text: esc(b.name), showarrow: false, xanchor: "left", font: { size: 12, color: "@soft" } }));
    const height = narrow ? Math.min(430, 200 + 12 * n) : Math.max(400, Math.min(540, 160 + 20 * n));
    // The matrix is a square at the left; what its values add up to stands at the right.
    const inner = width - 80;
    const square = narrow ? 1 : Math.min(0.6, (height - 92) / inner);
    const room = payload.blocks.length && !narrow ? 84 / inner : 0.015;
    const axis = { tickvals: ticks, ticktext: ticks.map((i) => names[i]), showgrid: false };
    const beside = narrow ? null : words.beside === "histogram" ? insideAndBetween(payload, codes, value) : busiest(payload, codes, value);
    return {
      traces: [{
        type: "heatmap", z, x: places, y: places, text: hover, customdata: second ? extra : undefined, zmin: set.zmin, zmax: set.zmax, xgap: n <= 60 ? 1 : 0, ygap: n <= 60 ? 1 : 0,
        colorscale: [[0, "@low"], [0.5, "@mid"], [1, "@high"]], hoverongaps: false, showlegend: false,
        hovertemplate: "%{text}<br>" + words.value + " <b>%{z:" + words.format + "}</b>" + (second ? "<br>" + words.second + " %{customdata}" : "") + "<extra></extra>",
        colorbar: { title: { text: words.unit, side: "right", font: { color: "@soft", size: 12 } }, thickness: 10, outlinewidth: 0, len: 0.6, x: square + room, xanchor: "left", xpad: 0, tickfont: { color: "@soft", size: 12 } },
      }, ...(beside ? beside.traces : [])],
      layout: {
        shapes, annotations, margin: { l: 8, r: 8, t: 30, b: 8 }, barmode: "overlay", bargap: 0.06, showlegend: Boolean(beside && beside.traces.length > 1), legend: { x: 1, xanchor: "right", y: 1.0 },
        xaxis: { ...axis, title: words.column.replace("and ", ""), range: [-0.5, n - 0.5], domain: [0, square] },
        yaxis: { ...axis, title: words.row, autorange: false, range: [n - 0.5, -0.5] },
        ...(beside ? { xaxis2: { ...beside.xaxis, domain: [square + room + 160 / inner, 1], anchor: "y2" }, yaxis2: { ...beside.yaxis, domain: [0.06, 0.94], anchor: "x2" } } : {}),
      },
      height,
      table: {
        columns: [words.row.replaceAll(" ", "_"), words.column.replaceAll(" ", "_"), words.value.replaceAll(" ", "_"), ...(second ? [words.second.replaceAll(" ", "_")] : []), ...(set.frames.length > 1 ? ["round"] : [])],
        rows: function* rows() {
          for (let i = 0; i < n * n; i += 1) {
            if (codes[i] !== 65535) yield [payload.labels[Math.floor(i / n)], payload.labels[i % n], Number(value(i).toPrecision(5)), ...(second ? [second[i]] : []), ...(set.frames.length > 1 ? [frame.round] : [])];
          }
        },
      },
    };
  }

  // How similar are pairs inside a true cluster, and pairs between two?
  function insideAndBetween(payload, codes, value) {
    const n = payload.labels.length, words = payload.words;
    const block = new Int32Array(n).fill(-1);
    payload.blocks.forEach((b, index) => block.fill(index, b.from, b.to + 1));
    const kinds = payload.blocks.length ? [{ name: "same cluster", colour: "@high" }, { name: "different clusters", colour: "@mid/0.75" }] : [{ name: "pairs", colour: "@mid" }];
    const found = kinds.map(() => []);
    for (let r = 0; r < n; r += 1) for (let c = r + 1; c < n; c += 1) {
      const v = value(r * n + c);
      if (v !== null) found[payload.blocks.length && block[r] !== block[c] ? 1 : 0].push(v);
    }
    const all = found.flat();
    const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity), step = (high - low) / 40 || 1;
    return {
      traces: kinds.map((kind, index) => ({ type: "histogram", name: kind.name, x: found[index], xaxis: "x2", yaxis: "y2", xbins: { start: low, end: high + step, size: step }, histnorm: "percent", marker: { color: kind.colour, line: { width: 0 } }, hovertemplate: kind.name + "<br>R %{x}: <b>%{y:.1f}%</b> of the pairs<extra></extra>" })),
      xaxis: { title: words.unit }, yaxis: { title: "fraction of pairs (%)", rangemode: "tozero" },
    };
  }
  // Who stands in most often?
  function busiest(payload, codes, value) {
    const n = payload.labels.length, words = payload.words, sums = new Array(n).fill(0);
    for (let i = 0; i < n * n; i += 1) sums[i % n] += value(i) || 0;
    const order = sums.map((_, i) => i).sort((a, b) => sums[b] - sums[a] || a - b).slice(0, 20).filter((i) => sums[i] > 0);
    return {
      traces: [{ type: "bar", orientation: "h", x: order.map((i) => Math.round(sums[i])), y: order.map((i) => esc(payload.labels[i])), xaxis: "x2", yaxis: "y2", marker: { color: "@mid" }, hovertemplate: esc(words.column) + " %{y}: <b>%{x}</b> times<extra></extra>" }],
      xaxis: { title: "times it stood in", rangemode: "tozero" }, yaxis: { title: "the busiest " + words.column + "s", type: "category", autorange: "reversed", showgrid: false },
    };
  }

  return { plain, curves: curvesWithWords, matrix, tools: { unpack, esc } };
})();
