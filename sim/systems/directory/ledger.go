package directory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// ledger is the state that most oracles of this package share: the chunks that each worker holds in truth, taken from
// the commands of the engines, and what each directory was told, taken from the messages that arrived there. The state
// of the machines is never read.
type ledger struct {
	chunks       map[string][]uint64         // sorted chunks, by the name of a worker's node
	departed     map[string]bool             // worker nodes whose engine has told the worker to leave
	faultsEndAt  effects.Time                // when faults end, in true time; 0 if not known yet
	lastChangeAt effects.Time                // time of the last change at any worker
	directories  map[string]*directoryLedger // by the name of a directory's node
	incarnations incarnations
	reply        effects.Reply // of the present step, if hasReply is set; its body is borrowed
	hasReply     bool
}

// directoryLedger is the part of a ledger about one directory.
type directoryLedger struct {
	entries   []*entry // workers that the present incarnation was told of
	requests  map[effects.Request]request
	firstTurn map[string]int // by instance: the turn that last named it first; cleared by registrations
	turn      int
	clock     awakeClock
	contacts  map[workerID]lastContact
	limits    core.Config
	// registration is the message of the present step, if it is a registration or a heartbeat, until the step has ended; the
	// fields below say when it came, from whom, which of both it is, and whether it was refused.
	registration *protocol.RegisterMsg
	registeredAt effects.Time
	registeredBy effects.Principal
	isHeartbeat  bool
	refused      bool
}

// directoryOf returns the part about the node of a call, or nil if the node is not a directory.
func (b *ledger) directoryOf(c *oracle.Call) *directoryLedger {
	name := c.NodeName()
	if !slices.Contains(replicaNames, name) {
		return nil
	}
	if b.directories == nil {
		b.directories = map[string]*directoryLedger{}
	}
	if b.directories[name] == nil {
		x := &directoryLedger{requests: map[effects.Request]request{}, limits: limitsOf(planOf(c))}
		x.clock.setPulse(&x.limits)
		b.directories[name] = x
	}
	return b.directories[name]
}

// request is a request to a directory that has no reply yet.
type request struct {
	sender workerID
	hashes []uint64
	sync   *protocol.FullSyncStartMsg
}

// lookupCheck checks the reply to a lookup.
type lookupCheck func(b *ledger, x *directoryLedger, c *oracle.Call, q *request, m *protocol.BatchedP2PLookupRetMsg)

// checkLookups makes an oracle maintain a ledger and check each reply to a lookup.
func checkLookups(check lookupCheck) func(l *oracle.Subscriptions[ledger]) {
	return func(l *oracle.Subscriptions[ledger]) {
		followClocks(l)
		oracle.On(l, func(b *ledger, c *oracle.Call, e *effects.Command) { b.recordCommand(c, e) })
		oracle.On(l, func(b *ledger, c *oracle.Call, e *effects.Observe) {
			switch x := b.directoryOf(c); {
			case x == nil:
			case e.Fact == effects.FactDirectory:
				x.handleNote(core.NoteKind(e.ID), workerID{instance: string(e.Why.Name), rank: e.Count})
			case e.Fact == effects.FactMalformed:
				x.refused = true
			}
			if e.Fact == factAtRest {
				b.faultsEndAt = effects.Time(e.ID)
				b.incarnations.keepsSilentWorkers = e.Count == keepSilentWorkers
			}
		})
		oracle.On(l, func(b *ledger, c *oracle.Call, e *effects.Send) {
			if c.NodeName() != impostorName {
				b.incarnations.recordSent(c.NodeName(), e.Body)
			}
		})
		oracle.On(l, func(b *ledger, c *oracle.Call, e *effects.Received) {
			b.incarnations.recordArrival(e.Body)
			if x := b.directoryOf(c); x != nil {
				x.handleMessage(c, e)
			}
		})
		oracle.On(l, func(b *ledger, c *oracle.Call, e *effects.Reply) {
			if x := b.directoryOf(c); x != nil {
				b.reply, b.hasReply = *e, true
			}
		})
		// A reply is judged after the notes of the step, which may say that the directory has dropped a worker.
		oracle.On(l, func(b *ledger, c *oracle.Call, _ oracle.StepEnded) {
			if x := b.directoryOf(c); x != nil {
				x.endRegistration()
			}
			if b.hasReply {
				b.hasReply = false
				b.handleReply(b.directoryOf(c), c, &b.reply, check)
				b.reply = effects.Reply{}
			}
		})
		oracle.On(l, func(b *ledger, c *oracle.Call, _ oracle.IncarnationEnded) { b.handleDown(c) })
	}
}

func (b *ledger) handleDown(c *oracle.Call) {
	b.hasReply = false // An incarnation may end while the effects of a step are carried out.
	delete(b.directories, c.NodeName())
	delete(b.chunks, c.NodeName())
	delete(b.departed, c.NodeName())
	b.lastChangeAt = c.Now()
}

func (b *ledger) recordCommand(c *oracle.Call, e *effects.Command) {
	if b.chunks == nil {
		b.chunks, b.departed = map[string][]uint64{}, map[string]bool{}
	}
	chunks := b.chunks[c.NodeName()]
	switch x := e.Body.(type) {
	case *admitBody:
		for _, k := range x.chunks {
			chunks = addChunk(chunks, k)
		}
		b.lastChangeAt = c.Now()
	case *evictBody:
		for _, k := range x.chunks {
			chunks = removeChunk(chunks, k)
		}
		b.lastChangeAt = c.Now()
	case *leaveBody:
		b.departed[c.NodeName()] = true
		b.lastChangeAt = c.Now()
	}
	b.chunks[c.NodeName()] = chunks
}

func addChunk(chunks []uint64, k uint64) []uint64 {
	if at, has := slices.BinarySearch(chunks, k); !has {
		return slices.Insert(chunks, at, k)
	}
	return chunks
}

func removeChunk(chunks []uint64, k uint64) []uint64 {
	if at, has := slices.BinarySearch(chunks, k); has {
		return slices.Delete(chunks, at, at+1)
	}
	return chunks
}

// countPrefix returns the number of leading chunks of wanted that are in the sorted list chunks.
func countPrefix(chunks, wanted []uint64) (n int) {
	for n < len(wanted) {
		if _, has := slices.BinarySearch(chunks, wanted[n]); !has {
			break
		}
		n++
	}
	return n
}

// handleMessage updates the ledger with a message that arrived at the directory.
func (b *directoryLedger) handleMessage(c *oracle.Call, e *effects.Received) {
	now := b.clock.awakeNow()
	b.registration, b.refused = nil, false
	b.entries = slices.DeleteFunc(b.entries, func(t *entry) bool {
		return now.Sub(t.heardAt) >= b.limits.Silence && (t.sendsHeartbeats || !b.limits.HeartbeatersOnly)
	})
	for _, t := range b.entries {
		t.fadeReports(now)
		if t.sync != nil && now.Sub(t.sync.progressAt) >= b.limits.SyncTimeout {
			t.sync = nil
		}
	}
	tag, err := protocol.PeekControllerTag(e.Body, nil)
	if err != nil || lacksRole(e) {
		return
	}
	m := protocol.NewMessage(tag)
	if m.Decode(e.Body, nil) != nil {
		return
	}
	by := e.Principal
	switch x := m.(type) {
	case *protocol.RegisterMsg:
		if e.Channel == effects.ChannelDirectory {
			b.registration, b.registeredAt, b.registeredBy, b.isHeartbeat = x, now, by, false
		}
	case *protocol.HeartbeatMsg:
		if e.Channel != effects.ChannelFeed {
			b.registration, b.registeredAt, b.registeredBy, b.isHeartbeat = (*protocol.RegisterMsg)(x), now, by, true
		}
	case *protocol.BatchedKVOperationMsg:
		if t := b.recordSender(now, x.Worker, x.Incarnation, by); t != nil && e.Channel == effects.ChannelFeed {
			t.applyReport(now, x.Operations, b.limits.HashesPerBatch)
		}
	case *protocol.KVAdmitMsg:
		if t := b.recordSender(now, x.Worker, protocol.UUID{}, by); t != nil && e.Channel == effects.ChannelFeed {
			t.applyUnnumbered(now, x.Key.Bits, false)
		}
	case *protocol.KVEvictMsg:
		if t := b.recordSender(now, x.Worker, protocol.UUID{}, by); t != nil && e.Channel == effects.ChannelFeed {
			t.applyUnnumbered(now, x.Key.Bits, true)
		}
	case *protocol.DeRegisterMsg:
		if t := b.findEntry(workerIDOf(x.Worker)); t != nil && t.incarnation == x.Incarnation && e.Channel == effects.ChannelFeed &&
			!t.isForbidden(by) && strings.HasPrefix(t.address, fmt.Sprintf("%s:%d ", x.IP, x.Port)) {
			b.entries = slices.DeleteFunc(b.entries, func(o *entry) bool { return o == t })
		}
	case *protocol.FullSyncStartMsg:
		if b.recordSender(now, x.Worker, x.Incarnation, by) != nil {
			b.requests[e.Request] = request{sender: workerIDOf(x.Worker), sync: x}
		}
	case *protocol.FullSyncBatchMsg:
		if t := b.recordSender(now, x.Worker, x.Incarnation, by); t != nil && e.Channel == effects.ChannelFeed {
			t.applyBatch(now, x)
		}
	case *protocol.FullSyncEndMsg:
		if t := b.recordSender(now, x.Worker, x.Incarnation, by); t != nil && e.Channel == effects.ChannelFeed && t.isSyncing(x.SyncID) {
			t.sync.endReceived = true
			t.sync.recordProgress(now, b.limits.SyncTimeout)
			t.completeSync()
		}
	case *protocol.FullSyncStatusMsg:
		b.recordSender(now, x.Worker, protocol.UUID{}, by)
	case *protocol.BatchedP2PLookupMsg:
		b.recordSender(now, x.Worker, protocol.UUID{}, by)
		hashes := x.Hashes[:min(len(x.Hashes), b.limits.HashesPerLookup)]
		b.requests[e.Request] = request{sender: workerIDOf(x.Worker), hashes: hashBits(hashes)}
	}
}

// handleNote forgets a worker that the directory has dropped. The directory model judges when that may happen.
func (b *directoryLedger) handleNote(k core.NoteKind, id workerID) {
	switch k {
	case core.WorkerDisconnected, core.WorkerDisplaced, core.WorkerSilent, core.WorkerLeft:
	default:
		return
	}
	b.entries = slices.DeleteFunc(b.entries, func(t *entry) bool { return t.id == id })
}

func workerIDOf(w protocol.Worker) workerID {
	return workerID{instance: string(w.InstanceID), rank: w.WorkerID}
}

func hashBits(hashes []protocol.ChunkHash) (all []uint64) {
	for _, h := range hashes {
		all = append(all, h.Bits)
	}
	return all
}

// recordSender returns the entry of the worker that sent a message, and records the contact. The result is nil if the
// directory does not accept messages from this incarnation of the worker.
func (b *directoryLedger) recordSender(now effects.Time, w protocol.Worker, incarnation protocol.UUID, by effects.Principal) *entry {
	t := b.findEntry(workerIDOf(w))
	if t == nil || t.incarnation != incarnation || t.isForbidden(by) {
		return nil
	}
	b.recordContact(t, now)
	return t
}

// recordContact records that the directory has received a message from a worker.
func (b *directoryLedger) recordContact(t *entry, now effects.Time) {
	t.heardAt = now
	if b.contacts == nil {
		b.contacts = map[workerID]lastContact{}
	}
	b.contacts[t.id] = b.contacts[t.id].recordStep(&b.clock)
}

// findEntry returns the entry of a worker, or nil.
func (b *directoryLedger) findEntry(w workerID) *entry {
	for _, t := range b.entries {
		if t.id == w {
			return t
		}
	}
	return nil
}

// addressOf returns the addresses of a worker, as text. The addresses identify a process of a worker that states no
// incarnation: a late heartbeat of an earlier process has different addresses.
func addressOf(m *protocol.RegisterMsg) string {
	return fmt.Sprintf("%s:%d %s", m.IP, m.Port, m.PeerInitURL)
}

// isForbidden reports whether a worker belongs to another identity.
func (t *entry) isForbidden(by effects.Principal) bool { return t.owner != 0 && t.owner != by }

// endRegistration handles the registration or the heartbeat of a step that has ended, unless the directory has refused it.
// The directory model judges what the directory may refuse.
func (b *directoryLedger) endRegistration() {
	m, now, by, isHeartbeat := b.registration, b.registeredAt, b.registeredBy, b.isHeartbeat
	if b.registration = nil; m == nil || b.refused {
		return
	}
	t, vanilla := b.findEntry(workerIDOf(m.Worker)), m.Incarnation == protocol.UUID{}
	raised := t != nil && t.incarnation == m.Incarnation && t.owner != by && (!vanilla || isHeartbeat)
	switch {
	case t != nil && !vanilla && t.previousIncarnation == m.Incarnation && now.Sub(t.heardAt) < b.limits.Yield:
		// The previous incarnation is not accepted again, as long as the present one is heard.
	case raised: // What was reported before does not count.
	case t != nil && t.incarnation == m.Incarnation && !vanilla,
		t != nil && t.incarnation == m.Incarnation && isHeartbeat && t.address == addressOf(m):
		t.sendsHeartbeats = t.sendsHeartbeats || isHeartbeat
		t.url, t.address = string(m.PeerInitURL), addressOf(m)
		b.recordContact(t, now)
		return
	case t != nil && vanilla && isHeartbeat: // The worker has another address, or its release states an incarnation.
		return
	}
	delete(b.firstTurn, string(m.InstanceID))
	created := &entry{id: workerIDOf(m.Worker), incarnation: m.Incarnation, url: string(m.PeerInitURL), address: addressOf(m),
		appliesOps: isHeartbeat || raised, sendsHeartbeats: isHeartbeat, syncTimeout: b.limits.SyncTimeout, fadeTime: b.limits.Fade,
		owner: by}
	if !isHeartbeat {
		created.required = &chunkReplay{}
	}
	switch {
	case t == nil:
		b.entries = append(b.entries, created)
	case raised:
		created.previousIncarnation = t.previousIncarnation
		*t, created = *created, t
	default:
		created.previousIncarnation = t.incarnation
		*t, created = *created, t
	}
	b.recordContact(created, now)
}

// handleReply handles a reply of the directory.
func (b *ledger) handleReply(x *directoryLedger, c *oracle.Call, e *effects.Reply, check lookupCheck) {
	q, found := x.requests[e.Request]
	if !found {
		return
	}
	delete(x.requests, e.Request)
	if q.sync != nil {
		x.beginSync(x.clock.awakeNow(), &q, e.Body)
		return
	}
	var m protocol.BatchedP2PLookupRetMsg
	if m.Decode(e.Body, nil) != nil {
		c.Fail("the directory replies to the lookup of %s with a message of another kind", q.sender.instance)
		return
	}
	check(b, x, c, &q, &m)
}

// beginSync records a full sync that the directory has accepted.
func (b *directoryLedger) beginSync(now effects.Time, q *request, body []byte) {
	var m protocol.FullSyncStartRetMsg
	t := b.findEntry(q.sender)
	if m.Decode(body, nil) != nil || !m.Accepted || t == nil || t.isSyncing(q.sync.SyncID) {
		return
	}
	t.sync = &syncState{id: string(q.sync.SyncID), beganAt: now, progressAt: now, batchSeen: make([]bool, q.sync.BatchCount)}
	if q.sync.Numbered {
		t.sync.replay = &chunkReplay{nextSequence: q.sync.Next}
		// A sync uses a sequence number itself, so a sync that states the number after the next does not skip an
		// operation. The earlier reports stay valid until the sync is complete.
		switch {
		case t.required == nil:
		case q.sync.Next == t.required.nextSequence, q.sync.Next == t.required.nextSequence+1:
			t.required.nextSequence = q.sync.Next
		default:
			t.required = nil
		}
	}
	t.appliesOps, t.sequenceKnown = true, q.sync.Numbered
	t.nextSequence = q.sync.Next
}
