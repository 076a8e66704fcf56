package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A client is what an oracle knows about the registrar and the lookups of a worker: the settings, the connections to
// each directory with what is in flight, and what the worker therefore owes to each directory and when. Everything is
// computed from the messages and from the commands of the engine; the state of the machine is never read. Instants are
// readings of the worker's own clock.
type client struct {
	settings    *registrar.Config `snap:"share"`
	journal     int               // changes that the worker's journal keeps
	id          workerID          `snap:"share"`
	directories []*clientDirectory
	hosts       int // directories that the worker is configured with

	chunks  []uint64 // sorted
	changes []chunkChange

	leaving     bool
	leaveAt     effects.Time
	leaveTicket effects.Ticket // 0 if there is no outcome to judge

	lookups clientLookups

	owed      owed             // the first thing that the worker owes if no event arrives before
	frozen    effects.Duration // how long the process had been frozen until the end of the last step
	frozenNow effects.Duration // the same until the present event
	now       effects.Time     // of the present event
}

// A chunkChange is a chunk that was added to or removed from the worker's store.
type chunkChange struct {
	at      effects.Time
	chunk   uint64
	removed bool
}

// owed is something that a worker must do.
type owed struct {
	by    effects.Time // 0 if nothing is owed
	judge oracle.Check
	what  string
	at    string // host of the directory
}

// A clientDirectory is the part of a client about one directory.
type clientDirectory struct {
	host  string
	lines [lineKinds]clientLine

	known          bool // the directory has confirmed the registration, and no reason to register again has come since
	changedAt      effects.Time
	registerSent   bool
	registerAfter  effects.Time // earliest registration after a refusal
	registerBy     effects.Time
	everRegistered bool
	silence        effects.Duration
	nextHeartbeat  effects.Time
	unanswered     uint32 // consecutive heartbeats that were sent and have no reply
	losses         uint32 // consecutive heartbeats without a reply, with those that found no connection

	reported     int // number of changes that were reported
	posted       int // the same, once the report in flight is handed over
	posting      postingKind
	postedAt     effects.Time // time of the latest report
	unmeasured   int          // changes up to this one may be reported without the delay, counted from postedAt
	reportFrom   effects.Time // the delay counts from here, or from the change if that is later
	hasReported  bool
	deregistered bool

	sync clientSync
}

// The kinds of connections of a client.
const (
	requestLine = iota
	feedLine
	heartbeatLine
	lookupLine
	lineKinds
)

// A clientLine is a connection of a worker to a directory.
type clientLine struct {
	conn      effects.Conn // 0: not connected
	opening   effects.Corr
	window    uint16
	calls     []clientCall // in flight, also those of a connection that was closed
	idleSince effects.Time
	failures  uint32 // consecutive failures
	failedAt  effects.Time
	// The present event ends the connection, so that the worker may close it; lost: what was in flight has failed.
	ended, lost bool
	// fullAt is the latest instant at which a further request had to wait.
	fullAt effects.Time
}

// A clientCall is a request or a message without an outcome.
type clientCall struct {
	corr   effects.Corr
	at     effects.Time
	tag    protocol.Tag
	lookup lookupKey
	ticket effects.Ticket // of the lookup
}

// A postingKind is the message in flight on the feed.
type postingKind uint8

const (
	postingNothing postingKind = iota
	postingReminder
	postingReport
	postingBatch
	postingEnd
	postingLeave
)

// clientLedger is the memory of clientOracle: the clients, by the number of the node.
type clientLedger struct{ clients []*client }

// clientOf returns the client of the node of a call, or nil if the node is no worker of kvferry.
func (b *clientLedger) clientOf(c *oracle.Call) *client {
	n := int(c.Node())
	for len(b.clients) <= n {
		b.clients = append(b.clients, nil)
	}
	if b.clients[n] == nil {
		b.clients[n] = newClient(c)
	}
	if b.clients[n].settings == nil {
		return nil
	}
	return b.clients[n]
}

func newClient(c *oracle.Call) *client {
	p := planOf(c)
	i := slices.IndexFunc(allWorkers, func(w workerNode) bool { return w.node == c.NodeName() })
	if i < 0 || p.System == systemName && c.NodeName() == vanillaName {
		return &client{}
	}
	settings := registrarConfig(p, allWorkers[i].id)
	x := &client{settings: &settings, journal: journalLength(p), id: allWorkers[i].id, hosts: len(directoryNames(p))}
	switch p.System {
	case replicasName:
		x.hosts = len(directoriesOf(p, i))
	case fleetName:
		x.hosts = len(directoriesOf(p, i-len(workers)))
	}
	return x
}

// directoryAt returns the part about the directory at a host.
func (x *client) directoryAt(host string) *clientDirectory {
	for _, d := range x.directories {
		if d.host == host {
			return d
		}
	}
	d := &clientDirectory{host: host, changedAt: x.now}
	x.directories = append(x.directories, d)
	return d
}

// lineOf returns the connection for which the function reports true.
func (x *client) lineOf(is func(*clientLine) bool) (*clientDirectory, int) {
	for _, d := range x.directories {
		for k := range d.lines {
			if is(&d.lines[k]) {
				return d, k
			}
		}
	}
	return nil, 0
}

func (x *client) lineOfConn(conn effects.Conn) (*clientDirectory, int) {
	return x.lineOf(func(l *clientLine) bool { return l.conn == conn })
}

// takeCall removes the call with a correlation number, and returns it with its connection.
func (x *client) takeCall(corr effects.Corr) (d *clientDirectory, k int, call clientCall) {
	for _, d := range x.directories {
		for k := range d.lines {
			l := &d.lines[k]
			for i := range l.calls {
				if l.calls[i].corr == corr {
					call := l.calls[i]
					if l.calls = slices.Delete(l.calls, i, i+1); len(l.calls) == 0 {
						l.idleSince = x.now
					}
					if q := x.lookups.find(call.ticket); q != nil {
						q.inFlight = false
					}
					return d, k, call
				}
			}
		}
	}
	return nil, 0, clientCall{}
}

// lose records that the present event says that the connection is gone.
func (l *clientLine) lose() { l.ended, l.lost = true, true }

// fail records a failure of the connection.
func (l *clientLine) fail(now effects.Time) {
	l.failedAt = now
	l.failures++
}

// backoff returns the greatest delay before the connection is opened again. The delay is at least half of this.
func (x *client) backoff(l *clientLine) effects.Duration {
	if l.failures == 0 {
		return 0
	}
	return doubled(x.settings.BackoffMin, l.failures-1, x.settings.BackoffMax)
}

// doubled returns d doubled times times, at most limit.
func doubled(d effects.Duration, times uint32, limit effects.Duration) effects.Duration {
	for ; times > 0 && d < limit; times-- {
		d *= 2
	}
	return min(d, limit)
}

// isBusy reports whether a connection waits for the outcome of an Open or of a request.
func (l *clientLine) isBusy() bool { return l.opening != 0 || len(l.calls) > 0 }

// usableFrom returns the instant from which a connection that is not busy can be used or opened.
func (x *client) usableFrom(l *clientLine) effects.Time {
	if l.conn != 0 {
		return l.idleSince
	}
	return max(l.idleSince, l.failedAt.Add(x.backoff(l)))
}

// heartbeatInterval returns the time between two heartbeats: less than configured if the directory would drop the
// worker in between.
func (x *client) heartbeatInterval(d *clientDirectory) effects.Duration {
	if d.silence == 0 {
		return x.settings.HeartbeatEvery
	}
	return min(x.settings.HeartbeatEvery, max(d.silence/protocol.HeartbeatsPerTimeout, x.settings.BackoffMin))
}

// pending returns the number of changes that were not reported.
func (x *client) pending(d *clientDirectory) int { return len(x.changes) - d.reported }

// latestOf returns the latest instant.
func latestOf(at effects.Time, more ...effects.Time) effects.Time {
	for _, m := range more {
		at = max(at, m)
	}
	return at
}
