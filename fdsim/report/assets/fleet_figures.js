// Builders for the fleet: outcomes, one round as a Gantt chart, one device over the days.
"use strict";
(() => {
  const { unpack, esc } = window.fdsimBuilders.tools;

  // ---- client × round map; codes count through payload.words
  const ORDERS = {
    completion: (m) => (a, b) => m.completion[b] - m.completion[a] || a - b,
    cluster: (m) => (a, b) => m.cluster[a] - m.cluster[b] || m.completion[b] - m.completion[a],
    device: (m) => (a, b) => m.device[a] - m.device[b] || m.completion[b] - m.completion[a],
    client: () => (a, b) => a - b,
  };
  function outcomes(payload, choice) {
    const codes = unpack(payload.codes);
    const [clients, rounds] = payload.codes.shape;
    const order = Array.from({ length: clients }, (_, i) => i).sort(ORDERS[choice.sort](payload));
    const words = payload.words.map((w) => esc(w.text));
    const about = order.map((i) => "client " + payload.client[i] + (payload.cluster ? " · cluster " + payload.cluster[i] : "") + " · " + esc(payload.devices[payload.device[i]]) + "<br>completed " + (100 * payload.completion[i]).toFixed(1) + " % of its rounds");
    const z = [], text = [];
    for (const i of order) {
      const row = codes.subarray(i * rounds, (i + 1) * rounds);
      z.push(row);
      text.push(Array.from(row, (code) => words[code]));
    }
    const n = payload.words.length;
    const colorscale = payload.words.flatMap((w, i) => [[i / n, w.colour], [(i + 1) / n, w.colour]]);
    const groups = groupsOf(choice.sort, order, payload);
    const step = Math.max(1, Math.ceil(clients / 20));
    const ticks = groups.length ? groups.map((g) => (g.from + g.to) / 2) : order.map((_, i) => i).filter((i) => i % step === 0);
    const present = new Set(codes);
    return {
      traces: [{
        type: "heatmap", z, x: payload.rounds, y: about.map((_, i) => i), text, customdata: about.map((line) => new Array(rounds).fill(line)), zmin: -0.5, zmax: n - 0.5, colorscale, showscale: false,
        xgap: rounds <= 80 && clients <= 60 ? 1 : 0, ygap: clients <= 60 && rounds <= 200 ? 1 : 0,
        hovertemplate: "<b>round %{x}</b>  %{text}<br>%{customdata}<extra></extra>",
      }],
      layout: {
        xaxis: { title: "round", showgrid: false }, shapes: groups.slice(1).map((g) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: g.from - 0.5, y1: g.from - 0.5, line: { color: "@surface", width: 3 } })),
        yaxis: { title: groups.length ? "" : "client, " + (choice.sort === "client" ? "by number" : "highest completion rate first"), autorange: false, range: [clients - 0.5, -0.5], showgrid: false, tickvals: ticks, ticktext: groups.length ? groups.map((g) => esc(g.name)) : ticks.map((t) => String(payload.client[order[t]])) },
      },
      legend: payload.words.filter((w, i) => present.has(i)).map((w) => ({ text: w.text, colour: w.colour })),
      height: Math.max(300, Math.min(640, 120 + 16 * clients)),
      table: {
        columns: ["client", "cluster", "device", "round", "outcome", "cause"],
        rows: function* rows() {
          for (const i of order) for (let r = 0; r < rounds; r += 1) {
            const word = payload.words[codes[i * rounds + r]];
            yield [payload.client[i], payload.cluster ? payload.cluster[i] : null, payload.devices[payload.device[i]], payload.rounds[r], word.outcome, word.cause];
          }
        },
      },
    };
  }
  function groupsOf(sort, order, payload) {
    if (sort !== "cluster" && sort !== "device") return [];
    const groups = [];
    order.forEach((client, place) => {
      const name = sort === "cluster" ? "cluster " + payload.cluster[client] : payload.devices[payload.device[client]];
      if (groups.length && groups[groups.length - 1].name === name) groups[groups.length - 1].to = place;
      else groups.push({ name, from: place, to: place });
    });
    return groups.length > 40 ? [] : groups;
  }

  // ---- the fleet as tiles, one round at a time
  function film(payload, choice, { width }) {
    const [, n] = payload.codes.shape, from = choice.round * n;
    const [codes, charging, level] = ["codes", "charging", "level"].map((key) => unpack(payload[key]).subarray(from, from + n));
    const across = Math.max(1, Math.min(n, Math.ceil(Math.sqrt((n * width) / 260)))), down = Math.ceil(n / across);
    const size = Math.max(7, Math.min(34, (0.8 * (width - 40)) / across));
    const places = Array.from({ length: n }, (_, i) => i);
    const about = places.map((i) => "<b>client " + payload.client[i] + "</b> · " + esc(payload.device[i]) + "<br>" + esc(payload.words[codes[i]].text) + (charging[i] ? ", plugged in" : "") + (level[i] <= 100 ? "<br>battery " + level[i] + " %" : ""));
    const present = new Set(unpack(payload.codes));
    return {
      traces: [{
        type: "scatter", mode: "markers" + (size >= 24 ? "+text" : ""), x: places.map((i) => i % across), y: places.map((i) => Math.floor(i / across)), text: size >= 24 ? payload.client.map(String) : undefined, textposition: "bottom center", textfont: { size: 11, color: "@soft" }, customdata: about, showlegend: false,
        marker: { symbol: "square", size, color: Array.from(codes, (code) => payload.words[code].colour), line: { color: Array.from(charging, (on) => (on ? "@ink" : "@surface")), width: Array.from(charging, (on) => (on ? 2 : 0)) } },
        hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: {
        xaxis: { visible: false, range: [-0.7, across - 0.3], fixedrange: true }, yaxis: { visible: false, range: [down - 0.3, -0.7], fixedrange: true }, margin: { l: 8, r: 8, t: 8, b: 8 },
      },
      legend: payload.words.filter((_, i) => present.has(i)),
      height: Math.max(250, Math.min(620, 40 + down * (size >= 24 ? size + 30 : size * 1.3))),
      table: {
        columns: ["round", "client", "device", "state", "plugged_in", "battery_percent"],
        rows: function* rows() { for (const i of places) yield [payload.rounds[choice.round], payload.client[i], payload.device[i], payload.words[codes[i]].text, charging[i], level[i] <= 100 ? level[i] : null]; },
      },
    };
  }

  // ---- one round as a Gantt chart
  const PHASES = ["download", "train", "upload"];
  function gantt(payload, choice) {
    const from = payload.starts[choice.round], to = payload.starts[choice.round + 1];
    const column = Object.fromEntries(Object.entries(payload.columns).map(([name, pack]) => [name, unpack(pack).subarray(from, to)]));
    const n = to - from, rows = Array.from({ length: n }, (_, i) => i);
    rows.sort((a, b) => column.outcome[a] - column.outcome[b] || column.end[a] - column.end[b] || a - b);
    const name = (i) => "client " + column.client[i];
    const traces = [], begins = Float64Array.from(column.start);
    PHASES.forEach((phase) => {
      const lasting = rows.filter((i) => column[phase][i] > 0);
      traces.push({
        type: "bar", orientation: "h", name: phase, y: lasting.map((i) => rows.indexOf(i)), x: lasting.map((i) => column[phase][i]), base: lasting.map((i) => begins[i]), marker: { color: "@" + phase, line: { width: 0 } },
        text: lasting.map(name), textposition: "none", hovertemplate: "<b>%{text}</b><br>" + phase + " %{x:.1f} s, from %{base:.1f} s<extra></extra>",
      });
      for (const i of lasting) begins[i] += column[phase][i];
    });
    const causes = [...new Set(rows.filter((i) => column.outcome[i] === 1).map((i) => column.cause[i]))].sort((a, b) => a - b);
    for (const cause of causes) {
      const broken = rows.filter((i) => column.outcome[i] === 1 && column.cause[i] === cause);
      const word = payload.causes[cause];
      traces.push({
        type: "scatter", mode: "markers", name: word.text, x: broken.map((i) => column.end[i]), y: broken.map((i) => rows.indexOf(i)), marker: { symbol: "x", size: n > 80 ? 6 : 9, color: word.colour, line: { width: 0 } },
        text: broken.map((i) => name(i) + "</b><br>" + word.text + " in " + payload.phases[column.phase[i]].text + ", " + Math.round(100 * column.progress[i]) + " % of its training done"), hovertemplate: "<b>%{text}<br>after %{x:.1f} s<extra></extra>",
      });
    }
    const step = Math.max(1, Math.ceil(n / 30));
    const ticks = rows.map((_, i) => i).filter((i) => i % step === 0);
    const limit = payload.deadline_s;
    const longest = Math.max(limit && column.end.some((e) => e > 0.5 * limit) ? limit : 0, ...column.end) || 1;
    return {
      traces,
      layout: {
        barmode: "overlay", bargap: 0.25, xaxis: { title: "time since the round began (s)", range: [-0.015 * longest, 1.03 * longest] },
        yaxis: { title: "client", autorange: false, range: [Math.max(n, 1) - 0.4, -0.6], tickvals: ticks, ticktext: ticks.map((i) => String(column.client[rows[i]])), showgrid: false },
        shapes: limit && limit <= 1.03 * longest ? [{ type: "line", x0: limit, x1: limit, yref: "paper", y0: 0, y1: 1, line: { color: "@ink", width: 1.4, dash: "dash" } }] : [],
        annotations: [
          ...(limit && limit <= 1.03 * longest ? [{ x: limit, y: 1, yref: "paper", yanchor: "bottom", text: "deadline", showarrow: false, font: { size: 12, color: "@soft" } }] : []),
          ...(n ? [] : [{ x: 0.5, y: 0.5, xref: "paper", yref: "paper", text: "no client was selected in this round", showarrow: false, font: { color: "@soft" } }]),
        ],
        margin: { l: 8, r: 16, t: 34, b: 8 },
      },
      height: Math.max(300, Math.min(760, 150 + 15 * payload.most)),
      table: {
        columns: ["round", "client", "outcome", "cause", "phase", "progress", "start_s", "download_s", "train_s", "upload_s", "end_s"],
        rows: function* out() {
          for (const i of rows) yield [payload.rounds[choice.round], column.client[i], column.outcome[i] ? "dropped" : "completed", column.outcome[i] ? payload.causes[column.cause[i]].name : null, payload.phases[column.phase[i]].name, column.progress[i], ...["start", ...PHASES, "end"].map((key) => column[key][i])];
        },
      },
    };
  }

  // ---- one device over the days: battery, link, screen
  function day(payload, choice, { narrow }) {
    const sparse = (values) => values.filter((_, i) => !narrow || i % 4 === 0);
    const device = payload.devices[choice.device];
    const traces = [];
    const states = [];
    payload.rows.forEach((row, index) => {
      const series = device.series[row.key];
      if (!series) return;
      const t = unpack(series.hours), v = unpack(series.values);
      const axis = index ? "y" + (index + 1) : "y";
      traces.push({
        type: "scatter", mode: row.points ? "lines+markers" : "lines", x: t, y: v, yaxis: axis, name: row.name, showlegend: false, marker: { size: 4 }, line: { color: row.colour, width: row.step ? 1.4 : 2, shape: row.step ? "hv" : "linear" }, fill: row.step ? "tozeroy" : "none", fillcolor: row.colour + "/0.22",
        text: row.words ? Array.from(v, (x) => row.words[x]) : undefined, hovertemplate: row.name + " <b>" + (row.words ? "%{text}" : "%{y:.1f} %") + "</b><extra></extra>",
      });
      for (let i = 0; i < t.length; i += 1) states.push([row.name, t[i], row.words ? row.words[v[i]] : v[i]]);
    });
    const many = Object.values(device.marks).flat().length > 120;
    for (const mark of payload.marks) {
      const at = device.marks[mark.key];
      if (at && at.length) traces.push({ type: "scatter", mode: "markers", x: at, y: at.map(() => mark.height), name: mark.name, marker: many ? { symbol: "line-ns", size: 6, line: { color: mark.colour, width: 1 } } : { symbol: mark.symbol, color: mark.colour, size: 7 }, cliponaxis: false, hovertemplate: mark.name + "<extra></extra>" });
    }
    const layout = { hovermode: "x unified", margin: { l: 8, r: 16, t: 34, b: 8 }, grid: undefined, xaxis: { title: payload.timeTitle, anchor: payload.rows.length > 1 ? "y" + payload.rows.length : "y", tickvals: sparse(payload.ticks.at), ticktext: sparse(payload.ticks.text), range: payload.span, showgrid: true, hoverformat: ".2f", unifiedhovertitle: { text: "after %{x:.2f} h" } } };
    payload.rows.forEach((row, index) => {
      layout[index ? "yaxis" + (index + 1) : "yaxis"] = row.words
        ? { domain: row.domain, tickvals: row.words.map((_, i) => i), ticktext: row.words.map(esc), range: [-0.12, row.words.length - 0.7], showgrid: false, title: row.title }
        : { domain: row.domain, range: [0, 112], tickvals: [0, 25, 50, 75, 100], title: row.title };
    });
    return { traces, layout, height: 160 + 110 * payload.rows.length, table: { columns: ["what", "hours", "value"], rows: function* rows() { yield* states; } } };
  }

  Object.assign(window.fdsimBuilders, { outcomes, film, gantt, day });
})();
