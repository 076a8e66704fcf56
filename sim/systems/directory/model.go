package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// A directoryModel is what a directory of System must know of its workers, except for their chunks: lists that are
// searched, where the machine has tables. After each step the model says which notes the directory had to report, with
// which code it had to refuse the message, and what its reply had to contain. See model_oracle.go.
type directoryModel struct {
	limits  core.Config
	now     effects.Time // of the step, as time that the directory was awake
	workers []*modelWorker
	// instances counts the workers of each instance, and holds the origin that made the instance known.
	instances map[string]*modelInstance
	order     uint64 // number of the latest change of an order: of contacts, disconnections, syncs and fades
	// usedHolders is the number of holders that the directory had in use after its previous step, and that it may have
	// opened since. Some of them may have been retired, and may be in use until their chunks are swept away.
	usedHolders int
	// unsure is set once the model does not know whether the directory had a holder left. Nothing is judged from then on.
	unsure bool

	notes []modelNote // that the step must report, in order
}

type modelNote struct {
	kind core.NoteKind
	id   workerID
}

type modelInstance struct {
	workers int
	origin  effects.Origin
}

// A modelWorker is a worker that the directory knows.
type modelWorker struct {
	id                    workerID
	incarnation, previous protocol.UUID
	ip, url               string
	port                  uint16
	origin                effects.Origin // address that the worker counts against
	owner                 effects.Principal
	heardAt               effects.Time
	heardOrder            uint64
	sendsHeartbeats       bool
	conns                 []modelConn // latest first
	disconnectedAt        effects.Time
	disconnectedOrder     uint64 // 0: the worker has a connection
	knownByHeartbeat      bool   // operations may begin at any sequence
	needsSync             bool   // of all locations
	askedAt               effects.Time
	askedOrder            uint64 // 0: no slot of a sync is reserved
	feeds                 []*modelFeed
}

type modelConn struct {
	conn  effects.Conn
	order uint64
}

// A modelFeed is a location of a worker.
type modelFeed struct {
	location   string
	expects    expectation
	next       uint64
	needsSync  bool
	lastSync   string // name of the last sync that was completed
	sync       *modelSync
	fadeOrder  uint64 // 0: no fade
	fadeFrom   effects.Time
	fadesAgain bool
}

// An expectation says which sequence the next operation may have.
type expectation uint8

const (
	expectsZero expectation = iota
	expectsAny
	expectsNext
	expectsNextOrZero
)

type modelSync struct {
	id           string
	arrived      []bool
	fullBatches  int
	ended        bool
	beganAt      effects.Time
	progressAt   effects.Time
	progressRank uint64
}

// connsPerWorker is the number of connections by which a worker counts as connected: the latest ones.
const connsPerWorker = 4

func (m *directoryModel) nextOrder() uint64 {
	m.order++
	return m.order
}

func (m *directoryModel) note(k core.NoteKind, w *modelWorker) {
	// Notes are for people: a long name is cut.
	m.notes = append(m.notes, modelNote{k, workerID{instance: effects.SanitizeText([]byte(w.id.instance)), rank: w.id.rank}})
}

func (m *directoryModel) find(id workerID) *modelWorker {
	for _, w := range m.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

// first returns the worker with the smallest rank that is not 0, or nil.
func (m *directoryModel) first(rank func(*modelWorker) uint64) (found *modelWorker) {
	for _, w := range m.workers {
		if r := rank(w); r != 0 && (found == nil || r < rank(found)) {
			found = w
		}
	}
	return found
}

// firstFeed returns the feed with the smallest rank that is not 0, with its worker, or nil.
func (m *directoryModel) firstFeed(rank func(*modelFeed) uint64) (of *modelWorker, found *modelFeed) {
	for _, w := range m.workers {
		for _, f := range w.feeds {
			if r := rank(f); r != 0 && (found == nil || r < rank(found)) {
				of, found = w, f
			}
		}
	}
	return of, found
}

// endOverdue ends what has run out of time: of each kind at most EndsPerStep, the oldest first.
func (m *directoryModel) endOverdue() {
	over := func(since effects.Time, span effects.Duration) bool { return since.Add(span) <= m.now }
	for range m.limits.EndsPerStep {
		w := m.first(func(w *modelWorker) uint64 {
			if m.limits.HeartbeatersOnly && !w.sendsHeartbeats {
				return 0
			}
			return w.heardOrder
		})
		if w == nil || m.limits.Silence == 0 || !over(w.heardAt, m.limits.Silence) {
			break
		}
		m.note(core.WorkerSilent, w)
		m.remove(w)
	}
	for range m.limits.EndsPerStep {
		w := m.first(func(w *modelWorker) uint64 { return w.disconnectedOrder })
		if w == nil || m.limits.Disconnected == 0 || !over(w.disconnectedAt, m.limits.Disconnected) {
			break
		}
		m.note(core.WorkerDisconnected, w)
		m.remove(w)
	}
	for range m.limits.EndsPerStep {
		w := m.first(func(w *modelWorker) uint64 { return w.askedOrder })
		if w == nil || !over(w.askedAt, m.limits.SyncTimeout) {
			break
		}
		w.askedOrder = 0
	}
	for range m.limits.EndsPerStep {
		w, f := m.firstFeed(func(f *modelFeed) uint64 {
			if f.sync == nil {
				return 0
			}
			return f.sync.progressRank
		})
		if f == nil || !over(f.sync.progressAt, m.limits.SyncTimeout) {
			break
		}
		m.note(core.SyncGivenUp, w)
		f.sync, f.needsSync = nil, true
	}
	for range m.limits.EndsPerStep {
		w, f := m.firstFeed(func(f *modelFeed) uint64 { return f.fadeOrder })
		if f == nil || !over(f.fadeFrom, m.limits.Fade) {
			break
		}
		m.note(core.RecordsFaded, w)
		if f.fadeOrder = 0; f.fadesAgain {
			m.beginFade(w, f)
		}
	}
}

func (m *directoryModel) remove(w *modelWorker) {
	m.workers = slices.DeleteFunc(m.workers, func(o *modelWorker) bool { return o == w })
	if in := m.instances[w.id.instance]; in.workers > 1 {
		in.workers--
	} else {
		delete(m.instances, w.id.instance)
	}
}

// hear records a message of a worker on a connection.
func (m *directoryModel) hear(w *modelWorker, conn effects.Conn) {
	w.heardAt, w.heardOrder = m.now, m.nextOrder()
	isConn := func(x modelConn) bool { return x.conn == conn }
	if conn != 0 && !slices.ContainsFunc(w.conns, isConn) && m.countOn(conn) < m.limits.WorkersPerConnection {
		w.conns = slices.Insert(w.conns, 0, modelConn{conn, m.nextOrder()})
		w.conns = w.conns[:min(len(w.conns), connsPerWorker)]
	}
	w.disconnectedOrder = 0
	if len(w.conns) == 0 {
		w.disconnectedAt, w.disconnectedOrder = m.now, m.nextOrder()
	}
}

// countOn returns the number of workers that were heard on a connection.
func (m *directoryModel) countOn(conn effects.Conn) (n int) {
	for _, w := range m.workers {
		if slices.ContainsFunc(w.conns, func(x modelConn) bool { return x.conn == conn }) {
			n++
		}
	}
	return n
}

// loseConn records the end of a connection.
func (m *directoryModel) loseConn(conn effects.Conn) {
	orderOf := func(w *modelWorker) uint64 {
		for _, x := range w.conns {
			if x.conn == conn {
				return x.order
			}
		}
		return 0
	}
	for w := m.first(orderOf); w != nil; w = m.first(orderOf) {
		w.conns = slices.DeleteFunc(w.conns, func(x modelConn) bool { return x.conn == conn })
		if len(w.conns) == 0 {
			w.disconnectedAt, w.disconnectedOrder = m.now, m.nextOrder()
		}
	}
}

// mayTake reports whether an origin that has taken a number of places may take another one: no origin takes more than it
// leaves free for other origins.
func mayTake(taken, total, limit int) bool { return taken < limit-total }

// hasRoom reports whether there is room for a new worker once another worker (or nil) has been removed.
func (m *directoryModel) hasRoom(id workerID, origin effects.Origin, without *modelWorker) bool {
	total, taken, ofInstance := 0, 0, 0
	for _, w := range m.workers {
		if w == without {
			continue
		}
		total++
		if w.origin == origin {
			taken++
		}
		if w.id.instance == id.instance {
			ofInstance++
		}
	}
	if !mayTake(taken, total, m.limits.Workers) {
		return false
	}
	if ofInstance > 0 {
		return ofInstance < m.limits.WorkersPerInstance
	}
	total, taken = 0, 0
	for name, in := range m.instances {
		if without != nil && name == without.id.instance && in.workers == 1 {
			continue
		}
		total++
		if in.origin == origin {
			taken++
		}
	}
	return mayTake(taken, total, m.limits.Instances)
}

// admit makes a worker known, and returns nil if there is no room. If necessary a worker without a connection makes
// room: the one that has been without a connection for the longest time, of the first EndsPerStep.
func (m *directoryModel) admit(r *protocol.RegisterMsg, e *effects.Received) *modelWorker {
	id := workerIDOf(r.Worker)
	if m.countOn(e.Conn) >= m.limits.WorkersPerConnection {
		return nil
	}
	if !m.hasRoom(id, e.Origin, nil) {
		parted := slices.DeleteFunc(slices.Clone(m.workers), func(w *modelWorker) bool { return w.disconnectedOrder == 0 })
		slices.SortFunc(parted, func(a, b *modelWorker) int { return int(a.disconnectedOrder) - int(b.disconnectedOrder) })
		parted = parted[:min(len(parted), m.limits.EndsPerStep)]
		at := slices.IndexFunc(parted, func(w *modelWorker) bool { return m.hasRoom(id, e.Origin, w) })
		if at < 0 {
			return nil
		}
		m.note(core.WorkerDisplaced, parted[at])
		m.remove(parted[at])
	}
	w := &modelWorker{id: id, incarnation: r.Incarnation, origin: e.Origin, owner: e.Principal}
	w.setAddress(r)
	m.workers = append(m.workers, w)
	if m.instances == nil {
		m.instances = map[string]*modelInstance{}
	}
	if m.instances[id.instance] == nil {
		m.instances[id.instance] = &modelInstance{origin: e.Origin}
	}
	m.instances[id.instance].workers++
	m.hear(w, e.Conn)
	return w
}

func (w *modelWorker) setAddress(r *protocol.RegisterMsg) {
	w.ip, w.port, w.url = string(r.IP), r.Port, string(r.PeerInitURL)
}

func (w *modelWorker) hasAddress(l *protocol.Listener) bool {
	return w.ip == string(l.IP) && w.port == l.Port
}

// checkWorker checks the names in a message.
func (m *directoryModel) checkWorker(w *protocol.Worker) effects.Code {
	switch {
	case len(w.InstanceID) == 0 || w.WorkerID > 1<<16-1:
		return effects.Invalid
	case len(w.InstanceID) > m.limits.TextBytes:
		return effects.TooLarge
	}
	return effects.OK
}

func (m *directoryModel) checkRegistration(r *protocol.RegisterMsg) effects.Code {
	if code := m.checkWorker(&r.Worker); code != effects.OK {
		return code
	}
	if len(r.IP) > m.limits.TextBytes || len(r.PeerInitURL) > m.limits.TextBytes {
		return effects.TooLarge
	}
	return effects.OK
}

// forbids reports whether the client of a message may not be a worker: the worker belongs to another identity, or is new in
// an instance in which others own workers.
func (m *directoryModel) forbids(id workerID, e *effects.Received) bool {
	if w := m.find(id); w != nil {
		return w.owner != 0 && w.owner != e.Principal
	}
	owned := false
	for _, w := range m.workers {
		if w.id.instance == id.instance && w.owner != 0 {
			if w.owner == e.Principal {
				return false
			}
			owned = true
		}
	}
	return owned
}

// isPrevious reports whether a message is from the previous incarnation of a worker whose present one is being heard.
func (m *directoryModel) isPrevious(w *modelWorker, incarnation protocol.UUID) bool {
	return incarnation != protocol.UUID{} && incarnation == w.previous && m.now.Sub(w.heardAt) < m.limits.Yield
}

// register handles a registration.
func (m *directoryModel) register(r *protocol.RegisterMsg, e *effects.Received) effects.Code {
	if code := m.checkRegistration(r); code != effects.OK {
		return code
	}
	w := m.find(workerIDOf(r.Worker))
	switch {
	case m.forbids(workerIDOf(r.Worker), e):
		return effects.Forbidden
	case w == nil:
		if w = m.admit(r, e); w == nil {
			return effects.TooMany
		}
		m.note(core.WorkerJoined, w)
	case r.Incarnation != protocol.UUID{} && r.Incarnation == w.incarnation && w.owner != e.Principal:
		m.raise(w, r, e)
	case r.Incarnation != protocol.UUID{} && r.Incarnation == w.incarnation:
		w.setAddress(r)
		m.hear(w, e.Conn)
	case m.isPrevious(w, r.Incarnation):
		return effects.Stale
	default:
		m.renew(w, r, e)
	}
	return effects.OK
}

// renew begins the next incarnation of a worker. It counts against the address of the message, if there is room.
func (m *directoryModel) renew(w *modelWorker, r *protocol.RegisterMsg, e *effects.Received) {
	w.feeds, w.askedOrder, w.needsSync, w.knownByHeartbeat, w.sendsHeartbeats = nil, 0, false, false, false
	if w.incarnation != r.Incarnation {
		w.previous, w.incarnation = w.incarnation, r.Incarnation
	}
	taken := 0
	for _, o := range m.workers {
		if o != w && o.origin == e.Origin {
			taken++
		}
	}
	if mayTake(taken, len(m.workers)-1, m.limits.Workers) {
		w.origin = e.Origin
	}
	w.setAddress(r)
	w.owner = e.Principal
	m.hear(w, e.Conn)
	m.note(core.WorkerRenewed, w)
}

// raise handles a worker that proves an identity for the first time: it must send a full sync.
func (m *directoryModel) raise(w *modelWorker, r *protocol.RegisterMsg, e *effects.Received) {
	m.renew(w, r, e)
	w.knownByHeartbeat, w.needsSync = true, true
}

// heartbeat handles a heartbeat, and returns whether the reply must request a full sync.
func (m *directoryModel) heartbeat(r *protocol.RegisterMsg, e *effects.Received) (sync bool, code effects.Code) {
	if code := m.checkRegistration(r); code != effects.OK {
		return false, code
	}
	w, named := m.find(workerIDOf(r.Worker)), r.Incarnation != protocol.UUID{}
	switch {
	case m.forbids(workerIDOf(r.Worker), e):
		return false, effects.Forbidden
	case w == nil:
		if w = m.admit(r, e); w == nil {
			return false, effects.TooMany
		}
		m.note(core.WorkerMet, w)
		w.knownByHeartbeat, w.needsSync = true, true
	case named && w.incarnation == r.Incarnation:
		w.setAddress(r)
		m.hear(w, e.Conn)
	case !named && w.incarnation == r.Incarnation && w.hasAddress(&r.Listener) && w.url == string(r.PeerInitURL):
		m.hear(w, e.Conn)
	case named && w.incarnation != r.Incarnation && !m.isPrevious(w, r.Incarnation):
		m.renew(w, r, e)
		w.knownByHeartbeat, w.needsSync = true, true
	default:
		return false, effects.Stale
	}
	if w.owner != e.Principal {
		m.raise(w, r, e)
	}
	w.sendsHeartbeats = true
	return m.askForSync(w), effects.OK
}

// askForSync reports whether a worker is to be asked for a full sync now. The worker then has a slot for the sync.
func (m *directoryModel) askForSync(w *modelWorker) bool {
	if w.askedOrder != 0 {
		w.askedOrder = 0 // The worker has not begun: others go first.
		return false
	}
	needed := w.needsSync
	for _, f := range w.feeds {
		if f.sync != nil {
			return false
		}
		needed = needed || f.needsSync
	}
	if !needed || !m.hasSlot(w) {
		return false
	}
	w.askedAt, w.askedOrder = m.now, m.nextOrder()
	return true
}

// hasSlot reports whether a worker may begin a full sync.
func (m *directoryModel) hasSlot(w *modelWorker) bool {
	total, taken := 0, 0
	for _, o := range m.workers {
		n := 0
		if o.askedOrder != 0 {
			n++
		}
		for _, f := range o.feeds {
			if f.sync != nil {
				n++
			}
		}
		if total += n; o.origin == w.origin {
			taken += n
		}
	}
	return w.askedOrder != 0 || mayTake(taken, total, m.limits.Syncs)
}

// hasHolder reports whether a worker may, and whether it must, be given another holder.
func (m *directoryModel) hasHolder(w *modelWorker) (may, must bool) {
	total, taken := 0, 0
	for _, o := range m.workers {
		n := len(o.feeds)
		for _, f := range o.feeds {
			if f.sync != nil {
				n++
			}
			if f.fadeOrder != 0 {
				n++
			}
		}
		if total += n; o.origin == w.origin {
			taken += n
		}
	}
	return mayTake(taken, total, m.limits.Holders), mayTake(taken, m.usedHolders, m.limits.Holders)
}

// deregister handles a deregistration.
func (m *directoryModel) deregister(r *protocol.DeRegisterMsg, e *effects.Received) effects.Code {
	if code := m.checkWorker(&r.Worker); code != effects.OK {
		return code
	}
	if len(r.IP) > m.limits.TextBytes {
		return effects.TooLarge
	}
	w := m.find(workerIDOf(r.Worker))
	switch {
	case m.forbids(workerIDOf(r.Worker), e):
		return effects.Forbidden
	case w == nil:
		return effects.NotFound
	case w.incarnation != r.Incarnation || !w.hasAddress(&r.Listener):
		return effects.Stale
	}
	m.note(core.WorkerLeft, w)
	m.remove(w)
	return effects.OK
}

// reporter returns the worker that reports a fact, and records the contact.
func (m *directoryModel) reporter(of *protocol.Worker, incarnation protocol.UUID, e *effects.Received) (*modelWorker, effects.Code) {
	if code := m.checkWorker(of); code != effects.OK {
		return nil, code
	}
	w := m.find(workerIDOf(*of))
	switch {
	case w == nil:
		return nil, effects.NotFound
	case m.forbids(w.id, e):
		return nil, effects.Forbidden
	case w.incarnation != incarnation:
		return nil, effects.Stale
	}
	m.hear(w, e.Conn)
	return w, effects.OK
}

// requester is like reporter, for a request that changes no records and names no incarnation.
func (m *directoryModel) requester(of *protocol.Worker, e *effects.Received) (*modelWorker, effects.Code) {
	if code := m.checkWorker(of); code != effects.OK {
		return nil, code
	}
	w := m.find(workerIDOf(*of))
	switch {
	case w == nil:
		return nil, effects.NotFound
	case m.forbids(w.id, e):
		return nil, effects.Forbidden
	case w.incarnation == protocol.UUID{}:
		m.hear(w, e.Conn)
	}
	return w, effects.OK
}

func (w *modelWorker) feed(location []byte) *modelFeed {
	for _, f := range w.feeds {
		if f.location == string(location) {
			return f
		}
	}
	return nil
}

// findOrAddFeed returns the feed of a location. Without a free holder the code of the reply decides whether there is a
// new feed.
func (m *directoryModel) findOrAddFeed(w *modelWorker, location []byte, seen effects.Code) (*modelFeed, effects.Code) {
	if len(location) > m.limits.TextBytes {
		return nil, effects.TooLarge
	}
	if f := w.feed(location); f != nil {
		return f, effects.OK
	}
	may, must := m.hasHolder(w)
	if len(w.feeds) >= m.limits.LocationsPerWorker || !may || !must && seen == effects.TooMany {
		return nil, effects.TooMany
	}
	f := &modelFeed{location: string(location)}
	if w.knownByHeartbeat {
		f.expects = expectsAny
	}
	m.usedHolders++
	w.feeds = append(w.feeds, f)
	return f, effects.OK
}

// report handles operations. A directory may also reply TooMany, if it has no room for the chunks.
func (m *directoryModel) report(of *protocol.Worker, incarnation protocol.UUID, location []byte, ops []protocol.KVOperation,
	numbered bool, e *effects.Received, seen effects.Code) effects.Code {
	w, code := m.reporter(of, incarnation, e)
	if code != effects.OK {
		return code
	}
	f, code := m.findOrAddFeed(w, location, seen)
	if code != effects.OK {
		return code
	}
	if len(ops) > m.limits.HashesPerBatch {
		m.lose(w, f)
		return effects.TooLarge
	}
	for i := range ops {
		if !numbered {
			continue
		}
		if result := m.follow(w, f, ops[i].Seq); code == effects.OK {
			code = result
		}
	}
	return code
}

// follow handles the sequence of an operation.
func (m *directoryModel) follow(w *modelWorker, f *modelFeed, sequence uint64) effects.Code {
	switch {
	case f.expects == expectsZero && sequence != 0:
		m.lose(w, f)
		return effects.Stale
	case f.expects == expectsZero:
		f.needsSync, f.fadeOrder = false, 0
	case f.expects == expectsAny, sequence == f.next, f.expects == expectsNextOrZero && sequence == 0:
	default:
		f.expects, f.next = expectsNext, sequence+1
		m.lose(w, f)
		return effects.Mismatch
	}
	f.expects, f.next = expectsNext, sequence+1
	return effects.OK
}

// lose records that operations are missing.
func (m *directoryModel) lose(w *modelWorker, f *modelFeed) {
	if !f.needsSync {
		m.note(core.OperationsLost, w)
	}
	f.needsSync = true
	m.beginFade(w, f)
}

func (m *directoryModel) beginFade(w *modelWorker, f *modelFeed) {
	switch {
	case m.limits.Fade == 0:
	case f.fadeOrder != 0:
		f.fadesAgain = true
	default:
		_, must := m.hasHolder(w)
		m.unsure = m.unsure || !must
		m.usedHolders++
		f.fadeOrder, f.fadeFrom, f.fadesAgain = m.nextOrder(), m.now, false
	}
}

// beginSync handles the request to begin a full sync. Without a free holder the reply decides whether the sync begins.
func (m *directoryModel) beginSync(r *protocol.FullSyncStartMsg, e *effects.Received, seen effects.Code) effects.Code {
	w, code := m.reporter(&r.Worker, r.Incarnation, e)
	if code != effects.OK {
		return code
	}
	if int64(r.BatchCount) > int64(m.limits.BatchesPerSync) || len(r.SyncID) > m.limits.TextBytes {
		return effects.TooLarge
	}
	f, code := m.findOrAddFeed(w, r.Location, seen)
	if code != effects.OK {
		return code
	}
	if f.sync != nil && f.sync.id == string(r.SyncID) {
		return effects.OK
	}
	f.needsSync, f.sync = f.needsSync || f.sync != nil, nil
	may, must := m.hasHolder(w)
	if !m.hasSlot(w) || !may || !must && seen == effects.TooMany {
		return effects.TooMany
	}
	m.usedHolders++
	w.askedOrder, f.needsSync = 0, false
	f.sync = &modelSync{id: string(r.SyncID), arrived: make([]bool, r.BatchCount), beganAt: m.now, progressAt: m.now,
		progressRank: m.nextOrder()}
	switch {
	case r.Numbered:
		f.expects, f.next = expectsNext, r.Next
	case f.expects == expectsZero:
		f.expects = expectsAny
	case f.expects == expectsNext:
		f.expects = expectsNextOrZero
	}
	m.note(core.SyncBegan, w)
	return effects.OK
}

// syncOf returns the worker and its feed with a sync in progress.
func (m *directoryModel) syncOf(of *protocol.Worker, incarnation protocol.UUID, location, id []byte,
	e *effects.Received) (*modelWorker, *modelFeed, effects.Code) {
	w, code := m.reporter(of, incarnation, e)
	if code != effects.OK {
		return nil, nil, code
	}
	if f := w.feed(location); f != nil && f.sync != nil && f.sync.id == string(id) {
		return w, f, effects.OK
	}
	return nil, nil, effects.NotFound
}

// batch handles a batch of a full sync. A directory may also reply TooMany, if it has no room for the chunks.
func (m *directoryModel) batch(r *protocol.FullSyncBatchMsg, e *effects.Received) effects.Code {
	w, f, code := m.syncOf(&r.Worker, r.Incarnation, r.Location, r.SyncID, e)
	switch {
	case code != effects.OK:
		return code
	case int(r.BatchID) >= len(f.sync.arrived):
		return effects.Invalid
	case len(r.Keys) > m.limits.HashesPerBatch:
		return effects.TooLarge
	case f.sync.arrived[r.BatchID]:
		return effects.OK
	}
	if f.sync.arrived[r.BatchID] = true; len(r.Keys) > 0 {
		f.sync.fullBatches++
	}
	m.advance(w, f)
	return effects.OK
}

// end handles the end of a full sync.
func (m *directoryModel) end(r *protocol.FullSyncEndMsg, e *effects.Received) effects.Code {
	w, f, code := m.syncOf(&r.Worker, r.Incarnation, r.Location, r.SyncID, e)
	if code != effects.OK {
		return code
	}
	f.sync.ended = true
	m.advance(w, f)
	return effects.OK
}

// advance records the progress of a full sync, unless the sync is too slow, and completes it when all has arrived.
func (m *directoryModel) advance(w *modelWorker, f *modelFeed) {
	s, timeout := f.sync, m.limits.SyncTimeout
	if m.now.Sub(s.beganAt) <= timeout+effects.Duration(s.fullBatches)*(timeout/batchesPerTimeout) {
		s.progressAt, s.progressRank = m.now, m.nextOrder()
	}
	if !s.ended || slices.Contains(s.arrived, false) {
		return
	}
	f.lastSync, f.fadeOrder, w.needsSync = s.id, 0, false
	if f.needsSync {
		m.beginFade(w, f)
	}
	f.sync = nil
	m.note(core.SyncCompleted, w)
}

// statusOf says what the reply about the status of a full sync must contain, or with which code the request is refused.
func (m *directoryModel) statusOf(r *protocol.FullSyncStatusMsg, e *effects.Received) (complete, resume bool, code effects.Code) {
	w, code := m.requester(&r.Worker, e)
	switch code {
	case effects.OK:
	case effects.NotFound:
		return false, true, effects.OK
	default:
		return false, true, code
	}
	for _, f := range w.feeds {
		if f.sync != nil && f.sync.id == string(r.SyncID) {
			return false, false, effects.OK
		}
		if f.lastSync != "" && f.lastSync == string(r.SyncID) {
			return true, true, effects.OK
		}
	}
	return false, true, effects.OK
}
