package directory

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
)

// A model is a directory of maps, without bounds but for the places of syncs, and without anything that is done later.
type model struct {
	workers  map[named]*modelWorker
	served   map[string]int // by instance
	turn     int
	places   int
	patience effects.Duration
	yield    effects.Duration  // after which a life that is not heard may be a former one
	who      effects.Principal // that speaks
}

type named struct {
	instance string
	rank     int64
}

type modelWorker struct {
	is, was byte
	owner   effects.Principal
	at      where
	midway  bool
	heard   effects.Time
	ask     SyncReason
	asked   bool
	since   effects.Time // that
	feeds   map[string]*modelFeed
	order   []string // of locations, as they came
}

type where struct {
	ip   string
	port int64
	url  string
}

type modelFeed struct {
	chunks map[uint64]bool
	follow sequenceState
	next   uint64
	ask    SyncReason
	sync   *modelSync
	synced string
	fade   *modelFade
}

type modelFade struct {
	young map[uint64]bool // told since
	began effects.Time
	again bool
}

type modelSync struct {
	id      string
	chunks  map[uint64]bool
	batches int64
	came    map[int64]bool
	told    int64
	said    int64
	ended   bool
	began   effects.Time
	went    effects.Time
	full    int
}

// goes notes that a sync went on, if that was fast enough.
func (m *model) goes(now effects.Time, x *modelSync) {
	if now.Sub(x.began) <= m.patience+effects.Duration(x.full)*(m.patience/minBatchesPerSpan) {
		x.went = now
	}
}

// lose is a gap.
func (f *modelFeed) lose(now effects.Time) {
	if f.ask = OperationGap; f.fade != nil {
		f.fade.again = true
	} else {
		f.fade = &modelFade{young: map[uint64]bool{}, began: now}
	}
}

func (m *model) syncs(of string) (all, mine int) {
	for n, w := range m.workers {
		for _, f := range w.feeds {
			if f.sync != nil {
				if all++; n.instance == of {
					mine++
				}
			}
		}
		if w.asked {
			if all++; n.instance == of {
				mine++
			}
		}
	}
	return all, mine
}

// room says whether an instance may begin one sync more.
func (m *model) room(of string) bool {
	all, mine := m.syncs(of)
	return mine < m.places-all
}

func (m *model) unask(w *modelWorker) {
	if w.asked {
		w.asked = false
	}
}

// forbids says whether who speaks may not be that worker.
func (m *model) forbids(n named) bool {
	if w := m.workers[n]; w != nil {
		return w.owner != 0 && w.owner != m.who
	}
	owned := false
	for other, w := range m.workers {
		if other.instance == n.instance && w.owner != 0 {
			if w.owner == m.who {
				return false
			}
			owned = true
		}
	}
	return owned
}

func (m *model) register(now effects.Time, n named, life byte, at where) effects.Code {
	w := m.workers[n]
	switch {
	case m.forbids(n):
		return effects.Forbidden
	case w == nil:
		m.workers[n] = &modelWorker{is: life, at: at, heard: now, feeds: map[string]*modelFeed{}, owner: m.who}
	case life != 0 && w.is == life && w.owner == m.who:
		w.at, w.heard = at, now
	case life != 0 && w.is == life:
		m.raise(w, at)
		w.heard = now
	case life != 0 && w.was == life && now.Sub(w.heard) < m.yield:
		return effects.Stale
	default:
		was := w.is
		if was == life { // One without a name began anew: the last one that had another stays outside.
			was = w.was
		}
		m.unask(w)
		*w = modelWorker{is: life, was: was, at: at, heard: now, feeds: map[string]*modelFeed{}, owner: m.who}
	}
	return effects.OK
}

// raise is a worker that proves who it is for the first time.
func (m *model) raise(w *modelWorker, at where) {
	m.unask(w)
	*w = modelWorker{is: w.is, was: w.was, at: at, feeds: map[string]*modelFeed{}, midway: true, ask: UnknownWorker, owner: m.who}
}

func (m *model) deregister(n named, life byte, at where) effects.Code {
	w := m.workers[n]
	switch {
	case m.forbids(n):
		return effects.Forbidden
	case w == nil:
		return effects.NotFound
	case w.is != life || w.at.ip != at.ip || w.at.port != at.port:
		return effects.Stale
	}
	m.end(n)
	return effects.OK
}

func (m *model) end(n named) {
	m.unask(m.workers[n])
	delete(m.workers, n)
	for other := range m.workers {
		if other.instance == n.instance {
			return
		}
	}
	delete(m.served, n.instance)
}

func (m *model) heartbeat(now effects.Time, n named, life byte, at where) (SyncReason, effects.Code) {
	w := m.workers[n]
	switch {
	case m.forbids(n):
		return NoSync, effects.Forbidden
	case w == nil:
		w = &modelWorker{is: life, at: at, heard: now, feeds: map[string]*modelFeed{}, midway: true, ask: UnknownWorker}
		m.workers[n] = w
	case w.is == life && life != 0:
		w.at = at
	case w.is == life && w.at == at:
	case w.is != life && life != 0 && (w.was != life || now.Sub(w.heard) >= m.yield):
		m.unask(w)
		*w = modelWorker{is: life, was: w.is, at: at, feeds: map[string]*modelFeed{}, midway: true, ask: UnknownWorker}
	default:
		return NoSync, effects.Stale
	}
	if w.owner != m.who {
		m.raise(w, w.at)
	}
	w.heard = now
	if w.asked {
		m.unask(w)
		return NoSync, effects.OK
	}
	why := w.ask
	for _, name := range w.order {
		if f := w.feeds[name]; why == NoSync {
			why = f.ask
		}
	}
	for _, f := range w.feeds {
		if f.sync != nil {
			why = NoSync
		}
	}
	if why == NoSync || !m.room(n.instance) {
		return NoSync, effects.OK
	}
	w.asked, w.since = true, now
	return why, effects.OK
}

// heard is who reports something.
func (m *model) heard(now effects.Time, n named, life byte) (*modelWorker, effects.Code) {
	w := m.workers[n]
	switch {
	case w == nil:
		return nil, effects.NotFound
	case w.owner != 0 && w.owner != m.who:
		return nil, effects.Forbidden
	case w.is != life:
		return nil, effects.Stale
	}
	w.heard = now
	return w, effects.OK
}

func (w *modelWorker) feed(location string) *modelFeed {
	f := w.feeds[location]
	if f == nil {
		f = &modelFeed{chunks: map[uint64]bool{}}
		if w.midway {
			f.follow = sequenceOpen
		}
		w.feeds[location] = f
		w.order = append(w.order, location)
	}
	return f
}

func (m *model) operate(now effects.Time, n named, life byte, location string, ops []Operation,
	unnumbered bool) effects.Code {
	w, code := m.heard(now, n, life)
	if w == nil {
		return code
	}
	f := w.feed(location)
	for _, op := range ops {
		if !unnumbered {
			switch {
			case f.follow == sequenceFresh && op.Sequence != 0:
				f.lose(now)
				code = cmp.Or(code, effects.Stale)
				continue
			case f.follow == sequenceFresh:
				f.ask, f.fade = NoSync, nil
			case f.follow == sequenceResumed && op.Sequence == 0:
			case f.follow != sequenceOpen && op.Sequence != f.next:
				f.lose(now)
				code = cmp.Or(code, effects.Mismatch)
			}
			f.follow, f.next = sequenceFollowing, op.Sequence+1
		}
		sets := []map[uint64]bool{f.chunks}
		if f.sync != nil {
			sets = append(sets, f.sync.chunks)
		}
		if f.fade != nil {
			sets = append(sets, f.fade.young)
		}
		for _, set := range sets {
			if op.Evict {
				delete(set, op.Hash)
			} else {
				set[op.Hash] = true
			}
		}
	}
	return code
}

func (m *model) beginSync(now effects.Time, n named, life byte, location, id string, batches int64) effects.Code {
	w, code := m.heard(now, n, life)
	if w == nil {
		return code
	}
	f := w.feed(location)
	if f.sync != nil && f.sync.id == id {
		return effects.OK
	}
	if f.sync != nil {
		f.sync, f.ask = nil, SyncLost
	}
	if !w.asked && !m.room(n.instance) {
		return effects.TooMany
	}
	m.unask(w)
	f.sync = &modelSync{id: id, chunks: map[uint64]bool{}, batches: batches, came: map[int64]bool{}, began: now, went: now}
	f.ask = NoSync
	switch f.follow {
	case sequenceFresh:
		f.follow = sequenceOpen
	case sequenceFollowing:
		f.follow = sequenceResumed
	}
	return effects.OK
}

func (m *model) syncing(now effects.Time, n named, life byte, location, id string) (*modelWorker, *modelFeed,
	effects.Code) {
	w, code := m.heard(now, n, life)
	if w == nil {
		return nil, nil, code
	}
	if f := w.feeds[location]; f != nil && f.sync != nil && f.sync.id == id {
		return w, f, effects.OK
	}
	return nil, nil, effects.NotFound
}

func (m *model) batch(now effects.Time, n named, life byte, location, id string, batch int64,
	hashes []uint64) effects.Code {
	w, f, code := m.syncing(now, n, life, location, id)
	switch {
	case f == nil:
		return code
	case batch >= f.sync.batches:
		return effects.Invalid
	case f.sync.came[batch]:
		return effects.OK
	}
	f.sync.came[batch] = true
	if f.sync.told += int64(len(hashes)); len(hashes) > 0 {
		f.sync.full++
	}
	for _, hash := range hashes {
		f.sync.chunks[hash] = true
	}
	m.goes(now, f.sync)
	return f.went(now, w)
}

func (m *model) endSync(now effects.Time, n named, life byte, location, id string, said int64) effects.Code {
	w, f, code := m.syncing(now, n, life, location, id)
	if f == nil {
		return code
	}
	f.sync.ended, f.sync.said = true, said
	m.goes(now, f.sync)
	return f.went(now, w)
}

func (f *modelFeed) went(now effects.Time, w *modelWorker) (code effects.Code) {
	s := f.sync
	if !s.ended || int64(len(s.came)) < s.batches {
		return effects.OK
	}
	if s.said != s.told {
		code = effects.Mismatch
	}
	f.chunks, f.synced, f.sync, w.ask = s.chunks, s.id, nil, NoSync
	if f.fade = nil; f.ask != NoSync { // There was a gap since it began.
		f.lose(now)
	}
	return code
}

// status is what is known of an id: who syncs under it, and whether one has come to its end.
func (m *model) status(now effects.Time, n named, life byte, id string) (begun []*modelSync, ended bool,
	code effects.Code) {
	w, code := m.heard(now, n, life)
	if code == effects.Stale && life == 0 {
		w = m.workers[n]
	}
	if w == nil {
		return nil, false, code
	}
	for _, f := range w.feeds {
		if f.sync != nil && f.sync.id == id {
			begun = append(begun, f.sync)
		}
		ended = ended || f.synced == id
	}
	if len(begun) == 0 && !ended {
		return nil, false, effects.NotFound
	}
	return begun, ended, effects.OK
}

func (m *model) pass(now effects.Time, silence, patience, fade effects.Duration) {
	for n, w := range m.workers {
		if now >= w.heard.Add(silence) {
			m.end(n)
		}
		if w.asked && now >= w.since.Add(patience) {
			w.asked = false
		}
		for _, f := range w.feeds {
			if f.sync != nil && now >= f.sync.went.Add(patience) {
				f.sync, f.ask = nil, SyncLost
			}
			if x := f.fade; x != nil && now >= x.began.Add(fade) {
				if f.chunks, f.fade = x.young, nil; x.again {
					f.fade = &modelFade{young: map[uint64]bool{}, began: now}
				}
			}
		}
	}
}

// lookup is how many of the chunks each instance has at its best place.
func (m *model) lookup(now effects.Time, n named, life byte, hashes []uint64) map[string]int {
	m.heard(now, n, life)
	has := map[string]int{}
	for other, w := range m.workers {
		if other.instance == n.instance || other.rank != n.rank || w.at.url == "" {
			continue
		}
		for _, f := range w.feeds {
			count := 0
			for count < len(hashes) && f.chunks[hashes[count]] {
				count++
			}
			if count > 0 {
				has[other.instance] = max(has[other.instance], count)
			}
		}
	}
	return has
}

func sumOf(chunks map[uint64]bool) (sum uint64) {
	for _, hash := range slices.Collect(maps.Keys(chunks)) {
		s := prng.New(hash)
		sum += s.Next()
	}
	return sum
}
