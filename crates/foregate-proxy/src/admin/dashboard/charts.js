"use strict";
// Charts on a canvas: stacked areas, a heat map and a line. Each takes a list of moments, the newest last.

const MOMENTS = 120;

/** A canvas at the resolution of the screen, cleared; with its size in CSS pixels. */
function canvasOf(id) {
  const canvas = document.getElementById(id);
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  return { canvas, pen, width, height };
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The next of 1, 2, 4, 6, 8, 10, 20, ... */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 4, 6, 8, 10]) {
    if (value <= step * power) return step * power;
  }
  return 10 * power;
}

/** Lines and numbers behind a chart; returns the area of the chart and the height of a value. */
function frame({ pen, width, height }, top, text) {
  const area = { left: 46, right: width - 6, top: 8, bottom: height - 20 };
  const y = value => area.bottom - (area.bottom - area.top) * value / top;
  pen.strokeStyle = colour("--faint");
  pen.fillStyle = colour("--dim");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(y(top * share)) + 0.5;
    pen.beginPath();
    pen.moveTo(area.left, at);
    pen.lineTo(area.right, at);
    pen.stroke();
    pen.fillText(text(top * share), area.left - 8, at);
  }
  times(pen, area);
  return { area, y };
}

/** The times under a chart. */
function times(pen, area) {
  pen.fillStyle = colour("--dim");
  pen.textBaseline = "alphabetic";
  pen.textAlign = "left";
  pen.fillText("2 min ago", area.left, area.bottom + 15);
  pen.textAlign = "center";
  pen.fillText("1 min", (area.left + area.right) / 2, area.bottom + 15);
  pen.textAlign = "right";
  pen.fillText("now", area.right, area.bottom + 15);
}

function horizontal(area, count, index) {
  return area.right - (area.right - area.left) * (count - 1 - index) / (MOMENTS - 1);
}

/** `moments` are lists of values, one for each of `colours`, the lowest first. */
function stackedAreas(id, moments, colours, text) {
  const surface = canvasOf(id);
  const sums = moments.map(values => values.reduce((sum, value) => sum + value, 0));
  const top = roundUp(Math.max(1, ...sums));
  const { area, y } = frame(surface, top, text);
  const { pen } = surface;
  const below = moments.map(() => 0);
  colours.forEach((name, layer) => {
    if (!moments.some(values => values[layer] > 0)) return;
    pen.beginPath();
    moments.forEach((_, index) => pen.lineTo(horizontal(area, moments.length, index), y(below[index])));
    for (let index = moments.length - 1; index >= 0; index--) {
      below[index] += moments[index][layer];
      pen.lineTo(horizontal(area, moments.length, index), y(below[index]));
    }
    pen.closePath();
    pen.fillStyle = colour(name);
    pen.globalAlpha = 0.82;
    pen.fill();
    pen.globalAlpha = 1;
  });
}

/** `moments` are lists of counts, one for each of `labels`, the lowest first. */
function heatMap(id, moments, labels) {
  const { pen, width, height } = canvasOf(id);
  const area = { left: 74, right: width - 6, top: 4, bottom: height - 20 };
  const row = (area.bottom - area.top) / labels.length;
  const column = (area.right - area.left) / MOMENTS;
  const heat = colour("--heat");
  pen.fillStyle = colour("--faint");
  pen.globalAlpha = 0.45;
  pen.fillRect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  pen.globalAlpha = 1;
  moments.forEach((counts, index) => {
    const sum = counts.reduce((all, count) => all + count, 0);
    if (sum === 0) return;
    const x = Math.round(area.right - column * (moments.length - index));
    const next = Math.round(area.right - column * (moments.length - index - 1));
    const gap = next - x > 4 ? 1 : 0;
    counts.forEach((count, bucket) => {
      if (count === 0) return;
      pen.fillStyle = `rgba(${heat}, ${0.16 + 0.84 * Math.sqrt(count / sum)})`;
      pen.fillRect(x, area.bottom - row * (bucket + 1) + 0.5, next - x - gap, row - 1);
    });
  });
  pen.fillStyle = colour("--dim");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const every = row < 13 ? 2 : 1;
  labels.forEach((label, bucket) => {
    if (bucket % every === 0) pen.fillText(label, area.left - 8, area.bottom - row * (bucket + 0.5));
  });
  times(pen, area);
}

/** One value for each moment. */
function line(id, values, text) {
  const surface = canvasOf(id);
  const top = roundUp(Math.max(1, ...values));
  const { area, y } = frame(surface, top, text);
  const { pen } = surface;
  pen.beginPath();
  values.forEach((value, index) => pen.lineTo(horizontal(area, values.length, index), y(value)));
  pen.strokeStyle = colour("--accent");
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  pen.stroke();
}
