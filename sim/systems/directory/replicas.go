package directory

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/own"
)

const replicasName, third, logName = "replicas", "third", "log"

// sharing lists the directories that share a log.
var sharing = []string{directoryName, second, third}

// Replicas is a system of directories that share a log. Each worker reports to one or two of the directories, and all
// directories learn of the report.
var Replicas = own.System{
	Name:  replicasName,
	Nodes: replicas,
	Draw:  drawReplicas,
	Do: map[string]func(plan.Item) effects.CommandBody{
		"admit": admits, "evict": evicts, "lookup": looks, "settled": settles, "leave": leaves,
		"trim": func(x plan.Item) effects.CommandBody { return &trims{1 + int(x.Number)} },
		"lose": func(x plan.Item) effects.CommandBody { return &loses{1 + int(x.Number)/4} },
		"wipe": func(plan.Item) effects.CommandBody { return &wipes{} },
		"squeeze": func(x plan.Item) effects.CommandBody {
			return &squeezes{2 + int(x.Number)/30, effects.Duration(x.Span)}
		},
		"lag": func(x plan.Item) effects.CommandBody {
			return &lags{effects.Duration(10+2*x.Number) * effects.Millisecond, effects.Duration(x.Span)}
		},
	},
	Oracles:  []oracle.Oracle{spreads, sparing, real, honest, answered, parted},
	Facts:    []string{"settled"},
	Legible:  func(b []byte) bool { return legible(b) || logged(b) },
	Patience: spreadsIn + 2*time.Second,
	DriftPPM: 20_000,
}

// spreadsIn is the time after the last fault by which all directories know the truth. After the time that a directory
// needs by itself, a directory notices a missing report only with the next message about the worker, at the latest a
// heartbeat. The directory then requests a sync of the worker, at the latest wantedMost after the previous request, and
// the directory that hears the worker starts the sync. A worker that is silent for one directory counts as silent at
// the other directories only after the same time again.
const spreadsIn = rests + 6*time.Second

// The shortest and the longest time between two requests for a sync of the same worker, and the largest number of
// requests in twice the longest time.
const (
	wantedAgain = 400 * effects.Millisecond
	wantedMost  = 4 * wantedAgain
	wantedOften = 2 + 2
)

// tells returns the directories to which a worker reports. Each directory has workers that report to no other
// directory.
func tells(p *plan.Plan, i int) []string {
	all := []string{sharing[i%len(sharing)]}
	if d := draw.Hash(p.Seed, draw.Plan, 8, 16+uint64(i)); d.Permille(250) {
		all = append(all, sharing[(i+1+int(d.Again().Below(2)))%len(sharing)])
	}
	return all
}

// patient reports whether the directories of a plan of Replicas never give up a worker as silent. Errors must then be
// repaired in another way.
func patient(p *plan.Plan) bool {
	return p.System == replicasName && draw.Hash(p.Seed, draw.Plan, 8, 48).Permille(500)
}

// steady reports whether the log also loses nothing, so that no second directory adopts a worker because the worker's
// own directory was silent.
func steady(p *plan.Plan) bool {
	return patient(p) && draw.Hash(p.Seed, draw.Plan, 8, 49).Permille(500)
}

// longer is longer than any run.
const longer = 1000 * effects.Second

func replicas(*plan.Plan) []own.Process { return sharers(workers, 40, func(*serve.Config) {}) }

// sharers returns directories that share a log of at least the given number of entries, and the given workers. The
// function may change the configuration of the directories.
func sharers(workers []hand, entries int, more func(*serve.Config)) (all []own.Process) {
	for _, name := range sharing {
		all = append(all, own.Process{
			Name: name, Serves: lineChannels[:],
			New: func(b own.Boot) (effects.Machine, error) {
				c := setting(b, name)
				c.Directory.Yield, c.Directory.Fade = 600*effects.Millisecond, core.Default().Fade
				if patient(b.Plan) {
					c.Directory.Silence = longer
				}
				if steady(b.Plan) {
					c.Directory.Yield, c.Log.BufferBytes = longer, replica.Default().BufferBytes
				}
				c.Log = replicaOf(b)
				more(&c)
				return serve.New(c)
			},
		})
	}
	all = append(all, own.Process{Name: logName, Serves: []effects.Channel{effects.ChannelLog}, New: newShelf(entries)})
	for i, x := range workers {
		all = append(all, own.Process{Name: x.name, New: func(b own.Boot) (effects.Machine, error) {
			return newNode(x.who, b, limits(b.Plan), tells(b.Plan, i))
		}})
	}
	return all
}

// replicaOf returns the configuration by which a directory uses the log. The limits may make the directory miss
// entries, because there are further ways to recover.
func replicaOf(b own.Boot) replica.Config {
	at := func(n uint64) draw.Of { return draw.Hash(b.Plan.Seed, draw.Plan, 8, 32+n) }
	c := replica.Default()
	c.Addr, c.Incarnation = b.Addr(logName, effects.ChannelLog), b.Seed|1
	c.EntryBytes, c.Authors = at(0).Between(400, 2000), at(2).Between(3, 8)
	c.ReadEntries = uint32(at(1).Between(c.Authors, 8))
	c.BufferBytes = at(3).Between(4000, 40_000)
	c.PollInterval, c.RequestTimeout, c.ReconnectDelay, c.WantMin = 150*effects.Millisecond, patience, 50*effects.Millisecond, wantedAgain
	c.WantMax = wantedMost
	return c
}

// drawReplicas draws the commands of the workers and the faults of the log.
func drawReplicas(d own.Draws, p *plan.Plan) {
	drawWork(d, p, workers, spreadsIn, len(sharing)+1)
	for _, x := range d.Items("lag", 0, 2, logName) {
		x.Span = (p.FaultsEnd - x.At) * 9 / 10
		p.Items = append(p.Items, x)
	}
	if steady(p) {
		log := plan.Node(len(sharing))
		p.Faults = slices.DeleteFunc(p.Faults, func(x plan.Scheduled) bool { return x.Node == log })
	} else {
		drawLog(d, p)
	}
	if patient(p) { // If the deregistration of a worker is lost, only silence shows that the worker has left.
		p.Items = slices.DeleteFunc(p.Items, func(x plan.Item) bool { return x.Do == "leave" })
	}
}

// drawLog draws the faults of the log.
func drawLog(d own.Draws, p *plan.Plan) {
	befall := append(d.Items("trim", 0, 3, logName), d.Items("lose", 0, 3, logName)...)
	befall = append(befall, d.Items("wipe", 0, 1, logName)...)
	for _, x := range d.Items("squeeze", 0, 1, logName) {
		x.Span = (p.FaultsEnd - x.At) * 9 / 10
		befall = append(befall, x)
	}
	p.Items = append(p.Items, befall...)
}

// logged reports whether bytes are a request to the log or a reply of the log.
func logged(b []byte) bool {
	return new(sharedlog.Request).Decode(b) == nil || new(sharedlog.Reply).Decode(b) == nil
}

// spreads checks that every directory knows what any directory was told.
var spreads = oracle.Of("spreads",
	"a while after the last fault each directory that shares the log knows of each worker, "+
		"whomever that tells, what it has, and nothing of one that has left", keeps(knows(workers, spreadsIn)))

// sparing limits the requests for syncs: a directory that is behind in the log must not add to the log's load.
var sparing = oracle.Of("sparing",
	"a directory wants a worker that another one hears four times in 3.2 s at most, whatever is lost, "+
		"as long as it has not forgotten that worker",
	func(l *oracle.Listen[wishes]) {
		oracle.On(l, func(b *wishes, c *oracle.Call, e *effects.Observe) {
			if e.Fact != effects.FactDirectory {
				return
			}
			is, of := who{instance: string(e.Why.Name), rank: e.Count}, core.NoteKind(e.ID)
			if of == core.WorkerWanted {
				b.wants(c, is)
			}
			if of == core.WorkerLeft || of == core.WorkerSilent {
				delete(b.at[c.NodeName()], is)
			}
		})
		oracle.On(l, func(b *wishes, c *oracle.Call, _ oracle.Down) { delete(b.at, c.NodeName()) })
	})

// wishes records when each directory requested a sync of a worker, by the directory's clock.
type wishes struct {
	at map[string]map[who][]effects.Time // by the directory's node
}

func (b *wishes) wants(c *oracle.Call, is who) {
	if b.at == nil {
		b.at = map[string]map[who][]effects.Time{}
	}
	if b.at[c.NodeName()] == nil {
		b.at[c.NodeName()] = map[who][]effects.Time{}
	}
	now := c.Clock()
	all := slices.DeleteFunc(b.at[c.NodeName()][is], func(t effects.Time) bool { return now.Sub(t) >= 2*wantedMost })
	if all = append(all, now); len(all) > wantedOften {
		c.Fail("%s wants %s %d times in %v", c.NodeName(), is.instance, len(all), now.Sub(all[0]))
	}
	b.at[c.NodeName()][is] = all
}

// real checks that reports reach the directories through the log unchanged.
var real = oracle.Of("real", "a directory says of a worker nothing that it never had, and names it nowhere where it "+
	"never was",
	func(l *oracle.Listen[history]) {
		oracle.On(l, func(b *history, c *oracle.Call, e *effects.Command) { b.commanded(c, e) })
		oracle.On(l, func(b *history, c *oracle.Call, e *effects.Received) { b.received(c, e) })
		oracle.On(l, func(b *history, c *oracle.Call, e *effects.Reply) { b.answers(c, e) })
		oracle.On(l, func(b *history, c *oracle.Call, _ oracle.Down) {
			delete(b.has, c.NodeName())
			delete(b.asked, c.NodeName())
		})
	})

// A history records all chunks that workers ever had, and all their addresses.
type history struct {
	has   map[string][]uint64 // present chunks, by the name of a worker's node
	had   map[who][]uint64
	urls  map[who]map[string]bool
	asked map[string]map[effects.Request]asked // by the name of a directory's node
}

func (b *history) commanded(c *oracle.Call, e *effects.Command) {
	x, admits := e.Body.(*admit)
	if !admits {
		return
	}
	w := slices.IndexFunc(everybody, func(w hand) bool { return w.name == c.NodeName() })
	if b.had == nil {
		b.had = map[who][]uint64{}
	}
	is := who{instance: everybody[w].who.instance, rank: everybody[w].who.rank}
	for _, k := range x.chunks {
		b.had[is] = with(b.had[is], k)
	}
}

func (b *history) received(c *oracle.Call, e *effects.Received) {
	var r protocol.RegisterMsg
	var h protocol.HeartbeatMsg
	var q protocol.BatchedP2PLookupMsg
	switch {
	case r.Decode(e.Body, nil) == nil:
		b.was(r.Worker, r.PeerInitURL)
	case h.Decode(e.Body, nil) == nil:
		b.was(h.Worker, h.PeerInitURL)
	case e.Channel == effects.ChannelDirectory && q.Decode(e.Body, nil) == nil:
		if b.asked == nil {
			b.asked = map[string]map[effects.Request]asked{}
		}
		if b.asked[c.NodeName()] == nil {
			b.asked[c.NodeName()] = map[effects.Request]asked{}
		}
		b.asked[c.NodeName()][e.Request] = asked{by: whoIs(q.Worker), hashes: numbers(q.Hashes)}
	}
}

func (b *history) was(w protocol.Worker, url []byte) {
	if b.urls == nil {
		b.urls = map[who]map[string]bool{}
	}
	if b.urls[whoIs(w)] == nil {
		b.urls[whoIs(w)] = map[string]bool{}
	}
	b.urls[whoIs(w)][string(url)] = true
}

func (b *history) answers(c *oracle.Call, e *effects.Reply) {
	q, was := b.asked[c.NodeName()][e.Request]
	var m protocol.BatchedP2PLookupRetMsg
	if !was || m.Decode(e.Body, nil) != nil {
		return
	}
	delete(b.asked[c.NodeName()], e.Request)
	for i := range m.Holders {
		h := &m.Holders[i]
		is := who{instance: string(h.InstanceID), rank: q.by.rank}
		if had := prefix(b.had[is], q.hashes); int(h.HitChunks) > had {
			c.Fail("%s says that %s has %d chunks, of which it had %d at most", c.NodeName(), h.InstanceID, h.HitChunks, had)
		}
		if !b.urls[is][string(h.PeerInitURL)] {
			c.Fail("%s names %s at %s, where it never was", c.NodeName(), h.InstanceID, h.PeerInitURL)
		}
	}
}
