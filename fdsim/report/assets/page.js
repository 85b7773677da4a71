// Draws the figures of a report, answers its controls, and hands every figure's data out as CSV.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("fdsim-data").textContent);
  const builders = window.fdsimBuilders;
  const root = document.documentElement;
  const figures = new Map();
  const state = { drawn: 0, failed: [], total: 0, figures };
  window.fdsimReport = state;

  // ---- light and dark
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("fdsim-theme"); } catch (_) { /* a browser may refuse storage to files */ }
  const theme = () => root.dataset.theme;
  function setTheme(name) {
    root.dataset.theme = name;
    for (const [token, colour] of Object.entries(data.palettes[name])) root.style.setProperty("--c-" + token, colour);
    const button = document.querySelector(".theme");
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", "show the page in the " + (name === "dark" ? "light" : "dark"));
  }
  setTheme(chosen || (system.matches ? "dark" : "light"));
  document.querySelector(".theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("fdsim-theme", chosen); } catch (_) { /* then it lasts as long as the page */ }
    setTheme(chosen);
    redrawAll();
  });
  system.addEventListener("change", () => { if (!chosen) { setTheme(system.matches ? "dark" : "light"); redrawAll(); } });

  // "@fdms" is a colour of the palette in force, "@fdms/0.2" the same with that opacity.
  function coloured(value) {
    if (typeof value === "string" && value[0] === "@") {
      const [token, alpha] = value.slice(1).split("/");
      const hex = data.palettes[theme()][token];
      if (!hex) return value;
      if (!alpha) return hex;
      return "rgba(" + [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",") + "," + alpha + ")";
    }
    if (ArrayBuffer.isView(value) || value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map(coloured);
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, DATA_KEYS.has(key) ? inner : coloured(inner)]));
  }
  // What holds data or names is never read as a colour.
  const DATA_KEYS = new Set(["x", "y", "z", "base", "text", "customdata", "name", "legendgroup", "ticktext", "tickvals", "hovertemplate"]);

  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const narrow = () => window.innerWidth < 640;
  const AXIS = {
    gridcolor: "@grid", linecolor: "@axis", tickcolor: "@axis", zeroline: false, automargin: true, ticks: "outside", ticklen: 4,
    tickfont: { color: "@soft", size: 12 },
  };
  function axisTitle(title) {
    const given = typeof title === "string" ? { text: title } : title;
    return { standoff: 10, font: { color: "@soft", size: 13 }, ...given };
  }
  function wholeLayout(layout) {
    const whole = {
      font: { family: FONT, size: 13, color: "@ink" }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: narrow() ? 8 : 16, t: 12, b: 8 }, hovermode: "closest", hoverdistance: layout.hovermode === "x unified" ? -1 : 20, dragmode: narrow() ? false : "zoom",
      hoverlabel: { bgcolor: "@surface", bordercolor: "@axis", font: { family: FONT, size: 13, color: "@ink" }, align: "left" },
      xaxis: {}, yaxis: {}, ...layout,
    };
    whole.legend = { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: "@soft", size: 13 }, ...layout.legend };
    if (narrow()) whole.margin = { ...whole.margin, r: Math.min(whole.margin.r ?? 8, 12) };
    for (const key of Object.keys(whole)) {
      if (/^[xy]axis\d*$/.test(key)) {
        whole[key] = { ...AXIS, ...whole[key] };
        if (whole[key].title) whole[key].title = axisTitle(whole[key].title);
      }
    }
    return coloured(whole);
  }
  // plotly's own tool bar would cover labels and legends: what it offers are buttons beside the title.
  const CONFIG = { responsive: true, displayModeBar: false };

  // ---- figures
  async function draw(figure) {
    const plot = figure.element.querySelector(".plot");
    const built = builders[figure.spec.builder](figure.spec.payload, figure.choice, { narrow: narrow(), width: plot.clientWidth, hidden: figure.hidden });
    figure.built = built;
    plot.style.height = (built.height || figure.spec.height) + "px";
    await Plotly.react(plot, coloured(built.traces), wholeLayout(built.layout), CONFIG);
    figure.element.querySelector(".reset").hidden = true;
    if (!figure.watched) {
      figure.watched = true;
      plot.on("plotly_relayout", (change) => {
        if (Object.keys(change).some((key) => /axis\d*\.(range|autorange)/.test(key))) figure.element.querySelector(".reset").hidden = false;
      });
    }
    showLegend(figure, built.legend || []);
  }
  function lineSample(colour, dash) {
    const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sample.setAttribute("class", "line");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const named = { solid: "", dot: "2,2", dash: "6,3", longdash: "9,3", dashdot: "6,3,2,3", longdashdot: "9,3,2,3" };
    const pattern = named[dash] === undefined ? dash.replaceAll("px", "") : named[dash];
    for (const [key, value] of Object.entries({ x1: 0, x2: 34, y1: 5, y2: 5, stroke: coloured(colour), "stroke-width": 2.4, "stroke-dasharray": pattern })) line.setAttribute(key, value);
    sample.append(line);
    return sample;
  }
  // A key with a dash is a line, which a click hides and brings back.
  function lineKey(figure, { text, colour, dash }) {
    const key = document.createElement("button");
    key.type = "button";
    key.className = "key";
    key.title = "hide or show " + text;
    key.setAttribute("aria-pressed", String(!figure.hidden.has(text)));
    key.append(lineSample(colour, dash), text);
    key.addEventListener("click", () => {
      if (!figure.hidden.delete(text)) figure.hidden.add(text);
      redraw(figure);
    });
    return key;
  }
  function showLegend(figure, entries) {
    const place = figure.element.querySelector(".keybox"), focused = [...place.children].indexOf(document.activeElement);
    place.replaceChildren(...entries.map(({ text, colour, dash }) => {
      if (dash) return lineKey(figure, { text, colour, dash });
      const entry = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.className = "swatch";
      swatch.style.setProperty("--swatch", coloured(colour));
      entry.append(swatch, text);
      return entry;
    }));
    if (focused >= 0 && place.children[focused]) place.children[focused].focus();
  }
  // One thing is drawn at a time, in the order it was asked for.
  let work = Promise.resolve();
  function redraw(figure, afresh = false) {
    work = work.then(() => {
      // What the reader zoomed to outlives a redraw unless the plot begins anew.
      if (afresh) { Plotly.purge(figure.element.querySelector(".plot")); figure.watched = false; }
      return draw(figure);
    });
  }
  function redrawAll() { for (const figure of figures.values()) redraw(figure); }
  state.settled = async () => { let last; do { last = work; await last; } while (last !== work); };

  // ---- controls: tabs, a list to choose from, or a slider
  function makeControl(figure, control) {
    // A label hands a click on its words to its first button: several buttons are a group, not a label.
    const label = document.createElement(control.kind === "tabs" ? "div" : "label");
    label.className = "control";
    if (control.label) label.append(control.label);
    const options = control.options;
    figure.choice[control.key] = options[control.start || 0].value;
    const choose = (index) => { figure.choice[control.key] = options[index].value; redraw(figure); };
    if (control.kind === "slider") {
      label.className = "control range";
      const input = document.createElement("input");
      const output = document.createElement("output");
      Object.assign(input, { type: "range", min: 0, max: options.length - 1, step: 1 });
      input.value = control.start || 0;
      output.textContent = options[control.start || 0].text;
      input.setAttribute("aria-label", control.label);
      input.addEventListener("input", () => { output.textContent = options[input.value].text; choose(Number(input.value)); });
      label.append(input, output);
      if (control.play) {
        const both = document.createElement("div");
        both.className = "control";
        both.append(playButton(input), label);
        return both;
      }
    } else if (control.kind === "tabs") {
      const tabs = document.createElement("span");
      tabs.className = "tabs";
      tabs.setAttribute("role", "group");
      if (control.label) tabs.setAttribute("aria-label", control.label);
      options.forEach((option, index) => {
        const tab = document.createElement("button");
        tab.type = "button";
        tab.textContent = option.text;
        tab.setAttribute("aria-pressed", String(index === (control.start || 0)));
        tab.addEventListener("click", () => {
          [...tabs.children].forEach((other) => other.setAttribute("aria-pressed", String(other === tab)));
          choose(index);
        });
        tabs.append(tab);
      });
      label.append(tabs);
    } else {
      const select = document.createElement("select");
      options.forEach((option, index) => select.add(new Option(option.text, String(index))));
      select.selectedIndex = control.start || 0;
      select.addEventListener("change", () => choose(select.selectedIndex));
      label.append(select);
    }
    return label;
  }

  // Moves a slider by itself, from the beginning when it stands at the end; any touch of the slider stops it.
  function playButton(input) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "play";
    let timer = 0;
    const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; };
    const step = () => {
      if (Number(input.value) >= Number(input.max)) { stop(); return; }
      input.value = Number(input.value) + 1;
      input.dispatchEvent(new Event("input"));
    };
    button.addEventListener("click", () => {
      if (timer) { stop(); return; }
      if (Number(input.value) >= Number(input.max)) { input.value = -1; }
      button.textContent = "Pause";
      step();
      timer = setInterval(step, 500);
    });
    input.addEventListener("pointerdown", stop);
    stop();
    return button;
  }

  // ---- the case of a study: one choice for every figure and table
  function chooseCase(name) {
    state.case = name;
    for (const figure of figures.values()) if ("case" in figure.choice) { figure.choice.case = name; redraw(figure); }
    for (const table of document.querySelectorAll("[data-case]")) table.hidden = table.dataset.case !== name;
  }
  function makeCases(names) {
    const label = document.createElement("label");
    label.className = "cases";
    const select = document.createElement("select");
    names.forEach((name) => select.add(new Option(name, name)));
    select.addEventListener("change", () => chooseCase(select.value));
    label.append("case", select);
    document.querySelector("nav .theme").before(label);
    chooseCase(names[0]);
  }

  // ---- CSV
  const cell = (value) => {
    const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  state.csvOf = (key) => {
    const table = figures.get(key).built.table;
    return [table.columns, ...table.rows()].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  };
  function download(key) {
    const address = URL.createObjectURL(new Blob([state.csvOf(key)], { type: "text/csv;charset=utf-8" }));
    const link = document.createElement("a");
    Object.assign(link, { href: address, download: data.slug + "-" + key + ".csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  function picture(key) {
    const plot = figures.get(key).element.querySelector(".plot");
    return Plotly.downloadImage(plot, { format: "png", scale: 2, filename: data.slug + "-" + key, width: plot.clientWidth, height: plot.clientHeight });
  }

  async function start() {
    if (!window.Plotly) {
      for (const plot of document.querySelectorAll(".plot")) plot.replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: "The figures need the file " + data.plotly + " that was written beside this page. A page that stands alone: fdsim report FOLDER --out page.html" }));
      root.dataset.ready = "yes";
      return;
    }
    const cases = [];
    for (const element of document.querySelectorAll("figure[data-key]")) {
      const key = element.dataset.key;
      const figure = { element, spec: data.figures[key], choice: {}, hidden: new Set(), built: null };
      figures.set(key, figure);
      for (const control of figure.spec.payload.controls || []) {
        if (control.key === "case") {
          for (const { value } of control.options) if (!cases.includes(value)) cases.push(value);
          figure.choice.case = control.options[0].value;
        } else if (control.options.length > 1) element.querySelector(".controls").append(makeControl(figure, control));
        else figure.choice[control.key] = control.options[0].value;
      }
      element.querySelector(".csv").addEventListener("click", () => download(key));
      element.querySelector(".png").addEventListener("click", () => picture(key));
      element.querySelector(".reset").addEventListener("click", () => redraw(figure, true));
    }
    state.total = figures.size;
    for (const [key, figure] of figures) {
      try { await draw(figure); state.drawn += 1; } catch (error) {
        state.failed.push(key + ": " + error.message);
        figure.element.querySelector(".plot").replaceChildren(Object.assign(document.createElement("p"), { className: "problem", textContent: "This figure could not be drawn: " + error.message }));
        console.error(key, error);
      }
      // Let the browser show what is there before the next figure is worked on.
      await new Promise((next) => setTimeout(next));
    }
    if (cases.length > 1) { makeCases(cases); await state.settled(); }
    root.dataset.ready = "yes";
  }

  // Paper is white: print in the light, and bring the reader's choice back afterwards.
  let before = null;
  window.addEventListener("beforeprint", () => { before = theme(); if (before === "dark") { setTheme("light"); redrawAll(); } document.querySelectorAll("details").forEach((d) => { d.open = true; }); });
  window.addEventListener("afterprint", () => { if (before === "dark") { setTheme("dark"); redrawAll(); } });
  let width = window.innerWidth, resized = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(resized);
    resized = setTimeout(redrawAll, 150);
  });
  start();
})();
