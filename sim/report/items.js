'use strict';
// What there is to see: the trace is read once into a flat list of items for each layer, and what is
// looked at lives in `view`. The scripts of the page share one scope, in this order: items, draw, page.
const read = id => JSON.parse(document.getElementById(id).textContent);
const trace = read('trace'), states = read('states');
for (const list of ['refs', 'nodes', 'events', 'messages', 'transfers', 'grants', 'commands', 'pages']) trace[list] ||= [];
for (const t of trace.transfers) t.stores ||= [];
const never = -1, world = -1;
const el = id => document.getElementById(id);
const violation = trace.violation;
if (violation) for (const list of ['concerns', 'steps', 'nodes']) violation[list] ||= [];
const report = document.body.dataset; // What tests read.
addEventListener('error', e => { report.error = e.message; });

// ---- words ----
const until = t => t === never ? trace.end : t;
const nodeName = n => n === world ? 'world' : trace.nodes[n].name;
const seconds = t => (t / 1e9).toFixed(6) + ' s';
function span(ns) {
  const a = Math.abs(ns);
  return a >= 1e9 ? (ns / 1e9).toFixed(3) + ' s' : a >= 1e6 ? (ns / 1e6).toFixed(3) + ' ms' : (ns / 1e3).toFixed(1) + ' µs';
}
const refNames = item => (item.refs || []).map(i => trace.refs[i]);

// ---- items: {layer, index, from, to, nodes, refs, title, lines} ----
const layers = {message: [], transfer: [], grant: [], command: [], page: [], fault: [], event: []};
function add(layer, item) {
  item.layer = layer;
  item.index = layers[layer].length;
  item.id = layer + ':' + item.index;
  layers[layer].push(item);
  return item;
}
trace.messages.forEach(m => add('message', {from: m.sent, to: m.arrived === never ? m.sent : m.arrived, nodes: [m.from, m.to], refs: m.refs, data: m,
  title: m.kind, lines: () => [`${nodeName(m.from)} → ${m.channel === 'proxy' ? 'proxy' : nodeName(m.to)} on the ${m.channel} channel`, `sent ${seconds(m.sent)}`,
    m.arrived !== never ? `arrived ${span(m.arrived - m.sent)} later` : m.lost ? 'lost' : 'still in flight at the end of the run'], text: m.text}));
trace.transfers.forEach(t => add('transfer', {from: t.started, to: until(t.settled), nodes: [t.from, t.to], lane: t.from, refs: t.refs, data: t,
  title: `transfer ${t.id}: ${t.code || 'in progress'}`, label: `T${t.id}→${nodeName(t.to)}`, lines: () => [`${nodeName(t.from)} → ${nodeName(t.to)}, ${trace.refs[t.grant]}`,
    `started ${seconds(t.started)}`, t.asked !== never ? `requested from the target ${span(t.asked - t.started)} later` : '',
    t.stores.length ? `${t.stores.length} half pages stored` : '', t.ended !== never ? `${t.code} after ${span(t.ended - t.started)}` : 'the initiator received no outcome',
    t.settled === never ? 'never settled' : t.settled > t.ended ? `settled ${span(t.settled - t.ended)} after the outcome` : '', `must not be submitted after ${seconds(t.not_after)}`]}));
trace.grants.forEach(g => add('grant', {from: g.from, to: until(g.gone), nodes: [g.node, g.peer], lane: g.node, refs: g.refs, data: g,
  title: trace.refs[g.ref], label: `${trace.refs[g.ref].replace(/^n\d+ grant /, 'G')}→${nodeName(g.peer)}`, lines: () => [`allows ${nodeName(g.peer)} to ${g.read ? 'read' : 'write'} page${g.pages.length > 1 ? 's' : ''} ${g.pages.join(', ')}`,
    `from ${seconds(g.from)}`, g.lease !== never ? `lease until ${seconds(g.lease)}` : '', g.revoked !== never ? `revoked ${seconds(g.revoked)}` : '', g.gone !== never ? `ended ${seconds(g.gone)}` : 'valid to the end of the run']}));
trace.commands.forEach(c => add('command', {from: c.given, to: until(c.returned !== never ? c.returned : c.delivered), nodes: [c.node], lane: c.node, refs: c.refs, data: c,
  title: `${c.want}, ticket ${c.ticket}`, label: c.want, lines: () => [`issued ${seconds(c.given)}`, c.delivered === never ? 'no outcome' : `${c.code} after ${span(c.delivered - c.given)}`,
    c.returned === never ? '' : `memory returned ${span(c.returned - c.delivered)} after the outcome`]}));
const rows = trace.pages.map(p => ({page: p, spans: p.spans.map(s => add('page', {from: s.from, to: until(s.to), nodes: [p.node], lane: p.node, refs: [p.ref, ...(s.refs || [])], state: s.state, data: s,
  title: `${trace.refs[p.ref]}: ${s.state}`, label: (s.refs || []).map(i => trace.refs[i].replace(/^n\d+ /, '')).join(', ') || s.state,
  lines: () => [states.find(x => x.Name === s.state).Meaning, `from ${seconds(s.from)} for ${span(until(s.to) - s.from)}`]}))}));
trace.events.forEach((e, i) => add(e.group === 'fault' || e.group === 'phase' ? 'fault' : 'event', {from: e.at, to: e.at, nodes: [e.node], refs: e.refs, data: e, number: i,
  title: e.words || e.text, lines: () => [`${nodeName(e.node)}, ${seconds(e.at)}`, e.words ? e.text : '', e.marks ? 'marks: ' + e.marks.join(', ') : '', e.cause ? 'caused by: ' + byNumber[i - e.cause].title : '']}));
const byNumber = [];
for (const item of [...layers.fault, ...layers.event]) byNumber[item.number] = item;
const find = id => { const [layer, i] = (id || '').split(':'); return layers[layer] && layers[layer][+i]; };

// Items are drawn from the first that may reach into view; `longest` says how far back that is.
const longest = {};
for (const [name, list] of Object.entries(layers)) longest[name] = list.reduce((m, i) => Math.max(m, i.to - i.from), 0);
function firstFrom(list, t) {
  let lo = 0, hi = list.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid].from < t) lo = mid + 1; else hi = mid; }
  return lo;
}

// Bars that overlap go to rows of their own, as far as there are rows.
const depth = {command: 4, transfer: 4, grant: 6};
function pack(layer) {
  const free = trace.nodes.map(() => []);
  for (const item of layers[layer]) {
    const ends = free[item.lane];
    let row = ends.findIndex(t => t <= item.from);
    item.crowded = row < 0 && ends.length === depth[layer]; // It shares the last row with others.
    if (row < 0) row = item.crowded ? depth[layer] - 1 : ends.length;
    ends[row] = Math.max(ends[row] || 0, item.to);
    item.row = row;
  }
  return free.map(ends => ends.length);
}
const packed = {command: pack('command'), transfer: pack('transfer'), grant: pack('grant')};

// ---- the view ----
const kinds = ['messages', 'commands', 'transfers', 'grants', 'pages', 'faults', 'events'].filter(k => layers[k.slice(0, -1)].length > 0);
const concerns = new Set(violation ? violation.concerns : []);
const stepAt = new Map(violation ? violation.steps.map((s, i) => [s, i + 1]) : []);
const view = {from: 0, to: trace.end || 1, filter: '', hide: new Set(), lanes: new Set(trace.nodes.map(n => n.name)), selected: null};
// The neighbourhood of the violation: its last steps, if they are not too far apart.
function toViolation() {
  const steps = violation.steps.slice(-7).map(i => trace.events[i].at).filter(t => violation.at - t < 4e9);
  let back = Math.max(2e6, violation.at - Math.min(violation.at, ...steps));
  if (back * 3 > violation.at || trace.events.length < 150) back = violation.at; // So little came before that it may as well be seen.
  look(violation.at - back * 1.12, violation.at + back * 0.14);
}
// What is of interest in a run that broke nothing: all until it heals.
function toFaults() {
  const phases = trace.events.filter(e => e.group === 'phase').map(e => e.at);
  const end = phases.length > 1 ? phases[1] : trace.end;
  look(-end * .02, end * 1.1);
}
function look(from, to) {
  const least = 2e3, width = Math.min(Math.max(to - from, least), (trace.end || 1) * 1.1);
  const middle = (from + to) / 2;
  view.from = Math.max(-trace.end * 0.05, Math.min(middle - width / 2, trace.end * 1.05 - width));
  view.to = view.from + width;
  changed();
}
const zoom = (factor, at = (view.from + view.to) / 2) => look(at - (at - view.from) * factor, at + (view.to - at) * factor);
const pan = part => { const d = (view.to - view.from) * part; look(view.from + d, view.to + d); };

// toShown fits what the filter leaves into the view.
function toShown() {
  let from = Infinity, to = -Infinity;
  for (const layer of ['message', 'transfer', 'grant', 'command', 'event']) {
    for (const item of layers[layer].filter(visible)) { from = Math.min(from, item.from); to = Math.max(to, item.to); }
  }
  if (to >= from) look(from - (to - from) * .05, to + (to - from) * .05);
}

// A filter is words and names separated by commas. One that is a name means that very thing.
let wanted = null, shown = new Map();
function readFilter() {
  const terms = view.filter.toLowerCase().split(',').map(s => s.trim()).filter(Boolean);
  const lower = trace.refs.map(r => r.toLowerCase());
  const tests = terms.map(term => {
    const exact = lower.indexOf(term);
    return exact >= 0 ? item => (item.refs || []).includes(exact)
      : item => (item.title + ' ' + (item.data.text || '') + ' ' + refNames(item).join(' ')).toLowerCase().includes(term);
  });
  wanted = tests.length ? item => tests.some(test => test(item)) : null;
  shown = new Map();
}
const laneShown = n => n === world || view.lanes.has(trace.nodes[n].name);
function visible(item) {
  if (!item.nodes.every(laneShown)) return false;
  if (!wanted) return true;
  let yes = shown.get(item);
  if (yes === undefined) shown.set(item, yes = wanted(item));
  return yes;
}
