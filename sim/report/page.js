// Moving about in it. What is looked at stands in the address, so that a view can be linked to:
//   #from=1.25&to=1.31&filter=n1+page+3&hide=events,commands&lanes=n0,n2&selected=transfer:7

// ---- what is pointed at ----
function near(px, py) {
  let best = null, distance = 6;
  for (let i = hits.length - 1; i >= 0; i--) {
    const h = hits[i];
    if (!h.line) { if (px >= h.x0 - 1 && px <= h.x1 + 1 && py >= h.y0 && py <= h.y1) return h.item; continue; }
    const [x0, y0, x1, y1] = h.line, l2 = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
    const part = Math.max(0, Math.min(1, ((px - x0) * (x1 - x0) + (py - y0) * (y1 - y0)) / l2));
    const d = Math.hypot(px - x0 - part * (x1 - x0), py - y0 - part * (y1 - y0));
    if (d < distance) { distance = d; best = h.item; }
  }
  return best;
}
const make = (tag, text, parent) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (parent) parent.append(e); return e; };
function refButtons(refs, parent) {
  for (const r of refs || []) make('button', trace.refs[r], parent).type = 'button';
}
function describe(item, box) {
  make('b', item.title, box);
  for (const line of item.lines()) if (line) make('div', line, box);
}
function showDetails() {
  const box = el('details'), item = find(view.selected);
  if (!item) return;
  box.replaceChildren();
  make('h2', 'Details', box);
  describe(item, box);
  if (item.refs && item.refs.length) { const p = make('p', undefined, box); p.className = 'refs'; refButtons(item.refs, p); }
  if (item.text) make('pre', item.text, box);
  document.querySelectorAll('#steps li').forEach(li => li.classList.toggle('chosen', li.dataset.id === view.selected));
}
function select(item) {
  view.selected = item ? item.id : null;
  showDetails();
  changed();
}

// ---- the address ----
function writeAddress() {
  const p = new URLSearchParams();
  p.set('from', (view.from / 1e9).toFixed(7)); p.set('to', (view.to / 1e9).toFixed(7));
  if (view.filter) p.set('filter', view.filter);
  if (view.hide.size) p.set('hide', [...view.hide].join(','));
  if (view.lanes.size < trace.nodes.length) p.set('lanes', [...view.lanes].join(','));
  if (view.selected) p.set('selected', view.selected);
  history.replaceState(null, '', '#' + p);
}
function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1));
  view.filter = p.get('filter') || '';
  el('filter').value = view.filter;
  view.hide = new Set((p.get('hide') || '').split(',').filter(k => kinds.includes(k)));
  if (p.get('lanes')) view.lanes = new Set(p.get('lanes').split(',').filter(name => trace.nodes.some(n => n.name === name)));
  if (find(p.get('selected'))) view.selected = p.get('selected');
  readFilter();
  const from = parseFloat(p.get('from')), to = parseFloat(p.get('to'));
  if (to > from) look(from * 1e9, to * 1e9);
  else if (violation) toViolation();
  else toFaults();
  showDetails();
}
let waiting = false, addressTimer = 0;
function changed() {
  if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 250); // Browsers allow only so many changes of the address.
}
function setFilter(text) {
  view.filter = text;
  el('filter').value = text;
  readFilter();
  changed();
}

// ---- controls ----
function controls() {
  el('names').append(...trace.refs.slice(0, 2000).map(r => { const o = document.createElement('option'); o.value = r; return o; }));
  el('filter').addEventListener('input', e => setFilter(e.target.value));
  el('tools').addEventListener('submit', e => e.preventDefault());
  const toggle = (name, on, flip) => {
    const b = make('button', name, el('kinds'));
    b.type = 'button';
    b.setAttribute('aria-pressed', on());
    b.onclick = () => { flip(); b.setAttribute('aria-pressed', on()); changed(); };
  };
  for (const n of trace.nodes) toggle(n.name, () => view.lanes.has(n.name), () => view.lanes.delete(n.name) || view.lanes.add(n.name));
  for (const k of kinds) toggle(k, () => !view.hide.has(k), () => view.hide.delete(k) || view.hide.add(k));
  el('in').onclick = () => zoom(.6);
  el('out').onclick = () => zoom(1 / .6);
  el('all').onclick = () => look(-trace.end * .01, trace.end * 1.01);
  if (violation) el('to-violation').onclick = toViolation;
  addEventListener('keydown', e => {
    if (e.target === el('filter')) { if (e.key === 'Escape') { setFilter(''); canvas.focus(); } return; }
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const does = {'+': () => zoom(.6), '=': () => zoom(.6), '-': () => zoom(1 / .6), '0': () => el('all').click(), 'v': () => violation && toViolation(), 'f': toShown,
      'ArrowLeft': () => pan(-.2), 'ArrowRight': () => pan(.2), '/': () => el('filter').focus(), 'Escape': () => select(null)}[e.key];
    if (does) { e.preventDefault(); does(); }
  });
  document.addEventListener('click', e => { if (e.target.matches('.refs button')) setFilter(e.target.textContent); });
  addEventListener('resize', changed);
  addEventListener('hashchange', readAddress);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readTheme(); for (const k in hatches) delete hatches[k]; legend(); changed(); });
}
function pointer() {
  const tip = el('tip'), chart = el('chart');
  let drag = null;
  canvas.addEventListener('wheel', e => {
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 1200);
    else zoom(Math.exp(e.deltaY * .0016), timeAt(Math.max(gutter, e.offsetX)));
  }, {passive: false});
  canvas.addEventListener('pointerdown', e => { drag = {x: e.offsetX, y: e.clientY, top: chart.scrollTop, from: view.from, to: view.to, moved: false}; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener('pointermove', e => {
    if (drag) {
      const dx = e.offsetX - drag.x;
      if (Math.abs(dx) + Math.abs(e.clientY - drag.y) > 4) { drag.moved = true; canvas.classList.add('dragging'); tip.hidden = true; }
      const dt = dx / (width - gutter) * (drag.to - drag.from);
      if (drag.moved) { chart.scrollTop = drag.top - (e.clientY - drag.y); look(drag.from - dt, drag.to - dt); }
      return;
    }
    const item = e.offsetX > gutter ? near(e.offsetX, e.offsetY) : null;
    tip.hidden = !item;
    if (!item) return;
    tip.replaceChildren();
    describe(item, tip);
    tip.style.left = Math.min(e.offsetX + 14, width - tip.offsetWidth - 6) + 'px';
    tip.style.top = e.offsetY + axisHeight + 16 + 'px';
  });
  canvas.addEventListener('pointerup', e => {
    const click = drag && !drag.moved;
    drag = null;
    canvas.classList.remove('dragging');
    if (click && e.offsetX > gutter) select(near(e.offsetX, e.offsetY));
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
}
function story() {
  if (!violation) return;
  refButtons(violation.concerns, el('concerns'));
  for (const i of violation.steps) {
    const item = byNumber[i], li = make('li', undefined, el('steps'));
    li.dataset.id = item.id;
    make('span', item.from === violation.at ? 'then' : '−' + span(violation.at - item.from), li).className = 'when';
    li.append(item.title);
    li.title = item.data.text;
    li.onclick = () => { const half = (view.to - view.from) / 2; if (item.from < view.from || item.from > view.to) look(item.from - half, item.from + half); select(item); };
  }
}
function legend() {
  el('legend').replaceChildren();
  make('h2', 'Legend', el('legend'));
  const list = make('dl', undefined, el('legend'));
  const row = (text, paint) => {
    const c = make('canvas', undefined, make('dt', undefined, list));
    paint(size(c, 26, 14));
    make('dd', text, list);
  };
  // What a run has not is not explained: a machine of one's own may have no pages, and channels of its own.
  const channels = new Set(trace.messages.map(m => m.channel)), lives = new Set(trace.nodes.flatMap(n => n.lives.map(l => l.state)));
  if (trace.pages.length) for (const s of states.slice(1)) row(`page ${s.Name}: ${s.Meaning}`, c => swatch(c, stateColour[s.Name], hatched.has(s.Name)));
  if (trace.grants.length) row('grant; hatched after its lease has expired or it was revoked; a stroke marks the end of the lease', c => { swatch(c, grantColour); box(c, 16, 2, 10, 10, '#5b5f66', true); });
  if (trace.transfers.length) row('transfer; hatched from its outcome until it cannot access its pages any more', c => { swatch(c, transferColour); box(c, 18, 2, 8, 10, '#5b5f66', true); });
  if (trace.transfers.length) row('half of a page was stored', c => { c.fillStyle = theme.text; c.fillRect(12, 1, 1.5, 12); });
  if (channels.delete('alloc')) row('message: allocation', c => stroke(c, theme.accent, []));
  if (channels.delete('init')) row('message: handshake', c => stroke(c, theme.faint, dashes.init));
  if (channels.delete('proxy')) row('message: notification of the proxy', c => stroke(c, theme.faint, dashes.proxy));
  if (channels.size) row('message', c => stroke(c, theme.faint, []));
  row('fault; lost message', c => { c.fillStyle = theme.broken; c.beginPath(); c.moveTo(8, 12); c.lineTo(3, 2); c.lineTo(13, 2); c.fill(); c.strokeStyle = theme.broken; c.lineWidth = 2; c.beginPath(); c.moveTo(17, 3); c.lineTo(24, 11); c.moveTo(24, 3); c.lineTo(17, 11); c.stroke(); });
  if (lives.has('down')) row('node is down', c => box(c, 0, 2, 26, 10, theme.broken, true));
  if (lives.has('frozen')) row('node is frozen', c => box(c, 0, 2, 26, 10, theme.accent, true));
  function swatch(c, colour, striped) { box(c, 0, 2, 26, 10, colour, striped); }
  function stroke(c, colour, dash) { c.strokeStyle = colour; c.lineWidth = 1.5; c.setLineDash(dash); c.beginPath(); c.moveTo(1, 2); c.lineTo(25, 12); c.stroke(); }
}

readTheme();
legend();
story();
readAddress();
controls();
pointer();
draw();
report.ready = 'yes';
