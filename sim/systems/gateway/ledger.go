package gateway

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
)

// A ledger is what the model knows of the gateway by what it was told and what it did. The judgments of the gateway's
// limits follow from the ledger and the settings of the plan, and not from the state of the gateway.
type ledger struct {
	shape  shape  `snap:"share"`
	limits limits `snap:"share"`

	queries  map[uint64]subject // queries to side channels in flight
	loads    map[uint64]subject
	agentsOf map[machine.Agent]subject // agents that exist, or are being made
	conns    []openConn                // of the rank to producers
	opened   []machine.PlainRank       // ranks of producers to which the rank has connected
	asks     []ask                     // registrations of the rank with producers

	attempts    []attempt
	lastAttempt int
	taken       []takenRegistration            // of consumers; those that have not ended
	ended       []string                       // keys of registrations of consumers that have ended, oldest first
	senders     map[effects.Incarnation]string // the agents of consumers, as the rank knows them
	greeted     map[effects.Conn]string        // the agents in whose names hellos were sent
	recordOf    map[effects.Conn]uint64        // the records in whose names hellos were sent; 0: the peer of all heartbeats
	hellos      map[effects.Request]helloPart

	untold         map[uint64]bool                    // operations of registrations that were taken, and whose ends the rank was not told
	mostResults    int                                // the most of them that may have ended at a time
	sent           map[uint64]bool                    // operations of registrations that were sent to producers
	described      map[machine.PlainRank]string       // the agent that the side channel of a producer's rank stated last
	stated         map[effects.Incarnation]target     // producers' ranks, by the incarnations in the answers to hellos
	told           map[machine.Agent][]target         // the ranks of producers that an agent was named to
	expulsions     map[uint64]expulsion               // those that are not done, by number
	keys           map[effects.Incarnation]uint64     // the records of consumers' ranks, by the incarnations in hellos
	greetings      map[string]int                     // hellos in the names of consumers' agents
	heartbeat      [][]byte                           // the requests that the latest heartbeat names
	heartbeatWaits bool                               // it was not passed to the rank
	keeps          map[effects.Request]int            // heartbeats that the rank has not answered, with the number of hellos before each
	staleKeep      int                                // the number of hellos before the latest heartbeat that the rank called stale
	hellosOf       map[uint64]int                     // the hellos of each record
	repeats        map[uint64]int                     // those of them in a row of which the rank has forgotten all but the last
	counted        struct{ open, maybe, certain int } // the numbers of registrations that were compared last
	// blurred means that the model cannot tell any more which registration has ended: two records of an engine may have
	// taken it.
	blurred bool
}

// limits are the limits of the gateway.
type limits struct{ engines, agents, registrations, pending int }

// A subject says what a call of the gateway is about.
type subject struct {
	producer string            // the place of its side channel; "": none
	rank     machine.PlainRank // of the producer
	attempt  int               // the number of an attempt; 0: none
	host     string            // of a query
}

// A target is a rank of a producer, as an agent writes to it: the place of its side channel, and the name of its agent.
type target struct{ producer, agent string }

// A helloPart is the first or the last message of a hello that the rank has not answered.
type helloPart struct {
	conn   effects.Conn
	isLast bool
}

// An expulsion is one of a rank of a producer, with the agents that were named to it.
type expulsion struct {
	target target
	agents []machine.Agent
}

// An openConn is a connection of the rank to a rank of a producer.
type openConn struct {
	conn effects.Conn
	rank machine.PlainRank
}

// An ask is a registration of the rank with a rank of a producer.
type ask struct {
	operation uint64
	producer  string
	agent     machine.Agent // that the producer was told to write to; 0: it was not sent
	to        string        // the agent of the producer's rank
	request   string
	over      bool // the model has seen its end
}

// An attempt is what the gateway does to reach a consumer that has registered.
type attempt struct {
	number   int
	engine   string
	host     string
	port     uint32
	ranks    uint32
	failures int // queries that failed
	agents   []string
	writer   machine.Agent
	ready    bool // all its agents are loaded
	over     bool // the gateway has given it up, or its writer ends
}

// A takenRegistration is a registration of a consumer that the gateway has taken.
type takenRegistration struct {
	key     string // its sender and its request
	sender  string
	attempt int
	arrived effects.Time
	passes  int  // how often it was passed to the rank
	passed  bool // the rank has it
	rival   bool // another consumer had registered a request of the same name when the node finished one
	// greeting is the number of hellos of its peer when it was passed last.
	greeting int
}

func newLedger(s shape, l limits) ledger {
	return ledger{shape: s, limits: l, queries: map[uint64]subject{}, loads: map[uint64]subject{},
		agentsOf: map[machine.Agent]subject{}, senders: map[effects.Incarnation]string{}, hellos: map[effects.Request]helloPart{},
		greeted: map[effects.Conn]string{}, recordOf: map[effects.Conn]uint64{}, untold: map[uint64]bool{}, sent: map[uint64]bool{},
		described: map[machine.PlainRank]string{}, stated: map[effects.Incarnation]target{},
		told: map[machine.Agent][]target{}, expulsions: map[uint64]expulsion{}, keys: map[effects.Incarnation]uint64{},
		greetings: map[string]int{},
		keeps:     map[effects.Request]int{}, hellosOf: map[uint64]int{}, repeats: map[uint64]int{}}
}

// placeOf returns the name of a producer's side channel.
func placeOf(host string, port uint16) string { return fmt.Sprintf("%s:%d", host, port) }

// countAgentsOf returns the number of agents to which a producer may write.
func (l *ledger) countAgentsOf(producer string) (n int) {
	for _, s := range l.agentsOf {
		if s.producer == producer {
			n++
		}
	}
	return n
}

// countBusyProducers returns the number of producers that the gateway must remember: the rank is connected to them, they
// are queried, or they may write. The producer except does not count.
func (l *ledger) countBusyProducers(except string) int {
	var busy []string
	add := func(place string) {
		if place != "" && place != except && !slices.Contains(busy, place) {
			busy = append(busy, place)
		}
	}
	for _, c := range l.conns {
		add(placeOf(c.rank.Host, c.rank.Port))
	}
	for _, s := range l.queries {
		add(s.producer)
	}
	for _, s := range l.agentsOf {
		add(s.producer)
	}
	return len(busy)
}

// attemptOf returns an attempt, or nil.
func (l *ledger) attemptOf(number int) *attempt {
	for i := range l.attempts {
		if l.attempts[i].number == number && number != 0 {
			return &l.attempts[i]
		}
	}
	return nil
}

// countUnknown returns the number of consumers that are being queried, or were given up and whose writer exists.
func (l *ledger) countUnknown() (n int) {
	for i := range l.attempts {
		if !l.attempts[i].ready {
			n++
		}
	}
	return n
}

// isBusy reports whether a registration of an attempt has not ended.
func (l *ledger) isBusy(number int) bool {
	return slices.ContainsFunc(l.taken, func(x takenRegistration) bool { return x.attempt == number })
}

// endTaken ends the registrations of consumers that fit.
func (l *ledger) endTaken(fits func(x *takenRegistration) bool) {
	for i := 0; i < len(l.taken); i++ {
		if !fits(&l.taken[i]) {
			continue
		}
		l.ended = append(slices.Clone(l.ended), l.taken[i].key)
		if n := len(l.ended) - l.limits.pending; n > 0 {
			l.ended = l.ended[n:]
		}
		l.taken = slices.Delete(slices.Clone(l.taken), i, i+1)
		i--
	}
}

// findTaken returns the registration of a consumer with a key that has not ended, or nil.
func (l *ledger) findTaken(key string) *takenRegistration {
	for i := range l.taken {
		if l.taken[i].key == key {
			return &l.taken[i]
		}
	}
	return nil
}

// removeAgent records that an agent is gone, or could not be made. Nothing that was registered by it is open any more.
func (l *ledger) removeAgent(a machine.Agent) {
	delete(l.agentsOf, a)
	delete(l.told, a)
	for i := range l.asks {
		if l.asks[i].agent == a && a != 0 {
			l.asks[i].over = true
		}
	}
	l.attempts = slices.DeleteFunc(slices.Clone(l.attempts), func(x attempt) bool { return x.writer == a && (x.over || x.ready) })
}

// leave records that the writer of a consumer that is ready fails or is being destroyed: the consumer takes no more
// registrations.
func (l *ledger) leave(writer machine.Agent) {
	if t := l.attemptOf(l.agentsOf[writer].attempt); t != nil && t.ready {
		t.over = true
	}
}

// countAsks returns the number of registrations of the rank that may be open, and of those that are open for certain:
// a producer has them, and may write.
func (l *ledger) countAsks() (maybe, certain int) {
	for i := range l.asks {
		if x := &l.asks[i]; !x.over {
			maybe++
			if _, exists := l.agentsOf[x.agent]; exists {
				certain++
			}
		}
	}
	return maybe, certain
}
