// How it looks: the rails of the conversation above, a block of bars and pages for each node below.
// Drawing walks only the items in view, so that long runs stay quick.

// ---- colours: Okabe and Ito's, which colour-blind people can tell apart; hatching says the same again ----
const stateColour = {ready: '#009e73', reserved: '#56b4e9', lent: '#0072b2', granted: '#f0b429', landing: '#d55e00', pinned: '#cc79a7', quarantined: '#5b5f66'};
const hatched = new Set(['quarantined', 'down', 'frozen', 'overdue']);
const grantColour = '#e69f00', transferColour = '#d55e00', commandColour = '#7a8794';
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let theme = {};
function readTheme() {
  for (const n of ['back', 'panel', 'line', 'text', 'faint', 'rail', 'broken', 'accent', 'mark', 'band', 'track']) theme[n] = css('--' + n);
}

// ---- layout: the rails of the conversation above, a block of bars and pages for each node below ----
const gutter = 132, axisHeight = 26;
let railGap = 46, bar = 13, pageHeight = 15; // A small scene is drawn larger.
let width = 0, height = 0, rails = [], blocks = [], hits = [];
function layout(scale) {
  railGap = 46 * scale; bar = 13 * Math.min(scale, 1.4); pageHeight = 15 * Math.min(scale, 1.6);
  rails = []; blocks = [];
  let y = 36;
  const lanes = trace.nodes.map((n, i) => i).filter(laneShown);
  for (const n of lanes) { rails[n] = y; y += railGap; }
  rails.world = y += 44 - railGap;
  y += 30;
  for (const n of lanes) {
    const block = {node: n, top: y, rows: []};
    y += 8;
    for (const layer of ['command', 'transfer', 'grant']) {
      if (view.hide.has(layer + 's') || !packed[layer][n]) continue;
      block[layer] = y;
      y += packed[layer][n] * (bar + 1) + 5;
    }
    if (!view.hide.has('pages')) {
      for (const row of rows) {
        if (row.page.node !== n || (wanted && !row.spans.some(visible))) continue;
        const concerned = concerns.has(row.page.ref) || (wanted && row.spans.length > 0);
        const h = concerned ? pageHeight : 5;
        block.rows.push({...row, y, h, concerned: concerns.has(row.page.ref), named: concerned});
        y += h + 1;
      }
    }
    if (y === block.top + 8) { y = block.top; continue; } // Nothing of it to be seen.
    block.bottom = y + 6;
    y += 16;
    blocks.push(block);
  }
  height = y;
}
const x = t => gutter + (t - view.from) / (view.to - view.from) * (width - gutter);
const timeAt = px => view.from + (px - gutter) / (width - gutter) * (view.to - view.from);

// ---- drawing ----
const font = 'system-ui, "DejaVu Sans", sans-serif';
const canvas = el('lanes'), axis = el('axis');
let g = canvas.getContext('2d');
function size(c, w, h) {
  const ratio = devicePixelRatio || 1;
  if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) {
    c.width = Math.round(w * ratio); c.height = Math.round(h * ratio);
    c.style.width = w + 'px'; c.style.height = h + 'px';
  }
  const ctx = c.getContext('2d');
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, w, h);
  ctx.font = '11px ' + font;
  ctx.textBaseline = 'middle';
  return ctx;
}
const hatches = {};
function hatch(ctx, colour) {
  if (hatches[colour]) return hatches[colour];
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const t = tile.getContext('2d');
  t.strokeStyle = colour; t.lineWidth = 1.6;
  t.beginPath(); t.moveTo(-1, 7); t.lineTo(7, -1); t.moveTo(-1, 1); t.lineTo(1, -1); t.moveTo(5, 7); t.lineTo(7, 5); t.stroke();
  return hatches[colour] = ctx.createPattern(tile, 'repeat');
}
function box(ctx, x0, y0, w, h, colour, striped) {
  ctx.fillStyle = striped ? hatch(ctx, colour) : colour;
  ctx.fillRect(x0, y0, w, h);
  if (striped && w > 3) { ctx.strokeStyle = colour; ctx.lineWidth = 1; ctx.strokeRect(x0 + .5, y0 + .5, w - 1, h - 1); }
}
const dark = c => parseInt(c.slice(1, 3), 16) * .3 + parseInt(c.slice(3, 5), 16) * .59 + parseInt(c.slice(5, 7), 16) * .11 < 120;
function words(text, x0, y0, room, colour) {
  if (room < 14) return;
  g.fillStyle = colour;
  if (g.measureText(text).width > room) {
    while (text.length > 2 && g.measureText(text + '…').width > room) text = text.slice(0, -1);
    if (text.length <= 3) return;
    text += '…';
  }
  g.fillText(text, x0, y0);
}

// A bar of time, with its name where there is room, hatched from an instant on: all of it, or not at all.
// Bars of less than a pixel that would cover each other are drawn once.
let lastX = -1, lastKey = '', labelEnd = {};
function drawBar(item, y, h, colour, label, hatchedFrom = Infinity) {
  const x0 = Math.max(gutter, x(item.from)), x1 = Math.min(width, Math.max(x(item.to), x0 + 1.5));
  if (x1 <= gutter || x0 >= width) return;
  const key = y + colour, chosen = item.id === view.selected, room = x1 - x0;
  if (room < 2 && key === lastKey && x0 - lastX < 1 && !chosen) return;
  lastX = x0; lastKey = key;
  const whole = hatchedFrom <= item.from, over = Math.max(x0, x(hatchedFrom));
  box(g, x0, y, room, h, colour, whole);
  if (!whole && over < x1) box(g, over, y, x1 - over, h, '#5b5f66', true);
  if (chosen) { g.strokeStyle = theme.text; g.lineWidth = 2; g.strokeRect(x0 - 1, y - 1, room + 2, h + 2); }
  if (label && !item.crowded && h >= 9 && room > 24 && x0 >= (labelEnd[y] || 0)) {
    const w = Math.min(room - 6, g.measureText(label).width);
    labelEnd[y] = x0 + w + 6;
    const bare = !whole && over > x0 + w;
    if (!bare) { g.fillStyle = theme.back; g.fillRect(x0 + 2, y + 1, w + 3, h - 2); }
    words(label, x0 + 3, y + h / 2 + .5, w + 1, !bare ? theme.text : dark(colour) ? '#fff' : '#16191d');
  }
  hits.push({item, x0, x1, y0: y, y1: y + h});
}
function eachInView(layer, draw) {
  const list = layers[layer];
  let count = 0;
  for (let i = firstFrom(list, view.from - longest[layer]); i < list.length && list[i].from <= view.to; i++) {
    if (list[i].to < view.from || !visible(list[i])) continue;
    count++;
    draw(list[i]);
  }
  return count;
}

function drawRails() {
  for (const n of trace.nodes.keys()) {
    if (!laneShown(n)) continue;
    const y = rails[n], node = trace.nodes[n];
    for (const life of node.lives) {
      const x0 = Math.max(gutter, x(life.from)), x1 = Math.min(width, x(until(life.to)));
      if (x1 <= x0) continue;
      if (life.state === 'up') {
        g.fillStyle = theme.rail;
        g.fillRect(x0, y - 1, x1 - x0, 2);
        continue;
      }
      box(g, x0, y - 6, x1 - x0, 12, life.state === 'down' ? theme.broken : theme.accent, true);
      const w = g.measureText(life.state).width + 6, middle = (x0 + x1 - w) / 2;
      if (x1 - x0 < w + 20) continue;
      g.fillStyle = theme.back;
      g.fillRect(middle, y - 6, w, 12);
      words(life.state, middle + 3, y, w, theme.text);
    }
  }
  g.fillStyle = theme.line;
  g.fillRect(gutter, rails.world, width - gutter, 1);
}

const railOf = n => n === world ? rails.world : rails[n];
const dashes = {init: [5, 3], proxy: [1.5, 3]};
let arrows = new Set(); // that were drawn
const loss = 26; // how far a message gets that never arrives, in pixels
function path(...points) {
  g.beginPath();
  for (const [px, py] of points) g.lineTo(px, py);
}
function drawMessage(item) {
  const m = item.data, y0 = railOf(m.from), under = m.arrived === never;
  const x0 = x(m.sent), x1 = under ? x0 + loss : x(m.arrived);
  const y1 = under ? y0 + (railOf(m.to) - y0) * .45 : railOf(m.to);
  if (x1 < gutter || x0 > width) return;
  const place = [x0, x1, m.from, m.to, m.lost].map(v => +v | 0).join(), first = !arrows.has(place);
  arrows.add(place);
  if (!first && item.id !== view.selected) return; // Another one is there already, to the pixel.
  const chosen = item.id === view.selected, concerned = (item.refs || []).some(r => concerns.has(r));
  g.strokeStyle = g.fillStyle = chosen ? theme.text : m.lost ? theme.broken : m.channel === 'alloc' ? theme.accent : theme.faint;
  g.globalAlpha = chosen || m.lost || concerned || wanted ? 1 : .55;
  g.lineWidth = chosen ? 2.5 : concerned ? 1.8 : 1;
  g.setLineDash(dashes[m.channel] || []);
  path([x0, y0], [x1, y1]);
  g.stroke();
  g.setLineDash([]);
  if (m.lost) {
    g.lineWidth = 2;
    path([x1 - 4, y1 - 4], [x1 + 4, y1 + 4]); g.stroke();
    path([x1 - 4, y1 + 4], [x1 + 4, y1 - 4]); g.stroke();
  } else if (under) {
    g.beginPath(); g.arc(x1, y1, 3.5, 0, 7); g.stroke();
  } else {
    const angle = Math.atan2(y1 - y0, x1 - x0), barb = a => [x1 - 7 * Math.cos(angle + a), y1 - 7 * Math.sin(angle + a)];
    path([x1, y1], barb(-.4), barb(.4));
    g.fill();
  }
  g.globalAlpha = 1;
  hits.push({item, line: [x0, y0, x1, y1]});
}
// Names of messages are written where there is room for them.
function nameMessages(inView) {
  if (inView.length > 60) return;
  const taken = [];
  for (const {item, line: [x0, y0, x1, y1]} of inView) {
    const text = item.title, w = g.measureText(text).width, unarrived = item.data.arrived === never;
    const cx = unarrived ? x1 + 6 : (x0 + x1) / 2 + 5, cy = unarrived ? y1 - 4 : (y0 + y1) / 2;
    const place = {x0: cx, x1: cx + w + 4, y0: cy - 7, y1: cy + 7};
    if (place.x1 > width || place.x0 < gutter || taken.some(t => t.x0 < place.x1 && place.x0 < t.x1 && t.y0 < place.y1 && place.y0 < t.y1)) continue;
    taken.push(place);
    g.globalAlpha = .8; g.fillStyle = theme.back; g.fillRect(place.x0, place.y0, w + 4, 14); g.globalAlpha = 1;
    words(text, cx + 2, cy, w + 1, theme.text);
  }
}

let lastDot = [];
function drawEvent(item) {
  const y = railOf(item.nodes[0]), px = x(item.from), number = stepAt.get(item.number);
  if (number || item.id === view.selected) return;
  const at = Math.round(px) + ':' + y;
  if (lastDot[y] === at) return;
  lastDot[y] = at;
  g.fillStyle = theme.rail;
  g.fillRect(px - 1, y - 3, 2, 6);
  hits.push({item, x0: px - 3, x1: px + 3, y0: y - 5, y1: y + 5});
}
function drawFault(item) {
  const px = x(item.from), phase = item.data.group === 'phase';
  if (phase) {
    g.fillStyle = theme.faint; g.fillRect(px, 0, 1, height);
    const w = g.measureText(item.title).width, left = px + w + 8 > width ? px - w - 4 : px + 4;
    if (left > (labelEnd.phase || 0)) {
      words(item.title, left, 8, 200, theme.faint);
      labelEnd.phase = left + w + 6;
    }
    return;
  }
  const y = railOf(item.nodes[0]) - 17;
  g.fillStyle = theme.broken;
  g.beginPath(); g.moveTo(px, y + 7); g.lineTo(px - 5, y - 3); g.lineTo(px + 5, y - 3); g.fill();
  const text = item.data.text.replace(/^fault: /, '').replace(/,.*| [a-z]+=.*/, '');
  if (view.to - view.from < 2e9 && px >= gutter && px - (labelEnd[y] || 0) > 0) {
    const w = g.measureText(text).width;
    g.fillStyle = theme.back;
    g.fillRect(px + 6, y - 5, w + 3, 13);
    words(text, px + 8, y + 2, w + 1, theme.broken);
    labelEnd[y] = px + w + 12;
  }
  hits.push({item, x0: px - 6, x1: px + 6, y0: y - 5, y1: y + 8});
}
// Steps of the story are numbered as in the panel; those that would cover each other share a mark.
function drawSteps() {
  const marks = [];
  for (const [i, number] of stepAt) {
    const item = byNumber[i], px = x(item.from), y = railOf(item.nodes[0]);
    if (y === undefined || px < gutter || px > width || !visible(item)) continue;
    const mark = marks.findLast(m => m.y === y);
    if (mark && px - mark.to < 16) Object.assign(mark, {to: px, last: number, chosen: mark.chosen || item.id === view.selected});
    else marks.push({y, from: px, to: px, item, first: number, last: number, chosen: item.id === view.selected});
  }
  g.textAlign = 'center';
  g.font = 'bold 10px ' + font;
  for (const m of marks) {
    const text = m.first === m.last ? String(m.first) : m.first + '–' + m.last;
    const half = Math.max(8, g.measureText(text).width / 2 + 5), middle = Math.min((m.from + m.to) / 2, width - half);
    g.fillStyle = m.chosen ? theme.text : theme.broken;
    g.beginPath(); g.roundRect(middle - half, m.y - 8, 2 * half, 16, 8); g.fill();
    g.fillStyle = theme.back;
    g.fillText(text, middle, m.y + .5);
    hits.push({item: m.item, x0: middle - half, x1: middle + half, y0: m.y - 8, y1: m.y + 8});
  }
  g.textAlign = 'left';
  g.font = '11px ' + font;
  return marks.length;
}

function drawBlocks() {
  blocks.forEach((b, k) => {
    if (k % 2 === 0) { g.fillStyle = theme.band; g.fillRect(0, b.top, width, b.bottom - b.top); }
    for (const r of b.rows) {
      g.fillStyle = r.concerned ? theme.mark : theme.track;
      g.fillRect(gutter, r.y, width - gutter, r.h);
    }
  });
  const count = {};
  const at = Object.fromEntries(blocks.map(b => [b.node, b]));
  for (const layer of ['command', 'transfer', 'grant']) {
    count[layer] = view.hide.has(layer + 's') ? 0 : eachInView(layer, item => {
      const b = at[item.lane];
      if (!b || b[layer] === undefined) return;
      const y = b[layer] + item.row * (bar + 1), d = item.data;
      if (layer === 'command') return drawBar(item, y, bar, commandColour, item.label, d.delivered === never ? item.from : Infinity);
      if (layer === 'transfer') return drawBar(item, y, bar, transferColour, item.label, d.ended === never ? Infinity : d.ended + 1);
      drawBar(item, y, bar, grantColour, item.label, Math.min(d.revoked === never ? d.lease : d.revoked, d.lease));
      const end = x(d.lease);
      if (end > gutter && end < width && d.lease <= item.to) { g.fillStyle = theme.text; g.fillRect(end - 1, y - 2, 2, bar + 4); }
    });
  }
  count.page = 0;
  for (const b of blocks) {
    for (const r of b.rows) {
      for (let i = Math.max(0, firstFrom(r.spans, view.from) - 1); i < r.spans.length && r.spans[i].from <= view.to; i++) {
        const s = r.spans[i];
        if (s.to < view.from || (wanted && !visible(s))) continue;
        count.page++;
        drawBar(s, r.y, r.h, stateColour[s.state], r.named ? s.label : '', hatched.has(s.state) ? s.from : Infinity);
      }
    }
  }
  // Each store, at the page it lands in.
  if (!view.hide.has('transfers')) {
    const rowOf = new Map(blocks.flatMap(b => b.rows.map(r => [b.node + ':' + r.page.index, r])));
    eachInView('transfer', item => {
      for (const s of item.data.stores) {
        const r = rowOf.get(item.data.to + ':' + s.page), px = x(s.at);
        if (r && px > gutter && px < width) { g.fillStyle = theme.text; g.fillRect(px - .75, r.y, 1.5, r.h); }
      }
    });
  }
  return count;
}

function drawGutter() {
  g.fillStyle = theme.back;
  g.fillRect(0, 0, gutter, height);
  g.textAlign = 'left';
  for (const n of trace.nodes.keys()) {
    if (!laneShown(n)) continue;
    g.font = 'bold 12px ' + font;
    words(trace.nodes[n].name, 12, rails[n], 50, theme.text);
    g.font = '11px ' + font;
    words(trace.nodes[n].role, 40, rails[n], 80, theme.faint);
  }
  words('proxy and world', 12, rails.world, 110, theme.faint);
  for (const b of blocks) {
    g.font = 'bold 12px ' + font;
    words(trace.nodes[b.node].name, 12, b.top + 14, 50, theme.text);
    g.font = '11px ' + font;
    for (const layer of ['command', 'transfer', 'grant']) {
      if (b[layer] !== undefined) words(layer + 's', 40, b[layer] + bar / 2, 85, theme.faint);
    }
    for (const r of b.rows) if (r.named) words('page ' + r.page.index, 40, r.y + r.h / 2, 85, r.concerned ? theme.broken : theme.text);
    if (b.rows.length && !b.rows.some(r => r.named && r.y < b.rows[0].y + 14)) words('pages', 40, b.rows[0].y + 4, 85, theme.faint);
  }
  g.fillStyle = theme.line;
  g.fillRect(gutter - 1, 0, 1, height);
}

function drawAxis() {
  const a = size(axis, width, axisHeight), range = view.to - view.from;
  a.fillStyle = theme.panel; a.fillRect(0, 0, width, axisHeight);
  const step = [1, 2, 5].flatMap(m => [...Array(12).keys()].map(e => m * 10 ** e)).sort((p, q) => p - q).find(s => s / range * (width - gutter) > 96) || 1e10;
  const digits = Math.max(0, 9 - Math.floor(Math.log10(step)));
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const px = x(t);
    a.fillStyle = theme.line; a.fillRect(px, axisHeight - 6, 1, 6);
    g.fillStyle = theme.line; g.globalAlpha = .6; g.fillRect(px, 0, 1, height); g.globalAlpha = 1;
    a.fillStyle = theme.faint; a.textAlign = 'center';
    if (px < width - 30) a.fillText((t / 1e9).toFixed(digits) + ' s', px, 11);
  }
  a.fillStyle = theme.panel; a.fillRect(0, 0, gutter, axisHeight);
  a.textAlign = 'left'; a.fillStyle = theme.faint; a.fillText(span(range) + ' in view', 12, 12);
  a.fillStyle = theme.line; a.fillRect(0, axisHeight - 1, width, 1);
  const at = violation && x(violation.at);
  if (violation && at >= gutter && at <= width) {
    const text = violation.property + ' broken', w = a.measureText(text).width + 10, left = Math.min(at - w / 2, width - w);
    a.fillStyle = theme.broken; a.fillRect(left, 2, w, 17);
    a.fillStyle = theme.back; a.fillText(text, left + 5, 11);
  }
}

function draw() {
  width = Math.max(360, el('chart').clientWidth);
  layout(1);
  const room = (el('chart').clientHeight - axisHeight - 4) / height;
  if (room > 1) layout(Math.min(room, 2));
  g = size(canvas, width, height);
  hits = []; arrows = new Set(); lastKey = ''; lastDot = []; labelEnd = {};
  drawAxis();
  const count = drawBlocks();
  drawRails();
  if (violation) {
    const at = x(violation.at);
    g.fillStyle = theme.broken;
    if (at >= gutter && at <= width) g.fillRect(at - 1, 0, 2, height);
  }
  const events = view.hide.has('events') ? 0 : eachInView('event', drawEvent);
  const before = hits.length;
  const messages = view.hide.has('messages') ? 0 : eachInView('message', drawMessage);
  nameMessages(hits.slice(before));
  const faults = view.hide.has('faults') ? 0 : eachInView('fault', drawFault);
  const marks = drawSteps();
  drawGutter();
  Object.assign(report, {from: view.from, to: view.to, lanes: trace.nodes.filter((n, i) => laneShown(i)).map(n => n.name).join(' '), messages, events, faults, marks,
    transfers: count.transfer, grants: count.grant, commands: count.command, spans: count.page, pages: blocks.reduce((n, b) => n + b.rows.length, 0)});
}
