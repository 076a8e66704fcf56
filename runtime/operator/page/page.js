'use strict';
// Everything shown is set as text (textContent, title): names, reasons and identities are chosen by peers.

const period = 1000, timeout = 5000;
const poolStates = ['granted', 'quarantined', 'leased', 'promised', 'staged', 'used', 'evictable', 'free'];
const stages = ['handshake', 'queue', 'allocation', 'offer', 'wire', 'publish'];
const shown = {transfers: 100, peers: 200, operations: 50, holds: 20};
const $ = (selector, within = document) => within.querySelector(selector);

let isPaused = false, isSpread = false, answeredAt = 0, isAsking = false, failure = '';
let last = {}; // the answers, by path

// ---- text

function seconds(s) {
  if (s === undefined || s === null) return '';
  if (s === 0) return '0';
  const a = Math.abs(s), sign = s < 0 ? '−' : '';
  if (a < 0.001) return sign + Math.round(a * 1e6) + ' µs';
  if (a < 1) return sign + (a * 1e3).toPrecision(3).replace(/\.?0+$/, m => m.includes('.') ? '' : m) + ' ms';
  if (a < 100) return sign + a.toFixed(a < 10 ? 2 : 1) + ' s';
  if (a < 7200) return sign + Math.round(a / 60) + ' min';
  if (a < 172800) return sign + (a / 3600).toFixed(1) + ' h';
  return sign + Math.round(a / 86400) + ' d';
}

// coarse rounds an age that is shown again each second.
function coarse(s) {
  if (s === undefined || s === null || s < 0) return '';
  return s < 1 ? 'now' : s < 120 ? Math.floor(s) + ' s' : seconds(s);
}

function bytes(n) {
  if (!n) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + ' ' + units[i];
}

const count = n => n ? n.toLocaleString('en') : '';

// ---- elements

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function set(e, property, value) {
  if (e[property] !== value) e[property] = value;
}

// fill gives parent as many children as there are values, and lets update change each. The elements stay, so that a
// selection and what the pointer is over stay, too.
function fill(parent, values, make, update) {
  while (parent.children.length > values.length) parent.lastElementChild.remove();
  values.forEach((value, i) => {
    if (i >= parent.children.length) parent.append(make(value));
    update(parent.children[i], value, i);
  });
}

// bar shows parts, each with a class, a share of the whole and a title. Its own length is a share, too.
function bar(e, parts, length = 1) {
  e.style.width = 100 * length + '%';
  fill(e, parts, () => element('i'), (x, p) => {
    set(x, 'className', p.name);
    set(x, 'title', p.title);
    x.style.width = 100 * p.share + '%';
  });
}

// table shows rows of cells. A cell is a text, or an object with text, small, title, className, or parts of a bar.
function table(section, rows, total) {
  const s = $('#' + section);
  const heads = [...s.querySelectorAll('th')], head = heads.map(th => th.className);
  const textOf = cell => typeof cell === 'object' ? cell.text || cell.parts : cell;
  // A column that is empty in each row is left out, if it may be.
  heads.forEach((th, i) => set(th, 'hidden', 'opt' in th.dataset && !rows.some(row => textOf(row.cells[i]))));
  fill($('tbody', s), rows, () => element('tr'), (tr, row) => {
    set(tr, 'className', row.failed ? 'failed' : '');
    fill(tr, row.cells, () => element('td'), (td, cell, i) => {
      if (typeof cell !== 'object') cell = {text: cell};
      set(td, 'hidden', heads[i].hidden);
      if (td.dataset.head !== heads[i].textContent) td.dataset.head = heads[i].textContent; // for narrow windows
      set(td, 'className', [head[i], cell.className].filter(Boolean).join(' '));
      set(td, 'title', cell.title || '');
      if (cell.parts) {
        if (!$('.bar', td)) td.replaceChildren(element('div', 'bar'));
        bar($('.bar', td), cell.parts, cell.length);
        return;
      }
      const text = String(cell.text ?? '');
      if (td.firstChild?.nodeType !== Node.TEXT_NODE) td.replaceChildren(document.createTextNode(''));
      set(td.firstChild, 'data', text);
      if (cell.small && !$('small', td)) td.append(element('small'));
      if ($('small', td)) set($('small', td), 'textContent', cell.small || '');
    });
  });
  set($('h2 small', s), 'textContent', total > rows.length ? rows.length + ' of ' + count(total) : rows.length ? count(rows.length) : '');
  set($('.scroll', s), 'hidden', rows.length === 0);
  set($('.none', s), 'hidden', rows.length > 0);
}

function legend(e, names) {
  fill(e, names, () => { const x = element('span'); x.append(element('i'), document.createTextNode('')); return x; }, (x, name) => {
    set(x.firstChild, 'className', name);
    set(x.lastChild, 'data', name === 'used' ? 'in use, or kept for requests' : name === 'whole' ? 'not divided' : name);
  });
}

// pairs shows names and values in a list of definitions.
function pairs(dl, values) {
  fill(dl, values, () => { const x = element('div'); x.append(element('dt'), element('dd')); return x; }, (x, [name, value]) => {
    set(x.firstChild, 'textContent', name);
    set(x.lastChild, 'textContent', value);
  });
}

// ---- peers by their names

// peersByID has the peers of each incarnation.
function peersByID() {
  const by = new Map();
  for (const p of last['/peers']?.peers ?? []) {
    if (p.incarnation) by.set(p.incarnation, [...(by.get(p.incarnation) ?? []), p]);
  }
  return by;
}

// peerCell names a peer by what is known of it: by the name that it gives itself or the address that this node connects to,
// and by its incarnation.
function peerCell(by, id, address) {
  const known = by.get(id) ?? [];
  const text = known.find(p => p.name)?.name || address || known.find(p => p.address)?.address || '';
  const identity = known.find(p => p.identity)?.identity;
  const title = [text, identity, address, id].filter(Boolean).join('\n');
  return text ? {text, small: id, title} : {text: id || '', title};
}

// isWanted reports whether a peer matches the field of the page.
function isWanted(by, id, ...texts) {
  const want = $('#peer').value.trim().toLowerCase();
  if (!want) return true;
  for (const p of by.get(id) ?? []) texts.push(p.name, p.address, p.identity);
  return [id, ...texts].some(t => t && t.toLowerCase().includes(want));
}

// ---- sections

function showHead(status) {
  const node = status.node;
  const what = node ? node.role : status.directory ? 'directory' : '';
  const state = node ? node.state : status.ready ? 'ready' : 'not ready';
  set($('#what'), 'textContent', what + (status.agent ? ' · agent' : ''));
  set($('#state'), 'textContent', state);
  set($('#state'), 'className', 'pill ' + (status.ready ? 'good' : 'bad'));
  set(document, 'title', [what, state, location.host, 'kvferry'].filter(Boolean).join(' · '));
  const facts = [['version', status.version]];
  if (node) {
    facts.push(['incarnation', node.incarnation.slice(0, 8)]);
    const ports = (node.servers ?? []).map(s => s.channel + ' ' + s.port).join(', ');
    if (ports) facts.push(['ports', ports]);
  }
  pairs($('#facts'), facts);
  const failed = status.checks.filter(c => !c.ok);
  const problems = failed.map(c => c.name + ': ' + c.error);
  if (node?.waits_for) problems.push('the drain waits for ' + Object.entries(node.waits_for).map(([k, n]) => k + ': ' + n).join('; '));
  set($('#problems'), 'hidden', problems.length === 0);
  set($('#problems'), 'className', failed.some(c => !c.note) ? '' : 'note');
  fill($('#problems ul'), problems, () => element('li'), (li, text) => set(li, 'textContent', text));
  fill($('#paths'), ['/status', '/metrics', '/readyz', ...(status.paths ?? []), '/debug/pprof/'], () => element('a'), (a, path) => {
    a.href = path;
    set(a, 'textContent', path);
  });
}

function showPools(status) {
  const pools = status.node?.pages ?? [];
  set($('#pools'), 'hidden', pools.length === 0);
  const seen = new Set();
  const pageBytes = status.node?.page_bytes ?? 0;
  fill($('.pools'), pools, () => {
    const x = element('div', 'pool');
    x.append(element('span'), element('div', 'bar'), element('span', 'sum'));
    return x;
  }, (x, pool) => {
    const n = {...pool.count};
    // Counts of granted, quarantined and leased pages are those of all pools, so they may exceed this one.
    const known = poolStates.reduce((sum, s) => sum + (n[s] ?? 0), 0);
    n.used = Math.max(0, pool.total - known);
    const whole = Math.max(pool.total, known, 1);
    const parts = poolStates.filter(s => n[s] > 0).map(s => {
      seen.add(s);
      return {name: s, share: n[s] / whole, title: count(n[s]) + ' pages ' + (s === 'used' ? 'in use, or kept for requests' : s)};
    });
    set(x.children[0], 'textContent', pool.pool);
    x.dataset.pool = pool.pool;
    bar(x.children[1], parts);
    set(x.children[2], 'textContent', count(n.free ?? 0).padStart(1, '0') + ' of ' + count(pool.total) + ' pages free, ' +
      bytes(pool.total * pageBytes));
  });
  legend($('#pools .legend'), poolStates.filter(s => seen.has(s)));
}

function showCounts(status) {
  const parts = [];
  if (status.directory) parts.push(...Object.entries(status.directory));
  if (status.agent) parts.push(...Object.entries(status.agent));
  const values = parts.filter(([, v]) => typeof v !== 'object').map(([k, v]) => [k.toLowerCase().replaceAll('_', ' '),
    typeof v === 'number' ? (k === 'bytes' ? bytes(v) || '0 B' : v.toLocaleString('en')) : v === true ? 'yes' : v === false ? 'no' : v]);
  set($('#counts'), 'hidden', values.length === 0);
  set($('#counts h2'), 'textContent', status.directory ? 'Directory' : 'Agent');
  pairs($('#counts dl'), values);
}

function showTransfers() {
  const answer = last['/transfers'];
  set($('#transfers'), 'hidden', !answer);
  if (!answer) return;
  const by = peersByID();
  const all = answer.transfers.filter(t => isWanted(by, t.peer, t.address)).slice(0, shown.transfers);
  // Each bar is as long as its time, compared with the longest one, so that a slow put stands out.
  const longest = Math.max(...all.map(t => t.seconds), 1e-6);
  const seen = new Set();
  table('transfers', all.map(t => {
    const parts = (t.stages ?? []).map(s => ({name: s.stage, share: s.seconds / Math.max(t.seconds, 1e-9),
      title: s.stage + ' ' + seconds(s.seconds)}));
    if (parts.length === 0) parts.push({name: 'whole', share: 1, title: seconds(t.seconds)});
    parts.forEach(p => seen.add(p.name));
    const failed = t.outcome !== 'ok';
    return {failed, cells: [
      coarse(t.ended_seconds_ago), {text: t.kind, small: (failed ? t.outcome : '') + (t.times ? ', ' + t.times + ' times' : ''), title: t.error},
      peerCell(by, t.peer, t.address), count(t.chunks),
      bytes(t.bytes), seconds(t.seconds),
      {parts, length: isSpread ? 1 : Math.max(t.seconds / longest, 0.004), title: [...parts.map(p => p.title), t.error].filter(Boolean).join('\n')},
    ]};
  }), all.length);
  set($('#transfers h2 small'), 'textContent', 
    answer.ended ? all.length + ' of ' + count(answer.ended) + ' that ended since the start' : '');
  legend($('#transfers .legend'), [...stages, 'whole'].filter(s => seen.has(s)));
  document.body.dataset.transfers = answer.ended;
}

function peerProblem(p) {
  const texts = [];
  if (p.code) texts.push(p.code + (p.failures > 1 ? ', ' + p.failures + ' times' : '') + (p.error ? ': ' + p.error : '') +
    (p.retry_in_seconds !== undefined ? ' (next attempt in ' + seconds(Math.max(0, p.retry_in_seconds)) + ')' : ''));
  if (p.breaker) texts.push('circuit breaker (' + p.breaker.code + (p.breaker.reason ? ', "' + p.breaker.reason + '"' : '') + '): ' +
    (p.breaker.ends_in_seconds > 0 ? 'puts' + (p.breaker.chunks_min > 1 ? ' of ' + p.breaker.chunks_min + ' chunks or more' : '') +
      ' end at once for ' + seconds(p.breaker.ends_in_seconds) : 'the next put is a trial'));
  return texts.join('; ');
}

function showPeers() {
  const answer = last['/peers'];
  set($('#peers'), 'hidden', !answer);
  set($('#tools label'), 'hidden', !answer);
  if (!answer) return;
  const by = peersByID();
  const all = answer.peers.filter(p => isWanted(by, p.incarnation, p.address, p.name, p.identity));
  table('peers', all.slice(0, shown.peers).map(p => {
    const isUp = p.state === 'ready' || p.state === 'present', problem = peerProblem(p);
    return {cells: [
      {text: (p.direction === 'to' ? '→ ' : '← ') + (p.direction === 'to' ? p.address : p.name || p.incarnation || 'a peer'),
        small: p.incarnation, title: (p.direction === 'to' ? 'this node connects to the peer' : 'the peer connects to this node') + '\n' +
        [p.name, p.address, p.alloc_address, p.incarnation].filter(Boolean).join('\n')},
      {text: p.identity, title: p.identity},
      {text: p.state, small: coarse(p.state_seconds), className: isUp ? 'good' : p.state === 'backoff' || p.state === 'link lost' ? 'bad' : ''},
      {text: p.plane, small: p.communicator ? p.communicator.state + ', epoch ' + p.communicator.epoch : '',
        className: p.communicator && p.communicator.state !== 'up' ? 'note' : '', title: p.communicator ? 'communicator: ' +
        p.communicator.state + ' for ' + seconds(p.communicator.state_seconds) + ', ' + p.communicator.batches_in_flight + ' batches in flight' +
        (p.communicator.ends_in_seconds !== undefined ? ', given up in ' + seconds(p.communicator.ends_in_seconds) : '') : ''},
      count(p.operations), count(p.pages_granted), count(p.pages_of_peer), coarse(p.heard_seconds_ago),
      {text: problem, className: 'problem bad'},
    ]};
  }), all.length < answer.peers.length ? all.length : answer.count);
}

function showOperations() {
  const answer = last['/operations'];
  set($('#operations'), 'hidden', !answer);
  if (!answer) return;
  const by = peersByID();
  const all = answer.operations.filter(x => isWanted(by, x.peer, x.address));
  table('operations', all.slice(0, shown.operations).map(x => ({cells: [
    x.kind, x.stage, peerCell(by, x.peer, x.address), count(x.chunks), count(x.pages), seconds(x.age_seconds), seconds(x.ends_in_seconds),
  ]})), all.length < answer.operations.length ? all.length : answer.count);
}

function showHolds() {
  const answer = last['/holds'];
  set($('#holds'), 'hidden', !answer);
  if (!answer) return;
  const by = peersByID();
  const all = answer.holds.filter(x => isWanted(by, x.peer, x.address));
  table('holds', all.slice(0, shown.holds).map(x => ({cells: [
    x.kind, peerCell(by, x.peer, x.address), count(x.pages), x.age_seconds < 0 ? '' : seconds(x.age_seconds), seconds(x.ends_in_seconds),
    {text: x.revoked ? 'revoked: the proof that the peer writes no more is missing' : '', className: 'problem bad'},
  ]})), all.length < answer.holds.length ? all.length : answer.count);
}

function show() {
  const status = last['/status'];
  if (status) {
    showHead(status);
    showPools(status);
    showCounts(status);
  }
  showTransfers();
  showPeers();
  showOperations();
  showHolds();
}

// ---- asking

async function ask(path) {
  const r = await fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(timeout)});
  if (!r.ok) throw new Error((await r.text()).trim() || path + ': ' + r.status);
  return r.json();
}

async function askAll() {
  const status = await ask('/status');
  const answers = {'/status': status};
  const paths = ['/peers', '/transfers', '/operations', '/holds'].filter(p => status.paths?.includes(p));
  // A node whose loop is stuck answers /status alone.
  let error = '';
  await Promise.all(paths.map(async p => {
    try {
      answers[p] = await ask(p);
    } catch (e) {
      error = p + ': ' + e.message;
      answers[p] = last[p];
    }
  }));
  return {answers, error};
}

function showLive() {
  const e = $('#live'), age = answeredAt ? Math.floor((performance.now() - answeredAt) / 1000) : 0;
  set(e, 'className', failure || age > 5 && !isPaused ? 'bad' : '');
  set(e, 'textContent', isPaused ? 'paused' : failure || (!answeredAt ? 'asking' : age > 5 ? 'no answer for ' + age + ' s' : 'live'));
  set(e, 'title', failure);
}

async function tick() {
  if (!isPaused && !document.hidden && !isAsking) {
    isAsking = true;
    try {
      const {answers, error} = await askAll();
      last = answers;
      answeredAt = performance.now();
      failure = error;
      show();
      document.body.dataset.ready = 'yes';
    } catch (e) {
      failure = e.name === 'TimeoutError' ? 'no answer for ' + timeout / 1000 + ' s' : 'no answer: ' + e.message;
    }
    isAsking = false;
  }
  showLive();
  setTimeout(tick, period);
}

$('#pause').addEventListener('click', e => {
  isPaused = !isPaused;
  e.target.setAttribute('aria-pressed', isPaused);
  showLive();
});
$('#spread').addEventListener('click', e => {
  isSpread = !isSpread;
  e.target.setAttribute('aria-pressed', isSpread);
  show();
});
$('#peer').addEventListener('input', show);
tick();
